/* api_json.c -- records of the service as JSON. Lists never hold what was submitted, and what was
 * submitted is shown without secrets. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <string.h>

#include "service/http/api_impl.h"
#include "service/spec.h"

static void text(td__text *out, const char *key, const char *value)
{
    td__text_printf(out, ",\"%s\":", key);
    td__text_json(out, value ? value : "");
}

static void whole_number(td__text *out, const char *key, int64_t value)
{
    td__text_printf(out, ",\"%s\":%" PRId64, key, value);
}

static void pairs(td__text *out, const char *key, const td__pairs *p)
{
    td__text_printf(out, ",\"%s\":{", key);
    for (int i = 0; i < p->n; i++) {
        td__text_add(out, i ? "," : "");
        td__text_json(out, p->at[i].key);
        td__text_add(out, ":");
        td__text_json(out, p->at[i].value);
    }
    td__text_add(out, "}");
}

void td__job_json(td__service *s, const td__job_record *j, bool whole, td__text *out)
{
    static const char *const BOOK[] = {"queuing", "launch", "running", "succeed", "failure"};
    const td__job_spec *spec = j->spec;
    const char *tracker = *spec->tracker ? spec->tracker : td__service_config_of(s)->tracker;
    td__text_printf(out, "{\"id\":%d,\"state\":\"%s\",\"status\":\"%s\"", (int)j->id,
                    td__job_state_name(j->state), BOOK[td__job_state_book(j->state)]);
    text(out, "name", spec->name);
    text(out, "algorithm", spec->algorithm);
    text(out, "user", spec->user);
    text(out, "tracker", tracker);
    text(out, "message", j->message);
    whole_number(out, "priority", spec->priority);
    whole_number(out, "position", td__service_position(s, j->id));
    whole_number(out, "attempt", j->attempt);
    whole_number(out, "failures", j->failures);
    whole_number(out, "submitted_ms", j->submitted_ms);
    whole_number(out, "launched_ms", j->launched_ms);
    whole_number(out, "started_ms", j->started_ms);
    whole_number(out, "finished_ms", j->finished_ms);
    if (j->state == TD_JOB_QUEUED && j->not_before_ms)
        whole_number(out, "not_before_ms", j->not_before_ms);
    if (td__job_state_final(j->state)) {
        whole_number(out, "exit_status", j->exit_status);
        text(out, "exit_class", td__exit_class_name(j->exit_class));
    }
    td__text_printf(out,
                    ",\"resources\":{\"members\":%d,\"processes\":%d,\"slots\":%d,\"gpus\":%d,"
                    "\"memory_mb\":%" PRId64 "}",
                    spec->members, td__job_processes(spec), spec->slots, spec->gpus,
                    spec->memory_mb);
    pairs(out, "labels", &spec->labels);
    if (spec->sweep)
        whole_number(out, "sweep", spec->sweep);
    if (whole) {
        td__text_add(out, ",\"spec\":");
        td__spec_json_public(spec, out);
    }
    td__text_add(out, "}");
}

void td__event_json(const td__job_event *e, td__text *out)
{
    td__text_printf(out, "{\"seq\":%" PRId64 ",\"job\":%d,\"kind\":\"%s\",\"time_ms\":%" PRId64,
                    e->seq, (int)e->job, td__event_kind_name(e->kind), e->time_ms);
    text(out, "state", td__job_state_name(e->state));
    if (e->member)
        whole_number(out, "member", e->member);
    text(out, "text", e->text);
    td__text_add(out, "}");
}
