/* api_admin.c -- the service as a whole: health, statistics, users, quotas, sweeps, and all of it
 * for Prometheus. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <jansson.h>
#include <stddef.h>
#include <string.h>

#include "base/check.h"
#include "service/config.h"
#include "service/http/api_impl.h"

void td__http_health(void *arg, td__httpd_request *r)
{
    td__http_api *a = arg;
    td__text t = {0};
    if (td__service_failed(a->o.service)) {
        td__httpd_fail(r, 503, "the store has failed; the service is stopping");
        return;
    }
    td__text_add(&t, "{\"status\":\"serving\"}\n");
    td__httpd_reply_json(r, 200, &t);
}

void td__http_whoami(void *arg, td__httpd_request *r)
{
    td__http_api *a = arg;
    td__identity who = td__httpd_identity(r);
    td__text t = {0};
    td__text_add(&t, "{\"user\":");
    td__text_json(&t, who.user);
    td__text_printf(&t, ",\"scope\":\"%s\",\"tokens\":%s}\n", td__scope_name(who.scope),
                    td__tokens_count(a->o.tokens) ? "true" : "false");
    td__httpd_reply_json(r, 200, &t);
}

void td__http_stats(void *arg, td__httpd_request *r)
{
    td__http_api *a = arg;
    td__service_stats s;
    td__text t = {0};
    td__service_get_stats(a->o.service, &s);
    td__text_add(&t, "{\"jobs\":{");
    for (int i = 0; i < TD_JOB_STATE_COUNT; i++)
        td__text_printf(&t, "%s\"%s\":%" PRId64, i ? "," : "", td__job_state_name((td__job_state)i),
                        s.jobs[i]);
    td__text_printf(&t,
                    "},\"slots\":%" PRId64 ",\"slots_used\":%" PRId64 ",\"gpus\":%" PRId64
                    ",\"gpus_used\":%" PRId64 ",\"memory_mb\":%" PRId64
                    ",\"memory_mb_used\":%" PRId64 ",\"submitted\":%" PRId64
                    ",\"launched\":%" PRId64 ",\"retried\":%" PRId64 ",\"preempted\":%" PRId64
                    ",\"start_ms\":%" PRId64 "}\n",
                    s.slots, s.slots_used, s.gpus, s.gpus_used, s.memory_mb, s.memory_mb_used,
                    s.submitted, s.launched, s.retried, s.preempted, s.start_ms);
    td__httpd_reply_json(r, 200, &t);
}

/* ---- quotas ---- */

static const struct {
    const char *name;
    size_t at;
} QUOTA[] = {
    {"slots", offsetof(td__quota, slots)},
    {"gpus", offsetof(td__quota, gpus)},
    {"memory_mb", offsetof(td__quota, memory_mb)},
    {"queued", offsetof(td__quota, queued)},
};

static int64_t *quota_field(td__quota *q, int i)
{
    return (int64_t *)(void *)((char *)q + QUOTA[i].at);
}

/* -1 is no limit: null in JSON. */
static void quota_json(const td__quota *q, td__text *t)
{
    td__text_add(t, "{\"user\":");
    td__text_json(t, q->user);
    for (int i = 0; i < TD_LEN(QUOTA); i++) {
        int64_t v = *(const int64_t *)(const void *)((const char *)q + QUOTA[i].at);
        if (v < 0)
            td__text_printf(t, ",\"%s\":null", QUOTA[i].name);
        else
            td__text_printf(t, ",\"%s\":%" PRId64, QUOTA[i].name, v);
    }
    td__text_add(t, ",\"weight\":");
    td__text_json_number(t, q->weight, 6);
    td__text_add(t, "}");
}

/* One key of a quota; NULL: it is right. */
static const char *quota_key(td__quota *q, const char *key, const json_t *v)
{
    if (strcmp(key, "user") == 0)
        return NULL; /* the path says it */
    if (strcmp(key, "weight") == 0) {
        q->weight = json_number_value(v);
        return json_is_number(v) && q->weight > 0 ? NULL : "expected a number above 0";
    }
    for (int i = 0; i < TD_LEN(QUOTA); i++)
        if (strcmp(key, QUOTA[i].name) == 0) {
            *quota_field(q, i) = json_is_null(v) ? -1 : json_integer_value(v);
            return json_is_null(v) || (json_is_integer(v) && json_integer_value(v) >= 0)
                       ? NULL
                       : "expected a whole number, or null for no limit";
        }
    return "unknown key (known: slots, gpus, memory_mb, queued, weight)";
}

