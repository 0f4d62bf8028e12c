/* sync_zero.c -- data parallel on ranks that hold optimizer state, gradients or params in shards
 * (zero.h).
 *
 * Stage 1: ranks run their micro-batches as usual (data_parallel.h) and have partials of whole
 * gradients; these are brought to the owners after the last batch. Stages 2 and 3: micro-batches
 * are dealt to the ranks in turn, micro-batch s of a batch to rank s mod n, one at a time, in step
 * (lockstep.h). So the leaves that arrive at an owner in a round are neighbours in the micro-batch
 * tree, and what it keeps between rounds is a few partials of its shards. Then, at all stages: the
 * owner updates its shards; at stages 1 and 2 all ranks get the params.
 *
 * The update is in two parts. prepare does everything that needs other ranks, and changes nothing
 * of the state; apply changes it and needs nobody. Between them ranks exchange the losses: who gets
 * through this knows that all are prepared. So after a failure either nobody has applied, or all
 * have, or can still do so: with mirrors, prepared stays true until apply, or the next begin.
 *
 * Threads   One, the trainer's; at stage 1 the update is shared among the pool's. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "base/clock.h"
#include "graph/params.h"
#include "optim/optimizer.h"
#include "parallel/lockstep.h"
#include "parallel/sparse_gather.h"
#include "parallel/rules/sync_zero.h"
#include "parallel/zero.h"

enum { DEVICE_BUCKET_NBYTES = 128 << 20 };

typedef struct zero_rule {
    td__sync base;
    td__step_opts o;
    td__zero *zero;
    td__shards *shards;
    int stage;
    const td__ownership *map;
    td__grad_pool *blocks;
    td__sparse_gather *sparse; /* NULL: there are no row-sparse gradients */
    td__grad_pool *lists;      /* for them, of one leaf */
    td__lockstep *lockstep;    /* NULL: stage 1 */
    int rank, size;
    td__rank_leaf *leaves;
    int n_leaves;
    int *run;           /* by rank: its micro-batch of the round */
    double *chunks;     /* squares or sums, by chunk of the params */
    double *again;      /* the same, of no use: where sums over chunks are made a second time */
    size_t n_chunks;    /* doubles of them */
    const float **sums; /* by bucket: this rank's shard of the sum */
    /* The step under way. */
    uint32_t step;
    int64_t rows;
    float weight; /* of the micro-batch that runs */
    atomic_int next;
    bool prepared;        /* nothing is missing for the update */
    uint64_t sent_before; /* bytes, in the steps before */
} zero_rule;

static td_status set_up(zero_rule *z)
{
    td_optimizer *o = z->o.optimizer;
    int all = z->o.micro_batches * z->o.accumulate, slots = 1;
    bool streams = z->stage > 1;

    for (int r = 0; !streams && r < z->size; r++)
        for (int m = 1; m <= z->o.accumulate; m++) {
            int n = td__rank_partials(m * z->o.micro_batches, r, z->size, NULL);
            slots = n > slots ? n : slots;
        }
    z->n_chunks = 2 * (size_t)td__optim_chunk_of(o, td_params_count(z->o.params));
    z->leaves = td__calloc((size_t)(streams ? z->size : slots * z->size) + 1, sizeof *z->leaves);
    z->run = td__calloc((size_t)z->size, sizeof *z->run);
    z->chunks = td__calloc(z->n_chunks + 1, sizeof *z->chunks);
    z->again = td__calloc(td__optim_sliceable(o) ? 1 : z->n_chunks + 1, sizeof *z->again);
    z->sums = td__calloc((size_t)z->map->n + 1, sizeof *z->sums);
    if (!z->leaves || !z->run || !z->chunks || !z->again || !z->sums)
        return TD_FAIL(TD_ENOMEM, "no memory for a step of %d micro-batches", all);
    if (td__grad_sparse_count(z->blocks)) {
        TD_TRY(td__sparse_gather_create(z->base.x.comm, z->blocks, slots, &z->sparse));
        TD_TRY(td__grad_pool_like(z->blocks, &z->lists));
    }
    return streams ? td__lockstep_create(z->shards, z->o.set, z->o.params, false, &z->lockstep)
                   : TD_OK;
}

static td_status create(td__sync *s)
{
    zero_rule *z = (zero_rule *)s;
    z->o = *td__step_opts_of(s->engine);
    z->shards = s->x.shards;
    z->stage = s->x.config->zero;
    z->map = td__shards_ownership(z->shards);
    z->blocks = td__step_grads(s->engine);
    z->rank = td_comm_rank(s->x.comm);
    z->size = td_comm_size(s->x.comm);
    TD_TRY(td__zero_create(&(td__zero_opts){.shards = z->shards,
                                            .stage = z->stage,
                                            .micro_batches = z->o.micro_batches,
                                            .accumulate = z->o.accumulate},
                           &z->zero));
    return set_up(z);
}

