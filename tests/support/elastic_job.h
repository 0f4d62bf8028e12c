/* elastic_job.h -- a small job for elastic_world.h whose every disturbed run must end like one on a
 * single undisturbed rank. Data are closed with td__data_close(plan.data) by the test. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TESTS_SUPPORT_ELASTIC_JOB_H
#define TD_TESTS_SUPPORT_ELASTIC_JOB_H

#include "support/elastic_world.h"

enum { ELASTIC_JOB_STEPS = 6 };

/* The job on that many ranks. */
elastic_plan elastic_job(int size);

/* The undisturbed run; elastic_job_quiet_run, a set-up function of cmocka, makes it. */
extern elastic_end elastic_job_quiet;
int elastic_job_quiet_run(void **state);

/* In a new check_tmpdir, or in `dir`. */
void elastic_job_run(elastic_plan *plan, elastic_end *end);
void elastic_job_run_in(elastic_plan *plan, const char *dir, elastic_end *end);

/* Weights, metrics and decisions are those of the undisturbed run. */
void elastic_job_expect(const elastic_plan *plan, const elastic_end *end);
/* The newest checkpoint is that of the last step; nothing half written is left. */
void elastic_job_check_saved(const elastic_plan *plan);

#endif
