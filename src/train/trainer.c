/* trainer.c -- making a trainer: programs, params, optimizer, schedule, loader, step engine. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/nearest.h"
#include "graph/backend_auto.h"
#include "graph/params.h"
#include "optim/schedule.h"
#include "elastic/best_replica.h"
#include "train/nondeterministic.h"
#include "train/micro_batch_count.h"
#include "train/sharded.h"
#include "train/own_data.h"
#include "train/trainer_impl.h"

enum { MAX_MICRO_BATCHES = 4096, KEEP = 3 };

/* ---- Options --------------------------------------------------------------------------------- */

static td_status copy_text(td__trainer *t, const char **text)
{
    if (*text && !(*text = td__arena_strdup(t->plan.arena, *text)))
        return TD_FAIL(TD_ENOMEM, "no memory for a trainer");
    return TD_OK;
}

static td__sync_job job_of(const td__train_opts *o)
{
    return (td__sync_job){.optim = &o->optim,
                          .threads = o->threads,
                          .verify = o->verify,
                          .micro_batches = o->micro_batches,
                          .accumulate = o->accumulate,
                          .seed = o->seed,
                          .backend = o->backend,
                          .partition = o->partition};
}

td_status td__train_check(const td__train_opts *o, const td__sync_world *w)
{
    td__sync_job job = job_of(o);
    if (o->verify < 0 || o->verify > 1)
        return TD_FAIL(TD_EINVAL,
                       "train.verify: %g is no share of the micro-batches: must be 0 to 1",
                       o->verify);
    TD_TRY(td__sync_check(&o->sync, &job, w));
    TD_TRY(td__kept_check(o, w));
    return td__partition_check(o, w);
}

static td_status resolve(td__trainer *t, const td__train_opts *opts)
{
    td__train_opts *o = &t->o;
    *o = *opts;
    if (!o->members) /* for good: threads that read samples ahead look at it */
        t->world = (td__world){.comm = o->comm,
                               .rank = o->comm ? td_comm_rank(o->comm) : 0,
                               .ranks = o->comm ? td_comm_size(o->comm) : 1,
                               .generation = 1};
    if (!o->agent)
        o->agent = o->members;
    if (!o->watch)
        o->watch = "loss";
    if (!o->name)
        o->name = "";
    TD_TRY(copy_text(t, &o->name));
    TD_TRY(copy_text(t, &o->backend));
    TD_TRY(copy_text(t, &o->watch));
    TD_TRY(copy_text(t, &o->shuffle));
    TD_TRY(copy_text(t, &o->partition));
    TD_TRY(copy_text(t, &o->checkpoint_dir));
    TD_TRY(copy_text(t, &o->job_digest));
    TD_TRY(td__sync_copy_texts(&o->sync, t->plan.arena));
    td__sync_world w = td__trainer_world(t);
    TD_TRY(td__train_check(o, &w));
    if (o->batch < 1)
        return TD_FAIL(TD_EINVAL, "a batch of %lld samples: must be at least 1",
                       (long long)o->batch);
    TD_TRY(td__nondeterministic_resolve(o));
    int number = o->seat ? o->seat - 1 : td__local_rank(o->comm);
    td__backend_for(o->backend, number, t->plan.backend, sizeof t->plan.backend);
    if (!o->micro_batches) {
        TD_TRY(td__micro_batch_count_of(&t->plan.model, o->batch,
                                        !td__backend_traits(o->backend).on_processor,
                                        &o->micro_batches));
        if (td__sync_traits_of(&o->sync, &w).own_params) /* each rank learns from its own rows */
            o->micro_batches = td__micro_batches_for(o->batch, o->micro_batches, w.ranks);
    }
    if (!o->accumulate)
        o->accumulate = 1;
    if (!o->eval_batch)
        o->eval_batch = o->batch;
    if (!o->checkpoint_keep)
        o->checkpoint_keep = KEEP;
    if (o->micro_batches < 1 || o->micro_batches > o->batch || o->micro_batches > MAX_MICRO_BATCHES)
        return TD_FAIL(TD_EINVAL, "%d micro-batches of a batch of %lld samples: must be 1 to %lld",
                       o->micro_batches, (long long)o->batch,
                       (long long)(o->batch < MAX_MICRO_BATCHES ? o->batch : MAX_MICRO_BATCHES));
    if (o->accumulate < 1 || (int64_t)o->accumulate * o->micro_batches > INT32_MAX)
        return TD_FAIL(TD_EINVAL, "%d batches in a step: must be at least 1", o->accumulate);
    if (o->eval_batch < 1 || o->epochs < 0 || o->steps < 0 || o->patience < 0 || o->threads < 0)
        return TD_FAIL(TD_EINVAL, "eval_batch, epochs, steps, patience and threads must not be "
                                  "negative");
    return TD_OK;
}

