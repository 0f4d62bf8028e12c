/* verify.h -- looking for processors that compute wrongly without saying so.
 *
 * Of every step some micro-batches are run twice: by the rank that has them, and before that by
 * another one. Both take a hash of what came out, gradients and loss, bit for bit; the hashes
 * travel with the losses, and are compared before the step is applied. Micro-batches have the same
 * bits wherever they are run, so two hashes that differ mean that one of the two ranks computed
 * wrongly. Which, is then put to the vote: all ranks run the micro-batch once more, and with the
 * two first results these are the votes. The one that is outvoted is named and goes; the step is
 * done again without it.
 *
 * Which micro-batches, and who runs them the second time, is drawn by (seed, step, micro-batch):
 * all ranks know without asking.
 *
 *     begin, [engine's step with td__verify_watch], after it vote if it failed with `doubt` */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TRAIN_VERIFY_H
#define TD_TRAIN_VERIFY_H

#include "data/data.h"
#include "tandem/coll.h"
#include "fault/faults.h"
#include "step/micro_batches.h"
#include "step/step.h"

typedef struct td__verify_opts {
    double share;      /* of all micro-batches: 0 to 1 */
    int micro_batches; /* of a batch */
    uint64_t seed;
    td__micro_batch_set *set; /* all are borrowed */
    td__dataset *data;
    const td__loader_opts *loader; /* of the training loader; rows and prefetch are our own */
    td_comm *comm;                 /* more than one rank */
    const int *bounds;             /* of td__work_partition */
    td__faults *faults;
} td__verify_opts;

typedef struct td__verify td__verify;
TD_NODISCARD td_status td__verify_create(const td__verify_opts *o, td__verify **out);
void td__verify_destroy(td__verify *v);                /* NULL is allowed */
const td__step_watch *td__verify_watch(td__verify *v); /* for the engine */
/* Step `step` of `batches` batches from batch `first` of `epoch` on: run what this rank is to
 * check. While no micro-batch of the step has been run. */
TD_NODISCARD td_status td__verify_begin(td__verify *v, uint32_t step, uint64_t epoch, int64_t first,
                                        int batches);
/* The step failed because two hashes differ. */
bool td__verify_doubt(const td__verify *v);
/* A vote has found that it is this rank whose gradients are wrong. */
bool td__verify_outvoted(const td__verify *v);
/* Collective: find the rank that computes wrongly. The failure that this rank goes on with: TD_EIO
 * if it is the one, else TD_EPEER, or TD_EPROTO if the vote does not tell. */
TD_NODISCARD td_status td__verify_vote(td__verify *v);

#endif
