/* memory.c -- see memory.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "train/memory.h"

#include <string.h>

#include "base/alloc.h"
#include "base/cpu.h"
#include "base/fail.h"
#include "graph/backend_auto.h"
#include "graph/walk.h"
#include "parallel/shard_script.h"
#include "step/step.h"
#include "train/trainer_impl.h"

enum { SIZES = 8 };

/* What runners of one kind need, over all sizes of micro-batch that one thread meets. */
typedef struct runners {
    size_t grads, packed, other;
    size_t in_flight;   /* of one more that is lent the rest */
    size_t packed_most; /* of one step */
} runners;

typedef struct estimate {
    td__trainer *t;
    const td__memory_case *c;
    td__ownership map;
    size_t bucket_nbytes; /* of its even shards; 0: the default */
    int threads, in_flight;
    size_t whole;         /* bytes of params and states */
    td__sync_config sync; /* of the case */
    td__sync_world world;
    td__sync_traits traits;
    td__train_memory *out;
} estimate;

static int threads_of(const estimate *e)
{
    const td__train_opts *o = &e->t->o;
    int eval = td__micro_batches_default(o->eval_batch);
    int most = o->micro_batches > eval ? o->micro_batches : eval;
    bool shared = td__backend_traits(o->backend).on_processor; /* by the ranks of a host */
    int threads = e->traits.threads ? e->traits.threads
                  : o->threads      ? o->threads
                  : shared          ? td__processors() / e->c->ranks
                                    : 1;
    threads = threads > 1 ? threads : 1;
    return td__step_threads(threads < most ? threads : most, o->micro_batches);
}

/* Micro-batches that a thread of the busiest rank runs side by side. */
static int in_flight_of(const estimate *e)
{
    td__trainer *t = e->t;
    int own = (t->o.micro_batches + e->c->ranks - 1) / e->c->ranks;
    if (t->o.accumulate > 1 && td__program_syncs(td__trainer_program(t)))
        own = t->o.micro_batches; /* a whole batch of a step */
    int each = (own + e->threads - 1) / e->threads;
    return each < e->traits.in_flight ? each : e->traits.in_flight;
}

/* ---- Runners --------------------------------------------------------------------------------- */

static void note_rows(int64_t rows, int64_t *sizes, int *n)
{
    for (int i = 0; i < *n; i++)
        if (sizes[i] == rows)
            return;
    if (rows && *n < SIZES)
        sizes[(*n)++] = rows;
}

/* Sizes of the micro-batches of batches of `count` samples in all. */
static int sizes_of(int64_t count, int64_t batch, int micro_batches, int64_t sizes[SIZES])
{
    int n = 0;
    batch = batch < count ? batch : count;
    for (int64_t rows = batch, last = 0; rows; rows = last ? 0 : count % batch, last = 1) {
        note_rows(rows / micro_batches, sizes, &n);
        if (rows % micro_batches)
            note_rows(rows / micro_batches + 1, sizes, &n);
    }
    return n;
}

/* Samples of an epoch that the run meets: a short run may end before the short last batch. */
static int64_t rows_met(const td__trainer *t, int64_t count)
{
    int64_t full = count - count % t->o.batch, batches = full / t->o.batch;
    bool ends =
        t->plan.total_steps && t->plan.total_steps * (uint64_t)t->o.accumulate <= (uint64_t)batches;
    return ends ? full : count;
}

static td_status add_runners(const estimate *e, td__micro_batch_set *set, int64_t count,
                             int64_t batch, int micro_batches, runners *r)
{
    int64_t sizes[SIZES];
    int n = sizes_of(count, batch, micro_batches, sizes);
    for (int i = 0; i < n; i++) {
        const td_program *p;
        TD_TRY(td__micro_batch_program(set, sizes[i], &p, NULL));
        td_memory_plan m = td_program_memory(p);
        size_t most = td__program_packed_most(p);
        r->grads += e->map.total * sizeof(float);
        r->packed += m.packed;
        r->packed_most = most > r->packed_most ? most : r->packed_most;
        r->in_flight += m.activations + m.constants + m.inputs;
        r->other += m.activations + m.scratch + m.constants + m.inputs;
    }
    return TD_OK;
}

/* ---- Between ranks --------------------------------------------------------------------------- */

/* Floats that are open in the micro-batch tree of the busiest rank. */
static td_status open_partials(const estimate *e, size_t *blocks)
{
    td__trainer *t = e->t;
    td__grad_pool *pool;
    *blocks = 0;
    TD_TRY(td__grad_pool_create(td__trainer_program(t), t->replica.params,
                                t->o.micro_batches * t->o.accumulate, &pool));
    for (int r = 0; r < e->c->ranks; r++) {
        int n = td__step_blocks(pool, &(td__step_blocks_opts){t->o.micro_batches, t->o.accumulate,
                                                              e->threads, r, e->c->ranks, NULL,
                                                              e->in_flight});
        *blocks = (size_t)n > *blocks ? (size_t)n : *blocks;
    }
    td__grad_pool_destroy(pool);
    return TD_OK;
}