static td_status find_watched(td__trainer *t)
{
    td__nearest near = {.word = t->o.watch};
    t->plan.watch = -1;
    if (strcmp(t->o.watch, "loss") == 0)
        return TD_OK;
    td__nearest_offer(&near, "loss");
    for (int i = 0; i < t->plan.facts.n_metrics; i++) {
        if (strcmp(t->plan.facts.metric[i], t->o.watch) == 0) {
            t->plan.watch = i;
            return TD_OK;
        }
        td__nearest_offer(&near, t->plan.facts.metric[i]);
    }
    return TD_FAIL(TD_EINVAL, "there is no metric '%s' to watch%s%s%s", t->o.watch,
                   near.best ? "; did you mean '" : "", near.best ? near.best : "",
                   near.best ? "'?" : "");
}

/* ---- Parts ----------------------------------------------------------------------------------- */

/* Where a full batch has micro-batches of one row, batch norm must not have a single value. */
static td_status check_norms(td__trainer *t, int64_t rows)
{
    td__model_facts alone;
    const td_program *p;

    if (t->o.blank || rows / t->o.micro_batches > 1)
        return TD_OK;
    TD_TRY(td__micro_batch_program(t->run.train_set, 1, &p, &alone));
    if (*alone.lone_norm)
        return TD_FAIL(TD_EINVAL,
                       "%s normalizes micro-batches of one row, in which nothing varies: raise "
                       "train.batch (%lld), or lower train.micro_batches (%d)",
                       alone.lone_norm, (long long)t->o.batch, t->o.micro_batches);
    return TD_OK;
}

/* Batch norms over the whole batch go with some ways to train only. */
static td_status check_shared(td__trainer *t, const td_program *p, int threads)
{
    const td__train_opts *o = &t->o;
    td__sync_world w = td__trainer_world(t);

    if (o->blank || !td__program_syncs(p))
        return TD_OK;
    return td__sync_check_shared(
        &o->sync, &w,
        &(td__sync_shared){.micro_batches = o->micro_batches,
                           .accumulate = o->accumulate,
                           .threads = threads,
                           .verified = o->verify > 0 && w.ranks > 1,
                           .far = !td__device_host_reads(td__params_device(t->replica.params))});
}

