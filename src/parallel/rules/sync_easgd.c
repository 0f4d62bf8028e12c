/* sync_easgd.c -- elastic averaging SGD, in lockstep (Zhang, Choromanska and LeCun, 2015): ranks
 * are tied to a centre c by a spring. With alpha = beta / n, every tau steps:
 *
 *     x_i <- x_i - alpha (x_i - c);   c <- c + beta (mean - c)
 *
 * both from the c of before. At a meeting ranks take the centre, and go on from there. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/rules/sync_local.h"

static const td__key OPTIONS[] = {
    TD__LOCAL_TAU("10"),
    TD_KEY_ROW("beta", REAL, "How far the centre moves to the mean; alpha is beta / n.", .hi = 1,
               .flags = TD_KEY_ABOVE, .def = "0.9"),
    TD_KEYS_END};

static td_status create(td__sync *s)
{
    static const td__local_ops OPS = {
        .blocks = 1, .merge = td__local_elastic, .settle = td__local_take_centre};
    return td__sync_local_create(s, &OPS);
}

const td__sync_ops td__sync_easgd = {
    .name = "easgd",
    .help = "elastic averaging: local updates, params drawn to a centre and the centre to them",
    .promise = "a function of the number of ranks, the seed, and when ranks meet",
    .options = OPTIONS,
    .size = sizeof(td__sync_local),
    .create = create,
    TD__SYNC_LOCAL,
};
