/* api_jobs.c -- submitting, listing and changing jobs. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "service/config.h"
#include "service/http/api_impl.h"
#include "service/spec.h"

enum { PAGE = 100 };

td__caller td__http_caller(const td__httpd_request *r)
{
    td__identity who = td__httpd_identity(r);
    return (td__caller){.user = who.user, .admin = who.scope == TD_SCOPE_ADMIN};
}

bool td__http_api_refused(td__httpd_request *r, td__answer a)
{
    if (a == TD_ANSWER_OK)
        return false;
    td__httpd_fail(r, (unsigned)td__answer_http(a), "%s", td_last_error());
    return true;
}

void td__http_done(td__httpd_request *r, unsigned status, int32_t job)
{
    td__text t = {0};
    td__text_printf(&t, "{\"id\":%d,\"job_id\":%d}\n", (int)job, (int)job);
    td__httpd_reply_json(r, status, &t);
}

static bool parse_whole(const char *text, int64_t lo, int64_t hi, int64_t *out)
{
    return td__parse_int(text, out) && *out >= lo && *out <= hi;
}

int32_t td__http_job_id(td__httpd_request *r)
{
    int64_t id;
    if (parse_whole(td__httpd_param(r, "id"), 1, INT32_MAX, &id))
        return (int32_t)id;
    td__httpd_fail(r, 404, "Job %s doesn't exist", td__httpd_param(r, "id"));
    return 0;
}

bool td__http_number(td__httpd_request *r, const char *name, int64_t lo, int64_t hi,
                     int64_t otherwise, int64_t *out)
{
    const char *text = td__httpd_query(r, name);
    *out = otherwise;
    if (!text || !*text || parse_whole(text, lo, hi, out))
        return true;
    td__httpd_fail(r, 400, "%s=%s: expected a whole number from %" PRId64 " to %" PRId64, name,
                   text, lo, hi);
    return false;
}

bool td__http_flag(td__httpd_request *r, const char *name)
{
    const char *text = td__httpd_query(r, name);
    return text &&
           (strcmp(text, "1") == 0 || strcmp(text, "true") == 0 || strcmp(text, "yes") == 0);
}

void td__http_submit(void *arg, td__httpd_request *r)
{
    td__http_api *a = arg;
    td__caller who = td__http_caller(r);
    td__job_spec *spec;
    int32_t job = 0;
    size_t nbytes;
    const char *body = td__httpd_body(r, &nbytes);
    bool strict = td__service_config_of(a->o.service)->compat_strict || td__http_flag(r, "strict");
    td_status st = td__spec_parse(body, nbytes, "request", &spec);
    if (st) {
        td__http_api_refused(r, td__answer_of(st));
        return;
    }
    spec->sweep = 0; /* said by sweeps alone */
    if (!td__http_api_refused(r, td__service_submit(a->o.service, &who, spec,
                                                    td__httpd_header(r, "Idempotency-Key"), strict,
                                                    &job)))
        td__http_done(r, 201, job);
}

typedef struct listing {
    td__service *service;
    td__text out;
    int n;
} listing;

static bool add_job(void *arg, const td__job_record *j)
{
    listing *l = arg;
    td__text_add(&l->out, l->n++ ? ",\n" : "");
    td__job_json(l->service, j, false, &l->out);
    return true;
}

/* The filter of the query: the terms of `filter`, and `state` beside it. */
static bool read_filter(td__httpd_request *r, td__arena *arena, td__job_filter *f)
{
    const char *terms = td__httpd_query(r, "filter"), *states = td__httpd_query(r, "state");
    td__text all = {0};
    int64_t size;
    if (!td__http_number(r, "page_size", 1, TD__PAGE_MOST, PAGE, &size))
        return false;
    if (terms)
        td__text_add(&all, terms);
    if (states && *states)
        td__text_printf(&all, " state=%s", states);
    bool refused =
        td__http_api_refused(r, td__job_filter_parse(arena, all.data ? all.data : "", f));
    td__text_fini(&all);
    f->limit = (int)size;
    return !refused;
}

void td__http_list_jobs(void *arg, td__httpd_request *r)
{
    td__http_api *a = arg;
    td__job_filter f = {0};
    td__arena *arena;
    listing l = {.service = a->o.service};
    char next[TD__PAGE_TOKEN] = "";
    td_status st = td__arena_create(&arena);
    if (st) {
        td__http_api_refused(r, td__answer_of(st));
        return;
    }
    td__text_add(&l.out, "{\"jobs\":[");
    if (read_filter(r, arena, &f) &&
        !td__http_api_refused(r,
                              td__service_list(a->o.service, &f, td__httpd_query(r, "page_token"),
                                               add_job, &l, next))) {
        td__text_add(&l.out, "],\"next_page_token\":");
        td__text_json(&l.out, next);
        td__text_add(&l.out, "}\n");
        td__httpd_reply_json(r, 200, &l.out);
    }
    td__text_fini(&l.out);
    td__arena_destroy(arena);
}

void td__http_get_job(void *arg, td__httpd_request *r)
{
    td__http_api *a = arg;
    const td__job_record *j;
    td__text t = {0};
    int32_t id = td__http_job_id(r);
    if (!id || td__http_api_refused(r, td__service_get(a->o.service, id, &j)))
        return;
    td__job_json(a->o.service, j, true, &t);
    td__text_add(&t, "\n");
    td__httpd_reply_json(r, 200, &t);
}

typedef td__answer (*change)(td__service *s, const td__caller *who, int32_t job);

static void change_job(td__http_api *a, td__httpd_request *r, change fn)
{
    td__caller who = td__http_caller(r);
    int32_t id = td__http_job_id(r);
    if (id && !td__http_api_refused(r, fn(a->o.service, &who, id)))
        td__http_done(r, 200, id);
}

void td__http_cancel_job(void *arg, td__httpd_request *r)
{
    td__http_api *a = arg;
    td__caller who = td__http_caller(r);
    size_t nbytes;
    const char *body = td__httpd_body(r, &nbytes);
    json_t *o = nbytes ? json_loadb(body, nbytes, JSON_REJECT_DUPLICATES, NULL) : NULL;
    const char *reason = json_string_value(json_object_get(o, "reason"));
    int32_t id = td__http_job_id(r);
    if (id && !td__http_api_refused(
                  r, td__service_cancel(a->o.service, &who, id,
                                        reason && *reason ? reason : "cancelled by its user")))
        td__http_done(r, 200, id);
    json_decref(o);
}

void td__http_pause_job(void *arg, td__httpd_request *r)
{
    change_job(arg, r, td__service_pause);
}

void td__http_resume_job(void *arg, td__httpd_request *r)
{
    change_job(arg, r, td__service_resume);
}

void td__http_delete_job(void *arg, td__httpd_request *r)
{
    change_job(arg, r, td__service_delete);
}

void td__http_retry_job(void *arg, td__httpd_request *r)
{
    td__http_api *a = arg;
    td__caller who = td__http_caller(r);
    int32_t another = 0, id = td__http_job_id(r);
    if (id && !td__http_api_refused(r, td__service_retry(a->o.service, &who, id, &another)))
        td__http_done(r, 201, another);
}
