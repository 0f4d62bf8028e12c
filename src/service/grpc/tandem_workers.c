/* tandem_workers.c -- ListWorkers of tandem.v1. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "base/fail.h"
#include "service/grpc/api_impl.h"
#include "tandem.pb-c.h"

typedef struct workers {
    td__arena *arena;
    Tandem__V1__Worker **at;
    size_t n, room;
    bool failed;
} workers;

static bool add_worker(void *arg, const td__worker *w)
{
    workers *l = arg;
    Tandem__V1__Worker *m = td__arena_alloc(l->arena, sizeof *m);
    size_t room = l->room ? 2 * l->room : 64;

    if (l->n == l->room) {
        Tandem__V1__Worker **at = td__realloc(l->at, room * sizeof *at);
        l->failed = !at;
        l->at = at ? at : l->at;
        l->room = at ? room : l->room;
    }
    l->failed = l->failed || !m;
    if (l->failed)
        return false;
    tandem__v1__worker__init(m);
    m->job_id = w->job->id;
    m->attempt = w->job->attempt;
    m->member = w->member;
    m->rank = w->rank;
    m->ranks = w->ranks;
    m->tracker = td__grpc_text(w->tracker);
    m->host = td__grpc_text(td__arena_strdup(l->arena, w->seen->host));
    m->state = td__grpc_text(td__member_state_name(w->seen->state));
    m->exit_status = w->seen->exit_status;
    m->message = td__grpc_text(td__arena_strdup(l->arena, w->seen->text));
    m->step_seconds = w->step_seconds;
    m->wait_seconds = w->wait_seconds;
    l->at[l->n++] = m;
    return true;
}

void td__tandem_list_workers(td__call *c, void *arg, const void *request)
{
    td__grpc_api *a = arg;
    int32_t job = ((const Tandem__V1__ListWorkersRequest *)request)->job_id;
    Tandem__V1__ListWorkersResponse r = TANDEM__V1__LIST_WORKERS_RESPONSE__INIT;
    workers l = {0};

    if (td__grpc_refused(c, td__answer_of(td__arena_create(&l.arena))))
        return;
    if (!td__grpc_refused(c, td__service_workers(a->o.service, job, add_worker, &l))) {
        r.n_workers = l.n;
        r.workers = l.at;
        if (l.failed)
            td__call_finish(c, TD_GRPC_RESOURCE_EXHAUSTED, "out of memory");
        else
            td__call_reply(c, &r.base);
    }
    td__free(l.at);
    td__arena_destroy(l.arena);
}
