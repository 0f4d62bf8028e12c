/* sync_ma.c -- model averaging (McDonald, Hall and Mann, 2010; Zinkevich and others, 2010): every
 * tau steps each rank takes the mean of all ranks' params.
 *
 *     x_i <- (1/n) sum_k x_k */
/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/rules/sync_local.h"

static const td__key OPTIONS[] = {TD__LOCAL_TAU("16"), TD_KEYS_END};

static td_status create(td__sync *s)
{
    static const td__local_ops OPS = {.merge = td__local_take_mean};
    return td__sync_local_create(s, &OPS);
}

const td__sync_ops td__sync_ma = {
    .name = "ma",
    .help = "model averaging: local updates, params averaged every tau steps",
    .promise = "a function of the number of ranks, the seed, and when ranks meet",
    .options = OPTIONS,
    .size = sizeof(td__sync_local),
    .create = create,
    TD__SYNC_LOCAL,
};
