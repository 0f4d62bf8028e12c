/* sync_ssp.c -- stale synchronous parallel (Ho and others, 2013): as asgd, but a worker that is
 * more than s batches ahead of the slowest waits for it. With c the clocks of workers,
 *
 *     worker i begins a batch only if c_i - min_k c_k <= s */
/* SPDX-License-Identifier: Apache-2.0 */
#include "ps/ps.h"

static const td__key OPTIONS[] = {TD_KEY_ROW("staleness", INT,
                                             "Batches that a worker may be ahead of the slowest.",
                                             .hi = 1e6, .def = "3"),
                                  TD_KEYS_END};

static bool may_begin(const td__ps_rule *r, uint64_t clock, uint64_t slowest)
{
    return clock - slowest <= (uint64_t)td__sync_value(&r->base, "staleness");
}

static td_status create(td__sync *s)
{
    static const td__ps_policy POLICY = {.may_begin = may_begin};
    return td__ps_create(s, &POLICY);
}

const td__sync_ops td__sync_ssp = {
    .name = "ssp",
    .help = "parameter servers, asynchronous, with bounded staleness between workers "
            "(parallel.servers)",
    .promise = "with one worker the bits of one rank; else a function of the order of pushes, "
               "replayable",
    .options = OPTIONS,
    .unplanned = TD__PS_UNPLANNED,
    .traits = td__ps_traits,
    .create = create,
    TD__PS_RULE,
};
