/* watch.c -- `tandem watch`: what happens to a job, until it ends. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "client/watch.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/human.h"

enum { TAIL = 4096, BETWEEN_MS = 1000 };

/* ---- server-sent events ---- */

/* A stream of them, piece by piece. Zero-initialise; `fn` gets each event. */
typedef struct sse_stream {
    bool (*fn)(void *arg, const char *event, const char *data, const char *id); /* false: enough */
    void *arg;
    td__text line;
    char event[64], id[32];
    td__text data;
} sse_stream;

static bool sse_line(sse_stream *s, const char *line)
{
    if (!*line) {
        bool more = !s->data.used || s->fn(s->arg, s->event, s->data.data, s->id);
        td__text_clear(&s->data);
        s->event[0] = 0;
        return more;
    }
    if (strncmp(line, "event: ", 7) == 0)
        snprintf(s->event, sizeof s->event, "%s", line + 7);
    else if (strncmp(line, "id: ", 4) == 0)
        snprintf(s->id, sizeof s->id, "%s", line + 4);
    else if (strncmp(line, "data: ", 6) == 0)
        td__text_add(&s->data, line + 6);
    return true;
}

/* A td__http_sink. */
static bool feed_sse(void *sse, const void *bytes, size_t nbytes)
{
    sse_stream *s = sse;
    const char *at = bytes, *end = at + nbytes, *stop;
    while ((stop = memchr(at, '\n', (size_t)(end - at)))) {
        td__text_append(&s->line, at, (size_t)(stop - at));
        at = stop + 1;
        if (s->line.failed || !sse_line(s, s->line.data ? s->line.data : ""))
            return false;
        td__text_clear(&s->line);
        if (s->line.data)
            s->line.data[0] = 0;
    }
    td__text_append(&s->line, at, (size_t)(end - at));
    return true;
}

static void end_sse(sse_stream *s)
{
    td__text_fini(&s->line);
    td__text_fini(&s->data);
}

/* ---- a job ---- */

typedef struct watching {
    td__client *client;
    td__client other; /* for questions while the stream is open */
    int job;
    char state[32];
    bool ended;
    td__deadline next; /* look at the metrics no earlier */
    long last_step;
    double steps;
} watching;

static void stamp(int64_t ms)
{
    time_t t = (time_t)(ms / 1000);
    struct tm tm;
    char text[32];
    localtime_r(&t, &tm);
    strftime(text, sizeof text, "%H:%M:%S", &tm);
    printf("%s  ", text);
}

static void say(const char *text)
{
    td__text t = {0};
    td__text_printable(&t, text);
    printf("%s\n", t.data ? t.data : "");
    td__text_fini(&t);
    fflush(stdout);
}

/* One line about the last step and validation in the metrics' tail. */
static void print_progress(watching *w, const char *lines)
{
    td__text out = {0};
    char number[TD__HUMAN];
    json_t *step = NULL, *eval = NULL;
    while (*lines) {
        size_t n = strcspn(lines, "\n");
        json_t *o = json_loadb(lines, n, 0, NULL);
        const char *kind = td__client_text(o, "kind");
        json_t **keep = strcmp(kind, "step") == 0   ? &step
                        : strcmp(kind, "eval") == 0 ? &eval
                                                    : NULL;
        if (keep) {
            json_decref(*keep);
            *keep = json_incref(o);
        }
        json_decref(o);
        lines += n + (lines[n] == '\n');
    }
    long at = (long)td__json_whole(step, "step");
    if (step && at > w->last_step) {
        w->last_step = at;
        td__text_printf(&out, "step %ld", at);
        if (w->steps > 0)
            td__text_printf(&out, " of %.0f", w->steps);
        td__text_printf(&out, ", loss %.4g", json_number_value(json_object_get(step, "loss")));
        const char *name;
        json_t *v;
        json_object_foreach(json_object_get(eval, "metrics"), name, v) td__text_printf(
            &out, ", %s %s", name, td__human_metric(name, json_number_value(v), number));
        stamp((int64_t)time(NULL) * 1000);
        say(out.data);
    }
    td__text_fini(&out);
    json_decref(step);
    json_decref(eval);
}

static bool collect(void *arg, const void *data, size_t nbytes)
{
    td__text_append(arg, data, nbytes);
    return true;
}

/* The first line alone. */
static bool collect_line(void *arg, const void *data, size_t nbytes)
{
    td__text_append(arg, data, nbytes);
    return !memchr(data, '\n', nbytes);
}

