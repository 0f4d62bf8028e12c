/* step_zero.c -- see step_zero.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "train/step_zero.h"

#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "parallel/sparse_gather.h"

struct td__step_zero {
    td__step_opts o;
    td__zero *zero;
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
    const float **sums; /* by bucket: this rank's slice of the sum */
    /* The step under way. */
    uint32_t step;
    int64_t rows;
    float weight; /* of the micro-batch that runs */
    atomic_int next;
    bool prepared; /* nothing is missing for the update */
};

static td_status set_up(td__step_zero *z)
{
    td_optimizer *o = z->o.optimizer;
    int all = z->o.micro_batches * z->o.accumulate, slots = 1;
    bool streams = td__zero_stage(z->zero) > 1;

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
        TD_TRY(td__sparse_gather_create(z->o.comm, z->blocks, slots, &z->sparse));
        TD_TRY(td__grad_pool_like(z->blocks, &z->lists));
    }
    return streams ? td__lockstep_create(z->zero, z->o.set, z->o.params, false, &z->lockstep)
                   : TD_OK;
}

td_status td__step_zero_create(const td__step_opts *o, td__grad_pool *blocks, td__step_zero **out)
{
    *out = NULL;
    td__step_zero *z = td__calloc(1, sizeof *z);
    if (!z)
        return TD_FAIL(TD_ENOMEM, "no memory for the step engine");
    z->o = *o;
    z->zero = o->zero;
    z->map = td__zero_ownership(o->zero);
    z->blocks = blocks;
    z->rank = td_comm_rank(o->comm);
    z->size = td_comm_size(o->comm);
    td_status st = set_up(z);
    if (st) {
        td__step_zero_destroy(z);
        return st;
    }
    *out = z;
    return TD_OK;
}

void td__step_zero_destroy(td__step_zero *z)
{
    if (!z)
        return;
    td__lockstep_destroy(z->lockstep);
    td__sparse_gather_destroy(z->sparse);
    td__grad_pool_destroy(z->lists);
    td__free(z->leaves);
    td__free(z->run);
    td__free(z->chunks);
    td__free(z->again);
    td__free(z->sums);
    td__free(z);
}

void td__step_zero_begin(td__step_zero *z, uint32_t step, int64_t rows)
{
    z->step = step;
    z->rows = rows;
    z->prepared = false;
    td__zero_begin(z->zero);
    if (z->sparse)
        td__sparse_gather_clear(z->sparse);
}

/* ---- Stages 2 and 3: micro-batch by micro-batch
 * ---------------------------------------------------------- */

int64_t td__zero_rows(int64_t rows, int micro_batches, int rank, int size, int64_t *out)
{
    int64_t n = 0;
    for (int s = rank; s < micro_batches; s += size)
        for (int64_t i = td__micro_batch_begin(rows, micro_batches, s);
             i < td__micro_batch_begin(rows, micro_batches, s + 1); i++, n++)
            if (out)
                out[n] = i;
    return n;
}

static int64_t micro_batch_rows(const td__step_zero *z, const td__batch *b, int s)
{
    return td__micro_batch_begin(b->rows, z->o.micro_batches, s + 1) -
           td__micro_batch_begin(b->rows, z->o.micro_batches, s);
}

/* Where the rows of this rank's micro-batch s lie: behind those of its micro-batches before, unless
 * the batch has the rows of all ranks. */
static int64_t row_of(const td__step_zero *z, const td__batch *b, int s)
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
    td__step_zero *z = user;
    td__partial mine = {.weight = z->weight, .dense = (float *)(uintptr_t)grads};
    return td__zero_reduce(z->zero, bucket, &mine, grads ? 1 : 0, z->leaves, z->n_leaves);
}

