/* sync_diloco.c -- DiLoCo (Douillard and others, 2023): what ranks have made in tau steps is the
 * gradient of an outer optimizer, SGD with Nesterov momentum.
 *
 *     g = c - mean;   v <- mu v + g;   c <- c - rate (g + mu v);   x_i <- c */
/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/rules/sync_local.h"

static const td__key OPTIONS[] = {
    TD__LOCAL_TAU("50"),
    TD_KEY_ROW("rate", REAL, "Outer learning rate.", .hi = 10, .flags = TD_KEY_ABOVE, .def = "0.7"),
    TD_KEY_ROW("momentum", REAL, "mu: outer Nesterov momentum.", .hi = 1, .flags = TD_KEY_BELOW,
               .def = "0.9"),
    TD_KEYS_END};

static void merge(td__sync_local *l, float *x)
{
    float rate = (float)td__sync_value(&l->base, "rate");
    float mu = (float)td__sync_value(&l->base, "momentum");
    for (size_t i = 0; i < l->count; i++) {
        float g = l->centre[i] - l->mean[i];
        l->momentum[i] = mu * l->momentum[i] + g;
        l->centre[i] -= rate * (g + mu * l->momentum[i]);
        x[i] = l->centre[i];
    }
}

static td_status create(td__sync *s)
{
    static const td__local_ops OPS = {.blocks = 2, .merge = merge};
    return td__sync_local_create(s, &OPS);
}

const td__sync_ops td__sync_diloco = {
    .name = "diloco",
    .help = "DiLoCo: local updates, which are the gradient of an outer optimizer with momentum",
    .promise = "a function of the number of ranks, the seed, and when ranks meet",
    .options = OPTIONS,
    .size = sizeof(td__sync_local),
    .create = create,
    TD__SYNC_LOCAL,
};
