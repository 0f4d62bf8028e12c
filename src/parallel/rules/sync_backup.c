/* sync_backup.c -- backup workers (backup.h): of n + b ranks the n that are done first count.
 *
 * The batch of a step is cut among all ranks as ever. Of n + b ranks that have rows of it the first
 * n count (all, if there are no more than n), rank 0 among them, and the gradient is the mean over
 * their rows: what the others were to see of this epoch is left out. Shares are added in the order
 * of ranks, so the result is a function of who counted; metrics.jsonl has that for every step.
 *
 * Rank 0 leads: it keeps the time, validates (alone: the others go on with the next step
 * meanwhile), writes checkpoints and decides when it is over. The others have no state but what an
 * order says, and at the end they get everything from rank 0. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/memory.h"
#include "graph/params.h"
#include "parallel/backup.h"
#include "run/backup_sets.h"
#include "parallel/sync.h"
#include "step/work_partition.h"

typedef struct backup_rule {
    td__sync base;
    td__backup *b;
    td__backup_sets *replay; /* NULL: who comes first, counts */
    int rank, ranks, needed; /* needed: n */
    bool *only;              /* (ranks) in this step, of a replay */
    td__grad_share *shares;  /* (ranks) */
    int *from, *counted;     /* (ranks): of the shares; with rank 0 */
    uint64_t *dropped;       /* (ranks) shares that were late */
    td__sync_place at;       /* of the step under way */
    td__mapping open;        /* rank 0: the weights, while others fetch them */
    uint64_t sent;           /* rank 0: bytes, up to the last step */
    double blamed;           /* seconds that the last share was waited for, still to be told */
    uint64_t began_ns;       /* another rank */
    td__rank_times total;    /* of another rank, given with each share */
} backup_rule;

_Static_assert(sizeof(td__rank_times) == TD__BACKUP_NOTES * sizeof(double), "sent as notes");

static double seconds_since(uint64_t ns)
{
    return 1e-9 * (double)(td__clock_ns() - ns);
}

/* Rows of a rank in the step under way. */
static int64_t rows_of_rank(const backup_rule *r, int batches, int rank)
{
    int64_t batch = r->base.x.batch, sum = 0;
    int micro_batches = r->base.x.step.micro_batches;
    for (int k = 0; k < batches; k++) {
        int64_t left = r->base.x.samples - (r->at.batch + k) * batch;
        int64_t rows = left < batch ? left : batch;
        td__micro_batch_range own = td__rank_cut(micro_batches, batches, k, rank, r->ranks);
        sum += td__micro_batch_begin(rows, micro_batches, own.end) -
               td__micro_batch_begin(rows, micro_batches, own.begin);
    }
    return sum;
}

static td_status map_params(const backup_rule *r, td__map_use use, td__mapping *out)
{
    const td_params *ps = r->base.x.step.params;
    return td__params_map(ps, 0, td__params_total(ps), use, out);
}

/* ---- Making ---------------------------------------------------------------------------------- */

static bool asked(const td__sync_config *c)
{
    return c->backup > 0 || c->backup_replay;
}

static bool fits(const td__sync_config *c, const td__sync_world *w)
{
    (void)w;
    return c->backup > 0;
}

/* Is the replay, if there is one, a record of a run on so many ranks? */
static td_status check_replay(const td__sync_config *c, int ranks)
{
    td__backup_sets *sets;
    if (!c->backup || !c->backup_replay)
        return TD_OK;
    TD_TRY(td__backup_sets_read(c->backup_replay, ranks, &sets));
    td__backup_sets_destroy(sets);
    return TD_OK;
}

static td_status check(const td__sync_config *c, const td__sync_job *j, const td__sync_world *w)
{
    if (w->elastic)
        return TD_FAIL(TD_EINVAL, "parallel.backup: not with elastic ranks");
    if (j->verify > 0)
        return TD_FAIL(TD_EINVAL, "train.verify: not with parallel.backup");
    if (!w->starts)
        return TD_OK;
    if (c->backup >= w->ranks)
        return TD_FAIL(TD_EINVAL,
                       "parallel.backup: %d backup worker%s of %d rank%s leave no rank to train: "
                       "use more ranks (-n)",
                       c->backup, c->backup > 1 ? "s" : "", w->ranks, w->ranks > 1 ? "s" : "");
    if (c->backup && c->zero)
        return TD_FAIL(TD_EINVAL,
                       "parallel.backup: rank 0 keeps all weights and states: it does not "
                       "go with parallel.zero");
    if (c->backup && c->compressor)
        return TD_FAIL(TD_EINVAL,
                       "parallel.backup: backup workers send uncompressed gradients: not with %s",
                       c->compressor);
    return w->rank == 0 ? check_replay(c, w->ranks) : TD_OK;
}

static void traits(const td__sync_config *c, const td__sync_world *w, td__sync_traits *out)
{
    (void)c;
    (void)w;
    out->leads = true;
}

/* Rank 0 has most: a share of everybody else. */
static size_t exchange(const td__sync_sizes *z)
{
    return (size_t)(z->world.ranks - 1) * (z->grads > z->params ? z->grads : z->params);
}