/* Row-sparse gradients of the round. */
static td_status reduce_rows(td__step_zero *z, td_runner *ran)
{
    td__grad_stack local;
    td_status st = TD_OK;
    if (!z->sparse)
        return TD_OK;
    local.n = 0;
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

td_status td__step_zero_batch(td__step_zero *z, const td__batch *batch, int number, double *losses)
{
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
        for (int r = 0; r < z->size; r++) {
            z->run[r] = first + r < micro_batches ? first + r : -1;
            if (z->run[r] >= 0)
                z->leaves[z->n_leaves++] =
                    (td__rank_leaf){.tree = {number * micro_batches + first + r, 0},
                                    .rank = r,
                                    .present = micro_batch_rows(z, batch, first + r) > 0};
        }
        double share =
            mine < micro_batches ? (double)micro_batch_rows(z, batch, mine) / (double)z->rows : 0;
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
static bool has_rows(const td__step_zero *z, const td__subtree *t, int batches, int64_t last_rows)
{
    int64_t first = (int64_t)(batches - 1) * z->o.micro_batches, begin = t->begin;
    int64_t end = begin + ((int64_t)1 << t->level);
    if (begin < first)
        return true;
    return last_rows * (end - first) / z->o.micro_batches >
           last_rows * (begin - first) / z->o.micro_batches;
}

td_status td__step_zero_sum(td__step_zero *z, const td__grad_stack *local, int batches,
                            int64_t last_rows)
{
    int all = batches * z->o.micro_batches;

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

static size_t own_begin(const td__step_zero *z, int b)
{
    return td__shards_of(z->map, b)[z->rank];
}

static size_t own_count(const td__step_zero *z, int b)
{
    return td__shard_count(z->map, b, z->rank);
}

/* Numbers by chunk, of which each rank has those of its slices and 0 elsewhere. */
static td_status exchange_chunks(td__step_zero *z, size_t n)
{
    return td_allreduce(z->o.comm, z->chunks, z->chunks, n, TD_F64, TD_REDUCE_SUM, NULL);
}

static td_status clip(td__step_zero *z, double *scale)
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

/* Slices of bucket b of another rank, which this one mirrors. */
static size_t mirror_begin(const td__step_zero *z, int b)
{
    return td__shards_of(z->map, b)[td__zero_mirror(z->zero)];
}

static size_t mirror_count(const td__step_zero *z, int b)
{
    return td__shard_count(z->map, b, td__zero_mirror(z->zero));
}

static bool mirrors(const td__step_zero *z)
{
    return td__zero_mirror(z->zero) >= 0;
}

/* What lamb and lars need to know of whole tensors. With mirrors no state may change yet. */
static td_status find_rates(td__step_zero *z)
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
static td_status gather_statistics(td__step_zero *z)
{
    float *grads = td_runner_grads(td__micro_batch_any_runner(z->o.set), NULL);
    for (int b = z->map->params; b < z->map->n; b++)
        TD_TRY(td__zero_gather_sum(z->zero, b, grads + z->map->begin[b]));
    return TD_OK;
}

td_status td__step_zero_prepare(td__step_zero *z, double lr)
{
    td_optimizer *o = z->o.optimizer;
    uint64_t steps = td_optimizer_steps(o);
    double scale = 1;

    if (z->sparse && td__zero_stage(z->zero) > 1)
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

bool td__step_zero_prepared(const td__step_zero *z)
{
    return z->prepared && mirrors(z);
}

/* The sums of find_rates, for their effect on the states. */
static void keep_moments(td__step_zero *z)
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

/* Bucket b of the own slices, or, after all of them, of the mirrored ones. */
static td_status apply(void *user, int thread)
{
    td__step_zero *z = user;
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

td_status td__step_zero_apply(td__step_zero *z)
{
    td_optimizer *o = z->o.optimizer;

    TD_ASSERT(z->prepared, "an update of step %u that is not prepared", z->step);
    z->prepared = false;
    td_optimizer_set_steps(o, td_optimizer_steps(o) + 1);
    keep_moments(z);
    atomic_store(&z->next, 0);
    TD_TRY(td__pool_run(z->o.pool, apply, z));
    for (int k = 0; k < td__grad_sparse_count(z->blocks); k++) {
        td_sparse_grad sg = td__sparse_gather_sum(z->sparse, k);
        td__optim_apply_rows(o, &sg);
    }
    td_runner_update_states(td__micro_batch_any_runner(z->o.set));
    return td__optim_end(o);
}

td_status td__step_zero_gather(td__step_zero *z)
{
    if (td__zero_stage(z->zero) == 3)
        return TD_OK;
    TD_TRY(td__zero_gather_all(z->zero));
    td_params_touch(z->o.params);
    return TD_OK;
}
