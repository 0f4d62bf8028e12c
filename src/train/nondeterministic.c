/* nondeterministic.c -- see nondeterministic.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "train/nondeterministic.h"

#include "base/fail.h"
#include "coll/comm.h"
#include "graph/backend_auto.h"
#include "train/trainer_impl.h"

/* Ranks on hosts of different sizes run the number of threads that all of them have. */
static td_status agree_on_threads(td__train_opts *o, int ranks)
{
    td__sync_world w = td__sync_world_of(o->comm, o->members != NULL);
    int limit = td__sync_traits_of(&o->sync, &w).threads;
    int64_t threads = limit        ? limit
                      : o->threads ? o->threads
                                   : td__threads_per_rank(o->comm, o->backend);
    if (ranks > 1)
        TD_TRY(td_allreduce(o->comm, &threads, &threads, 1, TD_I64, TD_REDUCE_MIN, NULL));
    o->threads = (int)threads;
    return TD_OK;
}

static td_status agree_on_mixture(td__train_opts *o, int ranks)
{
    int32_t most[2], gpu = !td__backend_traits(o->backend).on_processor;
    most[0] = gpu, most[1] = !gpu;
    if (ranks > 1)
        TD_TRY(td_allreduce(o->comm, most, most, 2, TD_I32, TD_REDUCE_MAX, NULL));
    return ranks > 1 && most[0] && most[1] ? td__sync_mixed(&o->sync) : TD_OK;
}

td_status td__nondeterministic_resolve(td__train_opts *o)
{
    int ranks = o->comm ? td_comm_size(o->comm) : 1;
    if (!o->nondeterministic)
        return TD_OK;
    if (o->micro_batches)
        return TD_FAIL(TD_EINVAL,
                       "%d micro-batches, but reproducible is false: then every thread of every "
                       "rank has one micro-batch; leave one of the two out",
                       o->micro_batches);
    TD_TRY(agree_on_threads(o, ranks));
    TD_TRY(agree_on_mixture(o, ranks));
    int64_t micro_batches = (int64_t)ranks * o->threads;
    o->micro_batches = (int)(micro_batches < o->batch ? micro_batches : o->batch);
    td__sync_any_bits(&o->sync, o->comm);
    return TD_OK;
}
