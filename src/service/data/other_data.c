/* other_data.c -- versions of data sets that another data_management service keeps (data.service):
 * where the data of a job lies is asked there, by gRPC. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/fail.h"
#include "base/log.h"
#include "service/data/data_impl.h"
#include "service/data/other_call.h"

typedef struct ask_work {
    td__data_work base;
    int32_t job;
    char *id, *hash;
    td__other_answer answer;
} ask_work;

static td_status run_ask(td__data_work *base)
{
    ask_work *w = (ask_work *)base;
    DataManagement__VersionQuery q = DATA_MANAGEMENT__VERSION_QUERY__INIT;

    q.dataset_id = w->id;
    q.version_hash = w->hash;
    return td__other_call(base->data->config->data_service,
                          "data_management.DataManagementService/FetchTrainingDataset", &q.base,
                          &data_management__versioned_snapshot__descriptor, &w->answer);
}

static td__answer finish_ask(td__data_work *base, ProtobufCMessage **out)
{
    ask_work *w = (ask_work *)base;
    td__service *s = base->data->service;
    const DataManagement__VersionedSnapshot *v =
        (const DataManagement__VersionedSnapshot *)w->answer.body;
    char text[512];

    (void)out;
    if (base->st) { /* the service may come back: the job is asked for again */
        TD_LOG(WARN, SERVICE, "job %d waits for its data: %s", w->job, base->error);
        td__service_data(s, w->job, TD_DATA_RUNNING, NULL, NULL, NULL);
    } else if (w->answer.code) {
        td__service_data(s, w->job, TD_DATA_FAILED, NULL, NULL, w->answer.text);
    } else if (v->state == DATA_MANAGEMENT__SNAPSHOT_STATE__READY && v->root) {
        td__service_data(s, w->job, TD_DATA_READY, v->root->bucket, v->root->path, NULL);
    } else if (v->state == DATA_MANAGEMENT__SNAPSHOT_STATE__RUNNING) {
        td__service_data(s, w->job, TD_DATA_RUNNING, NULL, NULL, NULL);
    } else {
        snprintf(text, sizeof text, "VersionHash %.200s for Dataset %.200s could not be built",
                 w->hash, w->id);
        td__service_data(s, w->job, TD_DATA_FAILED, NULL, NULL, text);
    }
    if (w->answer.body)
        protobuf_c_message_free_unpacked(w->answer.body, NULL);
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
    w->id = td__data_text(w->base.arena, dataset_id);
    w->hash = td__data_text(w->base.arena, version_hash);
    td__data_work_start_on(d, d->waiters, &w->base);
}
