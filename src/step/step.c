/* step.c -- see step.h: the engine, and running the micro-batches of a step. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/fail.h"
#include "graph/params.h"
#include "optim/optimizer.h"
#include "step/step_impl.h"

/* Elements that a thread takes at once: what stays in its cache on a processor; on a device that
 * works through queues everything, since each slice is launched and waited for. */
enum { SLICE = 16 << 10, DEVICE_SLICE = 1 << 30 };

bool td__step_updates(const td__step_engine *e, size_t element)
{
    const td__step_stage *s = e->o.stage;
    return !s || !s->updates || s->updates(s->user, element);
}

/* Does nobody here want the sum of that element? */
static bool is_others(const td__step_engine *e, size_t element)
{
    bool all = e->o.taker && e->o.taker->all;
    return !all && !td__step_updates(e, element);
}

/* Dense gradients lie where their params do. */
static void add_part(td__step_engine *e, size_t begin, size_t end, bool update)
{
    if (begin < end)
        e->parts[e->n_parts++] =
            (td__step_part){begin, end - begin, update, update && is_others(e, begin)};
}

static void add_slices(td__step_engine *e, size_t begin, size_t end, bool update)
{
    for (; begin < end; begin += e->slice)
        add_part(e, begin, end - begin > e->slice ? begin + e->slice : end, update);
}

/* Parts for a param or state, or for several of them that lie side by side. */
static void add_range(td__step_engine *e, size_t begin, size_t end, size_t states)
{
    bool update = begin < states;
    if (!update || td__optim_sliceable(e->o.optimizer))
        add_slices(e, begin, end, update);
    else
        add_part(e, begin, end, update);
}

/* Parts for what a stage has of a param or state, `shift` elements further on among gradients. */
static void add_own(td__step_engine *e, const td_param_info *info, size_t shift, size_t states)
{
    const td__step_stage *s = e->o.stage;
    for (int i = 0; i < s->n_own; i++) {
        size_t end = info->offset + info->count;
        size_t from = s->own[i].begin > info->offset ? s->own[i].begin : info->offset;
        size_t to = s->own[i].end < end ? s->own[i].end : end;
        if (from < to)
            add_range(e, from - shift, to - shift, states);
    }
}

/* Slices for optimizers that may be given any; whole tensors for those that may not. A stage has
 * those of its own params: gradients lie where the params do, but for row-sparse ones, which are
 * left out. */
static td_status make_parts(td__step_engine *e, size_t dense)
{
    td_params *ps = e->o.params;
    size_t total = td__grad_dense(e->blocks), states = td__params_dense(ps);
    size_t shift = td_params_trainable(ps) - states; /* of states, as sparse params are left out */
    e->slice = td__device_host_reads(td__params_device(ps)) ? SLICE : DEVICE_SLICE;
    int room = (int)(total / e->slice) + 2 * td_params_count(ps) + 4;
    bool whole = !e->o.stage && td__optim_sliceable(e->o.optimizer);
    e->parts = td__calloc((size_t)room, sizeof *e->parts);
    if (!e->parts)
        return TD_FAIL(TD_ENOMEM, "no memory for %d parts of the gradients", room);
    for (int i = 0; !whole && i < td_params_count(ps); i++) {
        td_param_info info = td_params_info(ps, i);
        if (!info.sparse && e->o.stage)
            add_own(e, &info, info.is_state ? shift : 0, states);
        else if (!info.sparse && !info.is_state)
            add_range(e, info.offset, info.offset + info.count, states);
    }
    if (whole)
        add_slices(e, 0, dense, true);
    if (!e->o.stage)
        add_slices(e, dense, total, false);
    return TD_OK;
}

/* What is before the losses. */
static size_t head(const td__step_engine *e)
{
    return td__step_numbers_of(e->o.size, e->o.watch, 0);
}

