/* fault_draw.c -- faults that a seed gives: pure functions of it, so that the same seed gives the
 * same faults to the same ranks at the same operations. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/rng.h"
#include "net/fault.h"

enum {
    STREAM = 0x66617574, /* nobody else's */
    STOP_NS = 1500000000,
    APART = 3, /* steps that are left free between two faults: one is over before the next */
};
enum { WHAT, WHO, OPERATION, STEP };

static double uniform(const td__fault_plan *p, uint64_t n, uint32_t which)
{
    td__rng_key key = {.seed = p->seed, .stream = STREAM, .step = (uint32_t)n};
    return (double)td__rng_uniform(&key, which);
}

void td__fault_draw(const td__fault_plan *p, uint64_t n, int ranks, td__fault_event *out)
{
    double what = uniform(p, n, WHAT);
    int rank = (int)(uniform(p, n, WHO) * ranks);
    uint64_t at = (uint64_t)(3 * uniform(p, n, OPERATION)); /* every step has two calls at least */

    *out = (td__fault_event){.act = what < 0.6   ? TD_FAULT_KILL
                                    : what < 0.8 ? TD_FAULT_STOP
                                                 : TD_FAULT_CUT,
                             .rank = rank,
                             .peer = (rank + 1) % ranks,
                             .count = at ? at : 1};
    if (out->act == TD_FAULT_STOP)
        out->for_ns = STOP_NS;
    if (at)
        snprintf(out->op, sizeof out->op, "comm");
}

uint64_t td__fault_of_step(const td__fault_plan *p, uint64_t step)
{
    if (!p->every_steps || !step)
        return 0;
    uint64_t n = (step - 1) / p->every_steps + 1;
    uint64_t some = p->every_steps > APART ? p->every_steps - APART : 1;
    uint64_t at = (n - 1) * p->every_steps + 1 + (uint64_t)(uniform(p, n, STEP) * (double)some);
    return at == step ? n : 0;
}
