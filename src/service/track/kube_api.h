/* kube_api.h -- requests to a Kubernetes API server, with credentials that are renewed when they
 * expire or are refused. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_SERVICE_TRACK_KUBE_API_H
#define TD_SERVICE_TRACK_KUBE_API_H

#include <jansson.h>

#include "remote/http.h"

typedef struct td__kube td__kube;

/* config: a kubeconfig, "" for the usual places; context "": the current one. Used by any number of
 * threads. */
TD_NODISCARD td_status td__kube_open(const char *config, const char *context, td__kube **out);
void td__kube_close(td__kube *k); /* NULL is allowed */
void td__kube_stop(td__kube *k);  /* from any thread: calls under way end */
/* A moment; TD_EABORTED when stopped. */
TD_NODISCARD td_status td__kube_pause(td__kube *k, uint64_t ms);
/* The namespace that the kubeconfig names; NULL: none. */
const char *td__kube_namespace(const td__kube *k);

typedef struct td__kube_request {
    const char *method, *path; /* "/api/v1/..." with its query */
    const json_t *body;        /* NULL: none */
    json_t **out;              /* NULL: not wanted; to be released with json_decref */
    int *status;               /* NULL: not wanted */
    td__http_sink sink;        /* instead of out: as it comes */
    void *sink_user;
    uint64_t limit_ms; /* 0: 60,000 */
} td__kube_request;
TD_NODISCARD td_status td__kube_call(td__kube *k, const td__kube_request *q);

#endif