static td__work_partition partition_of(const td__step_engine *e)
{
    return (td__work_partition){e->o.size, e->o.bounds};
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
        int borrowed = each < TD__MOST_IN_FLIGHT ? each : TD__MOST_IN_FLIGHT;
        if (threads == 1 || threads * (2 * levels + borrowed) + BATCHES_BEFORE <= TD__GRAD_STACK)
            return threads;
    }
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
    e->o.size = e->o.size ? e->o.size : 1;
    if (td__program_syncs(e->o.program)) { /* rows weigh alike in what micro-batches exchange */
        e->factors = e->o.weights;
        e->o.weights = NULL;
    }
    TD_TRY(td__grad_pool_create(e->o.program, ps, micro_batches, &e->blocks));
    if (!e->o.no_partials)
        TD_TRY(td__grad_pool_reserve(
            e->blocks, td__step_blocks(e->blocks, &(td__step_blocks_opts){
                                                      e->o.micro_batches, e->o.accumulate,
                                                      td__pool_threads(e->o.pool), e->o.rank,
                                                      e->o.size, e->o.bounds, e->o.in_flight})));
    size_t threads = (size_t)td__pool_threads(e->o.pool);
    e->stacks = td__calloc(threads, sizeof *e->stacks);
    e->stacked = td__calloc(threads * TD__GRAD_RANGE, sizeof *e->stacked);
    e->borrowed = td__calloc(threads * TD__PLACES, sizeof *e->borrowed);
    e->busy = td__calloc(threads, sizeof *e->busy);
    e->sums = td__calloc(head(e) + (size_t)micro_batches, sizeof *e->sums);
    e->squares = td__calloc((size_t)td_params_count(ps) + 1, sizeof *e->squares);
    e->ops = td__calloc((size_t)e->o.size, sizeof *e->ops);
    e->piece_squares = td__calloc((e->o.cuts ? (size_t)e->o.cuts->n : 0) * TD__MOST_PIECES + 1,
                                  sizeof *e->piece_squares);
    if (!e->piece_squares || !e->stacks || !e->stacked || !e->borrowed || !e->busy || !e->sums ||
        !e->squares || !e->ops)
        return TD_FAIL(TD_ENOMEM, "no memory for a step of %d micro-batches", micro_batches);
    for (size_t t = 0; t < threads; t++)
        e->stacks[t] =
            (td__grad_stack){.room = TD__GRAD_RANGE, .at = e->stacked + t * TD__GRAD_RANGE};
    e->total = (td__grad_stack)TD__GRAD_STACK_IN(e->in_total);
    e->sum = (td__grad_sum)TD__GRAD_SUM_IN(e->in_sum);
    e->losses = e->sums + head(e);
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

void td__step_set_stream(td__step_engine *e, const td__step_stream *stream)
{
    e->stream = stream;
}

static td__step_borrowed *borrowed_of(td__step_engine *e, int thread, int place)
{
    return &e->borrowed[thread * TD__PLACES + place];
}

void td__step_engine_destroy(td__step_engine *e)
{
    if (!e)
        return;
    if (e->stacks && e->borrowed)
        td__step_abandon(e);
    td__micro_batch_own_grads(e->o.set); /* runners that lent a block write to it still */
    td__grad_pool_destroy(e->blocks);
    td__free(e->stacks);
    td__free(e->stacked);
    td__free(e->borrowed);
    td__free(e->busy);
    td__free(e->sums);
    td__free(e->squares);
    td__free(e->piece_squares);
    td__free(e->ops);
    td__free(e->parts);
    td__free(e);
}

void td__step_abandon(td__step_engine *e)
{
    for (int t = 0; t < td__pool_threads(e->o.pool); t++) {
        td__grad_clear(e->blocks, &e->stacks[t]);
        td__grad_unbind(e->blocks, &borrowed_of(e, t, 0)->leaf); /* others are on the stack */
    }
    td__grad_clear(e->blocks, &e->total);
}

static size_t n_sums(const td__step_engine *e)
{
    return td__step_numbers_of(e->o.size, e->o.watch, e->batches * e->o.micro_batches);
}

void td__step_begin(td__step_engine *e, uint32_t step, int batches, int64_t rows)
{
    TD_ASSERT(batches >= 1 && batches <= e->o.accumulate, "a step of %d batches", batches);
    e->step = step;
    e->rows = rows;
    e->own_rows = 0;
    e->own_share = 0;
    e->batches = batches;
    e->done = 0;
    e->times = (td__step_times){0};
    memset(e->sums, 0, n_sums(e) * sizeof *e->sums);
}

void td__step_say_so(td__step_engine *e, td__step_say say)
{
    memcpy(e->sums, say.requests, sizeof say.requests);
    e->sums[TD_REQUESTS + e->o.rank] = say.seconds;
    if (e->o.watch)
        e->o.watch->say(e->o.watch->user, e->sums + TD_REQUESTS + e->o.size);
}

/* ---- Micro-batches --------------------------------------------------------------------------- */

double td__step_share(const td__step_engine *e, int batch, int64_t begin, int64_t rows)
{
    const td__step_weights *w = e->o.weights;
    return w ? w->share(w->user, batch, begin, rows) : (double)rows / (double)e->rows;
}

