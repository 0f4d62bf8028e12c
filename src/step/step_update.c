/* step_update.c -- the end of a step: what is left of the micro-batch tree, and the update. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/fail.h"
#include "graph/params.h"
#include "optim/optimizer.h"
#include "step/step_impl.h"

/* Elements: of a slice that a thread takes; of what is added up at once before the update. (Larger
 * ones are slower: their memory gets in the way of the params' in the first cache.) */
enum { BLOCK = 1 << 10 };
enum { FEW_SLICES = 8 };
enum { WAIT_SHOWN_NS = 2000 }; /* shorter ones are not worth a place in a trace */

void td__step_span(td__step_engine *e, td__span_kind kind, uint64_t begin_ns, uint64_t end_ns,
                   int lane, int id)
{
    td__span_log_add(e->o.spans, &(td__span){.begin_ns = begin_ns,
                                             .end_ns = end_ns,
                                             .step = e->step,
                                             .kind = (uint16_t)kind,
                                             .lane = (uint16_t)lane,
                                             .id = id});
}

/* Elements of the sum, for whoever makes of them what they are for. */
static td_status apply(td__step_engine *e, const float *sum, size_t begin, size_t count)
{
    if (e->o.taker)
        return e->o.taker->take(e->o.taker->user, sum, begin, count);
    td__optim_apply(e->o.optimizer, sum, begin, count);
    return TD_OK;
}

td_status td__step_sum_parts(void *user, int thread)
{
    td__step_engine *e = user;
    (void)thread;
    for (int i; (i = atomic_fetch_add(&e->next, 1)) < e->end;) {
        const td__step_part *p = &e->parts[i];
        td__grad_blend(td__grad_stream(e->blocks), &e->sum, p->begin, p->count);
        if (e->update && p->update && !p->others)
            TD_TRY(apply(e, e->grads + p->begin, p->begin, p->count));
    }
    return TD_OK;
}

/* Of parts [begin, end). */
static td_status in_some_parts(td__step_engine *e, td__pool_fn *fn, int begin, int end)
{
    atomic_store(&e->next, begin);
    e->end = end;
    return end - begin < FEW_SLICES ? fn(e, 0) : td__pool_run(e->o.pool, fn, e);
}

td_status td__step_in_parts(td__step_engine *e, td__pool_fn *fn)
{
    return in_some_parts(e, fn, 0, e->n_parts);
}

/* ---- What is left of the tree ---------------------------------------------------------------- */

static td_status publish_parts(void *user, int thread)
{
    td__step_engine *e = user;
    (void)thread;
    for (int i; (i = atomic_fetch_add(&e->next, 1)) < e->end;) {
        const td__step_part *p = &e->parts[i];
        td__grad_blend(td__grad_stream(e->blocks), &e->sum, p->begin, p->count);
        e->publish(e->user, &e->total, p->begin, p->count);
    }
    return TD_OK;
}

td_status td__step_join(td__step_engine *e, td__step_part_fn *publish, void *user)
{
    td__grad_plan(&e->total, false, &e->sum);
    e->update = false;
    e->publish = publish;
    e->user = user;
    TD_TRY(td__step_in_parts(e, publish ? publish_parts : td__step_sum_parts));
    td__grad_finish(e->blocks, &e->sum);
    return TD_OK;
}

static td_status take_ranges(void *user, int thread)
{
    td__step_engine *e = user;
    size_t all = e->range_count, begin;
    (void)thread;
    while ((begin = (size_t)atomic_fetch_add(&e->next, 1) * e->slice) < all)
        e->range(e->user, begin, all - begin < e->slice ? all - begin : e->slice);
    return TD_OK;
}