static td_status create(td__sync *s)
{
    backup_rule *r = (backup_rule *)s;
    const td__sync_config *c = s->x.config;
    int64_t widths[TD__MAX_SPARSE];
    r->rank = td_comm_rank(s->x.comm);
    r->ranks = td_comm_size(s->x.comm);
    r->needed = r->ranks - c->backup;
    size_t ranks = (size_t)r->ranks;
    r->only = td__calloc(ranks, sizeof *r->only);
    r->shares = td__calloc(ranks, sizeof *r->shares);
    r->from = td__calloc(ranks, sizeof *r->from);
    r->counted = td__calloc(ranks, sizeof *r->counted);
    r->dropped = td__calloc(ranks, sizeof *r->dropped);
    if (!r->only || !r->shares || !r->from || !r->counted || !r->dropped)
        return TD_FAIL(TD_ENOMEM, "no memory for backup workers");
    if (c->backup_replay && r->rank == 0)
        TD_TRY(td__backup_sets_read(c->backup_replay, r->ranks, &r->replay));
    td__step_widths(s->engine, widths);
    return td__backup_create(&(td__backup_opts){.comm = s->x.comm,
                                                .grads = td__step_floats(s->engine),
                                                .params = td__params_total(s->x.step.params),
                                                .lists = td__step_lists(s->engine),
                                                .widths = widths},
                             &r->b);
}

static void destroy(td__sync *s)
{
    backup_rule *r = (backup_rule *)s;
    td__backup_destroy(r->b);
    td__mem_map_drop(&r->open);
    td__backup_sets_destroy(r->replay);
    td__free(r->only);
    td__free(r->shares);
    td__free(r->from);
    td__free(r->counted);
    td__free(r->dropped);
}

static void abandon(td__sync *s, const char *why)
{
    backup_rule *r = (backup_rule *)s;
    if (r->b)
        td__backup_abort(r->b, why);
}

/* ---- Rank 0 ---------------------------------------------------------------------------------- */

/* Which others a step of a replay needs. */
static td_status plan_replay(backup_rule *r, int batches, bool own, int *needed)
{
    const char *path = r->base.x.config->backup_replay;
    unsigned long long step = r->at.step;
    *needed = 0;
    TD_TRY(td__backup_sets_get(r->replay, r->at.step, r->only));
    for (int i = 1; i < r->ranks; i++) {
        if (r->only[i] && !rows_of_rank(r, batches, i))
            return TD_FAIL(TD_EINVAL, "%s: step %llu counts rank %d, which has no rows in it", path,
                           step, i);
        *needed += r->only[i];
    }
    if (!own && !*needed)
        return TD_FAIL(TD_EINVAL, "%s: step %llu lists no contributing rank", path, step);
    return TD_OK;
}

static td_status begin(td__sync *s, const td__sync_place *at)
{
    backup_rule *r = (backup_rule *)s;
    int batches = td__step_batches(s->engine), busy = 0;

    r->at = *at;
    if (r->rank > 0)
        return TD_OK;
    bool own = rows_of_rank(r, batches, 0) > 0;
    for (int i = 0; i < r->ranks; i++)
        busy += rows_of_rank(r, batches, i) > 0;
    int needed = (busy < r->needed ? busy : r->needed) - own;
    if (r->replay)
        TD_TRY(plan_replay(r, batches, own, &needed));
    td__backup_order order = {.step = at->step, .epoch = at->epoch, .batch = at->batch};
    TD_TRY(map_params(r, TD_MAP_READ, &r->open));
    td__backup_open(r->b, &order, r->open.at, needed, r->replay ? r->only : NULL);
    return TD_OK;
}

static td_status step(td__sync *s, double lr, td__step_result *out)
{
    backup_rule *r = (backup_rule *)s;
    int64_t own_rows = rows_of_rank(r, td__step_batches(s->engine), 0);
    td__grad_share own;
    bool stop;
    int n;

    TD_TRY(td__step_own_share(s->engine, &own));
    uint64_t begin_ns = td__clock_ns();
    TD_TRY(td__backup_close(r->b, r->from, r->shares, &n, &stop));
    td__mem_map_drop(&r->open);
    double wait = seconds_since(begin_ns);
    uint64_t sent = td__backup_sent(r->b);
    td__step_span(s->engine, TD_SPAN_WAIT, begin_ns, td__clock_ns(), 0, 0);
    r->blamed = n ? wait : 0;
    TD_TRY(td__step_apply(s->engine, r->shares, n, lr, out));
    out->times.wait = wait;
    out->times.sent_nbytes = out->times.plain_nbytes = sent - r->sent;
    r->sent = sent;
    out->requests[TD_REQUEST_STOP] = stop || s->x.host.stopping(s->x.host.user);
    if (own_rows)
        r->counted[out->n_counted++] = 0;
    out->counted_rows = own_rows;
    for (int i = 0; i < n; i++) {
        r->counted[out->n_counted++] = r->from[i];
        out->counted_rows += r->shares[i].rows;
    }
    out->counted = r->counted;
    return TD_OK;
}