static double share_of(const td__step_engine *e, const td__micro_batch *s)
{
    return td__step_share(e, e->done, s->begin, s->rows);
}

/* What counts in a micro-batch for each of its rows, where that is not its weight. */
static td_status set_factor(const td__step_engine *e, const td__micro_batch *s)
{
    const td__step_weights *w = e->factors;
    if (!w || !s->runner)
        return TD_OK;
    double share = w->share(w->user, e->done, s->begin, s->rows);
    float factor = (float)(share * (double)e->rows / (double)s->rows);
    return td_runner_set_input(s->runner, TD__LOSS_FACTOR, &factor, sizeof factor);
}

/* Backward has made elements [0, count) of the lent micro-batches of a thread final. */
static void passed(void *user, int thread, size_t count)
{
    td__step_engine *e = user;
    if (count == SIZE_MAX || !borrowed_of(e, thread, 0)->watched)
        e->stream->passed(e->stream->user, thread, count);
}

/* Are the gradients left where they are until the end of the batch: in its last step, or since
 * others are begun before this one has been run? */
static bool lends(const td__step_engine *e, const td__micro_batch *s)
{
    return s->last && (e->lends || td__micro_batch_values(e->o.set));
}

static td_status lend_micro_batch(void *user, const td__micro_batch *s)
{
    td__step_engine *e = user;
    td__step_borrowed *l = borrowed_of(e, s->thread, s->place);
    td__grad_stack *stack = &e->stacks[s->thread];

    *l = (td__step_borrowed){.weight = (float)share_of(e, s),
                             .begin_ns = e->o.spans ? td__clock_ns() : 0};
    l->watched = e->o.watch && e->o.watch->watched(e->o.watch->user, e->done, s->index);
    int number = e->done * e->o.micro_batches + s->index;
    if (s->runner)
        td__runner_watch_stream(s->runner, e->o.spans != NULL);
    TD_TRY(set_factor(e, s));
    if (!lends(e, s))
        return td__grad_bind(e->blocks, stack, number, s->runner, l->weight, &l->leaf);
    TD_TRY(
        td__grad_lend(e->blocks, stack, number, s->runner, l->weight, s->place > 0 || !e->lends));
    l->rows = stack->at[stack->n - 1].block;
    return TD_OK;
}

/* What the GPU did of it. */
static void note_stream(td__step_engine *e, const td__micro_batch *s, int number)
{
    td__stream_times times;
    if (!td__runner_stream_times(s->runner, &times))
        return;
    for (int i = 0; i < TD__STREAM_PARTS; i++)
        td__step_span(e, (td__span_kind)(TD_SPAN_COPY_IN + i), times.at[i], times.at[i + 1],
                      s->thread, number);
}