static td_status make_model(td__trainer *t)
{
    const td__train_opts *o = &t->o;
    int threads = t->plan.thread_limit ? t->plan.thread_limit
                  : o->threads         ? o->threads
                                       : td__threads_per_rank(o->comm, o->backend);
    int eval_micro_batches = td__micro_batches_default(o->eval_batch);
    int most = o->micro_batches > eval_micro_batches ? o->micro_batches : eval_micro_batches;
    const td_program *p;
    td__tensor_cut cut = td__sync_tensor_cut(&o->sync, td__trainer_rank(t), td__trainer_ranks(t));
    td__sync_world w = td__trainer_world(t);

    threads = td__step_threads(threads < most ? threads : most, o->micro_batches);
    TD_TRY(td__pool_create(threads, &t->run.pool));
    TD_TRY(td__micro_batch_set_create(
        &(td__micro_batch_set_opts){.model = t->plan.model,
                                    .pool = t->run.pool,
                                    .use = TD__USE_TRAIN,
                                    .backend = td__trainer_backend(t),
                                    .precision = o->precision,
                                    .nondeterministic = o->nondeterministic,
                                    .seed = o->seed,
                                    .profile = o->profile,
                                    .tensor = cut},
        &t->run.train_set));
    /* A batch is never larger than the data; how it is cut is the job's affair alone. */
    const td__dataset *d = td__data_part(t->plan.data, TD_PART_TRAIN);
    int64_t rows = d && d->count > 0 && d->count < o->batch ? d->count : o->batch;
    t->plan.micro_batch_rows = (rows + o->micro_batches - 1) / o->micro_batches;
    TD_TRY(check_norms(t, rows));
    TD_TRY(td__micro_batch_program(t->run.train_set, t->plan.micro_batch_rows, &p, &t->plan.facts));
    if (td__trainer_traits(t).sharded) {
        TD_TRY(td__sharded_make(t, p));
    } else if (t->elastic.sharded) {
        TD_TRY(td__sharded_make_none(t, p));
    } else {
        TD_TRY(td__params_create(p, o->blank ? NULL : &o->seed, &t->replica.params));
        TD_TRY(td__sync_check_params(&o->sync, &w, t->replica.params));
        TD_TRY(td_optimizer_create(&o->optim, t->replica.params, &t->replica.optimizer));
    }
    td__micro_batch_set_params(t->run.train_set, t->replica.params);
    TD_TRY(check_shared(t, p, threads));
    return find_watched(t);
}

/* How many micro-batches a rank may get, the same number on all ranks. With values of the whole
 * batch a thread holds all of its own at once: as many as one thread can, or as check_shared() has
 * found that each rank can. */
static int most_of_a_rank(td__trainer *t)
{
    int all = t->o.micro_batches, ranks = td__trainer_ranks(t), even = (all + ranks - 1) / ranks;
    if (!td__program_syncs(td__trainer_program(t)) || t->o.accumulate > 1)
        return all;
    return even > TD__PLACES ? even : TD__PLACES;
}

td_status td__trainer_balance(td__trainer *t)
{
    bool none = t->o.even || !td__trainer_traits(t).any_partition || td__trainer_ranks(t) < 2;
    td__balance_destroy(t->run.balance);
    t->run.balance = NULL;
    return none ? TD_OK
                : td__balance_create(t->o.micro_batches, td__trainer_ranks(t), most_of_a_rank(t),
                                     &t->run.balance);
}

td__loader_opts td__trainer_loader_opts(td__trainer *t)
{
    const td__train_opts *o = &t->o;
    return (td__loader_opts){.batch = o->batch,
                             .shuffle = !o->shuffle || !td__has_word("none false", o->shuffle),
                             .uniform = o->shuffle && strcmp(o->shuffle, "uniform") == 0,
                             .augment = true,
                             .seed = o->seed,
                             .prefetch = o->prefetch,
                             .threads = o->data_threads,
                             .rows = td__train_rows,
                             .others = td__train_rows_of,
                             .pick = td__trainer_traits(t).rows ? td__train_pick : NULL,
                             .rows_user = t};
}

td_status td__trainer_loader(td__trainer *t)
{
    td__loader_opts o = td__trainer_loader_opts(t);
    double weights[TD__PARTITION_WEIGHTS];
    td__loader_destroy(t->run.loader);
    t->run.loader = NULL;
    td__sync_traits traits = td__trainer_traits(t);
    td__partition_set(&t->o, &traits, td__trainer_rank(t), td__trainer_ranks(t), weights, &o);
    o.keeper = t->run.kept ? td__kept_samples_keeper(t->run.kept) : NULL;
    return td__loader_create(td__data_part(t->plan.data, TD_PART_TRAIN), &o, &t->run.loader);
}

