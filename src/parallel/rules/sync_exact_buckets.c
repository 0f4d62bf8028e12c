/* sync_exact_buckets.c -- exact data parallel between ranks that share no memory: buckets leave
 * while backward runs, and are added up in the micro-batch tree (bucket_sum.h). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/rules/sync_buckets.h"

static bool fits(const td__sync_config *c, const td__sync_world *w)
{
    (void)c;
    return w->ranks > 1;
}

static void traits(const td__sync_config *c, const td__sync_world *w, td__sync_traits *out)
{
    out->any_partition = true;
    out->in_step = true;
    out->in_flight = td__sync_buckets_in_flight(c, w->watched);
}

/* Slots, inbox and the sum. */
static size_t exchange(const td__sync_sizes *z)
{
    return (2 * td__sync_slots(z) + 1) * z->grads;
}

static void plan(td__planner *w)
{
    td__sync_buckets_plan(w, NULL, &(td__compressor_opts){0});
}

static td_status create(td__sync *s)
{
    return td__sync_buckets_create(s, NULL, &(td__compressor_opts){0});
}

const td__sync_ops td__sync_exact_buckets = {
    .name = "exact-buckets",
    .help = "data parallel, gradients sent bucket by bucket while backward runs",
    .promise = "the bits of one rank",
    .size = sizeof(td__sync_buckets),
    .fits = fits,
    .traits = traits,
    .plan = plan,
    .exchange = exchange,
    .create = create,
    .destroy = td__sync_buckets_destroy,
    .step = td__sync_buckets_step,
    .abandon = td__sync_buckets_abandon,
};
