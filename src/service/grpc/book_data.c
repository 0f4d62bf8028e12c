/* book_data.c -- data_management.DataManagementService, metadata_store.MetadataStoreService and
 * prediction.PredictionService, as the book's clients know them, over the embedded ones
 * (service/data). */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/fail.h"
#include "google/protobuf/empty.pb-c.h"
#include "prediction_service.pb-c.h"
#include "service/data/data.h"
#include "service/grpc/api_impl.h"

/* ---- answers ---- */

/* A call that waits for files; NULL call: its client has gone. */
typedef struct waiting {
    td__call *call;
} waiting;

static void waiting_ended(void *data, td__call *c)
{
    (void)c;
    ((waiting *)data)->call = NULL;
}

static const td__call_events WAITING_EVENTS = {.ended = waiting_ended};

static void data_done(void *arg, td__answer a, const ProtobufCMessage *m)
{
    waiting *w = arg;

    if (w->call && !td__grpc_refused(w->call, a))
        td__call_reply(w->call, m);
    td__free(w);
}

static waiting *wait_for(td__call *c)
{
    waiting *w = td__calloc(1, sizeof *w);

    if (!w) {
        td__call_finish(c, TD_GRPC_RESOURCE_EXHAUSTED, "out of memory");
        return NULL;
    }
    w->call = c;
    td__call_follow(c, &WAITING_EVENTS, w);
    return w;
}

/* An arena for one answer; NULL: the call is finished. */
static td__arena *arena_for(td__call *c)
{
    td__arena *a;

    return td__grpc_refused(c, td__answer_of(td__arena_create(&a))) ? NULL : a;
}

/* The message if the answer is OK; the arena goes. */
static void reply(td__call *c, td__arena *a, td__answer answer, const void *m)
{
    if (!td__grpc_refused(c, answer))
        td__call_reply(c, m);
    td__arena_destroy(a);
}

/* ---- data sets ---- */

static void summary(td__call *c, void *arg, const void *request)
{
    const DataManagement__DatasetPointer *q = request;
    DataManagement__DatasetSummary *m = NULL;
    td__arena *a = arena_for(c);

    if (!a)
        return;
    td__answer answer = td__data_summary(((td__grpc_api *)arg)->o.data, a, q->dataset_id, &m);
    reply(c, a, answer, m);
}

static void send_id(void *arg, const char *id)
{
    DataManagement__DatasetPointer m = DATA_MANAGEMENT__DATASET_POINTER__INIT;

    m.dataset_id = td__grpc_text(id);
    td__call_send(arg, &m.base);
}

static void list(td__call *c, void *arg, const void *request)
{
    (void)request;
    if (!td__grpc_refused(c, td__data_list(((td__grpc_api *)arg)->o.data, send_id, c)))
        td__call_finish(c, TD_GRPC_OK, "%s", "");
}

static void create(td__call *c, void *arg, const void *request)
{
    waiting *w = wait_for(c);
    td__caller who = td__grpc_caller(c);

    if (w)
        td__data_create_set(((td__grpc_api *)arg)->o.data, &who, request, data_done, w);
}

static void update(td__call *c, void *arg, const void *request)
{
    waiting *w = wait_for(c);
    td__caller who = td__grpc_caller(c);

    if (w)
        td__data_commit(((td__grpc_api *)arg)->o.data, &who, request, data_done, w);
}

static void prepare(td__call *c, void *arg, const void *request)
{
    DataManagement__SnapshotVersion *m = NULL;
    td__arena *a = arena_for(c);

    if (!a)
        return;
    td__answer answer = td__data_prepare(((td__grpc_api *)arg)->o.data, a, request, &m);
    reply(c, a, answer, m);
}

static void fetch(td__call *c, void *arg, const void *request)
{
    const DataManagement__VersionQuery *q = request;
    DataManagement__VersionedSnapshot *m = NULL;
    td__arena *a = arena_for(c);

    if (!a)
        return;
    td__answer answer =
        td__data_fetch(((td__grpc_api *)arg)->o.data, a, q->dataset_id, q->version_hash, &m);
    reply(c, a, answer, m);
}

