/* warnings.c -- what is probably not meant so, though it works: one line each, of rank 0. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/cpu.h"
#include "base/fail.h"
#include "base/log.h"
#include "coll/comm.h"
#include "graph/backend_auto.h"
#include "optim/schedule.h"
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
               "%lld of %lld ranks are idle: a step has %lld micro-batches; start fewer "
               "ranks, or set train.micro_batches to %lld (other sums, so another digest)",
               (long long)(ranks - all), (long long)ranks, (long long)all, (long long)more);
    else
        TD_LOG(WARN, TRAIN,
               "%lld of %lld ranks are idle: a step has %lld micro-batches; start fewer "
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

/* The order of an epoch's samples does not depend on the batch: a run that is resumed with another
 * one (train.batch, or train.batch_per_rank on another number of ranks) goes on at the same sample.
 * Where no batch begins there, at the one before it. */
void td__train_place(td__trainer *t, const td__checkpoint_info *from)
{
    int64_t was = from->state.batch, is = t->o.batch, at = from->state.batch_in_epoch * was;

    if (!was || was == is || !at)
        return;
    t->replica.state.batch_in_epoch = at / is;
    if (at % is)
        TD_LOG(WARN, TRAIN,
               "%s: saved at sample %lld of its epoch, where no batch of %lld begins (batches were "
               "%lld): %lld samples of this epoch are repeated",
               from->path, (long long)at, (long long)is, (long long)was, (long long)(at % is));
}

/* With another batch (train.batch, or train.batch_per_rank on another number of ranks) epochs have
 * other numbers of steps: the steps done so far do not tell how many are left of train.epochs. */
static td_status check_batch(const td__trainer *t, const td__checkpoint_info *from)
{
    long long was = from->state.batch, is = t->o.batch;
    if (!was || was == is)
        return TD_OK;
    bool each = t->o.batch_per_rank > 0;
    td__sync_world w = td__trainer_world(t);
    const td__sync_ops *rule;
    TD_TRY(td__sync_find(&t->o.sync, &w, &rule));
    if (td__trainer_traits(t).keeps_batch)
        return TD_FAIL(TD_EINVAL, "%s: was trained with batches of %lld, now %lld: with %s %s",
                       from->path, was, is, rule->key ? rule->key : rule->name,
                       each ? "resume on as many workers" : "it is the same");
    if (t->o.steps)
        return TD_OK;
    return each
               ? TD_FAIL(TD_EINVAL,
                         "%s: was trained with batches of %lld, now %lld: resume on as many ranks, "
                         "or say with train.steps at which step the run ends",
                         from->path, was, is)
               : TD_FAIL(TD_EINVAL,
                         "%s: was trained with train.batch %lld, and now it is %lld: leave it, or "
                         "say with train.steps at which step the run ends",
                         from->path, was, is);
}

td_status td__train_check_resumed(const td__trainer *t, const td__checkpoint_info *from)
{
    TD_TRY(check_batch(t, from));
    const td_schedule_opts *s = &t->o.schedule;
    bool old = from->arithmetic < 2;
    bool warm_up = td__schedule_has_end(s->name) && !s->total_steps && t->plan.total_steps > 0 &&
                   (uint64_t)s->warmup_steps >= t->plan.total_steps;
    bool bools = !from->preprocessed && strcmp(td__data_source(t->plan.data), "npy") == 0;
    bool local =
        td__trainer_traits(t).own_params && td_optimizer_state_count(t->replica.optimizer) > 0;
    const struct {
        bool here;
        const char *what;
    } changes[] = {
        {t->run.counted != NULL, "loss.ignore takes the mean over the targets that count"},
        {warm_up, "a warm-up longer than the run is not shortened"},
        {bools, "truth values of npy arrays are 0 and 1"},
        {local, "ranks take the mean of their optimizers' states when they meet"},
    };
    char text[512] = "";
    for (size_t i = 0; old && i < sizeof changes / sizeof *changes; i++)
        if (changes[i].here)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", *text ? "; " : "",
                     changes[i].what);
    if (*text)
        TD_LOG(WARN, TRAIN, "%s: an older version wrote it: from here on %s", from->path, text);
    const char *was = from->state.gpu, *is = t->replica.state.gpu;
    if (strcmp(was, is) == 0)
        return TD_OK;
    bool like = *was && *is && td__backend_same_gpu(was, is);
    if (*was && *is && !like && !t->o.nondeterministic && !t->o.any_gpu)
        return TD_FAIL(TD_EINVAL,
                       "%s: was computed on %s, and this run has %s, which does not give the same "
                       "bits: resume on the former, or set checkpoint.any_gpu",
                       from->path, was, is);
    TD_LOG(WARN, TRAIN,
           "%s: was computed on %s, and the run continues with %s: results will not be "
           "bit-identical to an uninterrupted run%s",
           from->path, *was ? was : "a processor", *is ? is : "a processor",
           like ? ", if it needs the library that one of them does not name" : "");
    return TD_OK;
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