static td_status make_data(td__trainer *t)
{
    const td__train_opts *o = &t->o;
    const td__model_facts *facts = &t->plan.facts;
    td__dataset *d = td__data_part(t->plan.data, TD_PART_TRAIN);
    if (!d) /* enough for evaluation */
        return TD_OK;
    t->plan.batches = (d->count + o->batch - 1) / o->batch;
    TD_TRY(td__trainer_balance(t));
    TD_TRY(td__train_keep_samples(t));
    TD_TRY(td__trainer_loader(t));
    if (*facts->ignoring)
        TD_TRY(td__counted_create(d, facts, o->batch * o->accumulate, &t->run.counted));
    t->plan.steps_per_epoch = (uint64_t)((t->plan.batches + o->accumulate - 1) / o->accumulate);
    t->plan.total_steps = (uint64_t)o->steps;
    uint64_t all = (uint64_t)o->epochs * t->plan.steps_per_epoch;
    if (o->epochs && (!o->steps || all < t->plan.total_steps))
        t->plan.total_steps = all;
    if (t->plan.total_steps > UINT32_MAX)
        return TD_FAIL(TD_EINVAL, "%llu steps: at most %u are possible",
                       (unsigned long long)t->plan.total_steps, UINT32_MAX);
    return TD_OK;
}

static td_status make_schedule(td__trainer *t)
{
    td_schedule_opts s = t->o.schedule;
    if (!(s.lr > 0))
        s.lr = td_optimizer_lr(t->replica.optimizer);
    if (!s.total_steps) {
        s.total_steps = (int64_t)t->plan.total_steps;
        /* A run shorter than its warm-up ends in it, whatever would have come then: what a schedule
         * with an end does after the warm-up needs a step at least. Nor does it matter without data
         * to train on. */
        bool idle = !td__data_part(t->plan.data, TD_PART_TRAIN);
        if (td__schedule_has_end(s.name) && s.warmup_steps >= s.total_steps &&
            (s.total_steps > 0 || idle))
            s.total_steps = s.warmup_steps + 1;
    }
    s.maximize = t->plan.watch >= 0 && t->plan.facts.higher_is_better[t->plan.watch];
    return td_schedule_create(&s, &t->replica.schedule);
}

static td_status resolve_sync(td__trainer *t)
{
    td__sync_world w = td__trainer_world(t), several = w;
    td__sync_job job = job_of(&t->o);
    several.ranks = w.elastic && w.ranks == 1 ? 2 : w.ranks; /* where there will be */
    TD_TRY(td__sync_resolve(&t->o.sync, &job, &several, &t->o.optim));
    td__sync_traits traits = td__sync_traits_of(&t->o.sync, &several);
    t->plan.thread_limit = traits.threads;
    t->elastic = (td__elastic){.sharded = w.elastic && traits.sharded,
                               .sharded_params = w.elastic && traits.sharded_params,
                               .own_params = traits.own_params};
    return TD_OK;
}

static void set_up_elastic(td__trainer *t)
{
    td__elastic *e = &t->elastic;
    e->replica = &t->replica;
    e->world = &t->world;
    e->members = t->o.members;
    e->faults = t->o.faults;
    e->optim = &t->o.optim;
    e->worlds.nbytes = td__sync_bucket_nbytes(
        &t->o.sync, &(td__sync_world){.ranks = 2, .elastic = true}, t->replica.params);
    if (e->sharded && td__sync_maps(&t->o.sync)) {
        e->worlds.map = td__sharded_map;
        e->worlds.user = t;
        e->unlike = td_params_trainable(t->replica.params) > td__params_dense(t->replica.params);
    }
    e->agreement = td__agreement_crc(t);
    e->ops = &td__train_elastic_ops;
    e->trainer = t;
}

