/* sync_stale.c -- staleness-aware asynchronous SGD (Zhang, Gupta, Lian and Liu, 2016): the rate of
 * a push is divided by its staleness.
 *
 *     w_{t+1} = update(w_t, g(w_{t - tau})) with lr / max(1, tau) */
/* SPDX-License-Identifier: Apache-2.0 */
#include "ps/ps.h"

static double rate(const td__ps_rule *r, uint64_t staleness)
{
    (void)r;
    return staleness > 1 ? 1 / (double)staleness : 1;
}

static td_status create(td__sync *s)
{
    static const td__ps_policy POLICY = {.rate = rate};
    return td__ps_create(s, &POLICY);
}

const td__sync_ops td__sync_stale = {
    .name = "stale",
    .help = "parameter servers, asynchronous: the older a gradient, the smaller its step "
            "(parallel.servers)",
    .promise = "with one worker the bits of one rank; else a function of the order of pushes, "
               "replayable",
    .unplanned = TD__PS_UNPLANNED,
    .traits = td__ps_traits,
    .create = create,
    TD__PS_RULE,
};
