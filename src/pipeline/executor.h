/* executor.h -- runs a rank's list of a communication plan: its micro-batches through its chunks,
 * messages posted as soon as what they wait for is done, several of them on their way. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PIPELINE_EXECUTOR_H
#define TD_PIPELINE_EXECUTOR_H

#include "pipeline/channels.h"
#include "pipeline/chunks.h"
#include "pipeline/measure.h"
#include "step/step.h"

typedef struct td__executor_opts {
    td__chunks *chunks; /* all are borrowed */
    const td__channels *channels;
    td__micro_batch_set *set;
    td__grad_pool *blocks;
    td__grad_stack *stacks; /* by chunk: where gradients are added up */
    td__measure *measure;
} td__executor_opts;

/* The micro-batches of one batch that this pipeline runs. */
typedef struct td__executor_batch {
    const td__plan *plan;
    const int *slots; /* by chunk */
    const td__batch *batch;
    int micro_batches, begin, end; /* of the batch; those of this pipeline */
    int number;                    /* of the batch in the step */
    const td__step_engine *engine; /* of the step under way */
    double *losses; /* by micro-batch of the batch: set where the last chunk is, weighted */
} td__executor_batch;

typedef struct td__executor td__executor;
TD_NODISCARD td_status td__executor_create(const td__executor_opts *o, td__executor **out);
void td__executor_destroy(td__executor *x); /* NULL is allowed */
/* wait: seconds added that this rank waited for messages. sent: bytes, likewise. */
TD_NODISCARD td_status td__executor_run(td__executor *x, const td__executor_batch *b, double *wait,
                                        uint64_t *sent);

#endif