static void destroy(td__sync *s)
{
    zero_rule *z = (zero_rule *)s;
    td__lockstep_destroy(z->lockstep);
    td__zero_destroy(z->zero);
    td__sparse_gather_destroy(z->sparse);
    td__grad_pool_destroy(z->lists);
    td__free(z->leaves);
    td__free(z->run);
    td__free(z->chunks);
    td__free(z->again);
    td__free(z->sums);
}

static td_status begin(td__sync *s, const td__sync_place *at)
{
    zero_rule *z = (zero_rule *)s;
    z->step = (uint32_t)at->step;
    z->rows = td__step_rows(s->engine);
    z->prepared = false;
    z->sent_before = td__shards_sent(z->shards);
    td__zero_begin(z->zero);
    if (z->sparse)
        td__sparse_gather_clear(z->sparse);
    return TD_OK;
}

/* ---- Stages 2 and 3: micro-batch by micro-batch ---------------------------------------------- */

/* Which rows of a batch a rank runs. */
static int64_t rows_of(int64_t rows, int micro_batches, int rank, int size, int64_t *out)
{
    int64_t n = 0;
    for (int s = rank; s < micro_batches; s += size)
        for (int64_t i = td__micro_batch_begin(rows, micro_batches, s);
             i < td__micro_batch_begin(rows, micro_batches, s + 1); i++, n++)
            if (out)
                out[n] = i;
    return n;
}

static int64_t micro_batch_rows(const zero_rule *z, const td__batch *b, int s)
{
    return td__micro_batch_begin(b->rows, z->o.micro_batches, s + 1) -
           td__micro_batch_begin(b->rows, z->o.micro_batches, s);
}

/* The weight of micro-batch s of a batch. */
static double share_of(const zero_rule *z, const td__batch *b, int number, int s)
{
    return td__step_share(z->base.engine, number,
                          td__micro_batch_begin(b->rows, z->o.micro_batches, s),
                          micro_batch_rows(z, b, s));
}

/* Where the rows of this rank's micro-batch s lie: behind those of its micro-batches before, unless
 * the batch has the rows of all ranks. */
static int64_t row_of(const zero_rule *z, const td__batch *b, int s)
{
    int64_t at = 0;
    if (b->here.end - b->here.begin == b->rows)
        return td__micro_batch_begin(b->rows, z->o.micro_batches, s);
    for (int k = z->rank; k < s; k += z->size)
        at += micro_batch_rows(z, b, k);
    return at;
}

static td_status reduce(void *user, int bucket, const float *grads)
{
    zero_rule *z = user;
    td__partial mine = {.weight = z->weight, .dense = (float *)(uintptr_t)grads};
    return td__zero_reduce(z->zero, bucket, &mine, grads ? 1 : 0, z->leaves, z->n_leaves);
}

/* Row-sparse gradients of the round. */
static td_status reduce_rows(zero_rule *z, td_runner *ran)
{
    td__partial one[1];
    td__grad_stack local = TD__GRAD_STACK_IN(one);
    td_status st = TD_OK;
    if (!z->sparse)
        return TD_OK;
    if (ran) {
        local.at[0] = (td__partial){.weight = z->weight};
        TD_TRY(td__grad_hold(z->lists, &local.at[0]));
        td__grad_borrowed(z->lists, local.at[0].block, ran, z->weight);
        local.n = 1;
    }
    st = td__sparse_gather_add(z->sparse, &local, z->leaves, z->n_leaves);
    td__grad_clear(z->lists, &local);
    return st;
}

static td_status run_batch(void *user, const td__batch *batch, int number, double *losses)
{
    zero_rule *z = user;
    int micro_batches = z->o.micro_batches;
    td__lockstep_round round = {.batch = batch,
                                .micro_batches = micro_batches,
                                .run = z->run,
                                .step = z->step,
                                .reduce = reduce,
                                .user = z};

    for (int first = 0; first < micro_batches; first += z->size) {
        int mine = first + z->rank;
        td_runner *ran;
        z->n_leaves = 0;
        td__zero_deal(first, micro_batches, z->size, z->run);
        for (int r = 0; r < z->size; r++) {
            if (z->run[r] >= 0)
                z->leaves[z->n_leaves++] =
                    (td__rank_leaf){.tree = {number * micro_batches + first + r, 0},
                                    .rank = r,
                                    .present = micro_batch_rows(z, batch, first + r) > 0};
        }
        double share = mine < micro_batches ? share_of(z, batch, number, mine) : 0;
        z->weight = (float)share;
        round.at = mine < micro_batches ? row_of(z, batch, mine) : 0;
        round.micro_batch = (uint32_t)(number * micro_batches + mine);
        TD_TRY(td__lockstep_run(z->lockstep, &round, &ran));
        TD_TRY(reduce_rows(z, ran));
        if (ran)
            losses[mine] = share * (double)td_runner_loss(ran);
    }
    return TD_OK;
}

