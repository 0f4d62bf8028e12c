/* trace.c -- trace.json in the Trace Event format: Perfetto (ui.perfetto.dev) and chrome://tracing
 * open it.
 *
 * An array of objects; "X" is a span with ts and dur in microseconds, "M" names a row, "s" and "f"
 * are the ends of an arrow from where a bucket became ready to where it was carried. A process is a
 * rank, and times are rank 0's, from the start of the run. Rank 0's steps, validations and
 * checkpoints are written as the run goes, the rest (span_log.h) when it ends, and then the array
 * is closed; viewers accept it without its end, so that the trace of a killed run can be looked
 * at. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/text.h"
#include "run/append_file.h"
#include "run/run_dir.h"

enum {
    ROW_STEPS = 1,
    ROW_COMM,
    ROW_VALID,
    ROW_CHECKPOINT,
    ROW_NODES,
    ROW_STAGE,
    ROW_SEND_UP,
    ROW_SEND_DOWN,
    ROW_RECV_UP,
    ROW_RECV_DOWN,
    ROW_COMPUTE = 16,
    MOST_LANES = 1024,
    ROW_STREAM = ROW_COMPUTE + MOST_LANES
};
enum { FLUSH_AT = 64 << 10 };

static const char *const ROWS[] = {[ROW_STEPS] = "steps",
                                   [ROW_COMM] = "communication",
                                   [ROW_VALID] = "validation",
                                   [ROW_CHECKPOINT] = "checkpoints (background)",
                                   [ROW_NODES] = "nodes (mean of one micro-batch)"};

typedef struct trace {
    td__observer observer;
    td__append_file file;
    td__text buf;
    uint64_t began_ns;
    uint64_t arrows;
    uint64_t nbytes;  /* written */
    uint64_t tail_at; /* where what is written at the end of a run begins */
    bool closed;      /* that is there */
} trace;

static td_status flush(trace *t)
{
    TD_TRY(td__text_status(&t->buf));
    if (t->buf.used)
        TD_TRY(td__append_write(&t->file, t->buf.data, t->buf.used));
    t->nbytes += t->buf.used;
    td__text_clear(&t->buf);
    return TD_OK;
}

static double us_of(const trace *t, uint64_t ns)
{
    double us = (double)(int64_t)(ns - t->began_ns) * 1e-3;
    return us < 0 ? 0 : us;
}

static double now_us(const trace *t)
{
    return us_of(t, td__clock_ns());
}

/* A span that begins at `start_us`; left open for arguments, see end_span. */
static void begin_span(trace *t, int rank, int row, const char *name, double start_us, double us)
{
    td__text_printf(&t->buf,
                    ",\n{\"ph\": \"X\", \"pid\": %d, \"tid\": %d, \"ts\": %.3f, \"dur\": %.3f, "
                    "\"name\": ",
                    rank, row, start_us < 0 ? 0 : start_us, us < 0 ? 0 : us);
    td__text_json(&t->buf, name);
    td__text_add(&t->buf, ", \"args\": {");
}

static td_status end_span(trace *t)
{
    td__text_add(&t->buf, "}}");
    return t->buf.used > FLUSH_AT ? flush(t) : TD_OK;
}

static void name_row(trace *t, int rank, int row, const char *name)
{
    td__text_printf(&t->buf,
                    ",\n{\"ph\": \"M\", \"pid\": %d, \"tid\": %d, \"name\": \"thread_name\", "
                    "\"args\": {\"name\": \"%s\"}}",
                    rank, row, name);
}

static void name_rank(trace *t, int rank, const char *name)
{
    td__text_printf(&t->buf,
                    "{\"ph\": \"M\", \"pid\": %d, \"name\": \"process_name\", \"args\": ", rank);
    td__text_add(&t->buf, "{\"name\": ");
    td__text_json(&t->buf, name);
    td__text_add(&t->buf, "}}");
    for (int row = ROW_STEPS; row <= (rank ? ROW_VALID : ROW_NODES); row++)
        name_row(t, rank, row, ROWS[row]);
}

static td_status on_begin(td__observer *o, const td__train_info *info)
{
    trace *t = (trace *)o;
    char name[128];

    if (t->closed) { /* a run that was stopped goes on */
        t->closed = false;
        t->nbytes = t->tail_at;
        return td__append_cut(&t->file, t->tail_at);
    }
    t->began_ns = td__clock_ns();
    snprintf(name, sizeof name, "%s%s", info->name && *info->name ? info->name : "tandem",
             info->ranks > 1 ? ": rank 0" : "");
    td__text_add(&t->buf, "[\n");
    name_rank(t, 0, name);
    return flush(t);
}

