/* step.c -- see step.h.
 *
 * Phases, each one call of the pool:
 *   1. per batch: every thread runs its range of shards and adds up what it can (a stack of
 *      partials); the stacks, in order of threads, are the batch's partials in order of shards;
 *   2. the rest of the tree, slice by slice over all threads: blends, and the optimizer's update of
 *      the slice while it is in the cache;
 *   with clipping by the norm, the update is a phase of its own after the norm is known. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "train/step.h"

#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "optim/optimizer.h"
#include "parallel/grad_tree.h"

enum { SLICE = 16 << 10, FEW_SLICES = 8 };

/* Elements [begin, begin + count) of the gradient block, one thread's work at a time. */
typedef struct part {
    size_t begin, count;
    bool update; /* gradients; else statistics, or padding */
} part;

struct td__step_engine {
    td__step_opts o;
    td__grad_pool *blocks;
    td__grad_stack *stacks; /* by thread */
    td__grad_stack total;   /* of the batches before */
    td__grad_sum sum;
    double *losses; /* by shard of the step, weighted */
    int n_losses;
    part *parts;
    int n_parts;
    double *squares; /* by param */
    /* The step under way. */
    uint32_t step;
    int64_t rows;
    int batches;
    bool last;
    atomic_int next; /* part or param that nobody has taken yet */
    float *grads;    /* where the total will lie */
    bool update;     /* phase 2 updates the params as well */
};

static void add_part(td__step_engine *e, size_t begin, size_t end, bool update)
{
    if (begin < end)
        e->parts[e->n_parts++] = (part){begin, end - begin, update};
}

static void add_slices(td__step_engine *e, size_t begin, size_t end, bool update)
{
    for (; begin < end; begin += SLICE)
        add_part(e, begin, end - begin > SLICE ? begin + SLICE : end, update);
}

/* Slices for optimizers that may be given any; whole tensors for those that may not. */
static td_status make_parts(td__step_engine *e, size_t dense)
{
    td_params *ps = e->o.params;
    size_t total = td__grad_dense(e->blocks);
    int room = (int)(total / SLICE) + 2 * td_params_count(ps) + 4;
    e->parts = td__calloc((size_t)room, sizeof *e->parts);
    if (!e->parts)
        return TD_FAIL(TD_ENOMEM, "no memory for %d parts of the gradients", room);
    for (int i = 0; !td__optim_sliceable(e->o.optimizer) && i < td_params_count(ps); i++) {
        td_param_info info = td_params_info(ps, i);
        if (!info.is_state && !info.sparse)
            add_part(e, info.offset, info.offset + info.count, true);
    }
    if (td__optim_sliceable(e->o.optimizer))
        add_slices(e, 0, dense, true);
    add_slices(e, dense, total, false);
    return TD_OK;
}

/* Blocks that are in use at once: each thread's for its range; with accumulation also the partials
 * of the batches before, and the last shard of each range, which is not left in its runner. */
static int blocks_needed(const td__step_engine *e)
{
    int threads = td__pool_threads(e->o.pool), v = e->o.shards, n = 0;
    for (int t = 0; t < threads; t++) {
        int begin = (int)((int64_t)v * t / threads), end = (int)((int64_t)v * (t + 1) / threads);
        bool borrowed = e->o.accumulate == 1 && !td__grad_sparse_count(e->blocks);
        if (begin < end)
            n += td__grad_blocks_needed(e->blocks, begin, borrowed ? end - 1 : end);
    }
    int most = 0;
    for (int a = 1; a < e->o.accumulate; a++) { /* the sub-trees of [0, a V) */
        int before = __builtin_popcount((unsigned)(a * v));
        most = before > most ? before : most;
    }
    return n + most;
}

