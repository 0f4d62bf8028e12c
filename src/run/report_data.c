/* report_data.c -- metrics.jsonl read back as columns. Lines that are not ours (or the torn last
 * line of a killed run) are passed over: the report is for people, and says what is known. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "run/report_data.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <jansson.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/file.h"

static td_status push(td__column *c, double v)
{
    if (c->n == c->room) {
        int room = c->room ? 2 * c->room : 1024;
        double *p = c->room < (1 << 29) ? td__realloc(c->v, (size_t)room * sizeof *p) : NULL;
        if (!p)
            return TD_FAIL(TD_ENOMEM, "no memory for %d points of the report", room);
        c->v = p;
        c->room = room;
    }
    c->v[c->n++] = v;
    return TD_OK;
}

static double number(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

static void text(const json_t *o, const char *key, char *buf, size_t nbytes)
{
    const char *s = json_string_value(json_object_get(o, key));
    snprintf(buf, nbytes, "%s", s ? s : "");
}

static td_status read_step(td__report_data *d, const json_t *o)
{
    double samples = number(o, "samples"), seconds = number(o, "seconds");

    TD_TRY(push(&d->step, number(o, "step")));
    TD_TRY(push(&d->loss, number(o, "loss")));
    TD_TRY(push(&d->lr, number(o, "lr")));
    TD_TRY(push(&d->grad_norm, number(o, "grad_norm")));
    TD_TRY(push(&d->rate, seconds > 0 ? samples / seconds : (double)NAN));
    TD_TRY(push(&d->seconds, seconds));
    TD_TRY(push(&d->data_wait, number(o, "data_wait")));
    double elapsed = number(o, "elapsed");
    if (isnan(d->origin)) /* the first since the begin */
        d->origin = d->begin_time - (elapsed - seconds);
    TD_TRY(push(&d->time, d->origin + elapsed));
    if (samples > 0)
        d->samples += samples;
    const json_t *sync = json_object_get(o, "sync");
    double age = number(sync, "age"), most = number(sync, "age_max");
    if (isfinite(age)) {
        d->age_sum += age;
        d->ages++;
        d->age_count[td__age_bucket(age)]++;
        d->age_most = most > d->age_most ? most : d->age_most;
    }
    return TD_OK;
}

int td__age_bucket(double age)
{
    int b = 0;
    for (double most = 0.5; b < TD__AGE_BUCKETS - 1 && age >= most; b++)
        most = b == 0 ? 1.5 : b == 1 ? 2.5 : 2 * (most - 0.5) + 0.5;
    return b;
}

static td__report_metric *metric(td__report_data *d, const char *part, const char *name)
{
    for (int i = 0; i < d->n_metrics; i++)
        if (strcmp(d->metric[i].part, part) == 0 && strcmp(d->metric[i].name, name) == 0)
            return &d->metric[i];
    if (d->n_metrics == TD__REPORT_METRICS)
        return NULL;
    td__report_metric *m = &d->metric[d->n_metrics++];
    snprintf(m->part, sizeof m->part, "%s", part);
    snprintf(m->name, sizeof m->name, "%s", name);
    return m;
}

static td_status read_eval(td__report_data *d, json_t *o)
{
    char part[16];
    const char *name;
    json_t *value;
    double seconds = number(o, "seconds");

    text(o, "part", part, sizeof part);
    d->n_evals++;
    d->eval_seconds += seconds > 0 ? seconds : 0;
    if (json_is_true(json_object_get(o, "best")))
        d->best_step = number(o, "step");
    json_object_foreach(json_object_get(o, "metrics"), name, value)
    {
        td__report_metric *m = metric(d, part, name);
        if (!m)
            continue;
        TD_TRY(push(&m->step, number(o, "step")));
        TD_TRY(push(&m->value, json_is_number(value) ? json_number_value(value) : (double)NAN));
    }
    return TD_OK;
}

static void read_begin(td__report_data *d, const json_t *o)
{
    if (!d->n_begins++)
        d->began = number(o, "time");
    d->begin_time = number(o, "time");
    d->origin = NAN;
    d->params = number(o, "params");
    d->batch = number(o, "batch");
    /* Files of older versions call them shards. */
    d->micro_batches = number(o, json_object_get(o, "shards") ? "shards" : "micro_batches");
    d->threads = number(o, "threads");
    d->ranks = number(o, "ranks");
    d->steps = number(o, "steps");
    text(o, "precision", d->precision, sizeof d->precision);
    d->end[0] = 0;
    text(o, "job", d->job, sizeof d->job);
    d->n_ranks = 0; /* what follows is of other ranks */
}

static void read_checkpoint(td__report_data *d, const json_t *o)
{
    double seconds = number(o, "seconds"), stalled = number(o, "stalled");
    d->n_checkpoints++;
    d->checkpoint_step = number(o, "step");
    d->checkpoint_bytes = number(o, "nbytes");
    d->checkpoint_seconds += seconds > 0 ? seconds : 0;
    d->checkpoint_stalled += stalled > 0 ? stalled : 0;
}

