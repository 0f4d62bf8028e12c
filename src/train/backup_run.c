/* backup_run.c -- training with backup workers (parallel/backup.h): the trainer's side.
 *
 * The batch of a step is cut among all ranks as ever. Of n + b ranks that have rows of it the first
 * n count (all, if there are no more than n), rank 0 among them, and the gradient is the mean over
 * their rows: what the others were to see of this epoch is left out. Shares are added in the order
 * of ranks, so the result is a function of who counted; metrics.jsonl has that for every step.
 *
 * Rank 0 is the trainer that it is without backup workers: it keeps the time, validates (alone: the
 * others go on with the next step meanwhile), writes checkpoints and decides when it is over. The
 * others have no state but what an order says, and at the end they get everything from rank 0. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/memory.h"
#include "parallel/backup.h"
#include "parallel/data_parallel.h"
#include "train/backup_sets.h"
#include "train/trainer_impl.h"

struct td__backup_run {
    td__backup *b;
    td__backup_sets *replay; /* NULL: who comes first, counts */
    int needed;              /* n */
    bool *only;              /* (ranks) in this step, of a replay */
    td__grad_share *shares;  /* (ranks) */
    int *ranks, *counted;    /* (ranks): of the shares; with rank 0 */
    uint64_t sent;           /* rank 0: bytes, up to the last step */
    uint64_t began_ns;       /* another rank */
    td__rank_times total;    /* of another rank, given with each share */
};

bool td__backup_wanted(const td__trainer *t)
{
    return t->o.backup > 0;
}

_Static_assert(sizeof(td__rank_times) == TD__BACKUP_NOTES * sizeof(double), "sent as notes");

static double seconds_since(uint64_t ns)
{
    return 1e-9 * (double)(td__clock_ns() - ns);
}

/* Rows of rank r in batches [first, end) of an epoch. */
static int64_t rows_of_rank(const td__trainer *t, int64_t first, int64_t end, int rank)
{
    int64_t all = td__data_part(t->data, TD_PART_TRAIN)->count, sum = 0;
    for (int64_t k = first; k < end; k++) {
        int64_t left = all - k * t->o.batch, rows = left < t->o.batch ? left : t->o.batch;
        td__micro_batch_range own = td__rank_cut(t->o.micro_batches, (int)(end - first),
                                                 (int)(k - first), rank, td__trainer_ranks(t));
        sum += td__micro_batch_begin(rows, t->o.micro_batches, own.end) -
               td__micro_batch_begin(rows, t->o.micro_batches, own.begin);
    }
    return sum;
}

td_status td__backup_check(const td__train_opts *o, int ranks)
{
    if (o->backup >= ranks)
        return TD_FAIL(TD_EINVAL,
                       "parallel.backup: %d backup worker%s of %d rank%s leave nobody who counts: "
                       "use more ranks (-n)",
                       o->backup, o->backup > 1 ? "s" : "", ranks, ranks > 1 ? "s" : "");
    if (o->backup && o->zero)
        return TD_FAIL(TD_EINVAL,
                       "parallel.backup: rank 0 keeps all weights and states: it does not "
                       "go with parallel.zero");
    if (o->backup && o->compressor)
        return TD_FAIL(TD_EINVAL,
                       "backup workers hand in plain gradients: %s does not go with them",
                       o->compressor);
    return TD_OK;
}

td_status td__backup_check_replay(const td__train_opts *o, int ranks)
{
    td__backup_sets *sets;
    if (!o->backup || !o->backup_replay)
        return TD_OK;
    TD_TRY(td__backup_sets_read(o->backup_replay, ranks, &sets));
    td__backup_sets_destroy(sets);
    return TD_OK;
}

static td_status make(td__trainer *t, td__backup_run *r)
{
    size_t ranks = (size_t)td__trainer_ranks(t), params;
    int64_t widths[TD__MAX_SPARSE];
    td_params_block(t->params, &params);
    r->needed = (int)ranks - t->o.backup;
    r->only = td__calloc(ranks, sizeof *r->only);
    r->shares = td__calloc(ranks, sizeof *r->shares);
    r->ranks = td__calloc(ranks, sizeof *r->ranks);
    r->counted = td__calloc(ranks, sizeof *r->counted);
    if (!r->only || !r->shares || !r->ranks || !r->counted)
        return TD_FAIL(TD_ENOMEM, "no memory for backup workers");
    if (t->o.backup_replay && td__trainer_rank(t) == 0)
        TD_TRY(td__backup_sets_read(t->o.backup_replay, (int)ranks, &r->replay));
    td__step_widths(t->engine, widths);
    return td__backup_create(&(td__backup_opts){.comm = t->o.comm,
                                                .grads = td__step_floats(t->engine),
                                                .params = params,
                                                .lists = td__step_lists(t->engine),
                                                .widths = widths},
                             &r->b);
}