static size_t largest_bucket(const td__ownership *m)
{
    size_t most = 0;
    for (int b = 0; b < m->n; b++)
        if (m->begin[b + 1] - m->begin[b] > most)
            most = m->begin[b + 1] - m->begin[b];
    return most * sizeof(float);
}

/* Elements that the optimizer of the busiest rank holds. */
static td_status most_held(const estimate *e, size_t *out)
{
    *out = td_params_trainable(e->t->replica.params);
    for (int r = 0; e->traits.sharded && r < e->c->ranks; r++) {
        td__optim_range *own;
        int n;
        size_t sum = 0;
        int mirror = e->c->elastic ? (r + e->c->ranks - 1) % e->c->ranks : -1;
        TD_TRY(td__ownership_ranges(&e->map, (td__holding){e->c->ranks, r, mirror}, &own, &n));
        for (int i = 0; i < n; i++)
            sum += own[i].end - own[i].begin;
        td__free(own);
        *out = r == 0 || sum > *out ? sum : *out;
    }
    return TD_OK;
}

/* What an elastic rank holds beside all else while the world changes: it held most in a world of
 * one rank less. */
static td_status add_change(const estimate *e, size_t states)
{
    td__memory_case c = *e->c;
    estimate before = *e;
    size_t held, trainable = td_params_trainable(e->t->replica.params);

    if (!e->traits.sharded) {
        e->out->changing = e->out->total + e->whole + states * trainable;
        return TD_OK;
    }
    c.ranks--;
    before.c = &c;
    before.traits.sharded = c.ranks > 1;
    TD_TRY(td__ownership_init(&before.map, e->t->replica.params, c.ranks, e->bucket_nbytes));
    td_status st = most_held(&before, &held);
    td__ownership_fini(&before.map);
    TD_TRY(st);
    size_t shards = e->traits.sharded_params ? held * sizeof(float) : 0,
           all = trainable * sizeof(float);
    e->out->changing = e->out->total + states * held + (shards < all ? shards : all);
    return TD_OK;
}

/* ---- All of it ------------------------------------------------------------------------------- */

static td_status add_weights(const estimate *e, const runners *train, const runners *eval)
{
    td__train_memory *out = e->out;
    size_t packed = train->packed + eval->packed, held;
    out->weights = e->whole + (size_t)e->threads * packed;
    if (!e->traits.sharded_params)
        return TD_OK;
    td__shard_script script;
    TD_TRY(most_held(e, &held));
    TD_TRY(td__shard_script_init(&script, &e->map, td__trainer_program(e->t), e->t->replica.params,
                                 true, false));
    size_t trainable = td_params_trainable(e->t->replica.params) * sizeof(float);
    size_t others = script.most / (size_t)e->c->ranks * (size_t)(e->c->ranks - 1);
    size_t shards = (held + others) * sizeof(float);
    size_t most = train->packed_most > eval->packed_most ? train->packed_most : eval->packed_most;
    td__shard_script_fini(&script);
    out->weights = (shards < trainable ? shards : trainable) + (e->whole - trainable) + most;
    return TD_OK;
}

static td__sync_sizes sizes_for(const estimate *e)
{
    const td__train_opts *o = &e->t->o;
    return (td__sync_sizes){.config = &e->sync,
                            .world = e->world,
                            .micro_batches = o->micro_batches,
                            .accumulate = o->accumulate,
                            .grads = e->map.total * sizeof(float),
                            .params = e->whole,
                            .map = &e->map,
                            .momentum = td__sync_has_momentum(&o->sync, &o->optim),
                            .set = e->t->run.train_set,
                            .rows = e->t->plan.micro_batch_rows,
                            .ps = e->t->replica.params,
                            .states = td_optimizer_state_count(e->t->replica.optimizer)};
}

static td_status add_grads(const estimate *e, const runners *train)
{
    td__train_memory *out = e->out;
    size_t g = e->map.total * sizeof(float), blocks, bucket = largest_bucket(&e->map);

    TD_TRY(open_partials(e, &blocks));
    out->grads = (size_t)e->threads * train->grads + blocks * g;
    if (e->traits.no_partials) /* one bucket, and what has been begun of the next */
        out->grads = bucket + TD__SHARD_BUCKET_NBYTES < g ? bucket + TD__SHARD_BUCKET_NBYTES : g;
    td__sync_sizes whole = sizes_for(e);
    out->buffers += td__sync_exchange(&whole);
    return TD_OK;
}

