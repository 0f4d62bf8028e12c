/* tandem.c -- tandem.v1.TrainingService: jobs, artifacts, sweeps, quotas. Its streams are in
 * tandem_streams.c. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tandem.pb-c.h"

#include <assert.h>
#include <string.h>

#include "base/fail.h"
#include "google/protobuf/empty.pb-c.h"
#include "service/grpc/api_impl.h"
#include "service/message_json.h"
#include "service/spec.h"

typedef Tandem__V1__Job job_t;

/* States have the same numbers in the message. */
#define X(id, name, book, final) \
    static_assert((int)TANDEM__V1__STATE__##id == (int)TD_JOB_##id, "state " name);
TD_JOB_STATE_MAP(X)
#undef X

/* ---- jobs as messages ---- */

/* A spec has one form, JSON: fields of the message have the names of its keys. */
static td_status spec_from(const Tandem__V1__JobSpec *m, td__job_spec **out)
{
    td__text json = {0};
    td_status st;

    *out = NULL;
    td__message_to_json(&m->base, &json);
    st = td__text_status(&json);
    if (!st)
        st = td__spec_parse(json.data, json.used, "spec", out);
    td__text_fini(&json);
    return st;
}

static td_status spec_to(td__arena *arena, const td__job_spec *s, Tandem__V1__JobSpec **out)
{
    td__text json = {0};
    ProtobufCMessage *m = NULL;
    td_status st;

    td__spec_json_public(s, &json);
    st = td__text_status(&json);
    if (!st)
        st = td__message_from_json(arena, &tandem__v1__job_spec__descriptor, json.data, json.used,
                                   &m);
    td__text_fini(&json);
    *out = (Tandem__V1__JobSpec *)m;
    return st;
}

/* In the arena. */
static td_status job_to(td__service *s, td__arena *arena, const td__job_record *r, job_t **out)
{
    job_t *m = td__arena_alloc(arena, sizeof *m);

    if (!m)
        return TD_FAIL(TD_ENOMEM, "out of memory");
    tandem__v1__job__init(m);
    TD_TRY(spec_to(arena, r->spec, &m->spec));
    m->job_id = r->id;
    m->state = (Tandem__V1__State)r->state;
    m->message = td__arena_strdup(arena, r->message);
    m->position_in_queue = td__service_position(s, r->id);
    m->attempt = r->attempt;
    m->failures = r->failures;
    m->submitted_ms = r->submitted_ms;
    m->launched_ms = r->launched_ms;
    m->started_ms = r->started_ms;
    m->finished_ms = r->finished_ms;
    m->not_before_ms = r->not_before_ms;
    m->exit_status = r->exit_status;
    m->exit_class = td__grpc_text(td__exit_class_name(r->exit_class));
    *out = m;
    return m->message ? TD_OK : TD_FAIL(TD_ENOMEM, "out of memory");
}

static void reply_job(td__call *c, td__service *s, int32_t id)
{
    const td__job_record *r;
    td__arena *arena;
    job_t *m;

    if (td__grpc_refused(c, td__service_get(s, id, &r)) ||
        td__grpc_refused(c, td__answer_of(td__arena_create(&arena))))
        return;
    if (!td__grpc_refused(c, td__answer_of(job_to(s, arena, r, &m))))
        td__call_reply(c, &m->base);
    td__arena_destroy(arena);
}

static void reply_empty(td__call *c)
{
    Google__Protobuf__Empty e = GOOGLE__PROTOBUF__EMPTY__INIT;

    td__call_reply(c, &e.base);
}

/* ---- methods ---- */

static void submit(td__call *c, void *arg, const void *request)
{
    static const Tandem__V1__JobSpec none = TANDEM__V1__JOB_SPEC__INIT;
    td__grpc_api *a = arg;
    const Tandem__V1__SubmitRequest *q = request;
    td__caller who = td__grpc_caller(c);
    td__job_spec *spec;
    int32_t id;

    if (td__grpc_refused(c, td__answer_of(spec_from(q->spec ? q->spec : &none, &spec))))
        return;
    spec->sweep = 0; /* said by sweeps alone */
    if (td__grpc_refused(c, td__service_submit(a->o.service, &who, spec,
                                               q->idempotency_key[0] ? q->idempotency_key : NULL,
                                               false, &id)))
        return;
    reply_job(c, a->o.service, id);
}

static void get(td__call *c, void *arg, const void *request)
{
    td__grpc_api *a = arg;

    reply_job(c, a->o.service, ((const Tandem__V1__JobRequest *)request)->job_id);
}

typedef struct page {
    td__service *s;
    td__arena *arena;
    job_t **jobs;
    size_t n, room;
    td_status st;
} page;

static bool add_to_page(void *arg, const td__job_record *r)
{
    page *p = arg;

    if (p->n < p->room)
        p->st = job_to(p->s, p->arena, r, &p->jobs[p->n]);
    if (!p->st)
        p->n++;
    return !p->st && p->n < p->room;
}

enum { PAGE = 100, LARGEST_PAGE = 1000 };

static void list(td__call *c, void *arg, const void *request)
{
    td__grpc_api *a = arg;
    const Tandem__V1__ListRequest *q = request;
    Tandem__V1__ListResponse r = TANDEM__V1__LIST_RESPONSE__INIT;
    char next[TD__PAGE_TOKEN];
    td__job_filter filter;
    page p = {.s = a->o.service};

    if (q->page_size < 0 || q->page_size > LARGEST_PAGE) {
        td__call_finish(c, TD_GRPC_INVALID_ARGUMENT, "page_size is %d, at most %d are allowed",
                        (int)q->page_size, LARGEST_PAGE);
        return;
    }
    if (td__grpc_refused(c, td__answer_of(td__arena_create(&p.arena))))
        return;
    p.room = q->page_size ? (size_t)q->page_size : PAGE;
    p.jobs = td__arena_alloc(p.arena, p.room * sizeof(job_t *));
    if (!p.jobs) {
        td__call_finish(c, TD_GRPC_RESOURCE_EXHAUSTED, "out of memory");
    } else if (!td__grpc_refused(c, td__job_filter_parse(p.arena, q->filter, &filter))) {
        filter.limit = (int)p.room;
        if (!td__grpc_refused(
                c, td__service_list(p.s, &filter, q->page_token, add_to_page, &p, next)) &&
            !td__grpc_refused(c, td__answer_of(p.st))) {
            r.n_jobs = p.n;
            r.jobs = p.jobs;
            r.next_page_token = next;
            td__call_reply(c, &r.base);
        }
    }
    td__arena_destroy(p.arena);
}

static void cancel(td__call *c, void *arg, const void *request)
{
    td__grpc_api *a = arg;
    const Tandem__V1__CancelRequest *q = request;
    td__caller who = td__grpc_caller(c);

    if (!td__grpc_refused(c, td__service_cancel(a->o.service, &who, q->job_id, q->reason)))
        reply_job(c, a->o.service, q->job_id);
}

/* Pause, resume: the same but for the function. */
static void act(td__call *c, void *arg, const void *request,
                td__answer (*action)(td__service *, const td__caller *, int32_t))
{
    td__grpc_api *a = arg;
    int32_t id = ((const Tandem__V1__JobRequest *)request)->job_id;
    td__caller who = td__grpc_caller(c);

    if (!td__grpc_refused(c, action(a->o.service, &who, id)))
        reply_job(c, a->o.service, id);
}

static void pause_job(td__call *c, void *arg, const void *request)
{
    act(c, arg, request, td__service_pause);
}

static void resume_job(td__call *c, void *arg, const void *request)
{
    act(c, arg, request, td__service_resume);
}

static void retry(td__call *c, void *arg, const void *request)
{
    td__grpc_api *a = arg;
    td__caller who = td__grpc_caller(c);
    int32_t another;

    if (!td__grpc_refused(c, td__service_retry(a->o.service, &who,
                                               ((const Tandem__V1__JobRequest *)request)->job_id,
                                               &another)))
        reply_job(c, a->o.service, another);
}

static void delete_job(td__call *c, void *arg, const void *request)
{
    td__grpc_api *a = arg;
    td__caller who = td__grpc_caller(c);

    if (!td__grpc_refused(c, td__service_delete(a->o.service, &who,
                                                ((const Tandem__V1__JobRequest *)request)->job_id)))
        reply_empty(c);
}

static void report_metric(td__call *c, void *arg, const void *request)
{
    td__grpc_api *a = arg;
    const Tandem__V1__ReportMetricRequest *q = request;
    td__caller who = td__grpc_caller(c);

    if (!td__grpc_refused(c, td__service_metric_add(a->o.service, &who, q->job_id, q->json)))
        reply_empty(c);
}

/* ---- artifacts ---- */

typedef struct artifacts {
    td__arena *arena;
    Tandem__V1__Artifact **at;
    size_t n, room;
    bool failed;
} artifacts;

static bool add_artifact(void *arg, const td__artifact *from)
{
    artifacts *l = arg;
    Tandem__V1__Artifact *m = td__arena_alloc(l->arena, sizeof *m);

    if (m && l->n == l->room) {
        size_t room = l->room ? 2 * l->room : 16;
        Tandem__V1__Artifact **at = td__arena_alloc(l->arena, room * sizeof *at);

        if (at && l->n)
            memcpy(at, l->at, l->n * sizeof *at);
        l->at = at;
        l->room = room;
    }
    if (!m || !l->at) {
        l->failed = true;
        return false;
    }
    tandem__v1__artifact__init(m);
    m->name = td__arena_strdup(l->arena, from->name);
    m->bytes = from->nbytes;
    m->sha256 = td__arena_strdup(l->arena, from->sha256);
    m->time_ms = from->time_ms;
    l->at[l->n++] = m;
    return true;
}

static void list_artifacts(td__call *c, void *arg, const void *request)
{
    td__grpc_api *a = arg;
    Tandem__V1__ListArtifactsResponse r = TANDEM__V1__LIST_ARTIFACTS_RESPONSE__INIT;
    artifacts l = {0};

    if (td__grpc_refused(c, td__answer_of(td__arena_create(&l.arena))))
        return;
    if (!td__grpc_refused(c, td__service_artifacts(
                                 a->o.service, ((const Tandem__V1__JobRequest *)request)->job_id,
                                 add_artifact, &l))) {
        r.n_artifacts = l.n;
        r.artifacts = l.at;
        if (l.failed)
            td__call_finish(c, TD_GRPC_RESOURCE_EXHAUSTED, "out of memory");
        else
            td__call_reply(c, &r.base);
    }
    td__arena_destroy(l.arena);
}

/* ---- sweeps ---- */

static void reply_sweep(td__call *c, td__grpc_api *a, int64_t id)
{
    Tandem__V1__Sweep m = TANDEM__V1__SWEEP__INIT;
    td__text json = {0};

    if (!td__grpc_refused(c, td__sweeps_json(a->o.sweeps, id, &json))) {
        m.sweep_id = id;
        m.json = td__grpc_text(json.data);
        td__call_reply(c, &m.base);
    }
    td__text_fini(&json);
}

static void create_sweep(td__call *c, void *arg, const void *request)
{
    td__grpc_api *a = arg;
    const char *spec = ((const Tandem__V1__CreateSweepRequest *)request)->spec;
    td__caller who = td__grpc_caller(c);
    int64_t id;

    if (!td__grpc_refused(c, td__sweeps_submit(a->o.sweeps, &who, spec, strlen(spec), &id)))
        reply_sweep(c, a, id);
}

static void get_sweep(td__call *c, void *arg, const void *request)
{
    reply_sweep(c, arg, ((const Tandem__V1__SweepRequest *)request)->sweep_id);
}

static void cancel_sweep(td__call *c, void *arg, const void *request)
{
    td__grpc_api *a = arg;
    int64_t id = ((const Tandem__V1__SweepRequest *)request)->sweep_id;
    td__caller who = td__grpc_caller(c);

    if (!td__grpc_refused(c, td__sweeps_cancel(a->o.sweeps, &who, id)))
        reply_sweep(c, a, id);
}

/* ---- quotas ---- */

#define QUOTA_CASE(limit, id) TANDEM__V1__QUOTA__##limit##_##id

static void quota_to(const td__quota *q, Tandem__V1__Quota *m)
{
    tandem__v1__quota__init(m);
    m->user = td__grpc_text(q->user);
    m->weight = q->weight;
    if (q->slots >= 0) {
        m->slot_limit_case = QUOTA_CASE(SLOT_LIMIT, SLOTS);
        m->slots = q->slots;
    }
    if (q->gpus >= 0) {
        m->gpu_limit_case = QUOTA_CASE(GPU_LIMIT, GPUS);
        m->gpus = q->gpus;
    }
    if (q->memory_mb >= 0) {
        m->memory_limit_case = QUOTA_CASE(MEMORY_LIMIT, MEMORY_MB);
        m->memory_mb = q->memory_mb;
    }
    if (q->queued >= 0) {
        m->queue_limit_case = QUOTA_CASE(QUEUE_LIMIT, QUEUED);
        m->queued = q->queued;
    }
}

static void set_quota(td__call *c, void *arg, const void *request)
{
    td__grpc_api *a = arg;
    const Tandem__V1__Quota *m = request;
    td__caller who = td__grpc_caller(c);
    td__quota q = {.user = m->user,
                   .slots = m->slot_limit_case ? m->slots : -1,
                   .gpus = m->gpu_limit_case ? m->gpus : -1,
                   .memory_mb = m->memory_limit_case ? m->memory_mb : -1,
                   .queued = m->queue_limit_case ? m->queued : -1,
                   .weight = m->weight != 0 ? m->weight : 1};

    if (!td__grpc_refused(c, td__service_set_quota(a->o.service, &who, &q)))
        td__call_reply(c, &m->base);
}

enum { MOST_QUOTAS = 1000 };

typedef struct quotas {
    td__arena *arena;
    Tandem__V1__Quota **at;
    size_t n;
} quotas;

static bool add_quota(void *arg, const td__quota *q)
{
    quotas *l = arg;
    Tandem__V1__Quota *m = td__arena_alloc(l->arena, sizeof *m);

    if (!m)
        return false;
    quota_to(q, m);
    m->user = td__grpc_text(td__arena_strdup(l->arena, q->user));
    l->at[l->n++] = m;
    return l->n < MOST_QUOTAS;
}

static void list_quotas(td__call *c, void *arg, const void *request)
{
    td__grpc_api *a = arg;
    Tandem__V1__ListQuotasResponse r = TANDEM__V1__LIST_QUOTAS_RESPONSE__INIT;
    quotas l = {0};

    (void)request;
    if (td__grpc_refused(c, td__answer_of(td__arena_create(&l.arena))))
        return;
    l.at = td__arena_alloc(l.arena, MOST_QUOTAS * sizeof *l.at);
    if (!l.at) {
        td__call_finish(c, TD_GRPC_RESOURCE_EXHAUSTED, "out of memory");
    } else if (!td__grpc_refused(c,
                                 td__answer_of(td__service_quotas(a->o.service, add_quota, &l)))) {
        r.n_quotas = l.n;
        r.quotas = l.at;
        td__call_reply(c, &r.base);
    }
    td__arena_destroy(l.arena);
}

static void remove_quota(td__call *c, void *arg, const void *request)
{
    td__grpc_api *a = arg;
    const Tandem__V1__RemoveQuotaRequest *m = request;
    Google__Protobuf__Empty done = GOOGLE__PROTOBUF__EMPTY__INIT;
    td__caller who = td__grpc_caller(c);

    if (!td__grpc_refused(c, td__service_remove_quota(a->o.service, &who, m->user)))
        td__call_reply(c, &done.base);
}

/* ---- the service as a whole ---- */

static void list_sweeps(td__call *c, void *arg, const void *request)
{
    td__grpc_api *a = arg;
    Tandem__V1__ListSweepsResponse m = TANDEM__V1__LIST_SWEEPS_RESPONSE__INIT;
    td__text json = {0};

    (void)request;
    td__sweeps_list_json(a->o.sweeps, &json);
    if (!td__grpc_refused(c, td__answer_of(td__text_status(&json)))) {
        m.json = td__grpc_text(json.data);
        td__call_reply(c, &m.base);
    }
    td__text_fini(&json);
}

static void get_stats(td__call *c, void *arg, const void *request)
{
    td__grpc_api *a = arg;
    td__service_stats s;

    (void)request;
    td__service_get_stats(a->o.service, &s);
    Tandem__V1__Stats m = {.base = PROTOBUF_C_MESSAGE_INIT(&tandem__v1__stats__descriptor),
                           .n_jobs = TD_JOB_STATE_COUNT,
                           .jobs = s.jobs,
                           .slots = s.slots,
                           .slots_used = s.slots_used,
                           .gpus = s.gpus,
                           .gpus_used = s.gpus_used,
                           .memory_mb = s.memory_mb,
                           .memory_mb_used = s.memory_mb_used,
                           .submitted = s.submitted,
                           .launched = s.launched,
                           .retried = s.retried,
                           .preempted = s.preempted,
                           .start_ms = s.start_ms};
    td__call_reply(c, &m.base);
}

static const td__grpc_method METHODS[] = {
    TD_METHOD("Submit", UNARY, tandem__v1__submit_request, SUBMIT, submit),
    TD_METHOD("Get", UNARY, tandem__v1__job_request, READ, get),
    TD_METHOD("List", UNARY, tandem__v1__list_request, READ, list),
    TD_METHOD("Cancel", UNARY, tandem__v1__cancel_request, SUBMIT, cancel),
    TD_METHOD("Pause", UNARY, tandem__v1__job_request, SUBMIT, pause_job),
    TD_METHOD("Resume", UNARY, tandem__v1__job_request, SUBMIT, resume_job),
    TD_METHOD("Retry", UNARY, tandem__v1__job_request, SUBMIT, retry),
    TD_METHOD("Delete", UNARY, tandem__v1__job_request, SUBMIT, delete_job),
    TD_METHOD("Watch", SERVER_STREAM, tandem__v1__watch_request, READ, td__tandem_watch),
    TD_METHOD("Logs", SERVER_STREAM, tandem__v1__logs_request, READ, td__tandem_logs),
    TD_METHOD("Metrics", SERVER_STREAM, tandem__v1__metrics_request, READ, td__tandem_metrics),
    TD_METHOD("ReportMetric", UNARY, tandem__v1__report_metric_request, SUBMIT, report_metric),
    TD_METHOD("ListArtifacts", UNARY, tandem__v1__job_request, READ, list_artifacts),
    TD_METHOD("ReadArtifact", SERVER_STREAM, tandem__v1__read_artifact_request, READ,
              td__tandem_read_artifact),
    {.name = "PutArtifact",
     .kind = TD_GRPC_CLIENT_STREAM,
     .request = &tandem__v1__put_artifact_request__descriptor,
     .handle = td__tandem_put_artifact,
     .half_closed = td__tandem_put_end,
     .tag = TD_SCOPE_SUBMIT},
    TD_METHOD("CreateSweep", UNARY, tandem__v1__create_sweep_request, SUBMIT, create_sweep),
    TD_METHOD("GetSweep", UNARY, tandem__v1__sweep_request, READ, get_sweep),
    TD_METHOD("CancelSweep", UNARY, tandem__v1__sweep_request, SUBMIT, cancel_sweep),
    TD_METHOD("SetQuota", UNARY, tandem__v1__quota, ADMIN, set_quota),
    TD_METHOD("ListQuotas", UNARY, tandem__v1__list_quotas_request, READ, list_quotas),
    TD_METHOD("RemoveQuota", UNARY, tandem__v1__remove_quota_request, ADMIN, remove_quota),
    TD_METHOD("ListSweeps", UNARY, tandem__v1__list_sweeps_request, READ, list_sweeps),
    TD_METHOD("GetStats", UNARY, tandem__v1__get_stats_request, READ, get_stats),
    TD_METHOD("ListWorkers", UNARY, tandem__v1__list_workers_request, READ,
              td__tandem_list_workers),
};
const td__grpc_service td__tandem_v1 = {"tandem.v1.TrainingService", METHODS, TD_LEN(METHODS)};
