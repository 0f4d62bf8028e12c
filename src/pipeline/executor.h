/* executor.h -- runs a rank's list of a communication plan: its micro-batches through its chunks,
 * messages posted as soon as what they wait for is done, several of them on their way. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PIPELINE_EXECUTOR_H
#define TD_PIPELINE_EXECUTOR_H

#include "pipeline/channels.h"
#include "pipeline/chunks.h"
#include "pipeline/direct.h"
#include "pipeline/measure.h"
#include "step/step.h"

typedef struct td__executor_opts {
    td__chunks *chunks; /* all are borrowed */
    const td__cut *cut; /* of micro-batches of the usual size */
    const td__channels *channels;
    td__micro_batch_set *set;
    td__grad_pool *blocks;
    td__grad_stack *stacks; /* by chunk: where gradients are added up */
    td__measure *measure;
    /* (optional) An update of the plan: all gradients of batch `batch` of the list are in the
     * stacks. NULL: updates are made after the last batch, by others. */
    td_status (*update)(void *user, int batch);
    void *user;
} td__executor_opts;

/* A list of operations: of one batch, or of several that follow each other without a gap. */
typedef struct td__executor_list {
    const td__plan *plan;
    const int *slots;         /* by chunk */
    const td__direct *direct; /* the plan is of direct messages; NULL: of others */
    int each;                 /* micro-batches of a batch */
    int batches;
    uint32_t step; /* number of the first one's */
} td__executor_list;

/* The micro-batches of one batch that this pipeline runs. */
typedef struct td__executor_batch {
    const td__batch *batch;        /* read until its last micro-batch has begun */
    int micro_batches, begin, end; /* of the batch; those of this pipeline */
    int number;                    /* of the batch in the step */
    const td__step_engine *engine; /* of the step under way */
    td__chunks *chunks;            /* with the weights to run it with; NULL: as in the options */
    int slots;      /* so many of a chunk's runners take turns; 0: as many as the list has slots */
    double *losses; /* by micro-batch of the batch: set where the last chunk is, weighted */
} td__executor_batch;

typedef struct td__executor td__executor;
TD_NODISCARD td_status td__executor_create(const td__executor_opts *o, td__executor **out);
void td__executor_destroy(td__executor *x); /* NULL is allowed */

/* Run a list of one batch. */
TD_NODISCARD td_status td__executor_run(td__executor *x, const td__executor_list *l,
                                        const td__executor_batch *b);

/* Run a list of several. `feed` gives the next batch, and runs what comes up to its last forward;
 * `go_on` what comes before the next batch is needed; `close` the rest of the batches that were
 * given, which may be fewer than planned. After a failure of any of them nothing is under way, and
 * the channels are of no use any more. */
TD_NODISCARD td_status td__executor_open(td__executor *x, const td__executor_list *l);
TD_NODISCARD td_status td__executor_feed(td__executor *x, const td__executor_batch *b);
TD_NODISCARD td_status td__executor_go_on(td__executor *x);
TD_NODISCARD td_status td__executor_close(td__executor *x);

/* Since the last call of this: seconds that this rank waited for messages, bytes that it sent. */
void td__executor_spent(td__executor *x, double *wait, uint64_t *sent);

#endif