/* Ranks have parts of the model: what was counted for the whole gives way to it. To evaluate, a
 * rank has buckets of the others' params, too. */
static td_status count_parts(const estimate *e, const runners *eval)
{
    td__sync_sizes sizes = sizes_for(e);
    td__sync_need need;
    bool parts;
    TD_TRY(td__sync_needs(&sizes, &need, &parts));
    if (!parts)
        return TD_OK;
    e->out->weights = need.weights + 2 * largest_bucket(&e->map) + eval->packed_most;
    e->out->grads = need.grads;
    e->out->optimizer = need.optimizer;
    e->out->activations = need.activations + eval->other;
    return TD_OK;
}

/* Batches read ahead. */
static size_t batches_ahead(const estimate *e)
{
    const td__dataset *d = td__data_part(e->t->plan.data, TD_PART_TRAIN);
    size_t row = 0;
    for (int f = 0; d && f < d->n_fields; f++)
        row += td__field_nbytes(&d->fields[f]);
    int64_t rows = (e->t->o.batch + e->c->ranks - 1) / e->c->ranks;
    int ahead = e->t->o.prefetch > 0 ? e->t->o.prefetch : 2;
    return (size_t)(ahead + 1) * (size_t)rows * row;
}

static td_status sum_up(estimate *e)
{
    td__trainer *t = e->t;
    td__train_memory *out = e->out;
    const td__dataset *d = td__data_part(t->plan.data, TD_PART_TRAIN);
    const td__dataset *v = td__data_part(t->plan.data, TD_PART_VALID);
    runners train = {0}, eval = {0};
    /* Not yet: t is of one rank. */
    bool moves = e->traits.takes_momentum && t->o.optim.momentum > 0;
    size_t held,
        states = (size_t)(td_optimizer_state_count(t->replica.optimizer) - moves) * sizeof(float);

    TD_TRY(add_runners(e, t->run.train_set, rows_met(t, d && d->count ? d->count : t->o.batch),
                       t->o.batch, t->o.micro_batches, &train));
    if (v && v->count && t->o.valid_every >= 0) {
        int64_t batch = t->o.eval_batch < v->count ? t->o.eval_batch : v->count;
        TD_TRY(td__eval_set_make(t));
        TD_TRY(add_runners(e, t->run.eval_set, v->count, batch, td__micro_batches_default(batch),
                           &eval));
    }
    TD_TRY(add_weights(e, &train, &eval));
    TD_TRY(add_grads(e, &train));
    TD_TRY(most_held(e, &held));
    out->optimizer = states * held;
    out->activations = (size_t)e->threads *
                       (train.other + (size_t)(e->in_flight - 1) * train.in_flight + eval.other);
    TD_TRY(count_parts(e, &eval));
    out->buffers += batches_ahead(e);
    /* Rank 0: a copy of all, or a bucket at a time, without partials in the place of gradients. */
    if (e->c->saves && !e->traits.no_partials)
        out->buffers += e->traits.sharded
                            ? largest_bucket(&e->map)
                            : e->whole + states * td_params_trainable(t->replica.params);
    out->program = t->plan.program_nbytes;
#define X(id, name) out->total += out->id;
    TD__MEMORY_MAP(X)
#undef X
    td__sync_sizes there = sizes_for(e);
    there.own = true;
    out->device =
        out->weights + out->grads + out->optimizer + out->activations + td__sync_exchange(&there);
    return e->c->elastic && e->c->ranks > 1 ? add_change(e, states) : TD_OK;
}

td_status td__trainer_memory(td__trainer *t, const td__memory_case *c, td__train_memory *out)
{
    estimate e = {.t = t, .c = c, .out = out, .sync = c->sync ? *c->sync : t->o.sync};
    e.world = (td__sync_world){.ranks = c->ranks,
                               .shared = c->shared,
                               .elastic = t->o.members || c->elastic,
                               .watched = t->o.verify > 0};
    size_t all;

    *out = (td__train_memory){0};
    td_params_block(t->replica.params, &all);
    e.whole = all * sizeof(float);
    e.traits = td__sync_traits_of(&e.sync, &e.world);
    if (td__program_syncs(td__trainer_program(t))) /* all of a thread go in step */
        e.traits.in_flight = TD__PLACES;
    e.threads = threads_of(&e);
    e.in_flight = in_flight_of(&e);
    e.bucket_nbytes = td__sync_bucket_nbytes(&e.sync, &e.world, t->replica.params);
    TD_TRY(td__ownership_init(&e.map, t->replica.params, c->ranks, e.bucket_nbytes));
    td_status st = sum_up(&e);
    td__ownership_fini(&e.map);
    return st;
}
