/* balance.h -- slow ranks get fewer micro-batches.
 *
 * Every step all ranks learn how long each took to run its micro-batches (step.h). A window is a
 * few steps of the same deal; its seconds per micro-batch, rank by rank, tell how a better deal
 * would look: micro-batches are given one after the other to the rank that would be through with
 * one more first. The deal changes only if that would shorten the slowest rank's part by a quarter,
 * and only after it would have in several windows in a row: a rank that was disturbed for a moment
 * is not a slow one.
 *
 * All of this is a function of numbers that every rank has, so all ranks change their deal at the
 * same step without asking. The sum of the gradients does not depend on who adds up which
 * micro-batches, so neither does the result of the run. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TRAIN_BALANCE_H
#define TD_TRAIN_BALANCE_H

#include "tandem/status.h"

typedef struct td__balance td__balance;

/* For batches of `micro-batches` micro-batches on `ranks` ranks, of which none gets more than
 * `most`, which is at least an equal share. */
TD_NODISCARD td_status td__balance_create(int micro_batches, int ranks, int most,
                                          td__balance **out);
void td__balance_destroy(td__balance *b); /* NULL is allowed */
/* The bounds of the deal (parallel/rank_tree.h), NULL while all have the same share. They lie still
 * until `change`: threads that read ahead look at them at any time. */
const int *td__balance_bounds(const td__balance *b);
/* After a step: the seconds of each rank. True: another deal is due before the next step. */
bool td__balance_add(td__balance *b, const double *seconds);
/* Switch to the new partition, once no loader or engine uses the old one. */
void td__balance_change(td__balance *b);

#endif
