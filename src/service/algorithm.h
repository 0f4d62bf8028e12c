/* algorithm.h -- algorithms that are shipped: a name of the book's kind, its parameters, and the
 * job file that it becomes. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_SERVICE_ALGORITHM_H
#define TD_SERVICE_ALGORITHM_H

#include "base/text.h"
#include "service/job.h"

typedef struct td__algorithm td__algorithm;

/* NULL: none of that name is shipped. */
const td__algorithm *td__algorithm_find(const char *name);
/* TD_EINVAL: a parameter that it does not take, or a value out of range. */
TD_NODISCARD td_status td__algorithm_check(const td__job_spec *s);
/* The job file for data in the directory `data` (absolute). */
TD_NODISCARD td_status td__algorithm_job(const td__job_spec *s, const char *data, td__text *out);
/* "intent-classification", ...: all names, for texts. */
const char *td__algorithm_names(void);

#endif
