/* trace.c -- trace.json in the Trace Event format: Perfetto (ui.perfetto.dev) and chrome://tracing
 * open it.
 *
 * An array of objects; "X" is a span with ts and dur in microseconds, "M" names a row. The array is
 * written as the run goes and closed by td__trace_finish; viewers accept it without its end, so
 * that the trace of a killed run can be looked at. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/text.h"
#include "train/append_file.h"
#include "train/run_dir.h"

enum { ROW_STEPS = 1, ROW_DATA, ROW_VALID, ROW_CHECKPOINT, ROW_NODES, FLUSH_AT = 64 << 10 };

static const char *const ROWS[] = {[ROW_STEPS] = "steps",
                                   [ROW_DATA] = "waiting for data",
                                   [ROW_VALID] = "validation",
                                   [ROW_CHECKPOINT] = "checkpoints (background)",
                                   [ROW_NODES] = "nodes (mean of one shard)"};

typedef struct trace {
    td__observer observer;
    td__append_file file;
    td__text buf;
    uint64_t began_ns;
} trace;

static td_status flush(trace *t)
{
    TD_TRY(td__text_status(&t->buf));
    if (t->buf.used)
        TD_TRY(td__append_write(&t->file, t->buf.data, t->buf.used));
    td__text_clear(&t->buf);
    return TD_OK;
}

static double now_us(const trace *t)
{
    return (double)(td__clock_ns() - t->began_ns) * 1e-3;
}

/* A span of `seconds` that begins at `start_us`; left open for arguments, see end_span. */
static void begin_span(trace *t, int row, const char *name, double start_us, double seconds)
{
    td__text_add(&t->buf, ",\n{\"ph\": \"X\", \"pid\": 1, ");
    td__text_printf(&t->buf, "\"tid\": %d, \"ts\": %.3f, \"dur\": %.3f, \"name\": ", row,
                    start_us < 0 ? 0 : start_us, seconds * 1e6);
    td__text_json(&t->buf, name);
    td__text_add(&t->buf, ", \"args\": {");
}

static td_status end_span(trace *t)
{
    td__text_add(&t->buf, "}}");
    return t->buf.used > FLUSH_AT ? flush(t) : TD_OK;
}

static td_status on_begin(td__observer *o, const td__train_info *info)
{
    trace *t = (trace *)o;

    t->began_ns = td__clock_ns();
    td__text_add(&t->buf, "[\n{\"ph\": \"M\", \"pid\": 1, \"name\": \"process_name\", \"args\": "
                          "{\"name\": ");
    td__text_json(&t->buf, info->name ? info->name : "tandem");
    td__text_add(&t->buf, "}}");
    for (int row = ROW_STEPS; row <= ROW_NODES; row++)
        td__text_printf(&t->buf,
                        ",\n{\"ph\": \"M\", \"pid\": 1, \"tid\": %d, \"name\": \"thread_name\", "
                        "\"args\": {\"name\": \"%s\"}}",
                        row, ROWS[row]);
    return flush(t);
}

static td_status on_step(td__observer *o, const td__step_event *e)
{
    trace *t = (trace *)o;
    double start = now_us(t) - e->seconds * 1e6;
    char name[32];

    snprintf(name, sizeof name, "step %" PRIu64, e->step);
    begin_span(t, ROW_STEPS, name, start, e->seconds);
    td__text_add(&t->buf, "\"loss\": ");
    td__text_json_number(&t->buf, e->loss, 9);
    TD_TRY(end_span(t));
    if (e->data_wait > 0) {
        begin_span(t, ROW_DATA, "data", start, e->data_wait);
        TD_TRY(end_span(t));
    }
    return TD_OK;
}

static td_status on_eval(td__observer *o, const td__eval_event *e)
{
    trace *t = (trace *)o;

    begin_span(t, ROW_VALID, e->part, now_us(t) - e->seconds * 1e6, e->seconds);
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

    begin_span(t, ROW_CHECKPOINT, "checkpoint", now_us(t) - e->seconds * 1e6, e->seconds);
    td__text_printf(&t->buf, "\"step\": %" PRIu64 ", \"nbytes\": %zu, \"stalled_us\": %.3f",
                    e->step, e->nbytes, e->stalled * 1e6);
    return end_span(t);
}

td_status td__trace_create(const char *dir, td__observer **out)
{
    trace *t = td__calloc(1, sizeof *t);

    *out = NULL;
    if (!t)
        return TD_FAIL(TD_ENOMEM, "%s: no memory for a trace", dir);
    t->observer = (td__observer){
        .begin = on_begin, .step = on_step, .eval = on_eval, .checkpoint = on_checkpoint};
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

    for (int i = 0; i < n; i++) {
        if (!times[i].calls)
            continue;
        double us = (double)times[i].total_ns / (double)times[i].calls * 1e-3;
        begin_span(t, ROW_NODES, times[i].name && *times[i].name ? times[i].name : times[i].op, at,
                   us * 1e-6);
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
