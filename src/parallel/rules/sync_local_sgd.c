/* sync_local_sgd.c -- local SGD (Stich, 2019), with the start of post-local SGD (Lin and others,
 * 2020): in the first `warmup` steps ranks average after each one, then every tau steps.
 *
 *     x_i <- (1/n) sum_k x_k */
/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/rules/sync_local.h"

static const td__key OPTIONS[] = {
    TD__LOCAL_TAU("8"),
    TD_KEY_ROW("warmup", INT, "Steps at the start of the run after each of which ranks average.",
               .hi = 4e9, .def = "0"),
    TD_KEYS_END};

static int kind(const td__sync_config *c, uint64_t step, uint64_t steps)
{
    uint64_t tau = (uint64_t)td__sync_option(c, "tau");
    uint64_t warmup = (uint64_t)td__sync_option(c, "warmup");
    (void)steps;
    return step <= warmup || (step - warmup) % tau == 0;
}

static td_status create(td__sync *s)
{
    static const td__local_ops OPS = {.merge = td__local_take_mean};
    return td__sync_local_create(s, &OPS);
}

const td__sync_ops td__sync_local_sgd = {
    .name = "local-sgd",
    .help = "local SGD: local updates, params averaged after each step of a warm-up, then every "
            "tau steps",
    .promise = "a function of the number of ranks, the seed, and when ranks meet",
    .options = OPTIONS,
    .size = sizeof(td__sync_local),
    .create = create,
    TD__SYNC_LOCAL_STEPS,
    .kind = kind,
    .states = td__sync_local_states,
};