static bool add_quota(void *arg, const td__quota *q)
{
    td__text *t = arg;
    td__text_add(t, t->data[t->used - 1] == '[' ? "" : ",");
    quota_json(q, t);
    return !t->failed;
}

void td__http_list_quotas(void *arg, td__httpd_request *r)
{
    td__http_api *a = arg;
    td__text t = {0};
    td__text_add(&t, "{\"quotas\":[");
    td_status st = t.failed ? TD_OK : td__service_quotas(a->o.service, add_quota, &t);
    if (st) {
        td__http_api_refused(r, td__answer_of(st));
    } else {
        td__text_add(&t, "]}\n");
        td__httpd_reply_json(r, 200, &t);
    }
    td__text_fini(&t);
}

void td__http_delete_quota(void *arg, td__httpd_request *r)
{
    td__http_api *a = arg;
    td__caller who = td__http_caller(r);
    const char *user = td__httpd_param(r, "user");

    if (!td__http_api_refused(r, td__service_remove_quota(a->o.service, &who, user)))
        td__http_done(r, 200, 0);
}

void td__http_put_quota(void *arg, td__httpd_request *r)
{
    td__http_api *a = arg;
    td__caller who = td__http_caller(r);
    td__quota q = {td__httpd_param(r, "user"), -1, -1, -1, -1, 1};
    size_t nbytes;
    const char *body = td__httpd_body(r, &nbytes), *key, *wrong = NULL;
    json_t *v, *o = json_loadb(body, nbytes, JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_object(o)) {
        td__httpd_fail(r, 400, "request: expected an object such as {\"slots\": 8, \"weight\": 2}");
        json_decref(o);
        return;
    }
    json_object_foreach(o, key, v) if (!wrong)
    {
        wrong = quota_key(&q, key, v);
        if (wrong)
            td__httpd_fail(r, 400, "request: %s: %s", key, wrong);
    }
    json_decref(o);
    if (wrong || td__http_api_refused(r, td__service_set_quota(a->o.service, &who, &q)))
        return;
    td__text t = {0};
    quota_json(&q, &t);
    td__text_add(&t, "\n");
    td__httpd_reply_json(r, 200, &t);
}

/* ---- sweeps ---- */

/* The number in the path; 0: it is none, and the request is answered. */
static int64_t sweep_id(td__httpd_request *r)
{
    int64_t id;
    if (td__parse_int(td__httpd_param(r, "id"), &id) && id > 0)
        return id;
    td__httpd_fail(r, 404, "Sweep %s doesn't exist", td__httpd_param(r, "id"));
    return 0;
}

static void sweep_reply(td__http_api *a, td__httpd_request *r, unsigned status, int64_t id)
{
    td__text t = {0};
    if (!td__http_api_refused(r, td__sweeps_json(a->o.sweeps, id, &t)))
        td__httpd_reply_json(r, status, &t);
    td__text_fini(&t);
}

void td__http_submit_sweep(void *arg, td__httpd_request *r)
{
    td__http_api *a = arg;
    td__caller who = td__http_caller(r);
    int64_t id = 0;
    size_t nbytes;
    const char *body = td__httpd_body(r, &nbytes);
    if (!td__http_api_refused(r, td__sweeps_submit(a->o.sweeps, &who, body, nbytes, &id)))
        sweep_reply(a, r, 201, id);
}

void td__http_list_sweeps(void *arg, td__httpd_request *r)
{
    td__http_api *a = arg;
    td__text t = {0};
    td__sweeps_list_json(a->o.sweeps, &t);
    td__httpd_reply_json(r, 200, &t);
}

void td__http_get_sweep(void *arg, td__httpd_request *r)
{
    int64_t id = sweep_id(r);
    if (id)
        sweep_reply(arg, r, 200, id);
}

void td__http_cancel_sweep(void *arg, td__httpd_request *r)
{
    td__http_api *a = arg;
    td__caller who = td__http_caller(r);
    int64_t id = sweep_id(r);
    if (id && !td__http_api_refused(r, td__sweeps_cancel(a->o.sweeps, &who, id)))
        sweep_reply(a, r, 200, id);
}