td_status td__backup_run_create(td__trainer *t)
{
    td__free(t->dropped);
    t->dropped = td__calloc((size_t)td__trainer_ranks(t), sizeof *t->dropped);
    t->backup = td__calloc(1, sizeof *t->backup);
    if (!t->backup || !t->dropped)
        return TD_FAIL(TD_ENOMEM, "no memory for backup workers");
    return make(t, t->backup);
}

void td__backup_run_destroy(td__trainer *t)
{
    td__backup_run *r = t->backup;
    if (!r)
        return;
    td__backup_destroy(r->b);
    td__backup_sets_destroy(r->replay);
    td__free(r->only);
    td__free(r->shares);
    td__free(r->ranks);
    td__free(r->counted);
    td__free(r);
    t->backup = NULL;
}

void td__backup_run_failed(td__trainer *t, const char *why)
{
    if (t->backup && t->backup->b)
        td__backup_abort(t->backup->b, why);
}

/* ---- Rank 0 ---------------------------------------------------------------------------------- */

/* How many others a step needs, and with a replay, which. */
static td_status plan(td__trainer *t, int64_t first, int64_t end, int *needed)
{
    td__backup_run *r = t->backup;
    int ranks = td__trainer_ranks(t), busy = 0;
    bool own = rows_of_rank(t, first, end, 0) > 0;
    for (int i = 0; i < ranks; i++)
        busy += rows_of_rank(t, first, end, i) > 0;
    *needed = (busy < r->needed ? busy : r->needed) - own;
    if (!r->replay)
        return TD_OK;
    *needed = 0;
    TD_TRY(td__backup_sets_get(r->replay, t->state.step + 1, r->only));
    for (int i = 1; i < ranks; i++) {
        if (r->only[i] && !rows_of_rank(t, first, end, i))
            return TD_FAIL(TD_EINVAL, "%s: step %llu counts rank %d, which has no rows in it",
                           t->o.backup_replay, (unsigned long long)t->state.step + 1, i);
        *needed += r->only[i];
    }
    if (!own && !*needed)
        return TD_FAIL(TD_EINVAL, "%s: step %llu counts nobody", t->o.backup_replay,
                       (unsigned long long)t->state.step + 1);
    return TD_OK;
}

td_status td__backup_step_begin(td__trainer *t)
{
    const td__train_state *s = &t->state;
    int64_t end = s->batch_in_epoch + t->o.accumulate;
    size_t count;
    int needed;
    TD_TRY(plan(t, s->batch_in_epoch, end < t->batches ? end : t->batches, &needed));
    td__backup_order order = {.step = s->step + 1, .epoch = s->epoch, .batch = s->batch_in_epoch};
    td__backup_open(t->backup->b, &order, td_params_block(t->params, &count), needed,
                    t->backup->replay ? t->backup->only : NULL);
    return TD_OK;
}

/* What the others have told of their times. */
static void take_notes(td__trainer *t)
{
    for (int r = 1; r < td__trainer_ranks(t); r++) {
        td__rank_times total;
        td__backup_notes(t->backup->b, r, (double *)&total);
        td__rank_stats_put(t->stats, r, &total);
    }
}

td_status td__backup_step_end(td__trainer *t, int64_t first, int64_t end, double lr,
                              td__step_event *e, td__step_result *out)
{
    td__backup_run *r = t->backup;
    int64_t own_rows = rows_of_rank(t, first, end, 0);
    td__grad_share own;
    bool stop;
    int n;

    TD_TRY(td__step_own_share(t->engine, &own));
    uint64_t begin = td__clock_ns();
    TD_TRY(td__backup_close(r->b, r->ranks, r->shares, &n, &stop));
    double wait = seconds_since(begin);
    uint64_t sent = td__backup_sent(r->b);
    td__train_span(t, TD_SPAN_WAIT, begin);
    take_notes(t);
    if (n)
        td__rank_stats_blame(t->stats, td__backup_last(r->b), wait);
    TD_TRY(td__step_apply(t->engine, own_rows, r->shares, n, lr, out));
    out->times.wait = wait;
    out->times.sent_nbytes = out->times.plain_nbytes = sent - r->sent;
    r->sent = sent;
    out->requests[TD_REQUEST_STOP] = stop || (t->stop && atomic_load(t->stop));
    e->n_counted = 0;
    if (own_rows)
        r->counted[e->n_counted++] = 0;
    e->samples = own_rows;
    for (int i = 0; i < n; i++) {
        r->counted[e->n_counted++] = r->ranks[i];
        e->samples += r->shares[i].rows;
    }
    e->counted = r->counted;
    return TD_OK;
}

