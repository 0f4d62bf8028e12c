/* job_status.c -- see job_status.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "launch/job_status.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/date.h"
#include "base/fail.h"

enum { DIGITS = 6 };

typedef struct event {
    uint64_t at_ns;
    double time; /* unix */
    bool failure;
    int ranks;
    char text[TD_STATUS_TEXT];
} event;

typedef struct agent {
    td__text said;
    uint64_t said_ns; /* 0: nothing yet */
} agent;

struct td__job_status {
    uint64_t began_ns;
    agent *agents; /* (max_agents) */
    int max_agents;
    event event[TD_STATUS_EVENTS];
    uint32_t n_events, n_failures; /* so far */
    double began;                  /* unix time */
    int fd;                        /* of ranks.jsonl; -1: not yet */
    uint32_t n_logged;
};

td_status td__job_status_create(int max_agents, td__job_status **out)
{
    td__job_status *s = *out = td__calloc(1, sizeof *s);
    if (s)
        s->agents = td__calloc((size_t)max_agents, sizeof *s->agents);
    if (!s || !s->agents)
        return TD_FAIL(TD_ENOMEM, "no memory for the status of a job");
    s->max_agents = max_agents;
    s->began_ns = td__clock_ns();
    s->began = td__unix_time();
    s->fd = -1;
    return TD_OK;
}

void td__job_status_destroy(td__job_status *s)
{
    for (int i = 0; s && i < s->max_agents; i++)
        td__text_fini(&s->agents[i].said);
    if (s && s->fd >= 0)
        close(s->fd);
    if (s)
        td__free(s->agents);
    td__free(s);
}

void td__job_status_host(td__job_status *s, int index, const char *json)
{
    td__text_clear(&s->agents[index].said);
    td__text_add(&s->agents[index].said, json);
    s->agents[index].said_ns = td__clock_ns();
}

/* A line is one write, so that a reader finds it whole. */
static void log_line(td__job_status *s, const char *kind, double time, int ranks, const char *text)
{
    td__text line = {0};

    td__text_printf(&line, "{\"kind\": \"%s\", \"time\": %.3f", kind, time);
    if (ranks >= 0)
        td__text_printf(&line, ", \"ranks\": %d", ranks);
    td__text_add(&line, ", \"text\": ");
    td__text_json(&line, text);
    td__text_add(&line, "}\n");
    if (!td__text_status(&line) && write(s->fd, line.data, line.used) < 0) {
        close(s->fd); /* the report does without */
        s->fd = -1;
    }
    td__text_fini(&line);
}

static void log_events(td__job_status *s)
{
    for (; s->fd >= 0 && s->n_logged < s->n_events; s->n_logged++) {
        const event *e = &s->event[s->n_logged % TD_STATUS_EVENTS];
        if (s->n_events - s->n_logged <= TD_STATUS_EVENTS)
            log_line(s, e->failure ? "lost" : "ranks", e->time, e->ranks, e->text);
    }
}

void td__job_status_log(td__job_status *s, const char *dir)
{
    char path[PATH_MAX];

    if (s->fd >= 0 || snprintf(path, sizeof path, "%s/ranks.jsonl", dir) >= (int)sizeof path)
        return;
    s->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
    if (s->fd < 0)
        return;
    log_line(s, "start", s->began, -1, "");
    log_events(s);
}

void td__job_status_event(td__job_status *s, const char *text, bool failure, int ranks)
{
    event *e = &s->event[s->n_events++ % TD_STATUS_EVENTS];
    e->at_ns = td__clock_ns();
    e->time = td__unix_time();
    e->failure = failure;
    e->ranks = ranks;
    snprintf(e->text, sizeof e->text, "%s", text);
    s->n_failures += failure;
    log_events(s);
}

static void seconds_since(td__text *out, uint64_t now, uint64_t ns)
{
    td__text_json_number(out, 1e-9 * (double)(now - ns), DIGITS);
}

static void write_hosts(const td__job_status *s, const td__job_facts *f, uint64_t now,
                        td__text *out)
{
    td__text_add(out, ", \"hosts\": [");
    for (int i = 0; i < f->n_agents; i++) {
        const agent *a = &s->agents[i];
        bool said = a->said_ns && !td__text_status(&a->said);
        td__text_add(out, i ? ", {\"name\": " : "{\"name\": ");
        td__text_json(out, f->host[i]);
        td__text_printf(out, ", \"up\": %s", f->up[i] ? "true" : "false");
        if (said && f->up[i]) {
            td__text_add(out, ", \"age\": ");
            seconds_since(out, now, a->said_ns);
            td__text_add(out, ", \"says\": ");
            td__text_add(out, a->said.data);
        }
        td__text_add(out, "}");
    }
    td__text_add(out, "]");
}

void td__job_status_write(const td__job_status *s, const td__job_facts *f, td__text *out)
{
    uint64_t now = td__clock_ns();
    uint32_t n = s->n_events, first = n > TD_STATUS_EVENTS ? n - TD_STATUS_EVENTS : 0;
    td__text_add(out, "{\"seconds\": ");
    seconds_since(out, now, s->began_ns);
    td__text_printf(out, ", \"elastic\": %s, \"generation\": %" PRIu64 ", \"ranks\": %d, \"why\": ",
                    f->elastic ? "true" : "false", f->generation, f->ranks);
    td__text_json(out, f->why);
    td__text_printf(out,
                    ", \"min_ranks\": %d, \"most\": %d, \"spares\": %d, \"restarts\": %d, "
                    "\"failures\": %u",
                    f->min_ranks, f->most, f->spares, f->restarts, s->n_failures);
    td__text_printf(out, ", \"least\": %d", f->min_ranks); /* its former name, for scripts */
    write_hosts(s, f, now, out);
    td__text_add(out, ", \"events\": [");
    for (uint32_t i = first; i < n; i++) {
        const event *e = &s->event[i % TD_STATUS_EVENTS];
        td__text_add(out, i > first ? ", {\"ago\": " : "{\"ago\": ");
        seconds_since(out, now, e->at_ns);
        td__text_add(out, ", \"text\": ");
        td__text_json(out, e->text);
        td__text_add(out, "}");
    }
    td__text_add(out, "]}");
}
