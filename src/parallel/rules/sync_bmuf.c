/* sync_bmuf.c -- blockwise model-update filtering (Chen and Huo, 2016). W is the centre, D its
 * momentum, G what the ranks have made of where they began:
 *
 *     G <- mean - start;   D <- eta D + zeta G;   W <- W + D
 *     start = x_i <- W                with classical block momentum,
 *                    W + eta D        with Nesterov's
 *
 * At a meeting params are W. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/rules/sync_local.h"

typedef struct bmuf {
    td__sync_local base;
    float ahead; /* 1: the block began at W + eta D */
} bmuf;

static const td__key OPTIONS[] = {
    TD__LOCAL_TAU("16"),
    TD_KEY_ROW("momentum", REAL, "eta: block momentum; the paper's is 1 - 1/n of n ranks.", .hi = 1,
               .flags = TD_KEY_BELOW, .def = "0.5"),
    TD_KEY_ROW("rate", REAL, "zeta: block learning rate.", .hi = 10, .flags = TD_KEY_ABOVE,
               .def = "1"),
    TD_KEY_ROW("nesterov", BOOL, "Nesterov block momentum.", .def = "false"), TD_KEYS_END};

static void merge(td__sync_local *l, float *x)
{
    bmuf *b = (bmuf *)l;
    float eta = (float)td__sync_value(&l->base, "momentum");
    float zeta = (float)td__sync_value(&l->base, "rate");
    float before = b->ahead * eta;
    b->ahead = td__sync_value(&l->base, "nesterov") > 0;
    float after = b->ahead * eta;
    for (size_t i = 0; i < l->count; i++) {
        float start = l->centre[i] + before * l->momentum[i];
        l->momentum[i] = eta * l->momentum[i] + zeta * (l->mean[i] - start);
        l->centre[i] += l->momentum[i];
        x[i] = l->centre[i] + after * l->momentum[i];
    }
}

static void settle(td__sync_local *l, float *x)
{
    ((bmuf *)l)->ahead = 0;
    td__local_take_centre(l, x);
}

/* After a rank is lost, the others go on in mid-block. */
static int states(td__sync *s, td__sync_block *out)
{
    int n = td__sync_local_states(s, out);
    out[n] = (td__sync_block){
        .name = "ahead", .data = &((bmuf *)s)->ahead, .count = 1, .may_be_absent = true};
    return n + 1;
}

static td_status create(td__sync *s)
{
    static const td__local_ops OPS = {.blocks = 2, .merge = merge, .settle = settle};
    return td__sync_local_create(s, &OPS);
}

const td__sync_ops td__sync_bmuf = {
    .name = "bmuf",
    .help = "blockwise model-update filtering: local updates, averages with block momentum",
    .promise = "a function of the number of ranks, the seed, and when ranks meet",
    .options = OPTIONS,
    .size = sizeof(bmuf),
    .create = create,
    TD__SYNC_LOCAL_STEPS,
    .kind = td__sync_local_kind,
    .states = states,
};