static double item(const json_t *o, const char *key, int i)
{
    const json_t *v = json_array_get(json_object_get(o, key), (size_t)i);
    return json_is_number(v) ? json_number_value(v) : 0;
}

/* Shares that came too late, by rank. */
static void read_dropped(td__report_data *d, const json_t *o)
{
    const json_t *list = json_object_get(o, "dropped");
    double all = 0;
    for (size_t r = 0; r < json_array_size(list); r++)
        all += item(o, "dropped", (int)r);
    if (!json_is_array(list))
        return;
    int used = snprintf(d->dropped, sizeof d->dropped, "%.0f gradients", all);
    for (size_t r = 0; r < json_array_size(list) && used < (int)sizeof d->dropped - 32; r++)
        if (item(o, "dropped", (int)r) > 0)
            used += snprintf(d->dropped + used, sizeof d->dropped - (size_t)used, ", rank %zu %.0f",
                             r, item(o, "dropped", (int)r));
}

static void read_samples(td__report_data *d, const json_t *o)
{
    char name[48];
    d->keeps_samples = json_object_get(o, "samples_prepared");
    for (int l = 0; d->keeps_samples && l < TD_BLOCK_LEVELS; l++) {
        const char *level = td__block_level_name((td__block_level)l);
        snprintf(name, sizeof name, "samples_%s_hits", level);
        d->kept.hits[l] = (uint64_t)number(o, name);
        snprintf(name, sizeof name, "samples_%s_nbytes", level);
        d->kept.used[l] = (size_t)number(o, name);
    }
    if (d->keeps_samples)
        d->kept.misses = (uint64_t)number(o, "samples_prepared");
}

static void read_end(td__report_data *d, const json_t *o)
{
    text(o, "end", d->end, sizeof d->end);
    text(o, "digest", d->digest, sizeof d->digest);
    d->end_seconds = number(o, "seconds");
    d->memory_planned = number(o, "memory_planned");
    d->memory_peak = number(o, "memory_peak");
    d->memory_rank = number(o, "memory_rank");
    text(o, "device", d->device, sizeof d->device);
    d->device_requests = number(o, "device_requests");
    d->device_reused = number(o, "device_reused");
    d->device_released = number(o, "device_released");
    d->device_idle = number(o, "device_idle");
    d->device_peak = number(o, "device_peak");
    read_samples(d, o);
    read_dropped(d, o);
}

static td_status read_ranks(td__report_data *d, const json_t *o)
{
    int n = (int)json_array_size(json_object_get(o, "compute"));

    if (n != d->n_ranks) { /* the first such line of these ranks */
        td__report_rank *rank = td__calloc((size_t)n + 1, sizeof *rank);
        if (!rank)
            return TD_FAIL(TD_ENOMEM, "no memory for %d ranks of the report", n);
        td__free(d->rank);
        d->rank = rank;
        d->n_ranks = n;
        d->ranked_steps = 0;
    }
    for (int r = 0; r < n; r++) {
        td__rank_times *t = &d->rank[r].times;
        t->seconds += item(o, "seconds", r);
        t->compute += item(o, "compute", r);
        t->update += item(o, "update", r);
        t->comm += item(o, "comm", r);
        t->busy += item(o, "comm_busy", r);
        t->wait += item(o, "wait", r);
        t->data += item(o, "data", r);
        t->nbytes += item(o, "nbytes", r);
        t->plain += item(o, "plain_nbytes", r);
        t->memory = fmax(t->memory, item(o, "memory", r));
        d->rank[r].blame += item(o, "blame", r);
    }
    d->ranked_steps += fmax(0, number(o, "steps"));
    return TD_OK;
}

static void read_span(const json_t *v, td__pipeline_span *s)
{
    int n[4] = {0};
    double at[2] = {0};
    for (size_t i = 0; i < 6; i++) {
        const json_t *x = json_array_get(v, i);
        double number = json_is_number(x) ? json_number_value(x) : 0;
        if (i < 4)
            n[i] = number > 0 && number < 1e6 ? (int)number : 0;
        else
            at[i - 4] = number;
    }
    *s = (td__pipeline_span){n[0], n[1], n[3], n[2] < 3 ? n[2] : 0, at[0], at[1]};
}

