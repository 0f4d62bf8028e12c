/* counted.h -- losses with ignored targets (loss.ignore) or targets that weigh by their classes
 * (loss.weighted_as: pytorch): the weight of a micro-batch in a step is its share of the targets
 * that count, or of their weights, not of the rows, so that gradient and loss are those of the mean
 * over all counted targets of the step, however it is cut in micro-batches and batches.
 *
 * The share of a micro-batch needs the targets of the whole step, which the other ranks read. They
 * are counted here from the dataset, each sample once in a run and where possible without its other
 * fields (images are not decoded): the same numbers on every rank, without a message. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TRAIN_COUNTED_H
#define TD_TRAIN_COUNTED_H

#include "data/loader.h"
#include "step/step.h"

/* Targets among n samples of a field that count; and what they weigh in the loss. */
int64_t td__count_targets(const td__field *f, const void *samples, int64_t n,
                          const td__model_facts *facts);
double td__weigh_targets(const td__field *f, const void *samples, int64_t n,
                         const td__model_facts *facts);

typedef struct td__counted td__counted;
/* facts: borrowed, of a model whose targets are not alike; most: rows of the largest step. */
TD_NODISCARD td_status td__counted_create(td__dataset *d, const td__model_facts *facts,
                                          int64_t most, td__counted **out);
void td__counted_destroy(td__counted *c); /* NULL is allowed */
/* The next step: `rows` rows from row `first` of the epoch on, in batches of `batch`. */
TD_NODISCARD td_status td__counted_step(td__counted *c, const td__loader *l, uint64_t epoch,
                                        int64_t first, int64_t rows, int64_t batch);
/* For the step engine; valid while c lives. */
const td__step_weights *td__counted_weights(const td__counted *c);

#endif
