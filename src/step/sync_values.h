/* sync_values.h -- values that are means over all micro-batches of a batch (ops/op_sync_mean.c),
 * with the same bits for any number of threads and ranks.
 *
 * Every micro-batch of the batch has a slot. A rank fills in those of its own; ranks add up all
 * slots, of which one rank at most has each, so that nothing is rounded. The mean is then added up
 * in double, in order of micro-batches, by every rank.
 *
 * In a step of several batches (accumulation) the values are those of one batch. Ranks then have
 * ranges of the whole step, so that a batch is the affair of some of them: the first of these
 * gathers the slots and sends them to the others, while the ranks of the next batch are on their
 * way. A rank with micro-batches in two batches runs them in order, so nobody waits for a later
 * one. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_STEP_SYNC_VALUES_H
#define TD_STEP_SYNC_VALUES_H

#include "graph/runner.h"
#include "step/work_partition.h"
#include "tandem/coll.h"

typedef struct td__sync_values td__sync_values;

/* Of programs like p, in batches of so many micro-batches, over the ranks of comm (borrowed, used
 * by nobody else; NULL: one rank). */
TD_NODISCARD td_status td__sync_values_create(const td_program *p, int micro_batches, td_comm *comm,
                                              td__sync_values **out);
void td__sync_values_destroy(td__sync_values *v);     /* NULL is allowed */
int td__sync_values_points(const td__sync_values *v); /* values in a program */

/* The next batch to be run: the one of that number in a step of `batches`, dealt out by d
 * (bounds are borrowed until the batch is over). */
void td__sync_values_deal(td__sync_values *v, td__work_partition d, int batches, int batch);
/* Do all ranks take part in the exchange, also those without micro-batches in the batch? */
bool td__sync_values_of_all(const td__sync_values *v);

/* One of them: begin, put (any micro-batches, one thread at a time), exchange (collective), take.
 * */
void td__sync_values_begin(td__sync_values *v, int point);
void td__sync_values_put(td__sync_values *v, int micro_batch, const td__synced *from);
/* begins: (micro_batches + 1) the first row of each micro-batch, and the end. */
TD_NODISCARD td_status td__sync_values_exchange(td__sync_values *v, const int64_t *begins);
void td__sync_values_take(const td__sync_values *v, int64_t rows, td__synced *to);

#endif