static td_status make(td__trainer *t, const td__train_opts *opts)
{
    TD_TRY(td__arena_create(&t->plan.arena));
    TD_TRY(resolve(t, opts));
    const td__train_opts resolved = t->o; /* what follows depends on the number of ranks */
    TD_TRY(resolve_sync(t));
    TD_TRY(make_model(t));
    TD_TRY(make_data(t));
    TD_TRY(make_schedule(t));
    t->replica.state = (td__train_state){.seed = t->o.seed,
                                         .batch = t->o.batch,
                                         .best = (double)NAN,
                                         .schedule = td_schedule_get_state(t->replica.schedule)};
    if (t->o.job_digest)
        snprintf(t->replica.state.job_digest, sizeof t->replica.state.job_digest, "%s",
                 t->o.job_digest);
    snprintf(t->replica.state.watch, sizeof t->replica.state.watch, "%.*s",
             (int)sizeof t->replica.state.watch - 1, t->o.watch);
    td__backend_gpu(td__trainer_backend(t), t->replica.state.gpu, sizeof t->replica.state.gpu);
    t->replica.first = t->replica.state;
    TD_TRY(td__agreement_make(t, &resolved));
    set_up_elastic(t);
    return TD_OK;
}

td_status td__trainer_create(const td__train_opts *opts, const td__model *model, td__data *data,
                             td__trainer **out)
{
    *out = NULL;
    td__trainer *t = td__calloc(1, sizeof *t);
    if (!t)
        return TD_FAIL(TD_ENOMEM, "no memory for a trainer");
    t->plan.program_nbytes = td__memory_read().now;
    t->plan.model = *model;
    t->plan.data = data;
    td_status st = make(t, opts);
    if (st) {
        td__trainer_destroy(t);
        return st;
    }
    *out = t;
    return TD_OK;
}

void td__trainer_destroy(td__trainer *t)
{
    if (!t)
        return;
    td__checkpointer_destroy(t->run.checkpointer);
    td__best_replica_drop(&t->run.best_replica);
    td__rank_stats_destroy(t->report.stats);
    td__span_log_destroy(t->report.spans);
    td__sync_destroy(t->run.sync);
    td__sync_keep_drop(&t->run.rule_keep);
    td__loader_destroy(t->run.loader);
    td__counted_destroy(t->run.counted);
    td__balance_destroy(t->run.balance); /* whose bounds the engine and the loader's threads use */
    td__verify_destroy(t->run.verify);
    td__lockstep_destroy(t->run.eval_walk);
    td__lockstep_destroy(t->run.predict_walk);
    td__micro_batch_set_destroy(t->run.train_set);
    td__micro_batch_set_destroy(t->run.eval_set);
    td__micro_batch_set_destroy(t->run.predict_set);
    td__kept_samples_destroy(t->run.kept); /* which streams of runners may still read */
    td__replica_destroy(&t->replica);
    td__pool_destroy(t->run.pool);
    td__arena_destroy(t->plan.arena);
    td__free(t);
}

td_status td__trainer_observe(td__trainer *t, td__observer *o)
{
    if (t->report.n_observers == TD__MAX_OBSERVERS)
        return TD_FAIL(TD_ENOTSUP, "more than %d observers of a run", TD__MAX_OBSERVERS);
    t->report.observers[t->report.n_observers++] = o;
    return TD_OK;
}

td_status td__train_save_fit(td__trainer *t)
{
    td__text text = {0};
    td_status st = td__data_fit(t->plan.data, &text);
    if (!st && text.used)
        st = td__checkpointer_preprocessing(t->run.checkpointer, text.data, text.used);
    td__text_fini(&text);
    return st;
}

/* ---- Resuming -------------------------------------------------------------------------------- */

/* The best value of one metric is none of another: where the job watches another one than the run
 * did, the next validation is the best again. */
static void take_watch(td__train_state *s, const td__train_state *now)
{
    if (s->watch[0] && strcmp(s->watch, now->watch) != 0) {
        s->best = (double)NAN;
        s->best_step = 0;
        s->bad_validations = 0;
    }
    memcpy(s->watch, now->watch, sizeof s->watch);
}

/* Is how long the run is a part of the job's digest? Then it is another one in a longer run. */
static bool length_counts(const td__train_opts *o)
{
    return td__schedule_has_end(o->schedule.name) && !o->schedule.total_steps;
}

