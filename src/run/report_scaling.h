/* report_scaling.h -- the part of report.html about a run on several ranks: latency, throughput,
 * speed-up, efficiency, bytes, where the time of each rank went, and who was waited for. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_RUN_REPORT_SCALING_H
#define TD_RUN_REPORT_SCALING_H

#include "base/text.h"
#include "run/report_data.h"

/* A run on one rank to measure others by. */
typedef struct td__baseline {
    char dir[TD__PATH]; /* "": there is none */
    int threads;
    double step_s; /* median */
} td__baseline;

/* The newest whole run of the same job on one rank beside the run in `dir`, those with as many
 * threads per rank first. No such run is no failure. */
TD_NODISCARD td_status td__baseline_find(const char *dir, const td__report_data *d,
                                         td__baseline *out);

typedef struct td__scaling {
    double step_s, p95_s; /* latency: of a step, in the median and of 95 of 100 at most */
    double samples_per_second;
    double speedup, efficiency; /* against one rank; efficiency per compute thread */
    bool estimated;             /* from the compute times of this run */
    double step_nbytes;         /* that a rank sends in a step, on average */
    double saved;               /* times fewer than plain f32 */
    double hidden;              /* share of the communication that compute was beside; NaN: none */
} td__scaling;
TD_NODISCARD td_status td__scaling_of(const td__report_data *d, const td__baseline *b,
                                      td__scaling *out);

/* Nothing for a run on one rank. */
TD_NODISCARD td_status td__report_scaling(td__text *t, const char *dir, const td__report_data *d);

#endif
