/* api_workers.c -- GET /v1/workers: trackers, users with their share, members of groups. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>

#include "service/config.h"
#include "service/http/api_impl.h"

static bool add_user(void *arg, const td__user_usage *u)
{
    td__text *t = arg;
    td__text_add(t, t->data[t->used - 1] == '[' ? "{\"user\":" : ",{\"user\":");
    td__text_json(t, u->user);
    td__text_printf(t,
                    ",\"slots\":%" PRId64 ",\"gpus\":%" PRId64 ",\"memory_mb\":%" PRId64
                    ",\"queued\":%" PRId64 ",\"usage\":",
                    u->slots, u->gpus, u->memory_mb, u->queued);
    td__text_json_number(t, u->usage, 6);
    td__text_add(t, ",\"weight\":");
    td__text_json_number(t, u->weight, 6);
    td__text_add(t, "}");
    return !t->failed;
}

/* "gone" members have no host any more, and a run that says nothing has no times. */
static bool add_member(void *arg, const td__worker *w)
{
    td__text *t = arg;
    td__text_printf(t, "%s{\"job_id\":%d,\"attempt\":%d,\"member\":%d,\"rank\":%d,\"ranks\":%d",
                    t->data[t->used - 1] == '[' ? "" : ",", (int)w->job->id, w->job->attempt,
                    w->member, w->rank, w->ranks);
    td__text_add(t, ",\"tracker\":");
    td__text_json(t, w->tracker);
    td__text_add(t, ",\"host\":");
    td__text_json(t, w->seen->host);
    td__text_printf(t, ",\"state\":\"%s\",\"exit_status\":%d,\"message\":",
                    td__member_state_name(w->seen->state), w->seen->exit_status);
    td__text_json(t, w->seen->text);
    td__text_add(t, ",\"step_seconds\":");
    td__text_json_number(t, w->step_seconds, 6);
    td__text_add(t, ",\"wait_seconds\":");
    td__text_json_number(t, w->wait_seconds, 6);
    td__text_add(t, "}");
    return !t->failed;
}

void td__http_workers(void *arg, td__httpd_request *r)
{
    td__http_api *a = arg;
    const td__tracker_ops *ops;
    td__text t = {0};
    int64_t job;
    if (!td__http_number(r, "job", 0, INT32_MAX, 0, &job))
        return;
    td__text_add(&t, "{\"trackers\":[");
    for (int i = 0; (ops = td__tracker_at(i)); i++) {
        td__text_add(&t, i ? ",{\"name\":" : "{\"name\":");
        td__text_json(&t, ops->name);
        td__text_add(&t, ",\"help\":");
        td__text_json(&t, ops->help);
        td__text_add(&t, "}");
    }
    td__text_add(&t, "],\"default_tracker\":");
    td__text_json(&t, td__service_config_of(a->o.service)->tracker);
    td__text_add(&t, ",\"users\":[");
    if (!t.failed)
        td__service_users(a->o.service, add_user, &t);
    td__text_add(&t, "],\"members\":[");
    td__answer answer = t.failed ? TD_ANSWER_UNAVAILABLE
                                 : td__service_workers(a->o.service, (int32_t)job, add_member, &t);
    if (!td__http_api_refused(r, answer)) {
        td__text_add(&t, "]}\n");
        td__httpd_reply_json(r, 200, &t);
    }
    td__text_fini(&t);
}
