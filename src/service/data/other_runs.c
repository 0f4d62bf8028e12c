/* other_runs.c -- runs of shipped algorithms, told to another metadata_store service
 * (data.metadata_service) when they have ended, as the book's training code tells its own: start,
 * epochs, end. What was told before is not an error, so that it can be told again. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/fail.h"
#include "base/log.h"
#include "service/data/data_impl.h"
#include "service/data/other_call.h"

enum { ALREADY_EXISTS = 6 }; /* of gRPC */

#define STORE "metadata_store.MetadataStoreService/"

/* known: whether it was told before. */
static td_status tell(const td__data *d, const char *method, const ProtobufCMessage *q,
                      const ProtobufCMessageDescriptor *type, bool *known)
{
    td__other_answer a;
    td_status st = td__other_call(d->config->metadata_service, method, q, type, &a);

    if (!st && a.body)
        protobuf_c_message_free_unpacked(a.body, NULL);
    if (!st && a.code && a.code != ALREADY_EXISTS)
        st = TD_FAIL(TD_EINVAL, "data.metadata_service: %s", a.text);
    *known = !st && a.code == ALREADY_EXISTS;
    return st;
}

/* Both services count their runs from 1: one of this id may be its own. */
static td_status check_ours(const td__data *d, const MetadataStore__RunInfo *run)
{
    MetadataStore__GetRunStatusRequest q = METADATA_STORE__GET_RUN_STATUS_REQUEST__INIT;
    td__other_answer a;

    q.run_id = run->run_id;
    TD_TRY(td__other_call(d->config->metadata_service, STORE "GetRunStatus", &q.base,
                          &metadata_store__get_run_status_response__descriptor, &a));
    if (a.code || !a.body)
        return TD_FAIL(TD_EINVAL, "data.metadata_service: %s", a.text);
    const MetadataStore__RunInfo *there =
        ((const MetadataStore__GetRunStatusResponse *)(const void *)a.body)->run_info;
    bool ours = there && !strcmp(there->start_time, run->start_time) &&
                !strcmp(there->run_name, run->run_name);
    protobuf_c_message_free_unpacked(a.body, NULL);
    return ours ? TD_OK
                : TD_FAIL(TD_EINVAL, "data.metadata_service has a run %s of its own", run->run_id);
}

td_status td__run_tell_other(const td__data *d, const MetadataStore__RunInfo *run)
{
    MetadataStore__LogRunStartRequest start = METADATA_STORE__LOG_RUN_START_REQUEST__INIT;
    MetadataStore__LogRunEndRequest end = METADATA_STORE__LOG_RUN_END_REQUEST__INIT;
    bool known;

    start.start_time = run->start_time;
    start.run_id = run->run_id;
    start.run_name = run->run_name;
    start.tracing = run->tracing;
    TD_TRY(tell(d, STORE "LogRunStart", &start.base,
                &metadata_store__log_run_start_response__descriptor, &known));
    if (known)
        TD_TRY(check_ours(d, run));
    for (size_t i = 0; i < run->n_epochs; i++) {
        MetadataStore__LogEpochRequest epoch = METADATA_STORE__LOG_EPOCH_REQUEST__INIT;
        epoch.epoch_info = run->epochs[i]->value;
        TD_TRY(tell(d, STORE "LogEpoch", &epoch.base,
                    &metadata_store__log_epoch_response__descriptor, &known));
    }
    end.end_time = run->end_time;
    end.run_id = run->run_id;
    end.success = run->success;
    end.message = run->message;
    return tell(d, STORE "LogRunEnd", &end.base, &metadata_store__log_run_end_response__descriptor,
                &known);
}
