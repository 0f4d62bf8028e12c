/* norm.c -- sums of squares in an order of our own: the same total for any slicing in time.
 *
 * A tensor is cut in chunks; each is summed in double by a kernel; the chunks' sums are added in a
 * binary tree. The tree is kept as one number per level, like the digits of a binary counter: a new
 * term joins level 0, two terms of a level become one of the next. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "optim/optimizer.h"

void td__tree_add(td__tree_sum *s, double x)
{
    int k = 0;

    for (uint64_t n = s->n; n & 1; n >>= 1)
        x = s->level[k++] + x;
    s->level[k] = x;
    s->n++;
}

double td__tree_total(const td__tree_sum *s)
{
    double total = 0;
    int k = 0;

    for (uint64_t n = s->n; n; n >>= 1, k++)
        if (n & 1)
            total = s->level[k] + total;
    return total;
}

double td__optim_squares(td_stream *on, const float *x, size_t n, float scale, float clip)
{
    enum { CHUNKS = 1024 }; /* at once */
    double squares[CHUNKS];
    td__tree_sum sum = {.n = 0};

    for (size_t at = 0, m; at < n; at += m) {
        m = n - at < (size_t)CHUNKS * TD_OPTIM_CHUNK ? n - at : (size_t)CHUNKS * TD_OPTIM_CHUNK;
        td__stream_squares(on, x + at, m, scale, clip, squares);
        td__stream_drain(on);
        for (size_t k = 0; k * TD_OPTIM_CHUNK < m; k++)
            td__tree_add(&sum, squares[k]);
    }
    return td__tree_total(&sum);
}
