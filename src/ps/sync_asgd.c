/* sync_asgd.c -- asynchronous SGD (Bengio and others, 2003; Dean and others, 2012): each push is
 * applied when it arrives, on whatever the params have become meanwhile.
 *
 *     w_{t+1} = update(w_t, g(w_{t - tau}))
 *
 * tau, the staleness, is about the number of workers less one. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "ps/ps.h"

static td_status create(td__sync *s)
{
    static const td__ps_policy POLICY = {0};
    return td__ps_create(s, &POLICY);
}

const td__sync_ops td__sync_asgd = {
    .name = "asgd",
    .help = "parameter servers, asynchronous: each gradient is applied when it arrives "
            "(parallel.servers)",
    .promise = "with one worker the bits of one rank; else a function of the order of pushes, "
               "replayable",
    .unplanned = TD__PS_UNPLANNED,
    .traits = td__ps_traits,
    .create = create,
    TD__PS_RULE,
};