/* ---- Stage 1: the ranks' partials ------------------------------------------------------------ */

/* Has any micro-batch of the sub-tree a row? Only the last batch may have fewer rows than
 * micro-batches. */
static bool has_rows(const zero_rule *z, const td__subtree *t, int batches, int64_t last_rows)
{
    int64_t first = (int64_t)(batches - 1) * z->o.micro_batches, begin = t->begin;
    int64_t end = begin + ((int64_t)1 << t->level);
    if (begin < first)
        return true;
    return last_rows * (end - first) / z->o.micro_batches >
           last_rows * (begin - first) / z->o.micro_batches;
}

/* The partials of all ranks to the owners of shards. */
static td_status sum_shards(zero_rule *z)
{
    td__step_engine *e = z->base.engine;
    int batches = td__step_batches(e), all = batches * z->o.micro_batches;
    int64_t last_rows = td__step_last_rows(e);

    TD_TRY(td__step_join(e, NULL, NULL));
    const td__grad_stack *local = td__step_partials(e);
    z->n_leaves = 0;
    for (int r = 0; r < z->size; r++) {
        td__subtree trees[64];
        int n = td__rank_partials(all, r, z->size, trees);
        for (int i = 0; i < n; i++)
            z->leaves[z->n_leaves++] =
                (td__rank_leaf){.tree = trees[i],
                                .rank = r,
                                .slot = i,
                                .present = has_rows(z, &trees[i], batches, last_rows)};
        TD_ASSERT(r != z->rank || local->n == n, "%d partials, not %d", local->n, n);
    }
    for (int b = 0; b < z->map->n; b++)
        TD_TRY(td__zero_reduce(z->zero, b, local->at, local->n, z->leaves, z->n_leaves));
    return z->sparse
               ? td__sparse_gather_run(z->sparse, local, all, (td__work_partition){.size = z->size})
               : TD_OK;
}

/* ---- The update ------------------------------------------------------------------------------ */

static size_t own_begin(const zero_rule *z, int b)
{
    return td__shards_of(z->map, b)[z->rank];
}

static size_t own_count(const zero_rule *z, int b)
{
    return td__shard_count(z->map, b, z->rank);
}

/* Numbers by chunk, of which each rank has those of its shards and 0 elsewhere. */
static td_status exchange_chunks(zero_rule *z, size_t n)
{
    return td_allreduce(z->base.x.comm, z->chunks, z->chunks, n, TD_F64, TD_REDUCE_SUM, NULL);
}

static td_status clip(zero_rule *z, double *scale)
{
    td__tree_sum sum = {.n = 0};

    memset(z->chunks, 0, z->n_chunks * sizeof *z->chunks);
    for (int b = 0; b < z->map->params; b++)
        td__optim_chunk_squares(z->o.optimizer, z->sums[b], own_begin(z, b), own_count(z, b),
                                z->chunks);
    TD_TRY(exchange_chunks(z, z->n_chunks / 2));
    td__optim_add_squares(z->o.optimizer, z->chunks, &sum);
    for (int k = 0; k < td__grad_sparse_count(z->blocks); k++) {
        td_sparse_grad sg = td__sparse_gather_sum(z->sparse, k);
        td__tree_add(&sum, td__optim_param_squares(z->o.optimizer, sg.values,
                                                   (size_t)(sg.n_rows * sg.width)));
    }
    return td__optim_clip(z->o.optimizer, td__tree_total(&sum), scale);
}

/* Shards of bucket b of another rank, which this one mirrors. */
static size_t mirror_begin(const zero_rule *z, int b)
{
    return td__shards_of(z->map, b)[td__shards_mirror(z->shards)];
}

static size_t mirror_count(const zero_rule *z, int b)
{
    return td__shard_count(z->map, b, td__shards_mirror(z->shards));
}

static bool mirrors(const zero_rule *z)
{
    return td__shards_mirror(z->shards) >= 0;
}

