/* results.h -- what a job that has succeeded leaves to others: the best weights of its run among
 * its artifacts, the list of these with their sha256, and copies of them in remote storage. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_SERVICE_TRACK_RESULTS_H
#define TD_SERVICE_TRACK_RESULTS_H

#include "remote/remote.h"
#include "service/track/artifact_list.h"

typedef struct td__results {
    const char *run;              /* directory of a run of tandem train; NULL: none */
    const char *artifacts, *list; /* the directory; where its list is to be written */
    const char *const *env;       /* "K=V" of the job, NULL-terminated: TANDEM_ARTIFACTS_URL,
                                     AWS_*; without keys those of this process are taken */
    bool (*stop)(void *arg);      /* asked again and again; may be NULL */
    td__left_out *left_out;       /* artifacts that could not be read; may be NULL */
    /* The client that is about to send, for td__remote_stop; NULL: no more. May be NULL. */
    void (*sending)(void *arg, td__remote *r);
    void *arg;
} td__results;

/* Whole, or an error. Artifacts that do not exist are none. */
TD_NODISCARD td_status td__results_publish(const td__results *r);

/* The value of a variable; NULL: not set. */
const char *td__results_env(const char *const *env, const char *name);

#endif