td_status td__trainer_resume(td__trainer *t, bool *found)
{
    td__checkpoint_info info;
    *found = false;
    if (!t->o.checkpoint_dir || !td__checkpoint_any(t->o.checkpoint_dir))
        return TD_OK;
    TD_TRY(td__checkpoint_find(t->o.checkpoint_dir, NULL, &info));
    t->run.resumed = info;
    if (t->replica.shards) { /* to be loaded when all ranks have come */
        t->run.resuming = true;
    } else {
        TD_TRY(td__checkpoint_load(&info, t->replica.params, t->replica.optimizer));
    }
    TD_TRY(td__checkpoint_read_blocks(&info, &t->replica.sync_states));
    if (strcmp(info.state.job_digest, t->replica.state.job_digest) != 0 && !length_counts(&t->o))
        TD_LOG(WARN, TRAIN, "%s: was written by another job (digest %.16s..., now %.16s...)",
               info.path, info.state.job_digest, t->replica.state.job_digest);
    TD_TRY(td__train_check_resumed(t, &info));
    const td__train_state now = t->replica.state;
    t->replica.state = info.state;
    memcpy(t->replica.state.job_digest, now.job_digest, sizeof now.job_digest);
    memcpy(t->replica.state.gpu, now.gpu, sizeof now.gpu);
    take_watch(&t->replica.state, &now);
    t->replica.state.seed = t->o.seed;
    t->replica.state.batch = now.batch;
    td__train_place(t, &info);
    if (t->replica.state.batch_in_epoch >= t->plan.batches &&
        t->plan.batches) { /* the data have become fewer */
        t->replica.state.epoch++;
        t->replica.state.batch_in_epoch = 0;
    }
    td_schedule_set_state(t->replica.schedule, t->replica.state.schedule);
    *found = true;
    return TD_OK;
}

/* ---- Weights --------------------------------------------------------------------------------- */

td_status td__trainer_share(td__trainer *t)
{
    TD_TRY(td__trainer_agree(t, 0));
    return td__replicas_begin(t);
}

/* ---- Looking --------------------------------------------------------------------------------- */

td_params *td__trainer_params(td__trainer *t)
{
    return t->replica.params;
}

bool td__trainer_alone(const td__trainer *t)
{
    return t->run.sync && t->run.sync->alone;
}

uint64_t td__trainer_step(const td__trainer *t)
{
    return t->replica.state.step;
}

const td__eval_result *td__trainer_test(const td__trainer *t)
{
    return &t->report.test;
}

size_t td__trainer_optimizer_nbytes(const td__trainer *t)
{
    return (size_t)td_optimizer_state_count(t->replica.optimizer) *
           td_params_trainable(t->replica.params) * sizeof(float);
}

td__micro_batch_set *td__trainer_train_set(const td__trainer *t)
{
    return t->run.train_set;
}

const td_program *td__trainer_program(td__trainer *t)
{
    const td_program *p;
    td_status st = td__micro_batch_program(t->run.train_set, t->plan.micro_batch_rows, &p, NULL);
    TD_ASSERT(!st,
              "the program of the usual micro-batch"); /* made at creation, used in every step */
    return p;
}

int td__trainer_micro_batches(const td__trainer *t)
{
    return t->o.micro_batches;
}

int64_t td__trainer_micro_batch_rows(const td__trainer *t)
{
    return t->plan.micro_batch_rows;
}

int td__trainer_profile_count(const td__trainer *t)
{
    const td_runner *r = td__micro_batch_runner(t->run.train_set, t->plan.micro_batch_rows, 0);
    return r ? td_runner_profile_count(r) : 0;
}

td_node_time td__trainer_profile(const td__trainer *t, int i)
{
    td_node_time sum = {0};
    for (int k = 0; k < td__micro_batch_runners(t->run.train_set); k++) {
        const td_runner *r = td__micro_batch_runner(t->run.train_set, t->plan.micro_batch_rows, k);
        if (!r)
            continue;
        td_node_time one = td_runner_profile(r, i);
        one.calls += sum.calls;
        one.total_ns += sum.total_ns;
        sum = one;
    }
    return sum;
}