static td_status on_step(td__observer *o, const td__step_event *e)
{
    trace *t = (trace *)o;
    double start = e->begin_ns ? us_of(t, e->begin_ns) : now_us(t) - e->seconds * 1e6;
    char name[32];

    snprintf(name, sizeof name, "step %" PRIu64, e->step);
    begin_span(t, 0, ROW_STEPS, name, start, e->seconds * 1e6);
    td__text_add(&t->buf, "\"loss\": ");
    td__text_json_number(&t->buf, e->loss, 9);
    return end_span(t);
}

static td_status on_eval(td__observer *o, const td__eval_event *e)
{
    trace *t = (trace *)o;

    begin_span(t, 0, ROW_VALID, e->part, now_us(t) - e->seconds * 1e6, e->seconds * 1e6);
    for (int i = 0; i < e->n; i++) {
        td__text_add(&t->buf, i ? ", " : "");
        td__text_json(&t->buf, e->name[i]);
        td__text_add(&t->buf, ": ");
        td__text_json_number(&t->buf, e->value[i], 9);
    }
    return end_span(t);
}

static td_status on_checkpoint(td__observer *o, const td__checkpoint_event *e)
{
    trace *t = (trace *)o;

    begin_span(t, 0, ROW_CHECKPOINT, "checkpoint", now_us(t) - e->seconds * 1e6, e->seconds * 1e6);
    td__text_printf(&t->buf, "\"step\": %" PRIu64 ", \"nbytes\": %zu, \"stalled_us\": %.3f",
                    e->step, e->nbytes, e->stalled * 1e6);
    return end_span(t);
}

/* ---- What the ranks recorded ----------------------------------------------------------------- */

static int row_of(const td__span *s)
{
    switch (s->kind) {
    case TD_SPAN_MICRO_BATCH: return ROW_COMPUTE + s->lane;
    case TD_SPAN_BUCKET: return ROW_COMM;
    case TD_SPAN_VALID: return ROW_VALID;
    case TD_SPAN_FORWARD:
    case TD_SPAN_BACKWARD:
    case TD_SPAN_WEIGHT:
    case TD_SPAN_BUBBLE: return ROW_STAGE;
    case TD_SPAN_SEND_UP: return ROW_SEND_UP;
    case TD_SPAN_SEND_DOWN: return ROW_SEND_DOWN;
    case TD_SPAN_RECV_UP: return ROW_RECV_UP;
    case TD_SPAN_RECV_DOWN: return ROW_RECV_DOWN;
    case TD_SPAN_COPY_IN:
    case TD_SPAN_KERNELS:
    case TD_SPAN_COPY_OUT: return ROW_STREAM + s->lane;
    default: return ROW_STEPS;
    }
}

static bool of_pipeline(const td__span *s)
{
    int row = row_of(s);
    return row >= ROW_STAGE && row <= ROW_RECV_DOWN;
}

static bool of_stream(const td__span *s)
{
    return row_of(s) >= ROW_STREAM;
}

/* From the end of the micro-batch that made a bucket ready to where it is carried: arrows start
 * within a span, here the step's. */
static void print_arrow(trace *t, int rank, const td__span *s)
{
    uint64_t id = t->arrows++;

    td__text_printf(&t->buf,
                    ",\n{\"ph\": \"s\", \"pid\": %d, \"tid\": %d, \"ts\": %.3f, \"id\": %" PRIu64
                    ", \"name\": \"ready\", \"cat\": \"bucket\"}",
                    rank, ROW_STEPS, us_of(t, s->posted_ns), id);
    td__text_printf(&t->buf,
                    ",\n{\"ph\": \"f\", \"bp\": \"e\", \"pid\": %d, \"tid\": %d, \"ts\": %.3f, "
                    "\"id\": %" PRIu64 ", \"name\": \"ready\", \"cat\": \"bucket\"}",
                    rank, ROW_COMM, us_of(t, s->begin_ns), id);
}

static td_status print_span(trace *t, int rank, const td__span *s)
{
    char name[48];
    double start = us_of(t, s->begin_ns);

    if (s->kind == TD_SPAN_STEP)
        snprintf(name, sizeof name, "step %" PRIu32, s->step);
    else if (s->kind == TD_SPAN_MICRO_BATCH || s->kind == TD_SPAN_BUCKET || of_stream(s) ||
             (of_pipeline(s) && s->kind != TD_SPAN_BUBBLE))
        snprintf(name, sizeof name, "%s %d", td__span_name(s->kind), (int)s->id);
    else
        snprintf(name, sizeof name, "%s", td__span_name(s->kind));
    begin_span(t, rank, row_of(s), name, start, us_of(t, s->end_ns) - start);
    td__text_printf(&t->buf, "\"step\": %" PRIu32, s->step);
    if (s->posted_ns)
        td__text_printf(&t->buf, ", \"ready\": %.3f, \"kib\": %" PRIu32, us_of(t, s->posted_ns),
                        s->kib);
    if (of_pipeline(s) && s->kind != TD_SPAN_BUBBLE)
        td__text_printf(&t->buf,
                        ", \"micro-batch\": %d, \"stage\": %" PRIu32 ", \"chunk\": %d, "
                        "\"kib\": %" PRIu32,
                        (int)s->id, s->stage, (int)s->lane, s->kib);
    TD_TRY(end_span(t));
    if (s->posted_ns)
        print_arrow(t, rank, s);
    return TD_OK;
}

