/* replicas.c -- a run on several ranks: every rank is a whole trainer with all weights, which reads
 * and computes its own micro-batches (parallel/data_parallel.h). Ranks begin with what rank 0 has,
 * fresh or loaded from a checkpoint; from then on each makes the same updates and the same
 * decisions from the same numbers, and at the end their weights are compared. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "base/cpu.h"
#include "base/fail.h"
#include "graph/backend_auto.h"
#include "coll/comm.h"
#include "parallel/data_parallel.h"
#include "elastic/catch_up.h"
#include "train/sharded.h"
#include "train/trainer_impl.h"

int td__trainer_rank(const td__trainer *t)
{
    return t->world.comm ? td_comm_rank(t->world.comm) : t->world.rank;
}

int td__trainer_ranks(const td__trainer *t)
{
    return t->world.comm ? td_comm_size(t->world.comm) : 1;
}

td__sync_world td__trainer_world(const td__trainer *t)
{
    td__sync_world w = td__sync_world_of(t->world.comm, t->o.members != NULL);
    w.watched = t->o.verify > 0 && w.ranks > 1;
    return w;
}

td__sync_traits td__trainer_traits(const td__trainer *t)
{
    td__sync_world w = td__trainer_world(t);
    return td__sync_traits_of(&t->o.sync, &w);
}

int td__local_rank(const td_comm *comm)
{
    const int *host_of = comm ? td__comm_host_of(comm) : NULL;
    const char *told = td__env_get(TD_ENV_LOCAL_RANK); /* elastic ranks have no comm yet */
    int here = 0;
    if (!comm) {
        char *end;
        long n = told ? strtol(told, &end, 10) : 0;
        return n > 0 && n < INT_MAX && !*end ? (int)n : 0;
    }
    for (int r = 0; r < td_comm_rank(comm); r++)
        here += !host_of || host_of[r] == host_of[td_comm_rank(comm)];
    return here;
}

/* Ranks of a host share its processors. */
int td__threads_per_rank(const td_comm *comm, const char *backend)
{
    int here = comm ? td_comm_size(comm) : 1;
    const int *host_of = comm ? td__comm_host_of(comm) : NULL;
    if (host_of) {
        here = 0;
        for (int r = 0; r < td_comm_size(comm); r++)
            here += host_of[r] == host_of[td_comm_rank(comm)];
    }
    if (!td__backend_traits(backend).on_processor)
        return 1;
    int threads = td__processors() / here;
    return threads > 1 ? threads : 1;
}

td__row_range td__train_rows_of(const void *user, int rank, int64_t index, int64_t rows)
{
    const td__trainer *t = user;
    int micro_batches = t->o.micro_batches;
    int64_t first = index - index % t->o.accumulate, left = t->plan.batches - first;
    int batches = left < t->o.accumulate ? (int)left : t->o.accumulate;
    td__sync_traits traits = td__trainer_traits(t);
    if (traits.no_rows)
        return (td__row_range){0, 0};
    int replicas = traits.parts      ? traits.parts
                   : traits.replicas ? traits.replicas
                                     : td__trainer_ranks(t);
    int part = traits.parts ? traits.part : rank % replicas;
    td__work_partition repartition = {replicas,
                                      t->run.balance ? td__balance_bounds(t->run.balance) : NULL};
    td__micro_batch_range own =
        td__work_cut(repartition, micro_batches, batches, (int)(index - first), part);
    return (td__row_range){td__micro_batch_begin(rows, micro_batches, own.begin),
                           td__micro_batch_begin(rows, micro_batches, own.end)};
}

td__row_range td__train_rows(const void *user, int64_t index, int64_t rows)
{
    return td__train_rows_of(user, td__trainer_rank(user), index, rows);
}

int64_t td__train_pick(const void *user, int64_t index, int64_t rows, int64_t *out)
{
    const td__trainer *t = user;
    (void)index;
    return td__trainer_traits(t).rows(rows, t->o.micro_batches, td__trainer_rank(t),
                                      td__trainer_ranks(t), out);
}

td_status td__replicas_begin(td__trainer *t)
{
    /* A checkpoint whose shards all load together is the one state that rank 0 may not have. */
    t->replica.has = t->run.resuming ? TD_REPLICA_STATE : TD_REPLICA_BEGINNING;
    return t->world.ranks > 1 ? td__catch_up_first(&t->elastic) : TD_OK;
}

td_status td__replicas_compare(td__trainer *t, const char digest[65])
{
    char first[65];

    if (td__trainer_ranks(t) == 1)
        return TD_OK;
    memcpy(first, digest, sizeof first);
    TD_TRY(td_broadcast(t->world.comm, first, sizeof first, TD_U8, 0, NULL));
    double differs = strcmp(first, digest) != 0, all = differs;
    TD_TRY(td_allreduce(t->world.comm, &differs, &all, 1, TD_F64, TD_REDUCE_SUM, NULL));
    if (all > 0)
        return TD_FAIL(TD_EPROTO,
                       "%.0f ranks have weights that differ from rank 0's at step %llu (rank %d: "
                       "%.16s..., rank 0: %.16s...)",
                       all, (unsigned long long)t->replica.state.step, td_comm_rank(t->world.comm),
                       digest, first);
    return TD_OK;
}

td_status td__replicas_failed(td__trainer *t, td_status st)
{
    char text[512];

    if (!st || td__trainer_ranks(t) == 1 || t->o.members)
        return st;
    snprintf(text, sizeof text, "%s", td_last_error());
    td_comm_abort(t->world.comm, text);
    td__sync_abandon(t->run.sync, text);
    return TD_FAIL(st, "%s", text);
}
