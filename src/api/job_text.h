/* job_text.h -- the inside of td_job. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_API_JOB_TEXT_H
#define TD_API_JOB_TEXT_H

#include "job/job.h"
#include "tandem/train.h"

struct td_job {
    char *text, *name;
    char **sets; /* overrides, in order */
    int n_sets;
    td__job *job; /* of all that */
};

/* Another job of the same text and overrides. */
TD_NODISCARD td_status td__job_text_parse(const td_job *j, td__job **out);

#endif