static void delete_set(td__call *c, void *arg, const void *request)
{
    Google__Protobuf__Empty m = GOOGLE__PROTOBUF__EMPTY__INIT;
    const DataManagement__DatasetPointer *q = request;
    td__caller who = td__grpc_caller(c);

    if (!td__grpc_refused(c, td__data_delete(((td__grpc_api *)arg)->o.data, &who, q->dataset_id)))
        td__call_reply(c, &m.base);
}

static const td__grpc_method DATA_METHODS[] = {
    TD_METHOD("GetDatasetSummary", UNARY, data_management__dataset_pointer, READ, summary),
    TD_METHOD("ListDatasets", SERVER_STREAM, data_management__list_query_options, READ, list),
    TD_METHOD("CreateDataset", UNARY, data_management__create_dataset_request, SUBMIT, create),
    TD_METHOD("UpdateDataset", UNARY, data_management__create_commit_request, SUBMIT, update),
    TD_METHOD("PrepareTrainingDataset", UNARY, data_management__dataset_query, SUBMIT, prepare),
    TD_METHOD("FetchTrainingDataset", UNARY, data_management__version_query, READ, fetch),
    TD_METHOD("DeleteDataset", UNARY, data_management__dataset_pointer, SUBMIT, delete_set),
};
const td__grpc_service td__book_data = {"data_management.DataManagementService", DATA_METHODS,
                                        TD_LEN(DATA_METHODS)};

/* ---- runs and models ---- */

static void run_start(td__call *c, void *arg, const void *request)
{
    MetadataStore__LogRunStartResponse *m = NULL;
    td__caller who = td__grpc_caller(c);
    td__arena *a = arena_for(c);

    if (!a)
        return;
    td__answer answer = td__run_start(((td__grpc_api *)arg)->o.data, &who, a, request, &m);
    reply(c, a, answer, m);
}

static void run_epoch(td__call *c, void *arg, const void *request)
{
    static const MetadataStore__EpochInfo none = METADATA_STORE__EPOCH_INFO__INIT;
    const MetadataStore__LogEpochRequest *q = request;
    MetadataStore__LogEpochResponse m = METADATA_STORE__LOG_EPOCH_RESPONSE__INIT;
    td__caller who = td__grpc_caller(c);
    td__arena *a = arena_for(c);

    m.epoch_info = q->epoch_info;
    if (a)
        reply(c, a,
              td__run_epoch(((td__grpc_api *)arg)->o.data, &who, a,
                            q->epoch_info ? q->epoch_info : &none),
              &m.base);
}

static void run_end(td__call *c, void *arg, const void *request)
{
    MetadataStore__LogRunEndResponse m = METADATA_STORE__LOG_RUN_END_RESPONSE__INIT;
    td__caller who = td__grpc_caller(c);
    td__arena *a = arena_for(c);

    if (!a)
        return;
    td__answer answer = td__run_end(((td__grpc_api *)arg)->o.data, &who, a, request, &m.run_info);
    reply(c, a, answer, &m);
}

/* Requests about a run that may just be ending: they wait until it is stored. */
typedef struct about_run {
    td__call *call; /* NULL: its client has gone */
    td__data *data;
    char *run, *document;
    void (*answer)(struct about_run *q);
} about_run;

static void about_run_ended(void *data, td__call *c)
{
    (void)c;
    ((about_run *)data)->call = NULL;
}

static void about_run_now(void *arg)
{
    about_run *q = arg;

    if (q->call)
        q->answer(q);
    td__free(q->run);
    td__free(q->document);
    td__free(q);
}