td_status td__step_in_ranges(td__step_engine *e, size_t count, td__step_range_fn *fn, void *user)
{
    e->range = fn;
    e->range_count = count;
    e->user = user;
    return td__step_in_parts(e, take_ranges);
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

/* ---- The update ------------------------------------------------------------------------------ */

static td_sparse_grad sparse_grad(const td__step_engine *e, int k)
{
    return e->from.rows ? e->from.rows(e->from.user, k)
                        : td__grad_sparse(e->blocks, &e->total.at[0], k);
}

/* Is it this rank that adds up the squares of elements [begin, begin + count) of a param? */
static bool squares_it(const td__step_engine *e, size_t begin, size_t count)
{
    return td__step_owns(e, begin, begin + count) && td__step_updates(e, begin);
}

static td_status square_params(void *user, int thread)
{
    td__step_engine *e = user;
    int n = td_params_count(e->o.params);
    (void)thread;
    for (int i; (i = atomic_fetch_add(&e->next, 1)) < n;) {
        td_param_info info = td_params_info(e->o.params, i);
        if (!info.is_state && !info.sparse)
            e->squares[i] =
                squares_it(e, info.offset, info.count)
                    ? td__optim_param_squares(e->o.optimizer, e->grads + info.offset, info.count)
                    : 0;
    }
    return TD_OK;
}

/* The same by the device, all params at once. */
static td_status square_params_at_once(td__step_engine *e)
{
    int n = td_params_count(e->o.params);
    bool *wanted = td__calloc((size_t)n + 1, sizeof *wanted);
    if (!wanted)
        return TD_FAIL(TD_ENOMEM, "no memory for the sums of %d params", n);
    for (int i = 0; i < n; i++) {
        td_param_info info = td_params_info(e->o.params, i);
        wanted[i] = !info.is_state && !info.sparse && squares_it(e, info.offset, info.count);
    }
    td__optim_dense_squares(e->o.optimizer, e->grads, wanted, e->squares);
    td__free(wanted);
    return TD_OK;
}

/* Squares of piece w of a param's gradient, row by row of what lies side by side in the whole. */
static double square_piece(const td__step_engine *e, const td__step_cut *c, int w)
{
    td_attr_pieces rows = c->pieces;
    rows.packed = 0;
    td__tensor_piece p = td__piece_of(&rows, &rows.whole, w);
    const float *grads = e->grads + td_params_info(e->o.params, c->param).offset;
    int64_t first = p.begin * p.inner, step = p.group * p.inner;
    if (c->pieces.packed) {
        (void)td__pieces_range(&c->pieces, &rows.whole, w, 1, &first);
        step = p.count * p.inner;
    }
    td__tree_sum sum = {.n = 0};
    for (int64_t o = 0; o < p.outer * p.groups; o++)
        td__tree_add(&sum, td__optim_param_squares(e->o.optimizer, grads + first + o * step,
                                                   (size_t)(p.count * p.inner)));
    return td__tree_total(&sum);
}

/* Those of piece w? If it is not a range of its own, those of the param. */
static bool squares_piece(const td__step_engine *e, const td__step_cut *c, int w)
{
    td_param_info info = td_params_info(e->o.params, c->param);
    int64_t begin;
    if (!c->pieces.packed)
        return squares_it(e, info.offset, info.count);
    int64_t n = td__pieces_range(&c->pieces, &c->pieces.whole, w, 1, &begin);
    return squares_it(e, info.offset + (size_t)begin, (size_t)n);
}

/* Of params that are cut: those of this rank's pieces, then of all. */
static td_status square_cuts(td__step_engine *e)
{
    const td__step_cuts *cuts = e->o.cuts;
    for (int i = 0; i < cuts->n; i++)
        for (int w = 0; w < TD__MOST_PIECES; w++) {
            const td_attr_pieces *a = &cuts->at[i].pieces;
            bool own = w >= a->first && w < a->first + a->n && squares_piece(e, &cuts->at[i], w);
            e->piece_squares[i * TD__MOST_PIECES + w] = own ? square_piece(e, &cuts->at[i], w) : 0;
        }
    if (cuts->sum)
        TD_TRY(cuts->sum(cuts->user, e->piece_squares, (size_t)cuts->n * TD__MOST_PIECES));
    for (int i = 0; i < cuts->n; i++) {
        td__tree_sum sum = {.n = 0};
        for (int w = 0; w < cuts->at[i].pieces.pieces; w++)
            td__tree_add(&sum, e->piece_squares[i * TD__MOST_PIECES + w]);
        e->squares[cuts->at[i].param] = td__tree_total(&sum);
    }
    return TD_OK;
}

static td_status clip(td__step_engine *e, double *scale)
{
    td__tree_sum sum = {.n = 0};
    if (td__optim_squares_at_once(e->o.optimizer))
        TD_TRY(square_params_at_once(e));
    else
        TD_TRY(td__step_in_parts(e, square_params));
    if (e->o.cuts)
        TD_TRY(square_cuts(e));
    for (int k = 0; k < td__grad_sparse_count(e->blocks); k++) {
        td_sparse_grad sg = sparse_grad(e, k);
        e->squares[sg.param] =
            td__optim_param_squares(e->o.optimizer, sg.values, (size_t)(sg.n_rows * sg.width));
    }
    if (e->o.stage)
        TD_TRY(e->o.stage->sum_squares(e->o.stage->user, e->squares,
                                       (size_t)td_params_count(e->o.params)));
    for (int i = 0; i < td_params_count(e->o.params); i++) {
        td_param_info info = td_params_info(e->o.params, i);
        if (!info.is_state && !info.sparse)
            td__tree_add(&sum, e->squares[i]);
    }
    for (int k = 0; k < td__grad_sparse_count(e->blocks); k++)
        td__tree_add(&sum, e->squares[sparse_grad(e, k).param]);
    return td__optim_clip(e->o.optimizer, td__tree_total(&sum), scale);
}

td_status td__step_clip(td__step_engine *e, const float *grads, double *scale)
{
    *scale = 1;
    e->from = (td__step_sum){0};
    e->grads = grads;
    return td__optim_clips(e->o.optimizer) ? clip(e, scale) : TD_OK;
}

/* Running averages are folded in from a block where the statistics lie: a runner's own. */
static float *statistics_of(td__step_engine *e)
{
    return e->o.stage ? e->o.stage->statistics(e->o.stage->user)
                      : td_runner_grads(td__micro_batch_any_runner(e->o.set), NULL);
}

/* Statistics are taken too, not folded in. */
static td_status hand_states(td__step_engine *e)
{
    for (int i = 0; !e->from.block && i < e->n_parts; i++)
        if (!e->parts[i].update)
            TD_TRY(apply(e, e->grads + e->parts[i].begin, e->parts[i].begin, e->parts[i].count));
    return TD_OK;
}

static td_status update_states(td__step_engine *e)
{
    td_device *d = td__params_device(e->o.params);
    float *mine = statistics_of(e);
    if (!e->from.block && mine != e->grads)
        for (int i = 0; i < e->n_parts; i++)
            if (!e->parts[i].update)
                TD_TRY(td__mem_write(d, mine + e->parts[i].begin, e->grads + e->parts[i].begin,
                                     e->parts[i].count * sizeof *mine));
    if (e->o.stage)
        e->o.stage->fold(e->o.stage->user);
    else
        td_runner_update_states(td__micro_batch_any_runner(e->o.set));
    return TD_OK;
}

/* The sum over all ranks and the update in one; statistics go to where update_states wants them. */
static td_status add_blocks(td__step_engine *e)
{
    td_device *d = td__params_device(e->o.params);
    _Alignas(64) float sum[BLOCK];
    float *mine = e->o.taker ? NULL : statistics_of(e);
    for (int i; (i = atomic_fetch_add(&e->next, 1)) < e->end;) {
        const td__step_part *p = &e->parts[i];
        if (p->others)
            continue;
        for (size_t at = p->begin, end = at + p->count, n; at < end; at += n) {
            n = end - at < BLOCK ? end - at : BLOCK;
            e->from.block(e->from.user, at, n, sum);
            if (p->update || !mine)
                TD_TRY(apply(e, sum, at, n));
            else
                TD_TRY(td__mem_write(d, mine + at, sum, n * sizeof *sum));
        }
    }
    return TD_OK;
}

static td_status sum_blocks(void *user, int thread)
{
    (void)thread;
    unsigned mode = td__cpu_fp_flush(); /* once, not for the sum and the update of every block */
    td_status st = add_blocks(user);
    td__cpu_fp_restore(mode);
    return st;
}

static td_status wait_piece(td__step_engine *e, int k)
{
    uint64_t begin = td__clock_ns();
    TD_TRY(e->from.wait(e->from.user, k));
    uint64_t end = td__clock_ns();
    e->times.wait += 1e-9 * (double)(end - begin);
    if (end - begin > WAIT_SHOWN_NS)
        td__step_span(e, TD_SPAN_WAIT, begin, end, 0, k);
    return TD_OK;
}

/* Update parts as soon as all of their elements have arrived, which they do front to back. */
static td_status update_arriving(td__step_engine *e)
{
    int from = 0;
    e->update = true;
    for (int k = 0; k < e->from.n_pieces; k++) {
        size_t there = e->from.piece_end(e->from.user, k);
        int to = from;
        while (to < e->n_parts && e->parts[to].begin + e->parts[to].count <= there)
            to++;
        TD_TRY(wait_piece(e, k));
        TD_TRY(in_some_parts(e, td__step_sum_parts, from, to));
        from = to;
    }
    return wait_piece(e, e->from.n_pieces);
}

static td_status take_turn(td__step_engine *e)
{
    const td__step_stage *s = e->o.stage;
    return s && s->turn ? s->turn(s->user) : TD_OK;
}

/* local: the blends of this rank's tree are still to be carried out. */
static td_status update(td__step_engine *e, double lr, bool local)
{
    td_optimizer *o = e->o.optimizer;
    bool taken = e->o.taker, clips = td__optim_clips(o) && !taken, pieces = e->from.wait;
    bool arriving = pieces && !clips && !e->o.update_late && !e->o.watch;
    double scale = 1;

    if (pieces && !arriving)
        TD_TRY(wait_piece(e, e->from.n_pieces));
    if (e->o.watch)
        TD_TRY(e->o.watch->check(e->o.watch->user, e->sums + TD_REQUESTS + e->o.size));
    if (!clips)
        TD_TRY(take_turn(e));
    if (!clips && !taken)
        TD_TRY(td__optim_begin(o, lr, 1));
    if (local) {
        e->update = !clips;
        TD_TRY(td__step_in_parts(e, td__step_sum_parts));
        td__grad_finish(e->blocks, &e->sum);
    }
    if (clips) {
        TD_TRY(clip(e, &scale));
        TD_TRY(take_turn(e));
        TD_TRY(td__optim_begin(o, lr, scale));
    }
    if (arriving) {
        TD_TRY(update_arriving(e));
    } else if (e->from.block) {
        TD_TRY(td__step_in_parts(e, sum_blocks));
    } else if (clips || !local) {
        e->update = true;
        TD_TRY(td__step_in_parts(e, td__step_sum_parts)); /* nothing is left to blend */
    }
    for (int k = 0; k < td__grad_sparse_count(e->blocks); k++) {
        td_sparse_grad sg = sparse_grad(e, k);
        td__optim_apply_rows(o, &sg);
    }
    if (taken)
        return hand_states(e);
    TD_TRY(update_states(e));
    return td__optim_end(o);
}

td_status td__step_update(td__step_engine *e, double lr, const td__step_sum *sum)
{
    uint64_t begin = td__clock_ns();
    double waited = e->times.wait;
    e->from = sum ? *sum : (td__step_sum){0};
    e->grads = e->from.grads;
    if (!sum)
        plan_local(e);
    TD_TRY(update(e, lr, !sum));
    td__step_updated(e, begin);
    e->times.update -= e->times.wait - waited;
    return TD_OK;
}

td_status td__step_update_with(td__step_engine *e, double lr, const float *grads)
{
    e->from = (td__step_sum){0};
    e->grads = grads;
    return update(e, lr, false);
}

void td__step_updated(td__step_engine *e, uint64_t begin_ns)
{
    uint64_t end = td__clock_ns();
    td__step_span(e, TD_SPAN_UPDATE, begin_ns, end, 0, 0);
    e->times.update = 1e-9 * (double)(end - begin_ns);
}

void td__step_done(td__step_engine *e, td__step_result *out)
{
    td__tree_sum sum = {.n = 0};
    td__grad_clear(e->blocks, &e->total);
    for (int i = 0; i < e->batches * e->o.micro_batches; i++)
        td__tree_add(&sum, e->losses[i]);
    *out = (td__step_result){
        .loss = td__tree_total(&sum),
        .grad_norm = td__optim_clips(e->o.optimizer) ? td_optimizer_grad_norm(e->o.optimizer) : -1,
        .seconds = e->sums + TD_REQUESTS,
        .times = e->times};
    memcpy(out->requests, e->sums, sizeof out->requests);
}
