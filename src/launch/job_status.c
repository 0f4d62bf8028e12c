/* job_status.c -- see job_status.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "launch/job_status.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fail.h"
#include "launch/membership.h"

enum { DIGITS = 6 };

typedef struct event {
    uint64_t at_ns;
    char text[TD_STATUS_TEXT];
} event;

struct td__job_status {
    uint64_t began_ns;
    td__text said[TD_MS_AGENTS];
    uint64_t said_ns[TD_MS_AGENTS];
    event event[TD_STATUS_EVENTS];
    uint32_t n_events, n_failures; /* so far */
};

td_status td__job_status_create(td__job_status **out)
{
    *out = td__calloc(1, sizeof **out);
    if (!*out)
        return TD_FAIL(TD_ENOMEM, "no memory for the status of a job");
    (*out)->began_ns = td__clock_ns();
    return TD_OK;
}

void td__job_status_destroy(td__job_status *s)
{
    for (int i = 0; s && i < TD_MS_AGENTS; i++)
        td__text_fini(&s->said[i]);
    td__free(s);
}

void td__job_status_host(td__job_status *s, int agent, const char *json)
{
    td__text_clear(&s->said[agent]);
    td__text_add(&s->said[agent], json);
    s->said_ns[agent] = td__clock_ns();
}

void td__job_status_event(td__job_status *s, const char *text, bool failure)
{
    event *e = &s->event[s->n_events++ % TD_STATUS_EVENTS];
    e->at_ns = td__clock_ns();
    snprintf(e->text, sizeof e->text, "%s", text);
    s->n_failures += failure;
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
        bool said = s->said_ns[i] && !td__text_status(&s->said[i]);
        td__text_add(out, i ? ", {\"name\": " : "{\"name\": ");
        td__text_json(out, f->host[i]);
        td__text_printf(out, ", \"up\": %s", f->up[i] ? "true" : "false");
        if (said && f->up[i]) {
            td__text_add(out, ", \"age\": ");
            seconds_since(out, now, s->said_ns[i]);
            td__text_add(out, ", \"says\": ");
            td__text_add(out, s->said[i].data);
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
    td__text_printf(out, ", \"generation\": %" PRIu64 ", \"ranks\": %d, \"why\": ", f->generation,
                    f->ranks);
    td__text_json(out, f->why);
    td__text_printf(out, ", \"least\": %d, \"most\": %d, \"spares\": %d, \"failures\": %u",
                    f->min_ranks, f->most, f->spares, s->n_failures);
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
