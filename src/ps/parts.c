/* parts.c -- see parts.h. The next step is that of the worker which is furthest behind its share of
 * the steps so far; of several the first. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "ps/parts.h"

#include "base/alloc.h"
#include "base/fail.h"

td_status td__ps_parts_fill(int workers, const int64_t *weights, int n_weights, int64_t n,
                            td__ps_part *out)
{
    double sum = 0;
    if (weights && n_weights != workers)
        return TD_FAIL(TD_EINVAL, "data.weights: %d numbers for %d workers", n_weights, workers);
    for (int w = 0; w < workers; w++)
        sum += weights ? (double)weights[w] : 1;
    if (!(sum > 0))
        return TD_FAIL(TD_EINVAL, "data.weights: the numbers add up to 0");
    int64_t *given = td__calloc((size_t)workers, sizeof *given);
    if (!given)
        return TD_FAIL(TD_ENOMEM, "no memory for the parts of %d workers", workers);
    for (int64_t k = 0; k < n; k++) {
        double most = 0;
        int best = 0;
        for (int w = 0; w < workers; w++) {
            double due = (double)(k + 1) * (weights ? (double)weights[w] : 1) / sum;
            if (w == 0 || due - (double)given[w] > most) {
                most = due - (double)given[w];
                best = w;
            }
        }
        out[k] = (td__ps_part){best, given[best]++};
    }
    td__free(given);
    return TD_OK;
}