static void when_settled(td__call *c, td__grpc_api *api, const char *run, const char *document,
                         void (*answer)(about_run *q))
{
    static const td__call_events events = {.ended = about_run_ended};
    about_run *q = td__calloc(1, sizeof *q);

    if (q) {
        *q = (about_run){c, api->o.data, td__strdup(run), td__strdup(document), answer};
        if (q->run && q->document) {
            td__call_follow(c, &events, q);
            td__runs_settled(api->o.data, about_run_now, q);
            return;
        }
        td__free(q->run);
        td__free(q->document);
        td__free(q);
    }
    td__call_finish(c, TD_GRPC_RESOURCE_EXHAUSTED, "out of memory");
}

static void answer_status(about_run *q)
{
    MetadataStore__GetRunStatusResponse m = METADATA_STORE__GET_RUN_STATUS_RESPONSE__INIT;
    td__arena *a = arena_for(q->call);

    if (!a)
        return;
    td__answer answer = td__run_get(q->data, a, q->run, &m.run_info);
    reply(q->call, a, answer, &m);
}

static void run_status(td__call *c, void *arg, const void *request)
{
    when_settled(c, arg, ((const MetadataStore__GetRunStatusRequest *)request)->run_id, "",
                 answer_status);
}

static void model_create(td__call *c, void *arg, const void *request)
{
    waiting *w = wait_for(c);
    td__caller who = td__grpc_caller(c);

    if (w)
        td__model_create(((td__grpc_api *)arg)->o.data, &who, request, data_done, w);
}

static void answer_model(about_run *q)
{
    MetadataStore__GetArtifactResponse *m = NULL;
    td__arena *a = arena_for(q->call);

    if (!a)
        return;
    td__answer answer = td__model_get(q->data, a, q->run, &m);
    reply(q->call, a, answer, m);
}

static void model_get(td__call *c, void *arg, const void *request)
{
    when_settled(c, arg, ((const MetadataStore__GetArtifactRequest *)request)->run_id, "",
                 answer_model);
}

static const td__grpc_method RUN_METHODS[] = {
    TD_METHOD("LogRunStart", UNARY, metadata_store__log_run_start_request, SUBMIT, run_start),
    TD_METHOD("LogEpoch", UNARY, metadata_store__log_epoch_request, SUBMIT, run_epoch),
    TD_METHOD("LogRunEnd", UNARY, metadata_store__log_run_end_request, SUBMIT, run_end),
    TD_METHOD("GetRunStatus", UNARY, metadata_store__get_run_status_request, READ, run_status),
    TD_METHOD("CreateArtifact", UNARY, metadata_store__create_artifact_request, SUBMIT,
              model_create),
    TD_METHOD("GetArtifact", UNARY, metadata_store__get_artifact_request, READ, model_get),
};
const td__grpc_service td__book_runs = {"metadata_store.MetadataStoreService", RUN_METHODS,
                                        TD_LEN(RUN_METHODS)};

/* ---- predictions ---- */

static void predicted(void *arg, td__answer a, const ProtobufCMessage *m)
{
    waiting *w = arg;

    if (w->call && a == TD_ANSWER_INTERNAL) /* the model's own failure, in the book's words */
        td__call_finish(w->call, TD_GRPC_UNKNOWN, "%s", td_last_error());
    else if (w->call && !td__grpc_refused(w->call, a))
        td__call_reply(w->call, m);
    td__free(w);
}

static void answer_prediction(about_run *q)
{
    waiting *w = wait_for(q->call); /* follows the call from now on */

    if (w)
        td__predict(q->data, q->run, q->document, predicted, w);
}

static void predict(td__call *c, void *arg, const void *request)
{
    const Prediction__PredictRequest *q = request;

    when_settled(c, arg, q->runid, q->document, answer_prediction);
}

static const td__grpc_method PREDICTION_METHODS[] = {
    TD_METHOD("Predict", UNARY, prediction__predict_request, READ, predict),
};
const td__grpc_service td__book_prediction = {"prediction.PredictionService", PREDICTION_METHODS,
                                              TD_LEN(PREDICTION_METHODS)};
