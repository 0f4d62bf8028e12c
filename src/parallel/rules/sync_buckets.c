/* sync_buckets.c -- see sync_buckets.h. The update is a phase for each bucket that arrives. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/rules/sync_buckets.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "coll/comm.h"

enum { IN_FLIGHT = 4 };

int td__sync_buckets_in_flight(const td__sync_config *c, bool late)
{
    int most = c->in_flight ? c->in_flight : IN_FLIGHT;
    if (late)
        return 1;
    return most < TD__MOST_IN_FLIGHT ? most : TD__MOST_IN_FLIGHT;
}

/* ---- While backward runs --------------------------------------------------------------------- */

static td_status begin_sum(void *user, uint32_t step, int batches, int64_t last_rows)
{
    td__sync_buckets *b = user;
    b->step = step;
    return td__bucket_sum_begin(b->sum, step, batches, last_rows);
}

static void open_sum(void *user, td__grad_stack *total, td__grad_stack *stacks, const bool *busy)
{
    td__bucket_sum_open(((td__sync_buckets *)user)->sum, total, stacks, busy);
}

static void passed(void *user, int thread, size_t count)
{
    td__bucket_sum_passed(((td__sync_buckets *)user)->sum, thread, count);
}

static void flush(void *user)
{
    td__bucket_sum_flush(((td__sync_buckets *)user)->sum);
}

static size_t bucket_end(void *user, int k)
{
    td__bucket b = td__bucket_sum_bucket(((td__sync_buckets *)user)->sum, k);
    return b.begin + b.count;
}

static td_status wait_bucket(void *user, int k)
{
    return td__bucket_sum_wait(((td__sync_buckets *)user)->sum, k);
}

static td_sparse_grad rows(void *user, int k)
{
    return td__bucket_sum_sparse(((td__sync_buckets *)user)->sum, k);
}

/* ---- The plan -------------------------------------------------------------------------------- */

/* The calls that bring bucket k to all ranks. */
static void plan_bucket(td__planner *w, const td__compressor_ops *ops,
                        const td__compressor_opts *with, int k)
{
    const td__bucket *b = &w->buckets.at[k];
    if (!ops)
        td__bucket_sum_plan(w, k);
    else if (b->exact || !ops->plan)
        td__planner_coll(w, TD_PLAN_ALLREDUCE, b->count * sizeof(float), 1 + k);
    else
        ops->plan(w, with, k);
}

/* Buckets leave while the last backward runs, where a thread carries them. */
static void plan_buckets(td__planner *w, const td__compressor_ops *ops,
                         const td__compressor_opts *with, bool overlaps, bool late)
{
    int last = td__planner_runs_but(w, overlaps);
    w->overlaps = overlaps;
    for (int k = 0; k < w->buckets.n; k++) {
        td__planner_name(w, 1 + k, w->buckets.at[k].begin);
        if (overlaps && last >= 0)
            td__planner_run(w, TD_RUN_BACKWARD, 1 + k, last);
        plan_bucket(w, ops, with, k);
        if (!overlaps && !late)
            td__planner_update(w, 1 + k);
    }
    w->overlaps = false;
}

void td__sync_buckets_plan(td__planner *w, const char *compressor, const td__compressor_opts *with)
{
    const td__compressor_ops *ops = compressor ? td__compressor_find(compressor) : NULL;
    bool overlaps = !w->at->world.shared && !(ops && ops->whole), late = td__planner_late(w);
    td__compressor_opts o = *with;
    o.params = w->at->params;
    o.buckets = w->buckets.at;
    o.n_buckets = w->buckets.n;
    plan_buckets(w, ops, &o, overlaps, late);
    td__planner_numbers(w);
    td__planner_rows(w, w->tree.slots);
    td__planner_squares(w);
    td__planner_update(w, 0); /* of all, or of what is in no bucket */
}

/* ---- The rule -------------------------------------------------------------------------------- */