static td_status set_up(td__step_engine *e)
{
    td_params *ps = e->o.params;
    size_t dense = 0;
    for (int i = 0; i < td_params_count(ps); i++) {
        td_param_info info = td_params_info(ps, i);
        if (!info.is_state && !info.sparse && info.offset + info.count > dense)
            dense = info.offset + info.count;
    }
    int shards = e->o.shards * e->o.accumulate;
    TD_TRY(td__grad_pool_create(e->o.program, ps, shards, &e->blocks));
    TD_TRY(td__grad_pool_reserve(e->blocks, blocks_needed(e)));
    e->stacks = td__calloc((size_t)td__pool_threads(e->o.pool), sizeof *e->stacks);
    e->losses = td__calloc((size_t)shards, sizeof *e->losses);
    e->squares = td__calloc((size_t)td_params_count(ps) + 1, sizeof *e->squares);
    if (!e->stacks || !e->losses || !e->squares)
        return TD_FAIL(TD_ENOMEM, "no memory for a step of %d shards", shards);
    return make_parts(e, dense);
}

td_status td__step_engine_create(const td__step_opts *opts, td__step_engine **out)
{
    *out = NULL;
    td__step_engine *e = td__calloc(1, sizeof *e);
    if (!e)
        return TD_FAIL(TD_ENOMEM, "no memory for the step engine");
    e->o = *opts;
    td_status st = set_up(e);
    if (st) {
        td__step_engine_destroy(e);
        return st;
    }
    *out = e;
    return TD_OK;
}

void td__step_engine_destroy(td__step_engine *e)
{
    if (!e)
        return;
    if (e->stacks)
        td__step_abandon(e);
    td__grad_pool_destroy(e->blocks);
    td__free(e->stacks);
    td__free(e->losses);
    td__free(e->squares);
    td__free(e->parts);
    td__free(e);
}

void td__step_abandon(td__step_engine *e)
{
    for (int t = 0; t < td__pool_threads(e->o.pool); t++)
        td__grad_clear(e->blocks, &e->stacks[t]);
    td__grad_clear(e->blocks, &e->total);
}

void td__step_begin(td__step_engine *e, uint32_t step, int64_t rows)
{
    e->step = step;
    e->rows = rows;
    e->batches = 0;
    e->n_losses = 0;
}

/* ---- 1. Shards ------------------------------------------------------------------------------- */

static td_status add_shard(void *user, const td__shard *s)
{
    td__step_engine *e = user;
    int number = e->batches * e->o.shards + s->index;
    double share = (double)s->rows / (double)e->rows;
    e->losses[number] = s->runner ? share * (double)td_runner_loss(s->runner) : 0;
    return td__grad_push(e->blocks, &e->stacks[s->thread], number, s->runner, (float)share,
                         e->last && s->last);
}

/* Blends, and the update where it goes with them, of parts until none is left. */
static td_status sum_parts(void *user, int thread)
{
    td__step_engine *e = user;
    (void)thread;
    for (int i; (i = atomic_fetch_add(&e->next, 1)) < e->n_parts;) {
        const part *p = &e->parts[i];
        td__grad_blend(&e->sum, p->begin, p->count);
        if (e->update && p->update)
            td__optim_apply(e->o.optimizer, e->grads + p->begin, p->begin, p->count);
    }
    return TD_OK;
}

/* Little work is done by the caller alone, rather than wake everybody. */
static td_status in_parts(td__step_engine *e, td__pool_fn *fn)
{
    atomic_store(&e->next, 0);
    return e->n_parts < FEW_SLICES ? fn(e, 0) : td__pool_run(e->o.pool, fn, e);
}

td_status td__step_batch(td__step_engine *e, const td__batch *batch, bool last)
{
    TD_ASSERT(e->batches < e->o.accumulate, "batch %d of a step of %d", e->batches,
              e->o.accumulate);
    e->last = last;
    TD_TRY(td__shards_run(e->o.set, batch, e->o.shards, e->step,
                          (uint32_t)(e->batches * e->o.shards), add_shard, e));
    e->batches++;
    e->n_losses += e->o.shards;
    for (int t = 0; t < td__pool_threads(e->o.pool); t++) {
        td__grad_stack *s = &e->stacks[t];
        TD_ASSERT(e->total.n + s->n <= TD__GRAD_STACK, "%d partials", e->total.n + s->n);
        memcpy(&e->total.at[e->total.n], s->at, (size_t)s->n * sizeof *s->at);
        e->total.n += s->n;
        s->n = 0;
    }
    if (last)
        return TD_OK;
    td__grad_plan(&e->total, false, &e->sum);
    e->update = false;
    TD_TRY(in_parts(e, sum_parts));
    td__grad_finish(e->blocks, &e->sum);
    return TD_OK;
}

