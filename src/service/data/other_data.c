/* other_data.c -- versions of data sets that another data_management service keeps (data.service):
 * where the data of a job lies is asked there, by gRPC. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/log.h"
#include "remote/http.h"
#include "rpc/grpc.h"
#include "rpc/grpc_wire.h"
#include "service/data/data_impl.h"

enum { ASK_MS = 10000 };

typedef struct ask_work {
    td__data_work base;
    int32_t job;
    char *id, *hash;
    int grpc_status; /* -1: no answer */
    char text[512];  /* of a refusal: "NOT_FOUND: Dataset 1 not found" */
    DataManagement__VersionedSnapshot *version;
} ask_work;

/* "%20" as one character. */
static void decode(char *s)
{
    char *to = s;

    for (; *s; s++) {
        char hex[3] = {s[0] == '%' ? s[1] : 0, s[0] == '%' && s[1] ? s[2] : 0, 0};
        char *end;
        long c = strtol(hex, &end, 16);

        if (end == hex + 2) {
            *to++ = (char)c;
            s += 2;
        } else {
            *to++ = *s;
        }
    }
    *to = 0;
}

static td_status take_answer(ask_work *w, td__http_response *r)
{
    const uint8_t *frame = (const uint8_t *)r->body.data;

    w->grpc_status = r->grpc_status;
    if (r->grpc_status) {
        decode(r->grpc_message);
        snprintf(w->text, sizeof w->text, "%s: %s",
                 td__grpc_code_name((td__grpc_code)r->grpc_status), r->grpc_message);
        return TD_OK;
    }
    if (r->body.used >= TD_GRPC_FRAME_BYTES && !frame[0] &&
        td__grpc_frame_size(frame) == r->body.used - TD_GRPC_FRAME_BYTES)
        w->version = data_management__versioned_snapshot__unpack(
            NULL, r->body.used - TD_GRPC_FRAME_BYTES, frame + TD_GRPC_FRAME_BYTES);
    return w->version ? TD_OK : TD_FAIL(TD_EPROTO, "data.service: malformed answer");
}

static td_status run_ask(td__data_work *base)
{
    static const char *const headers[] = {"Content-Type: application/grpc", "TE: trailers"};
    ask_work *w = (ask_work *)base;
    DataManagement__VersionQuery q = DATA_MANAGEMENT__VERSION_QUERY__INIT;
    uint8_t body[1024];
    char url[512];
    size_t n;
    td__http *h;
    td__http_response r;
    td_status st;

    q.dataset_id = w->id;
    q.version_hash = w->hash;
    n = data_management__version_query__get_packed_size(&q);
    if (n + TD_GRPC_FRAME_BYTES > sizeof body)
        return TD_FAIL(TD_EINVAL, "the name of a data set or of its version is too long");
    td__grpc_frame_head(body, (uint32_t)n);
    data_management__version_query__pack(&q, body + TD_GRPC_FRAME_BYTES);
    snprintf(url, sizeof url,
             "http://%s/data_management.DataManagementService/FetchTrainingDataset",
             base->data->config->data_service);
    TD_TRY(td__http_create(&(td__http_opts){0}, &h));
    st = td__http_perform(h,
                          &(td__http_request){.method = "POST",
                                              .url = url,
                                              .headers = headers,
                                              .n_headers = 2,
                                              .body = body,
                                              .body_nbytes = n + TD_GRPC_FRAME_BYTES,
                                              .grpc = true,
                                              .until = td__deadline_in_ms(ASK_MS)},
                          &r);
    if (!st)
        st = r.grpc_status >= 0 ? take_answer(w, &r)
                                : TD_FAIL(TD_EPROTO, "data.service: %s is no gRPC server", url);
    td__http_response_fini(&r);
    td__http_destroy(h);
    return st;
}

static td__answer finish_ask(td__data_work *base, ProtobufCMessage **out)
{
    ask_work *w = (ask_work *)base;
    td__service *s = base->data->service;
    const DataManagement__VersionedSnapshot *v = w->version;

    (void)out;
    if (base->st) { /* the service may come back: the job is asked for again */
        TD_LOG(WARN, SERVICE, "job %d waits for its data: %s", w->job, base->error);
        td__service_data(s, w->job, TD_DATA_RUNNING, NULL, NULL, NULL);
    } else if (w->grpc_status) {
        td__service_data(s, w->job, TD_DATA_FAILED, NULL, NULL, w->text);
    } else if (v->state == DATA_MANAGEMENT__SNAPSHOT_STATE__READY && v->root) {
        td__service_data(s, w->job, TD_DATA_READY, v->root->bucket, v->root->path, NULL);
    } else if (v->state == DATA_MANAGEMENT__SNAPSHOT_STATE__RUNNING) {
        td__service_data(s, w->job, TD_DATA_RUNNING, NULL, NULL, NULL);
    } else {
        snprintf(w->text, sizeof w->text, "VersionHash %s for Dataset %s could not be built",
                 w->hash, w->id);
        td__service_data(s, w->job, TD_DATA_FAILED, NULL, NULL, w->text);
    }
    data_management__versioned_snapshot__free_unpacked(w->version, NULL);
    return TD_ANSWER_OK;
}

void td__data_of_other(void *arg, int32_t job, const char *dataset_id, const char *version_hash)
{
    td__data *d = arg;
    ask_work *w = td__calloc(1, sizeof *w);

    if (!w || td__arena_create(&w->base.arena)) {
        td__free(w);
        td__service_data(d->service, job, TD_DATA_RUNNING, NULL, NULL, NULL);
        return;
    }
    w->base.run = run_ask;
    w->base.finish = finish_ask;
    w->job = job;
    w->grpc_status = -1;
    w->id = td__data_text(w->base.arena, dataset_id);
    w->hash = td__data_text(w->base.arena, version_hash);
    td__data_work_start_on(d, d->waiters, &w->base);
}