/* What the others have told of their times. */
static void note(td__sync *s, td__rank_stats *stats)
{
    backup_rule *r = (backup_rule *)s;
    for (int i = 1; i < r->ranks; i++) {
        td__rank_times total;
        td__backup_notes(r->b, i, (double *)&total);
        td__rank_stats_put(stats, i, &total);
    }
    if (r->blamed > 0)
        td__rank_stats_blame(stats, td__backup_last(r->b), r->blamed);
    r->blamed = 0;
}

static td_status meet(td__sync *s, td__sync_meet why)
{
    backup_rule *r = (backup_rule *)s;
    if (why != TD_MEET_END)
        return TD_OK;
    td__mem_map_drop(&r->open);
    TD_TRY(map_params(r, TD_MAP_READ, &r->open));
    return td__backup_end(r->b, r->open.at); /* threads may still copy: dropped in destroy */
}

static void report(td__sync *s, td__train_result *out)
{
    backup_rule *r = (backup_rule *)s;
    td__backup_dropped(r->b, r->dropped);
    out->dropped = r->dropped;
    out->n_dropped = r->ranks;
}

/* ---- The others ------------------------------------------------------------------------------ */

/* Of the gradients. */
static double share_nbytes(const backup_rule *r, const td__grad_share *share)
{
    size_t floats = share->grads ? td__step_floats(r->base.engine) : 0;
    for (int k = 0; share->grads && k < td__step_lists(r->base.engine); k++)
        floats += (size_t)(share->lists[k].n_rows * (1 + share->lists[k].width));
    return (double)(floats * sizeof(float));
}

/* The gradients leave from memory that the host reads. */
static td_status hand_in(backup_rule *r, uint64_t step, td__grad_share *share)
{
    const td__sync_ctx *x = &r->base.x;
    td__mapping map;
    TD_TRY(td__mem_map(td__params_device(x->step.params), share->grads,
                       td__step_floats(r->base.engine) * sizeof(float), TD_MAP_READ, &map));
    share->grads = map.at;
    td_status st = td__backup_hand_in(r->b, step, share, (const double *)&r->total,
                                      x->host.stopping(x->host.user));
    td__mem_map_drop(&map);
    return st;
}

static td_status work(backup_rule *r, const td__backup_order *order)
{
    const td__sync_ctx *x = &r->base.x;
    td__step_engine *e = r->base.engine;
    td__rank_times *total = &r->total;
    td__sync_place at = {.step = order->step, .epoch = order->epoch, .batch = order->batch};
    td__grad_share share;
    double data_wait = 0;
    int batches;

    uint64_t begin_ns = td__clock_ns();
    TD_TRY(x->host.work(x->host.user, &at, &batches, &data_wait));
    TD_TRY(td__step_own_share(e, &share));
    td__step_span(e, TD_SPAN_STEP, begin_ns, td__clock_ns(), 0, 0);
    share.rows = rows_of_rank(r, batches, r->rank);
    if (x->config->before_share)
        x->config->before_share(x->config->before_share_user, r->rank, order->step);
    total->compute += td__step_compute(e);
    total->data += data_wait;
    total->nbytes += share_nbytes(r, &share);
    total->plain = total->nbytes;
    total->memory = (double)td__memory_read().peak;
    begin_ns = td__clock_ns();
    total->seconds = seconds_since(r->began_ns);
    TD_TRY(hand_in(r, order->step, &share));
    total->comm += seconds_since(begin_ns);
    return TD_OK;
}

/* The next order, and the weights that it is for. */
static td_status fetch(backup_rule *r, td__backup_order *order)
{
    td__mapping map;
    TD_TRY(map_params(r, TD_MAP_BOTH, &map));
    td_status st = td__backup_next(r->b, map.at, order);
    if (!st)
        return td__mem_unmap(&map);
    td__mem_map_drop(&map);
    return st;
}

static td_status serve(td__sync *s)
{
    backup_rule *r = (backup_rule *)s;
    r->began_ns = td__clock_ns();
    for (;;) {
        td__backup_order order;
        uint64_t begin_ns = td__clock_ns();
        TD_TRY(fetch(r, &order));
        r->total.wait += seconds_since(begin_ns);
        td__step_span(s->engine, TD_SPAN_WAIT, begin_ns, td__clock_ns(), 0, 0);
        td_params_touch(s->x.step.params);
        if (order.end)
            return TD_OK;
        td_status st = work(r, &order);
        td__step_abandon(s->engine); /* the share has been handed in */
        TD_TRY(st);
    }
}

const td__sync_ops td__sync_backup = {
    .name = "backup",
    .help = "backup workers: ranks that are late in a step are left out (parallel.backup)",
    .promise = "a function of which ranks contributed to each step; replayable",
    .unplanned = "any rank may be late in a step, and others do not wait for it",
    .size = sizeof(backup_rule),
    .key = "parallel.backup",
    .sample = "1",
    .asked = asked,
    .fits = fits,
    .check = check,
    .traits = traits,
    .exchange = exchange,
    .create = create,
    .destroy = destroy,
    .begin = begin,
    .step = step,
    .meet = meet,
    .serve = serve,
    .note = note,
    .report = report,
    .abandon = abandon,
};