/* ---- 2. The rest of the tree and the update -------------------------------------------------- */

static td_status square_params(void *user, int thread)
{
    td__step_engine *e = user;
    int n = td_params_count(e->o.params);
    (void)thread;
    for (int i; (i = atomic_fetch_add(&e->next, 1)) < n;) {
        td_param_info info = td_params_info(e->o.params, i);
        if (!info.is_state && !info.sparse)
            e->squares[i] =
                td__optim_param_squares(e->o.optimizer, e->grads + info.offset, info.count);
    }
    return TD_OK;
}

static td_status clip(td__step_engine *e, const td__partial *total, double *scale)
{
    td__tree_sum sum = {.n = 0};
    TD_TRY(in_parts(e, square_params));
    for (int i = 0; i < td_params_count(e->o.params); i++) {
        td_param_info info = td_params_info(e->o.params, i);
        if (!info.is_state && !info.sparse)
            td__tree_add(&sum, e->squares[i]);
    }
    for (int k = 0; k < td__grad_sparse_count(e->blocks); k++) {
        td_sparse_grad sg = td__grad_sparse(e->blocks, total, k);
        td__tree_add(&sum, td__optim_param_squares(e->o.optimizer, sg.values,
                                                   (size_t)(sg.n_rows * sg.width)));
    }
    return td__optim_clip(e->o.optimizer, td__tree_total(&sum), scale);
}

/* Running averages: a runner folds in the statistics that lie in its own gradient block. */
static void update_states(td__step_engine *e, td_runner *r)
{
    size_t count;
    float *mine = td_runner_grads(r, &count);
    if (mine != e->grads)
        for (int i = 0; i < e->n_parts; i++)
            if (!e->parts[i].update)
                memcpy(mine + e->parts[i].begin, e->grads + e->parts[i].begin,
                       e->parts[i].count * sizeof *mine);
    td_runner_update_states(r);
}

static td_status update(td__step_engine *e, double lr)
{
    td_optimizer *o = e->o.optimizer;
    bool clips = td__optim_clips(o);
    double scale = 1;

    td__grad_plan(&e->total, true, &e->sum);
    const td__partial *total = &e->total.at[0];
    TD_ASSERT(e->total.n == 1 && total->dense && total->weight == 1, "%d partials of weight %g",
              e->total.n, (double)total->weight);
    e->grads = total->dense;
    e->update = !clips;
    if (!clips)
        TD_TRY(td__optim_begin(o, lr, 1));
    TD_TRY(in_parts(e, sum_parts));
    td__grad_finish(e->blocks, &e->sum);
    if (clips) {
        TD_TRY(clip(e, total, &scale));
        TD_TRY(td__optim_begin(o, lr, scale));
        e->update = true;
        TD_TRY(in_parts(e, sum_parts)); /* nothing left to blend */
    }
    for (int k = 0; k < td__grad_sparse_count(e->blocks); k++) {
        td_sparse_grad sg = td__grad_sparse(e->blocks, total, k);
        td__optim_apply_rows(o, &sg);
    }
    update_states(e, td__shard_any_runner(e->o.set));
    td__optim_end(o);
    return TD_OK;
}

td_status td__step_end(td__step_engine *e, double lr, double *loss, double *grad_norm)
{
    td__tree_sum sum = {.n = 0};
    for (int i = 0; i < e->n_losses; i++)
        td__tree_add(&sum, e->losses[i]);
    *loss = td__tree_total(&sum);
    TD_TRY(update(e, lr));
    td__grad_clear(e->blocks, &e->total);
    *grad_norm = td__optim_clips(e->o.optimizer) ? td_optimizer_grad_norm(e->o.optimizer) : -1;
    return TD_OK;
}
