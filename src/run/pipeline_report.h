/* pipeline_report.h -- what the stages of a pipeline did in a run: how much of their time was idle,
 * measured and as it was to be expected, and when each ran what in one batch. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_RUN_PIPELINE_REPORT_H
#define TD_RUN_PIPELINE_REPORT_H

#include <stdint.h>

#include "base/text.h"

/* A phase of a micro-batch through a chunk. */
typedef struct td__pipeline_span {
    int stage, chunk, micro_batch;
    int phase;         /* 0 forward, 1 backward, 2 weight gradients */
    double begin, end; /* seconds from the batch's beginning */
} td__pipeline_span;

typedef struct td__pipeline_report {
    char schedule[24];
    int stages, replicas, chunks, micro_batches;
    /* Shares of the stages' time in which they ran nothing: as it was; by the virtual clock with
     * the measured times of chunks; by that clock if all phases took the same. */
    double measured, expected, even;
    double *idle; /* (stages) measured */
    double *peak; /* (stages) bytes: the most that a rank had in memory, of its first replica */
    td__pipeline_span *span;
    int n_spans; /* of the last batch; 0: too many to keep */
} td__pipeline_report;

enum { TD__PIPELINE_SPANS = 4096 };

/* As a line of metrics.jsonl. */
void td__json_pipeline(td__text *t, uint64_t step, const td__pipeline_report *r);
/* As a section of report.html: numbers and a diagram. */
void td__html_pipeline(td__text *t, const td__pipeline_report *r);

#endif
