/* map_flip.c -- the last axis turned around with probability `a` (by default 1/2) in training. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/fail.h"
#include "data/map.h"

static td_status flip_open(td__map *m, td__dataset *train)
{
    (void)train;
    if (m->in.shape.ndim < 1)
        return TD_FAIL(TD_EINVAL, "flip: field %s has no axis", m->in.name);
    if (!(m->opts.a >= 0 && m->opts.a <= 1))
        return TD_FAIL(TD_EINVAL, "flip: p is %g, expected a probability", m->opts.a);
    if (m->opts.a == 0)
        m->opts.a = 0.5;
    return TD_OK;
}

static void turn(const char *x, char *y, size_t lines, size_t wide, size_t size)
{
    for (size_t line = 0; line < lines; line++)
        for (size_t i = 0; i < wide; i++)
            memcpy(y + (line * wide + i) * size, x + (line * wide + wide - 1 - i) * size, size);
}

static void flip_apply(const td__map *m, const int64_t *index, int64_t n, const td__draw *draw,
                       const void *x, void *y)
{
    size_t size = td_dtype_size(m->in.dtype), nbytes = td__field_nbytes(&m->in);
    size_t wide = (size_t)m->in.shape.dim[m->in.shape.ndim - 1];

    for (int64_t i = 0; i < n; i++) {
        const char *from = (const char *)x + (size_t)i * nbytes;
        char *to = (char *)y + (size_t)i * nbytes;
        bool flip = false;
        if (draw) {
            td__rng_key key = td__map_key(m, draw, index[i]);
            flip = (double)td__rng_uniform(&key, 0) < m->opts.a;
        }
        if (flip && wide)
            turn(from, to, nbytes / size / wide, wide, size);
        else
            memcpy(to, from, nbytes);
    }
}

const td__map_def td__map_flip = {
    .name = "flip",
    .help = "random horizontal flip with probability p, in training only",
    .reads = "a",
    .draws = true,
    .open = flip_open,
    .apply = flip_apply,
};
