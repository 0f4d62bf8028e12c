/* step.c -- see step.h.
 *
 * Phases, each one call of the pool:
 *   1. per batch: every thread runs its range of micro-batches and adds up what it can (a stack of
 *      partials); the stacks, in order of threads, are the batch's partials in order of
 *      micro-batches. The last micro-batch of a thread in the step is lent: its gradients are read
 *      where they are; with buckets the last few are, which run side by side; 2. the rest of the
 *      tree, slice by slice over all threads: blends, and the optimizer's update of the slice while
 *      it is in the cache; with clipping by the norm, the update is a phase of its own after the
 *      norm is known.
 *
 * With several ranks that share memory, phase 2 ends with partials, which are added up with those
 * of the others, and the update is a phase of its own after that; the sum of two partials, one of
 * each of two ranks, is made block by block while updating. With buckets there is no phase 2:
 * threads tell how far backward is in the lent micro-batches, the buckets leave meanwhile, and the
 * update is a phase for each bucket that arrives. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/fail.h"
#include "coll/comm.h"
#include "optim/optimizer.h"
#include "train/step_impl.h"

enum { SLICE = 16 << 10 };

static void add_part(td__step_engine *e, size_t begin, size_t end, bool update)
{
    if (begin < end)
        e->parts[e->n_parts++] = (td__step_part){begin, end - begin, update};
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

/* What is before the losses. */
static size_t head(const td__step_engine *e)
{
    return TD_REQUESTS + (size_t)e->size + (e->o.watch ? (size_t)TD__STEP_WORDS : 0);
}

static td__work_partition deal_of(const td__step_engine *e)
{
    return (td__work_partition){e->size, e->o.bounds};
}

/* Blocks that are in use at once: each thread's for its range; with accumulation also the partials
 * of the batches before, in which no micro-batch is left in its runner. (With
 * accumulation on several ranks ranges move from batch to batch, and this is an estimate.) */
int td__step_blocks(const td__grad_pool *g, const td__step_blocks_opts *o)
{
    int v = o->micro_batches, n = 0;
    td__micro_batch_range own =
        td__work_micro_batches((td__work_partition){o->size, o->bounds}, v, o->rank);
    td__micro_batch_cut cut = {v, own.begin, own.end};
    for (int t = 0; t < o->threads; t++) {
        int begin = td__micro_batch_of_thread(cut, t, o->threads);
        int end = td__micro_batch_of_thread(cut, t + 1, o->threads);
        int lends = td__grad_blocks_needed(g, begin, end, o->in_flight);
        int keeps = o->accumulate == 1 ? 0 : td__grad_blocks_needed(g, begin, end, 0);
        n += lends > keeps ? lends : keeps;
    }
    int most = 0;
    for (int a = 1; a < o->accumulate; a++) { /* the sub-trees of [0, a V) */
        int before = __builtin_popcount((unsigned)(a * v));
        most = before > most ? before : most;
    }
    return n + most;
}

/* Partials of a range: on each side one per level at most, and the micro-batches that are lent. */
int td__step_threads(int threads, int micro_batches)
{
    enum { BATCHES_BEFORE = 32 }; /* theirs: one per bit of their number of micro-batches */
    for (;; threads--) {
        int each = (micro_batches + threads - 1) / threads, levels = 0;
        while (1 << levels < each)
            levels++;
        int borrowed = each < TD__MOST_BESIDE ? each : TD__MOST_BESIDE;
        if (threads == 1 || threads * (2 * levels + borrowed) + BATCHES_BEFORE <= TD__GRAD_STACK)
            return threads;
    }
}

/* Ranks that share memory need no second thread, not even with a compressor. */
static td_status join_world(td__step_engine *e)
{
    bool shares = td__comm_shares(e->o.comm);
    if (shares && !e->o.compressor)
        return td__dp_create(e->o.comm, e->blocks, e->o.bounds, e->o.micro_batches, e->o.accumulate,
                             &e->world);
    td__bucket_sum_opts o = {.comm = e->o.comm,
                             .blocks = e->blocks,
                             .params = e->o.params,
                             .bounds = e->o.bounds,
                             .micro_batches = e->o.micro_batches,
                             .accumulate = e->o.accumulate,
                             .threads = td__pool_threads(e->o.pool),
                             .bucket_nbytes = e->o.bucket_nbytes,
                             .compressor = e->o.compressor,
                             .with = e->o.with,
                             .inline_ = shares};
    TD_TRY(td__bucket_sum_create(&o, &e->buckets));
    int n = td__bucket_sum_count(e->buckets);
    e->marks = td__calloc((size_t)n + 1, sizeof *e->marks);
    if (!e->marks)
        return TD_FAIL(TD_ENOMEM, "no memory for %d buckets", n);
    for (int k = 0; k < n; k++) {
        td__bucket b = td__bucket_sum_bucket(e->buckets, k);
        e->marks[k] = b.begin + b.count;
    }
    return TD_OK;
}

