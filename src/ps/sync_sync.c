/* sync_sync.c -- synchronous SGD on a parameter server: the batch of a step is dealt out to all
 * workers, the servers add up their partials in the micro-batch tree, and update once:
 *
 *     w <- update(w, mean of the gradients of all rows)
 *
 * as one rank would, bit for bit. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "ps/ps.h"

static td_status create(td__sync *s)
{
    static const td__ps_policy POLICY = {.together = true};
    return td__ps_create(s, &POLICY);
}

const td__sync_ops td__sync_sync = {
    .name = "sync",
    .help = "parameter servers, in lockstep: gradients of all workers make one update "
            "(parallel.servers)",
    .promise = "the bits of one rank",
    .traits = td__ps_traits_together,
    .create = create,
    TD__PS_RULE,
};