td_status td__backup_run_end(td__trainer *t, td__train_result *out)
{
    size_t count;
    TD_TRY(td__backup_end(t->backup->b, td_params_block(t->params, &count)));
    take_notes(t);
    td__backup_dropped(t->backup->b, t->dropped);
    out->dropped = t->dropped;
    out->n_dropped = td__trainer_ranks(t);
    return TD_OK;
}

/* ---- The others ------------------------------------------------------------------------------ */

/* Of the gradients. */
static double share_nbytes(const td__trainer *t, const td__grad_share *share)
{
    size_t floats = share->grads ? td__step_floats(t->engine) : 0;
    for (int k = 0; share->grads && k < td__step_lists(t->engine); k++)
        floats += (size_t)(share->lists[k].n_rows * (1 + share->lists[k].width));
    return (double)(floats * sizeof(float));
}

static td_status work(td__trainer *t, const td__backup_order *order)
{
    td__step_event e = {.step = order->step, .epoch = order->epoch};
    td__grad_share share;
    int64_t first, end;

    uint64_t begin = td__clock_ns();
    td__rank_times *total = &t->backup->total;
    TD_TRY(td__train_batches(t, &e, &first, &end));
    TD_TRY(td__step_own_share(t->engine, &share));
    td__train_span(t, TD_SPAN_STEP, begin);
    share.rows = rows_of_rank(t, first, end, td__trainer_rank(t));
    if (t->o.before_share)
        t->o.before_share(t->o.before_share_user, td__trainer_rank(t), order->step);
    total->compute += td__step_compute(t->engine);
    total->data += e.data_wait;
    total->nbytes += share_nbytes(t, &share);
    total->plain = total->nbytes;
    total->memory = (double)td__memory_read().peak;
    begin = td__clock_ns();
    total->seconds = seconds_since(t->backup->began_ns);
    TD_TRY(td__backup_hand_in(t->backup->b, order->step, &share, (const double *)total,
                              t->stop && atomic_load(t->stop)));
    total->comm += seconds_since(begin);
    return TD_OK;
}

td_status td__backup_follow(td__trainer *t)
{
    td__train_state *s = &t->state;
    size_t count;
    float *params = td_params_block(t->params, &count);
    uint64_t epoch = s->epoch; /* where the loader is */
    int64_t batch = s->batch_in_epoch;

    t->backup->began_ns = td__clock_ns();
    for (;;) {
        td__backup_order order;
        uint64_t begin = td__clock_ns();
        TD_TRY(td__backup_next(t->backup->b, params, &order));
        t->backup->total.wait += seconds_since(begin);
        td__train_span(t, TD_SPAN_WAIT, begin);
        td_params_touch(t->params);
        if (order.end)
            return TD_OK;
        if (order.epoch != epoch || order.batch != batch) /* steps were missed */
            td__loader_seek(t->loader, order.epoch, order.batch);
        s->step = order.step - 1;
        s->epoch = epoch = order.epoch;
        s->batch_in_epoch = batch = order.batch;
        td_status st = work(t, &order);
        td__step_abandon(t->engine); /* the share has been handed in */
        TD_TRY(st);
        batch += t->o.accumulate;
        if (batch >= t->batches) {
            batch = 0;
            epoch++;
        }
    }
}

/* ---- All ------------------------------------------------------------------------------------- */

td_status td__backup_result(td__trainer *t, td__train_result *out)
{
    struct {
        td__train_result result;
        td__train_state state;
    } end = {*out, t->state};

    TD_TRY(td_broadcast(t->o.comm, &end, sizeof end, TD_U8, 0, NULL));
    if (td__trainer_rank(t) == 0)
        return TD_OK;
    *out = end.result;
    out->dropped = NULL;
    out->n_dropped = 0;
    t->state = end.state;
    return TD_OK;
}