/* What lamb and lars need to know of whole tensors. With mirrors no state may change yet. */
static td_status find_rates(zero_rule *z)
{
    if (td__optim_sliceable(z->o.optimizer))
        return TD_OK;
    memset(z->chunks, 0, z->n_chunks * sizeof *z->chunks);
    for (int b = 0; b < z->map->params; b++)
        td__optim_chunk_sums(z->o.optimizer, z->sums[b], own_begin(z, b), own_count(z, b),
                             !mirrors(z), z->chunks);
    TD_TRY(exchange_chunks(z, z->n_chunks));
    td__optim_set_rates(z->o.optimizer, z->chunks);
    return TD_OK;
}

/* Statistics of running averages, of which every rank has all: to where a runner folds them in. */
static td_status gather_statistics(zero_rule *z)
{
    float *grads = td_runner_grads(td__micro_batch_any_runner(z->o.set), NULL);
    for (int b = z->map->params; b < z->map->n; b++)
        TD_TRY(td__zero_gather_sum(z->zero, b, grads + z->map->begin[b]));
    return TD_OK;
}

static td_status prepare(zero_rule *z, double lr)
{
    td_optimizer *o = z->o.optimizer;
    uint64_t steps = td_optimizer_steps(o);
    double scale = 1;

    if (z->sparse && z->stage > 1)
        td__sparse_gather_finish(z->sparse);
    for (int b = 0; b < z->map->params; b++)
        z->sums[b] = td__zero_sum(z->zero, b);
    TD_TRY(td__zero_mirror_sums(z->zero));
    TD_TRY(gather_statistics(z));
    if (td__optim_clips(o))
        TD_TRY(clip(z, &scale));
    TD_TRY(td__optim_begin(o, lr, scale));
    td_optimizer_set_steps(o, steps); /* it is not done yet */
    TD_TRY(find_rates(z));
    z->prepared = true;
    return TD_OK;
}

static bool prepared(const td__sync *s)
{
    const zero_rule *z = (const zero_rule *)s;
    return z->prepared && mirrors(z);
}

/* The sums of find_rates, for their effect on the states. */
static void keep_moments(zero_rule *z)
{
    if (td__optim_sliceable(z->o.optimizer) || !mirrors(z))
        return;
    for (int b = 0; b < z->map->params; b++) {
        td__optim_chunk_sums(z->o.optimizer, z->sums[b], own_begin(z, b), own_count(z, b), true,
                             z->again);
        td__optim_chunk_sums(z->o.optimizer, td__zero_mirror_sum(z->zero, b), mirror_begin(z, b),
                             mirror_count(z, b), true, z->again);
    }
}

/* Bucket b of the own shards, or, after all of them, of the mirrored ones. */
static td_status apply_shards(void *user, int thread)
{
    zero_rule *z = user;
    int own = z->map->params, all = mirrors(z) ? 2 * own : own;
    (void)thread;
    for (int k; (k = atomic_fetch_add(&z->next, 1)) < all;) {
        int b = k % own;
        if (k < own)
            td__optim_apply(z->o.optimizer, z->sums[b], own_begin(z, b), own_count(z, b));
        else
            td__optim_apply(z->o.optimizer, td__zero_mirror_sum(z->zero, b), mirror_begin(z, b),
                            mirror_count(z, b));
    }
    return TD_OK;
}

static td_status apply(zero_rule *z)
{
    td_optimizer *o = z->o.optimizer;

    TD_ASSERT(z->prepared, "an update of step %u that is not prepared", z->step);
    z->prepared = false;
    td_optimizer_set_steps(o, td_optimizer_steps(o) + 1);
    keep_moments(z);
    atomic_store(&z->next, 0);
    TD_TRY(td__pool_run(z->o.pool, apply_shards, z));
    for (int k = 0; k < td__grad_sparse_count(z->blocks); k++) {
        td_sparse_grad sg = td__sparse_gather_sum(z->sparse, k);
        td__optim_apply_rows(o, &sg);
    }
    td_runner_update_states(td__micro_batch_any_runner(z->o.set));
    return td__optim_end(o);
}

static void note_sent(zero_rule *z)
{
    td__step_times *times = td__step_times_of(z->base.engine);
    times->sent_nbytes = times->plain_nbytes = td__shards_sent(z->shards) - z->sent_before;
}