/* How many steps the run will have: its first line says it. */
static void look_at_begin(watching *w)
{
    char path[96];
    td__text line = {0};
    snprintf(path, sizeof path, "/v1/jobs/%d/metrics", w->job);
    if (!td__client_stream(&w->other, path, collect_line, &line, NULL) && line.data) {
        json_t *o = json_loadb(line.data, strcspn(line.data, "\n"), 0, NULL);
        w->steps = json_number_value(json_object_get(o, "steps"));
        json_decref(o);
    }
    td__text_fini(&line);
}

static void look_at_metrics(watching *w)
{
    char path[96];
    td__text lines = {0};
    if (!td__deadline_passed(w->next))
        return;
    if (!(w->steps > 0))
        look_at_begin(w);
    snprintf(path, sizeof path, "/v1/jobs/%d/metrics?tail=%d", w->job, TAIL);
    if (!td__client_stream(&w->other, path, collect, &lines, NULL) && lines.data)
        print_progress(w, lines.data);
    td__text_fini(&lines);
    w->next = td__deadline_in_ms(BETWEEN_MS);
}

static bool on_event(void *arg, const char *event, const char *data, const char *id)
{
    watching *w = arg;
    json_t *o = json_loads(data, 0, NULL);
    const char *state = td__client_text(o, "state"), *text = td__client_text(o, "text");
    (void)id;
    if (strcmp(event, "metrics") == 0) {
        look_at_metrics(w);
    } else if (strcmp(event, "log") != 0) {
        bool changed = strcmp(event, "state") == 0;
        td__text line = {0};
        if (changed && strcmp(state, "running") != 0) {
            w->next = 0;
            look_at_metrics(w); /* what the end of a run is reported with */
        }
        stamp(td__json_whole(o, "time_ms"));
        td__text_printf(&line, "%s%s%s", changed ? state : event, *text ? ": " : "", text);
        say(line.data);
        td__text_fini(&line);
        if (changed)
            snprintf(w->state, sizeof w->state, "%s", state);
    }
    w->ended = strcmp(w->state, "succeeded") == 0 || strcmp(w->state, "failed") == 0 ||
               strcmp(w->state, "cancelled") == 0;
    json_decref(o);
    return !w->ended;
}

int td__watch_job(td__client *c, int job)
{
    watching w = {.client = c, .job = job};
    sse_stream sse = {.fn = on_event, .arg = &w};
    char path[96];
    int rc = td__client_open(c->args, &w.other);
    for (int tries = 0; !rc && !w.ended; tries++) {
        bool broken;
        char before[32];
        snprintf(before, sizeof before, "%s", sse.id);
        snprintf(path, sizeof path, "/v1/jobs/%d/events?after=%s", job, *sse.id ? sse.id : "0");
        td__text_clear(&sse.line);
        rc = td__client_stream(c, path, feed_sse, &sse, &broken);
        if (!rc && broken && !w.ended && !td__client_pause(c, tries))
            break;
        if (strcmp(before, sse.id) != 0)
            tries = 0;
    }
    end_sse(&sse);
    td__client_close(&w.other);
    if (!rc && !w.ended) {
        td__usage_error(c->args, "the connection to %s was lost; job %d goes on", c->server, job);
        return TD_EXIT_FAILED;
    }
    return rc ? rc : strcmp(w.state, "succeeded") == 0 ? TD_EXIT_OK : TD_EXIT_FAILED;
}

static int run(const td__args *a)
{
    td__client c = {0};
    int job = td__client_job(a, td__args_at(a, 0));
    int rc = job ? td__client_open(a, &c) : TD_EXIT_USAGE;
    if (!rc)
        rc = td__watch_job(&c, job);
    td__client_close(&c);
    return rc;
}

static const td__flag FLAGS[] = {TD_CLIENT_FLAGS, {0}};
static const char *const EXAMPLES[] = {"tandem watch 12", "follow job 12 until it ends", NULL};

const td__command td__command_watch = {
    .name = "watch",
    .args = "JOB",
    .summary = "follow a job of a training service until it ends",
    .text =
        "Prints each change of the job's state and its progress. The exit status is 0 if the job "
        "succeeds and 1 if it fails or is cancelled.",
    .examples = EXAMPLES,
    .flags = FLAGS,
    .min_args = 1,
    .max_args = 1,
    .run = run,
};