static td_status read_pipeline(td__report_data *d, const json_t *o)
{
    td__pipeline_report *r = &d->pipeline;
    size_t stages = json_array_size(json_object_get(o, "idle_by_stage"));
    size_t runs = json_array_size(json_object_get(o, "runs"));
    td__free(r->idle);
    td__free(r->peak);
    td__free(r->span);
    *r = (td__pipeline_report){.stages = (int)stages, .n_spans = (int)runs};
    r->idle = td__calloc(stages + 1, sizeof *r->idle);
    r->peak = td__calloc(stages + 1, sizeof *r->peak);
    r->span = td__calloc(runs + 1, sizeof *r->span);
    if (!r->idle || !r->peak || !r->span)
        return TD_FAIL(TD_ENOMEM, "no memory for %zu runs of the report", runs);
    text(o, "schedule", r->schedule, sizeof r->schedule);
    r->replicas = (int)number(o, "replicas");
    r->chunks = (int)number(o, "chunks");
    r->micro_batches = (int)number(o, "micro_batches");
    r->measured = number(o, "idle");
    r->expected = number(o, "idle_expected");
    r->even = number(o, "idle_even");
    for (size_t s = 0; s < stages; s++) {
        r->idle[s] = item(o, "idle_by_stage", (int)s);
        r->peak[s] = item(o, "peak_by_stage", (int)s);
    }
    for (size_t i = 0; i < runs; i++) {
        read_span(json_array_get(json_object_get(o, "runs"), i), &r->span[i]);
        r->span[i].stage = r->span[i].stage < r->stages ? r->span[i].stage : 0;
    }
    return TD_OK;
}

static td_status read_line(td__report_data *d, json_t *o)
{
    const char *kind = json_string_value(json_object_get(o, "kind"));

    if (!kind)
        return TD_OK;
    if (strcmp(kind, "step") == 0)
        return read_step(d, o);
    if (strcmp(kind, "eval") == 0)
        return read_eval(d, o);
    if (strcmp(kind, "ranks") == 0)
        return read_ranks(d, o);
    if (strcmp(kind, "pipeline") == 0)
        return read_pipeline(d, o);
    if (strcmp(kind, "begin") == 0)
        read_begin(d, o);
    else if (strcmp(kind, "checkpoint") == 0)
        read_checkpoint(d, o);
    else if (strcmp(kind, "end") == 0)
        read_end(d, o);
    return TD_OK;
}

void td__report_data_init(td__report_data *d)
{
    *d = (td__report_data){.best_step = NAN,
                           .params = NAN,
                           .end_seconds = NAN,
                           .began = NAN,
                           .begin_time = NAN,
                           .origin = NAN,
                           .checkpoint_step = NAN};
}

/* torn: also of the last line, which may not be whole. */
static td_status read_lines(const char *dir, td__report_data *d, bool torn)
{
    char path[TD__PATH];
    td__file_map m;
    td_status st = TD_OK;

    TD_TRY(td__run_dir_path(dir, "metrics.jsonl", path));
    TD_TRY(td__file_map_open(&m, path));
    while (d->n_read < m.nbytes && !st) {
        const char *line = (const char *)m.data + d->n_read;
        const char *end = memchr(line, '\n', m.nbytes - d->n_read);
        if (!end && !torn)
            break;
        size_t len = end ? (size_t)(end - line) : m.nbytes - d->n_read;
        json_t *o = json_loadb(line, len, 0, NULL);
        if (o)
            st = read_line(d, o);
        json_decref(o);
        d->n_read += len + 1;
    }
    td__file_map_close(&m);
    return st;
}

td_status td__report_data_more(const char *dir, td__report_data *d)
{
    return read_lines(dir, d, false);
}

td_status td__report_data_read(const char *dir, td__report_data *d)
{
    td__report_data_init(d);
    td_status st = read_lines(dir, d, true);
    if (st)
        td__report_data_fini(d);
    return st;
}

void td__report_data_fini(td__report_data *d)
{
    td__column *columns[] = {&d->step, &d->loss,    &d->lr,        &d->grad_norm,
                             &d->rate, &d->seconds, &d->data_wait, &d->time};
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++)
        td__free(columns[i]->v);
    for (int i = 0; i < d->n_metrics; i++) {
        td__free(d->metric[i].step.v);
        td__free(d->metric[i].value.v);
    }
    td__free(d->rank);
    td__free(d->pipeline.idle);
    td__free(d->pipeline.peak);
    td__free(d->pipeline.span);
    *d = (td__report_data){0};
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

td_status td__column_quantiles(const td__column *c, const double *q, int n, double *out)
{
    double *sorted = td__calloc((size_t)c->n + 1, sizeof *sorted);
    int count = 0;

    if (!sorted)
        return TD_FAIL(TD_ENOMEM, "no memory for %d times of the report", c->n);
    for (int i = 0; i < c->n; i++)
        if (isfinite(c->v[i]))
            sorted[count++] = c->v[i];
    qsort(sorted, (size_t)count, sizeof *sorted, by_value);
    for (int i = 0; i < n; i++)
        out[i] = count ? sorted[(int)((double)(count - 1) * q[i])] : (double)NAN;
    td__free(sorted);
    return TD_OK;
}