static td_status step(td__sync *s, double lr, td__step_result *out)
{
    zero_rule *z = (zero_rule *)s;
    if (z->stage == 1) /* else gradients have left already */
        TD_TRY(sum_shards(z));
    TD_TRY(prepare(z, lr));
    TD_TRY(td__sync_sum_numbers(s)); /* last: who has them knows that all ranks are prepared */
    uint64_t begin_ns = td__clock_ns();
    TD_TRY(apply(z));
    td__step_updated(s->engine, begin_ns);
    note_sent(z);
    td__step_done(s->engine, out);
    return TD_OK;
}

static td_status forward(td__sync *s)
{
    return apply((zero_rule *)s);
}

static td_status gather(td__sync *s)
{
    zero_rule *z = (zero_rule *)s;
    if (z->stage < 3) {
        TD_TRY(td__shards_gather_all(z->shards));
        td_params_touch(z->o.params);
    }
    note_sent(z);
    return TD_OK;
}

/* ---- The rule -------------------------------------------------------------------------------- */

static td_status batch(td__sync *s, const td__batch *b)
{
    bool streams = ((zero_rule *)s)->lockstep;
    return streams ? td__step_batch_by(s->engine, b, run_batch, s) : td__step_batch(s->engine, b);
}

static bool asked(const td__sync_config *c)
{
    return c->zero != 0;
}

static bool fits(const td__sync_config *c, const td__sync_world *w)
{
    return c->zero && w->ranks > 1;
}

static td_status check(const td__sync_config *c, const td__sync_job *j, const td__sync_world *w)
{
    if (c->zero < 1 || c->zero >= TD__ZERO_STAGES)
        return TD_FAIL(TD_EINVAL, "parallel.zero is %d: must be 0 to 3", c->zero);
    if (c->compressor)
        return TD_FAIL(TD_EINVAL, "parallel.zero %d: gradients cannot be reduced by '%s' as well",
                       c->zero, c->compressor);
    if (c->zero > 1 && j->threads > 1 && (w->ranks > 1 || w->elastic))
        return TD_FAIL(TD_EINVAL,
                       "parallel.zero %d: ranks run one compute thread each, not %d; start more "
                       "ranks instead",
                       c->zero, j->threads);
    if (j->verify > 0)
        return TD_FAIL(TD_EINVAL, "train.verify: not with parallel.zero");
    return TD_OK;
}

static void traits(const td__sync_config *c, const td__sync_world *w, td__sync_traits *out)
{
    bool streams = c->zero > 1;
    (void)w;
    out->no_partials = streams;
    out->in_step = !streams;
    out->sharded = true;
    out->sharded_params = c->zero == 3;
    out->threads = streams ? 1 : 0;
    out->rows = streams ? rows_of : NULL;
}

/* On a device every bucket is a moment to wait for other ranks, who may have the same GPU in turn.
 * At stage 1 nothing is gained by leaving early: there are as few as the window takes at once. */
static size_t bucket_nbytes(const td__sync_config *c, const td_params *ps)
{
    bool few = c->zero == 1 && !td__device_host_reads(td__params_device(ps));
    return c->bucket_nbytes || !few ? c->bucket_nbytes : DEVICE_BUCKET_NBYTES;
}

static td_status hold(const td__sync_hold *h, td__shards **out)
{
    const td__sync_config *c = h->config;
    int slots = td__zero_slots(c->zero, td_comm_size(h->comm), h->micro_batches, h->accumulate);
    return td__shards_create(&(td__shards_opts){.comm = h->comm,
                                                .params = h->params,
                                                .of_params = c->zero == 3,
                                                .mirrors = h->elastic,
                                                .bucket_nbytes = bucket_nbytes(c, h->params),
                                                .slots = slots},
                             out);
}

static size_t exchange(const td__sync_sizes *x)
{
    return td__zero_nbytes(x->map, &(td__zero_case){.stage = x->config->zero,
                                                    .micro_batches = x->micro_batches,
                                                    .accumulate = x->accumulate,
                                                    .shared = x->world.shared,
                                                    .mirrors = x->world.elastic});
}

const td__sync_ops td__sync_zero = {
    .name = "zero",
    .help = "data parallel, state held in shards (parallel.zero)",
    .promise = "the bits of one rank",
    .size = sizeof(zero_rule),
    .key = "parallel.zero",
    .sample = "1",
    .asked = asked,
    .fits = fits,
    .check = check,
    .traits = traits,
    .exchange = exchange,
    .hold = hold,
    .bucket_nbytes = bucket_nbytes,
    .create = create,
    .destroy = destroy,
    .begin = begin,
    .batch = batch,
    .step = step,
    .gather = gather,
    .plan = td__zero_plan,
    .prepared = prepared,
    .forward = forward,
};
