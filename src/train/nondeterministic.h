/* nondeterministic.h -- train.reproducible: false: bits for time.
 *
 * A rank runs its share of the batch as one micro-batch on each of its threads, whatever number of
 * rows that is, and gradients are added by any algorithm, so that the result depends on the numbers
 * of ranks and threads. All ranks still have the same weights, which is checked at the end. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TRAIN_NONDETERMINISTIC_H
#define TD_TRAIN_NONDETERMINISTIC_H

#include "train/trainer.h"

/* Fills in micro-batches and compressor if o asks for it. With a comm: collective. */
TD_NODISCARD td_status td__nondeterministic_resolve(td__train_opts *o);

#endif