static td_status add_micro_batch(void *user, const td__micro_batch *s)
{
    td__step_engine *e = user;
    td__step_borrowed *l = borrowed_of(e, s->thread, s->place);
    int number = e->done * e->o.micro_batches + s->index;
    e->losses[number] = s->runner ? share_of(e, s) * (double)td_runner_loss(s->runner) : 0;
    if (e->o.spans)
        td__step_span(e, TD_SPAN_MICRO_BATCH, l->begin_ns, td__clock_ns(), s->thread, number);
    if (e->o.spans && s->runner)
        note_stream(e, s, number);
    if (e->o.watch)
        TD_TRY(e->o.watch->ran(e->o.watch->user, e->done, s));
    if (!lends(e, s)) {
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
            td__work_cut(partition_of(e), e->o.micro_batches, e->batches, k, e->o.rank);
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
        TD_ASSERT(e->total.n + s->n <= e->total.room, "%d partials", e->total.n + s->n);
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

static void open_stream(td__step_engine *e, td__micro_batch_cut cut)
{
    int threads = td__pool_threads(e->o.pool);
    for (int t = 0; t < threads; t++)
        e->busy[t] = td__micro_batch_of_thread(cut, t, threads) <
                     td__micro_batch_of_thread(cut, t + 1, threads);
    e->stream->open(e->stream->user, &e->total, e->stacks, e->busy);
}

static td_status run_batch(td__step_engine *e, const td__batch *batch)
{
    const td__step_stream *stream = e->stream;
    td__micro_batch_range own =
        td__work_cut(partition_of(e), e->o.micro_batches, e->batches, e->done, e->o.rank);
    td__micro_batch_cut cut = {e->o.micro_batches, own.begin, own.end};
    bool through = e->done && e->lends; /* this rank was through before */

    if (e->done == 0 && stream) /* the first batch tells what the last one will have */
        TD_TRY(stream->begin(stream->user, e->step, e->batches, e->last_rows));
    if (through)
        return TD_OK;
    int64_t first = td__micro_batch_begin(batch->rows, cut.micro_batches, cut.begin);
    int64_t rows = td__micro_batch_begin(batch->rows, cut.micro_batches, cut.end) - first;
    e->own_rows += rows;
    if (e->o.weights)
        e->own_share += td__step_share(e, e->done, first, rows);
    e->lends = !micro_batches_left(e);
    if (td__micro_batch_values(e->o.set))
        td__sync_values_deal(td__micro_batch_values(e->o.set), partition_of(e), e->batches,
                             e->done);
    td__micro_batch_calls calls = {.before = lend_micro_batch, .after = add_micro_batch, .user = e};
    if (e->lends && stream) {
        open_stream(e, cut);
        calls.passed = passed;
        calls.in_flight = e->o.in_flight;
        calls.marks = stream->marks;
        calls.n_marks = stream->n_marks;
    }
    TD_TRY(td__micro_batches_run(e->o.set, batch, cut, e->step,
                                 (uint32_t)(e->done * e->o.micro_batches), calls));
    if (!e->lends || !stream)
        return collect(e);
    stream->flush(stream->user);
    return TD_OK;
}

int td__step_micro_batches(const td__step_engine *e)
{
    td__micro_batch_range own =
        td__work_micro_batches(partition_of(e), e->o.micro_batches, e->o.rank);
    return own.end - own.begin;
}

static td_status next_batch(td__step_engine *e, const td__batch *batch, td__step_batch_fn *fn,
                            void *user)
{
    uint64_t begin = td__clock_ns();
    TD_ASSERT(e->done < e->batches, "batch %d of a step of %d", e->done, e->batches);
    if (e->done == 0)
        e->last_rows = e->rows - (int64_t)(e->batches - 1) * batch->rows;
    TD_ASSERT(e->done + 1 < e->batches || batch->rows == e->last_rows, "%lld rows, not %lld",
              (long long)batch->rows, (long long)e->last_rows);
    TD_TRY(fn ? fn(user, batch, e->done, e->losses + e->done * e->o.micro_batches)
              : run_batch(e, batch));
    e->done++;
    e->times.compute += td__step_seconds_since(begin);
    return TD_OK;
}

td_status td__step_batch(td__step_engine *e, const td__batch *batch)
{
    return next_batch(e, batch, NULL, NULL);
}

td_status td__step_batch_by(td__step_engine *e, const td__batch *batch, td__step_batch_fn *fn,
                            void *user)
{
    return next_batch(e, batch, fn, user);
}

td_status td__step_hand_in(td__step_engine *e)
{
    const td__step_stream *stream = e->stream;
    if (!stream)
        return TD_OK;
    TD_TRY(stream->begin(stream->user, e->step, e->batches, e->last_rows));
    memset(e->busy, 0, (size_t)td__pool_threads(e->o.pool) * sizeof *e->busy);
    stream->open(stream->user, &e->total, e->stacks, e->busy);
    stream->flush(stream->user);
    return TD_OK;
}

/* ---- Looking --------------------------------------------------------------------------------- */

const td__step_opts *td__step_opts_of(const td__step_engine *e)
{
    return &e->o;
}

td__grad_pool *td__step_grads(td__step_engine *e)
{
    return e->blocks;
}

int td__step_batches(const td__step_engine *e)
{
    return e->batches;
}

uint32_t td__step_number(const td__step_engine *e)
{
    return e->step;
}

int64_t td__step_rows(const td__step_engine *e)
{
    return e->rows;
}

int64_t td__step_own_rows(const td__step_engine *e)
{
    return e->own_rows;
}

double td__step_own_weight(const td__step_engine *e)
{
    return e->o.weights ? e->own_share : (double)e->own_rows;
}

int64_t td__step_last_rows(const td__step_engine *e)
{
    return e->last_rows;
}

td__step_times *td__step_times_of(td__step_engine *e)
{
    return &e->times;
}

td__grad_stack *td__step_partials(td__step_engine *e)
{
    return &e->total;
}

double *td__step_numbers(td__step_engine *e, size_t *n)
{
    *n = n_sums(e);
    return e->sums;
}
