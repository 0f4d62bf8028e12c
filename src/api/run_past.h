/* run_past.h -- what a run has come to: may a job go on with it, and is anything left to do? */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_API_RUN_PAST_H
#define TD_API_RUN_PAST_H

#include "job/job.h"

typedef struct td__run_past {
    bool finished;   /* and the job does not ask for more than it did */
    char digest[80]; /* of the weights, "sha256:..."; "" if the run has no end */
    uint64_t step;   /* the last one on record */
} td__run_past;

/* Compares the job with the one that the run in `dir` was made from; TD_EINVAL naming the first key
 * that decides the numbers and differs. How long a run is may change, but where the learning rate
 * ends with it not to less than has been done. */
TD_NODISCARD td_status td__run_past_check(const td__job *job, const char *dir, td__run_past *past);
/* Before the run's job.yaml is replaced: one line if the learning rate now ends elsewhere. */
TD_NODISCARD td_status td__run_past_warn(const td__job *job, const char *dir);

#endif