td_status td__sync_buckets_create(td__sync *s, const char *compressor,
                                  const td__compressor_opts *with)
{
    td__sync_buckets *b = (td__sync_buckets *)s;
    const td__step_opts *o = td__step_opts_of(s->engine);
    td__bucket_sum_opts opts = {.comm = s->x.comm,
                                .blocks = td__step_grads(s->engine),
                                .params = o->params,
                                .bounds = o->bounds,
                                .micro_batches = o->micro_batches,
                                .accumulate = o->accumulate,
                                .threads = td__pool_threads(o->pool),
                                .bucket_nbytes = s->x.config->bucket_nbytes,
                                .own = o->stage ? o->stage->own : NULL,
                                .n_own = o->stage ? o->stage->n_own : 0,
                                .compressor = compressor,
                                .with = *with,
                                .any_bits = s->x.config->any_bits,
                                /* ranks that share memory need no second thread */
                                .inline_ = td__comm_shares(s->x.comm)};

    TD_TRY(td__bucket_sum_create(&opts, &b->sum));
    int n = td__bucket_sum_count(b->sum);
    b->marks = td__calloc((size_t)n + 1, sizeof *b->marks);
    if (!b->marks)
        return TD_FAIL(TD_ENOMEM, "no memory for %d buckets", n);
    for (int k = 0; k < n; k++)
        b->marks[k] = bucket_end(b, k);
    b->stream = (td__step_stream){.user = b,
                                  .marks = b->marks,
                                  .n_marks = n,
                                  .begin = begin_sum,
                                  .open = open_sum,
                                  .passed = passed,
                                  .flush = flush};
    td__step_set_stream(s->engine, &b->stream);
    return TD_OK;
}

void td__sync_buckets_abandon(td__sync *s, const char *why)
{
    td__bucket_sum_cancel(((td__sync_buckets *)s)->sum, why);
}

void td__sync_buckets_destroy(td__sync *s)
{
    td__sync_buckets *b = (td__sync_buckets *)s;
    if (b->sum)
        td__bucket_sum_cancel(b->sum, td_last_error());
    if (s->engine)
        td__step_abandon(s->engine); /* its partials may lie in what is destroyed now */
    td__bucket_sum_destroy(b->sum);
    td__free(b->marks);
}

static uint32_t kib_of(size_t nbytes)
{
    return (uint32_t)((nbytes + 1023) / 1024);
}

/* What the queue did meanwhile; the last span is that of the losses. */
static void note_buckets(td__sync_buckets *b, td__step_result *out)
{
    const td__bucket_span *at = td__bucket_sum_spans(b->sum);
    td__span_log *log = b->base.x.step.spans;
    int n = td__bucket_sum_count(b->sum);
    for (int k = 0; k <= n; k++) {
        size_t nbytes = k < n ? td__bucket_sum_bucket(b->sum, k).count * sizeof(float) : 0;
        out->times.reduce += 1e-9 * (double)(at[k].end_ns - at[k].begin_ns);
        out->times.busy += 1e-9 * (double)at[k].cpu_ns;
        if (log)
            td__span_log_add(log, &(td__span){.begin_ns = at[k].begin_ns,
                                              .end_ns = at[k].end_ns,
                                              .posted_ns = at[k].posted_ns,
                                              .step = b->step,
                                              .kind = TD_SPAN_BUCKET,
                                              .id = k,
                                              .kib = kib_of(nbytes)});
    }
    td__bucket_sum_nbytes(b->sum, &out->times.sent_nbytes, &out->times.plain_nbytes);
}

td_status td__sync_buckets_step(td__sync *s, double lr, td__step_result *out)
{
    td__sync_buckets *b = (td__sync_buckets *)s;
    size_t n;
    double *numbers = td__step_numbers(s->engine, &n);

    td__bucket_sum_close(b->sum, numbers, n);
    td__step_sum sum = {.user = b,
                        .grads = td__bucket_sum_grads(b->sum),
                        .rows = rows,
                        .n_pieces = td__bucket_sum_count(b->sum),
                        .piece_end = bucket_end,
                        .wait = wait_bucket};
    TD_TRY(td__step_update(s->engine, lr, &sum));
    td__step_done(s->engine, out);
    note_buckets(b, out);
    return TD_OK;
}
