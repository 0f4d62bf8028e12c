/* warnings.c -- what is probably not meant so, though it works: one line each, of rank 0. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cpu.h"
#include "base/log.h"
#include "coll/comm.h"
#include "train/trainer_impl.h"

static void warn_of_batch(const td__trainer *t)
{
    const td__dataset *d = td__data_part(t->plan.data, TD_PART_TRAIN);
    if (d && d->count < t->o.batch)
        TD_LOG(WARN, TRAIN,
               "train.batch is %lld, but there are %lld training samples: each step takes all of "
               "them; lower train.batch",
               (long long)t->o.batch, (long long)d->count);
}

/* The lowest train.micro_batches with which all ranks have the same share; 0: none. */
static int64_t serving(const td__trainer *t, int64_t ranks)
{
    int64_t m = (ranks + t->o.accumulate - 1) / t->o.accumulate;
    while (m <= t->o.batch && m * t->o.accumulate % ranks != 0)
        m++;
    return m <= t->o.batch ? m : 0;
}

/* Ranks beyond the micro-batches of a step are of no use. */
static void warn_of_idle(const td__trainer *t, int64_t ranks)
{
    int64_t all = (int64_t)t->o.micro_batches * t->o.accumulate, more = serving(t, ranks);
    if (ranks <= all)
        return;
    if (more)
        TD_LOG(WARN, TRAIN,
               "%lld of %lld ranks have nothing to do: a step has %lld micro-batches; start fewer "
               "ranks, or set train.micro_batches to %lld (other sums, so another digest)",
               (long long)(ranks - all), (long long)ranks, (long long)all, (long long)more);
    else
        TD_LOG(WARN, TRAIN,
               "%lld of %lld ranks have nothing to do: a step has %lld micro-batches; start fewer "
               "ranks, or raise train.batch",
               (long long)(ranks - all), (long long)ranks, (long long)all);
}

static void warn_of_cores(const td__trainer *t, int ranks)
{
    const int *host_of = td__comm_host_of(t->world.comm);
    int here = 0, cores = td__processors();
    for (int r = 0; r < ranks; r++)
        here += !host_of || host_of[r] == host_of[0];
    if (here > cores)
        TD_LOG(WARN, TRAIN,
               "%d ranks on a host with %d processor%s: they take turns, which makes the run "
               "slower; start at most %d there",
               here, cores, cores == 1 ? "" : "s", cores);
}

void td__train_warn(td__trainer *t)
{
    int ranks = td__trainer_ranks(t);
    if (td__trainer_rank(t) > 0 || ranks <= t->report.warned)
        return;
    if (!t->report.warned)
        warn_of_batch(t);
    t->report.warned = ranks;
    if (ranks == 1)
        return;
    td__sync_traits traits = td__trainer_traits(t);
    warn_of_idle(t, traits.parts ? traits.parts : traits.replicas ? traits.replicas : ranks);
    if (!t->o.no_advice)
        warn_of_cores(t, ranks);
}