static void name_stage(trace *t, int rank, int stage)
{
    static const char *const NAMES[] = {"messages forward", "messages backward",
                                        "from the stage before", "from the stage after"};
    char name[32];
    snprintf(name, sizeof name, "stage %d", stage);
    name_row(t, rank, ROW_STAGE, name);
    for (int k = 0; k < TD_LEN(NAMES); k++)
        name_row(t, rank, ROW_SEND_UP + k, NAMES[k]);
}

static void name_lanes(trace *t, const td__spans_event *e)
{
    char name[32];
    int lanes = 0, streams = 0;

    for (int i = 0; i < e->n; i++) {
        int next = e->span[i].lane + 1;
        if (e->span[i].kind == TD_SPAN_MICRO_BATCH && next > lanes)
            lanes = next;
        if (of_stream(&e->span[i]) && next > streams)
            streams = next;
    }
    for (int i = 0; i < e->n; i++)
        if (of_pipeline(&e->span[i])) {
            name_stage(t, e->rank, (int)e->span[i].stage);
            break;
        }
    for (int k = 0; k < lanes && k < MOST_LANES; k++) {
        snprintf(name, sizeof name, "compute %d", k);
        name_row(t, e->rank, ROW_COMPUTE + k, name);
    }
    for (int k = 0; k < streams && k < MOST_LANES; k++) {
        snprintf(name, sizeof name, "GPU stream %d", k);
        name_row(t, e->rank, ROW_STREAM + k, name);
    }
}

static td_status on_spans(td__observer *o, const td__spans_event *e)
{
    trace *t = (trace *)o;
    char name[64];

    if (e->rank) {
        snprintf(name, sizeof name, "rank %d", e->rank);
        td__text_add(&t->buf, ",\n");
        name_rank(t, e->rank, name);
    }
    name_lanes(t, e);
    if (e->lost)
        TD_LOG(WARN, TRAIN,
               "trace.json: rank %d: only the last %d spans are kept, %llu are dropped", e->rank,
               e->n, (unsigned long long)e->lost);
    for (int i = 0; i < e->n; i++) {
        const td__span *s = &e->span[i];
        if (e->rank || (s->kind != TD_SPAN_STEP && s->kind != TD_SPAN_VALID))
            TD_TRY(print_span(t, e->rank, s));
    }
    return TD_OK;
}

/* ---- The file -------------------------------------------------------------------------------- */

td_status td__trace_create(const char *dir, td__observer **out)
{
    trace *t = td__calloc(1, sizeof *t);

    *out = NULL;
    if (!t)
        return TD_FAIL(TD_ENOMEM, "%s: no memory for a trace", dir);
    t->observer = (td__observer){.begin = on_begin,
                                 .step = on_step,
                                 .eval = on_eval,
                                 .checkpoint = on_checkpoint,
                                 .spans = on_spans};
    td_status st = td__append_open(&t->file, dir, "trace.json", 0);
    if (st) {
        td__free(t);
        return st;
    }
    *out = &t->observer;
    return TD_OK;
}

td_status td__trace_nodes(td__observer *o, const td_node_time *times, int n)
{
    trace *t = (trace *)o;
    double at = 0;

    TD_TRY(flush(t));
    t->tail_at = t->nbytes;
    for (int i = 0; i < n; i++) {
        if (!times[i].calls)
            continue;
        double us = (double)times[i].total_ns / (double)times[i].calls * 1e-3;
        begin_span(t, 0, ROW_NODES, times[i].name && *times[i].name ? times[i].name : times[i].op,
                   at, us);
        td__text_add(&t->buf, "\"op\": ");
        td__text_json(&t->buf, times[i].op);
        td__text_add(&t->buf, ", \"impl\": ");
        td__text_json(&t->buf, times[i].impl ? times[i].impl : "");
        td__text_printf(&t->buf, ", \"calls\": %" PRIu64, times[i].calls);
        TD_TRY(end_span(t));
        at += us;
    }
    return TD_OK;
}

td_status td__trace_finish(td__observer *o)
{
    trace *t = (trace *)o;
    td__text_add(&t->buf, "\n]\n");
    t->closed = true;
    return flush(t);
}

void td__trace_destroy(td__observer *o)
{
    trace *t = (trace *)o;
    if (!t)
        return;
    td__append_close(&t->file);
    td__text_fini(&t->buf);
    td__free(t);
}