int td__step_in_flight(const td__step_in_flight_opts *o)
{
    const td__compressor_ops *ops = o->compressor ? td__compressor_find(o->compressor) : NULL;
    if (o->size == 1 || o->shared || o->watched || o->zero || (ops && ops->whole))
        return 1; /* nothing leaves early */
    int most = o->most ? o->most : TD__BESIDE;
    return most < TD__MOST_BESIDE ? most : TD__MOST_BESIDE;
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
    int micro_batches = e->o.micro_batches * e->o.accumulate;
    e->rank = e->o.comm ? td_comm_rank(e->o.comm) : e->o.rank;
    e->size = e->o.comm ? td_comm_size(e->o.comm) : e->o.ranks ? e->o.ranks : 1;
    e->in_flight = td__step_in_flight(
        &(td__step_in_flight_opts){.size = e->o.comm ? e->size : 1,
                                   .shared = e->o.comm && td__comm_shares(e->o.comm),
                                   .watched = e->o.watch,
                                   .zero = e->o.zero,
                                   .compressor = e->o.compressor,
                                   .most = e->o.in_flight});
    TD_TRY(td__grad_pool_create(e->o.program, ps, micro_batches, &e->blocks));
    if (!e->o.zero || td__zero_stage(e->o.zero) == 1) /* else gradients are not kept */
        TD_TRY(td__grad_pool_reserve(
            e->blocks, td__step_blocks(e->blocks, &(td__step_blocks_opts){
                                                      e->o.micro_batches, e->o.accumulate,
                                                      td__pool_threads(e->o.pool), e->rank, e->size,
                                                      e->o.bounds, e->in_flight})));
    size_t threads = (size_t)td__pool_threads(e->o.pool);
    e->stacks = td__calloc(threads, sizeof *e->stacks);
    e->borrowed = td__calloc(threads * TD__MOST_BESIDE, sizeof *e->borrowed);
    e->busy = td__calloc(threads, sizeof *e->busy);
    e->sums = td__calloc(head(e) + (size_t)micro_batches, sizeof *e->sums);
    e->squares = td__calloc((size_t)td_params_count(ps) + 1, sizeof *e->squares);
    e->ops = td__calloc((size_t)e->size, sizeof *e->ops);
    if (!e->stacks || !e->borrowed || !e->busy || !e->sums || !e->squares || !e->ops)
        return TD_FAIL(TD_ENOMEM, "no memory for a step of %d micro-batches", micro_batches);
    e->losses = e->sums + head(e);
    if (e->o.zero)
        TD_TRY(td__step_zero_create(&e->o, e->blocks, &e->zero));
    else if (e->o.comm && (e->size > 1 || e->o.compressor)) /* which may have the momentum */
        TD_TRY(join_world(e));
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

static td__step_borrowed *borrowed_of(td__step_engine *e, int thread, int place)
{
    return &e->borrowed[thread * TD__MOST_BESIDE + place];
}

void td__step_engine_destroy(td__step_engine *e)
{
    if (!e)
        return;
    if (e->stacks && e->borrowed)
        td__step_abandon(e);
    td__dp_destroy(e->world);
    td__bucket_sum_destroy(e->buckets);
    td__step_zero_destroy(e->zero);
    td__micro_batch_own_grads(e->o.set); /* runners that lent a block write to it still */
    td__grad_pool_destroy(e->blocks);
    td__free(e->stacks);
    td__free(e->borrowed);
    td__free(e->busy);
    td__free(e->sums);
    td__free(e->squares);
    td__free(e->ops);
    td__free(e->parts);
    td__free(e->marks);
    td__free(e);
}

void td__step_abandon(td__step_engine *e)
{
    if (e->buckets)
        td__bucket_sum_cancel(e->buckets, td_last_error());
    for (int t = 0; t < td__pool_threads(e->o.pool); t++) {
        td__grad_clear(e->blocks, &e->stacks[t]);
        td__grad_unbind(e->blocks, &borrowed_of(e, t, 0)->leaf); /* others are on the stack */
    }
    td__grad_clear(e->blocks, &e->total);
}

size_t td__step_n_sums(const td__step_engine *e)
{
    return head(e) + (size_t)(e->batches * e->o.micro_batches);
}

void td__step_begin(td__step_engine *e, uint32_t step, int batches, int64_t rows)
{
    TD_ASSERT(batches >= 1 && batches <= e->o.accumulate, "a step of %d batches", batches);
    e->step = step;
    e->rows = rows;
    e->batches = batches;
    e->done = 0;
    e->times = (td__step_times){0};
    if (e->zero) {
        td__step_zero_begin(e->zero, step, rows);
        e->sent_before = td__zero_sent(e->o.zero);
    }
    memset(e->sums, 0, td__step_n_sums(e) * sizeof *e->sums);
}

/* ---- 1. Micro-batches
 * ------------------------------------------------------------------------------- */

static float share_of(const td__step_engine *e, const td__micro_batch *s)
{
    return (float)((double)s->rows / (double)e->rows);
}

/* Backward has made elements [0, count) of the lent micro-batches of a thread final. */
static void passed(void *user, int thread, size_t count)
{
    td__step_engine *e = user;
    if (count == SIZE_MAX || !borrowed_of(e, thread, 0)->watched)
        td__bucket_sum_passed(e->buckets, thread, count);
}

static td_status lend_micro_batch(void *user, const td__micro_batch *s)
{
    td__step_engine *e = user;
    td__step_borrowed *l = borrowed_of(e, s->thread, s->place);
    td__grad_stack *stack = &e->stacks[s->thread];

    *l = (td__step_borrowed){.weight = share_of(e, s), .begin_ns = e->o.spans ? td__clock_ns() : 0};
    l->watched = e->o.watch && e->o.watch->watched(e->o.watch->user, e->done, s->index);
    int number = e->done * e->o.micro_batches + s->index;
    if (!e->lends || !s->last)
        return td__grad_bind(e->blocks, stack, number, s->runner, l->weight, &l->leaf);
    TD_TRY(td__grad_lend(e->blocks, stack, number, s->runner, l->weight, s->place > 0));
    l->rows = stack->at[stack->n - 1].block;
    return TD_OK;
}

static td_status add_micro_batch(void *user, const td__micro_batch *s)
{
    td__step_engine *e = user;
    td__step_borrowed *l = borrowed_of(e, s->thread, s->place);
    int number = e->done * e->o.micro_batches + s->index;
    double share = (double)s->rows / (double)e->rows;
    e->losses[number] = s->runner ? share * (double)td_runner_loss(s->runner) : 0;
    if (e->o.spans)
        td__step_span(e, TD_SPAN_MICRO_BATCH, l->begin_ns, td__clock_ns(), s->thread, number);
    if (e->o.watch)
        TD_TRY(e->o.watch->ran(e->o.watch->user, e->done, s));
    if (!e->lends || !s->last) {
        td__grad_push(e->blocks, &e->stacks[s->thread], &l->leaf, s->runner);
        l->leaf.block = NULL;
    } else if (s->runner)
        td__grad_borrowed(e->blocks, l->rows, s->runner, l->weight);
    return TD_OK;
}

/* Has this rank micro-batches in batches after this one? */
static bool micro_batches_left(const td__step_engine *e)
{
    for (int k = e->done + 1; k < e->batches; k++) {
        td__micro_batch_range own =
            td__work_cut(deal_of(e), e->o.micro_batches, e->batches, k, e->rank);
        if (own.begin < own.end)
            return true;
    }
    return false;
}

/* The stacks of a batch, one behind the other; siblings become one unless it is left to phase 2. */
static td_status collect(td__step_engine *e)
{
    for (int t = 0; t < td__pool_threads(e->o.pool); t++) {
        td__grad_stack *s = &e->stacks[t];
        TD_ASSERT(e->total.n + s->n <= TD__GRAD_STACK, "%d partials", e->total.n + s->n);
        memcpy(&e->total.at[e->total.n], s->at, (size_t)s->n * sizeof *s->at);
        e->total.n += s->n;
        s->n = 0;
    }
    if (e->lends)
        return TD_OK;
    td__grad_plan(&e->total, false, &e->sum);
    e->update = false;
    TD_TRY(td__step_in_parts(e, td__step_sum_parts));
    td__grad_finish(e->blocks, &e->sum);
    return TD_OK;
}

/* The first batch tells what the last one will have. */
static td_status begin_buckets(td__step_engine *e)
{
    return td__bucket_sum_begin(e->buckets, e->step, e->batches, e->last_rows);
}

static void open_buckets(td__step_engine *e, td__micro_batch_cut cut)
{
    int threads = td__pool_threads(e->o.pool);
    for (int t = 0; t < threads; t++)
        e->busy[t] = td__micro_batch_of_thread(cut, t, threads) <
                     td__micro_batch_of_thread(cut, t + 1, threads);
    td__bucket_sum_open(e->buckets, &e->total, e->stacks, e->busy);
}

static td_status run_batch(td__step_engine *e, const td__batch *batch)
{
    td__micro_batch_range own =
        td__work_cut(deal_of(e), e->o.micro_batches, e->batches, e->done, e->rank);
    td__micro_batch_cut cut = {e->o.micro_batches, own.begin, own.end};
    bool through = e->done && e->lends; /* this rank was through before */

    if (e->done == 0) {
        e->last_rows = e->rows - (int64_t)(e->batches - 1) * batch->rows;
        if (e->buckets)
            TD_TRY(begin_buckets(e));
    }
    TD_ASSERT(e->done + 1 < e->batches || batch->rows == e->last_rows, "%lld rows, not %lld",
              (long long)batch->rows, (long long)e->last_rows);
    if (through)
        return TD_OK;
    e->lends = !micro_batches_left(e);
    if (e->lends && e->buckets)
        open_buckets(e, cut);
    td__micro_batch_calls calls = {.before = lend_micro_batch, .after = add_micro_batch, .user = e};
    if (e->lends && e->buckets) {
        calls.passed = passed;
        calls.in_flight = e->in_flight;
        calls.marks = e->marks;
        calls.n_marks = td__bucket_sum_count(e->buckets);
    }
    TD_TRY(td__micro_batches_run(e->o.set, batch, cut, e->step,
                                 (uint32_t)(e->done * e->o.micro_batches), calls));
    if (e->lends && e->buckets)
        td__bucket_sum_flush(e->buckets);
    else
        TD_TRY(collect(e));
    return TD_OK;
}

int td__step_micro_batches(const td__step_engine *e)
{
    td__micro_batch_range own = td__work_micro_batches(deal_of(e), e->o.micro_batches, e->rank);
    return own.end - own.begin;
}

td_status td__step_batch(td__step_engine *e, const td__batch *batch)
{
    uint64_t begin = td__clock_ns();
    TD_ASSERT(e->done < e->batches, "batch %d of a step of %d", e->done, e->batches);
    if (e->zero && td__zero_stage(e->o.zero) > 1)
        TD_TRY(
            td__step_zero_batch(e->zero, batch, e->done, e->losses + e->done * e->o.micro_batches));
    else
        TD_TRY(run_batch(e, batch));
    e->done++;
    e->times.compute += td__step_seconds_since(begin);
    return TD_OK;
}

/* ---- 2. The rest of the tree and the update -------------------------------------------------- */

/* The sum over all ranks, in slices; at stages 2 and 3 the gradients have left already. */
static td_status sum_slices(td__step_engine *e)
{
    if (td__zero_stage(e->o.zero) > 1)
        return TD_OK;
    td__grad_plan(&e->total, false, &e->sum);
    e->update = false;
    TD_TRY(td__step_in_parts(e, td__step_sum_parts));
    td__grad_finish(e->blocks, &e->sum);
    return td__step_zero_sum(e->zero, &e->total, e->batches, e->last_rows);
}

/* The losses come last: who has them knows that all ranks are prepared. */
static td_status sum_zero(td__step_engine *e, double lr)
{
    TD_TRY(sum_slices(e));
    TD_TRY(td__step_zero_prepare(e->zero, lr));
    return td_allreduce(e->o.comm, e->sums, e->sums, td__step_n_sums(e), TD_F64, TD_REDUCE_SUM,
                        NULL);
}

/* The blends of the sum over this rank's micro-batches, which are all. */
static void plan_local(td__step_engine *e)
{
    td__grad_plan(&e->total, true, &e->sum);
    const td__partial *total = &e->total.at[0];
    TD_ASSERT(e->total.n == 1 && total->dense && total->weight == 1, "%d partials of weight %g",
              e->total.n, (double)total->weight);
    e->grads = total->dense;
}

/* What the queue did meanwhile. */
static void note_buckets(td__step_engine *e)
{
    const td__bucket_span *spans = td__bucket_sum_spans(e->buckets);
    for (int k = 0; k <= td__bucket_sum_count(e->buckets); k++) {
        e->times.reduce += 1e-9 * (double)(spans[k].end_ns - spans[k].begin_ns);
        e->times.busy += 1e-9 * (double)spans[k].cpu_ns;
    }
    td__bucket_sum_nbytes(e->buckets, &e->times.sent_nbytes, &e->times.plain_nbytes);
}

int td__step_spans(const td__step_engine *e, const td__bucket_span **out)
{
    *out = e->buckets ? td__bucket_sum_spans(e->buckets) : NULL;
    return e->buckets ? td__bucket_sum_count(e->buckets) + 1 : 0;
}

size_t td__step_bucket_nbytes(const td__step_engine *e, int k)
{
    if (k == td__bucket_sum_count(e->buckets))
        return 0;
    return td__bucket_sum_bucket(e->buckets, k).count * sizeof(float);
}

td_status td__step_end(td__step_engine *e, double lr, td__step_say say, td__step_result *out)
{
    td__tree_sum sum = {.n = 0};
    memcpy(e->sums, say.requests, sizeof say.requests);
    e->sums[TD_REQUESTS + e->rank] = say.seconds;
    if (e->o.watch)
        e->o.watch->say(e->o.watch->user, e->sums + TD_REQUESTS + e->size);
    uint64_t begin = td__clock_ns();
    if (e->zero) {
        TD_TRY(sum_zero(e, lr));
    } else if (e->world) {
        TD_TRY(td__step_sum_world(e));
    } else if (e->buckets) {
        td__bucket_sum_close(e->buckets, e->sums, td__step_n_sums(e));
        e->grads = td__bucket_sum_grads(e->buckets);
    } else {
        plan_local(e);
    }
    double before = e->world || e->zero ? td__step_seconds_since(begin) : 0;
    uint64_t summed = td__clock_ns();
    TD_TRY(e->zero ? td__step_zero_apply(e->zero) : td__step_update(e, lr));
    td__step_span(e, TD_SPAN_UPDATE, summed, td__clock_ns(), 0, 0);
    e->times.update = td__step_seconds_since(begin) - before - (e->buckets ? e->times.wait : 0);
    if (e->buckets)
        note_buckets(e);
    if (e->zero)
        e->times.sent_nbytes = e->times.plain_nbytes = td__zero_sent(e->o.zero) - e->sent_before;
    td__grad_clear(e->blocks, &e->total);
    for (int i = 0; i < e->batches * e->o.micro_batches; i++)
        td__tree_add(&sum, e->losses[i]);
    out->loss = td__tree_total(&sum);
    out->grad_norm = td__optim_clips(e->o.optimizer) ? td_optimizer_grad_norm(e->o.optimizer) : -1;
    memcpy(out->requests, e->sums, sizeof out->requests);
    out->seconds = e->sums + TD_REQUESTS;
    out->times = e->times;
    return TD_OK;
}

td_status td__step_gather(td__step_engine *e, td__step_times *times)
{
    uint64_t begin = td__clock_ns();
    if (!e->zero)
        return TD_OK;
    TD_TRY(td__step_zero_gather(e->zero));
    times->update += td__step_seconds_since(begin);
    times->sent_nbytes = times->plain_nbytes = td__zero_sent(e->o.zero) - e->sent_before;
    return TD_OK;
}

bool td__step_prepared(const td__step_engine *e)
{
    return e->zero && td__step_zero_prepared(e->zero);
}

td_status td__step_forward(td__step_engine *e)
{
    return td__step_zero_apply(e->zero);
}
