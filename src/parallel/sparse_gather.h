/* sparse_gather.h -- row-sparse gradients of all ranks, merged in the micro-batch tree.
 *
 * Lists are short compared with the tables that they belong to; every rank gets those of all
 * partials and merges them itself. A rank's lists travel as one message, the rows and values of
 * list after list; their lengths are exchanged before it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PARALLEL_SPARSE_GATHER_H
#define TD_PARALLEL_SPARSE_GATHER_H

#include "parallel/rank_tree.h"
#include "tandem/coll.h"

typedef struct td__sparse_gather td__sparse_gather;
/* Lists of `blocks`, of up to `slots` partials a rank. Both are borrowed. */
TD_NODISCARD td_status td__sparse_gather_create(td_comm *comm, td__grad_pool *blocks, int slots,
                                                td__sparse_gather **out);
void td__sparse_gather_destroy(td__sparse_gather *s); /* NULL is allowed */
/* Gather and merge; collective. `micro-batches`: of the step; local: this rank's partials. */
TD_NODISCARD td_status td__sparse_gather_run(td__sparse_gather *s, const td__grad_stack *local,
                                             int micro_batches, td__work_partition partition);
/* The same in parts: add the leaves, rising, of which `local` are this rank's slots; after the last
 * ones, finish. Collective. */
TD_NODISCARD td_status td__sparse_gather_add(td__sparse_gather *s, const td__grad_stack *local,
                                             const td__rank_leaf *leaves, int n);
void td__sparse_gather_finish(td__sparse_gather *s);
/* How many numbers of four bytes each rank sent in the last gather, besides the lengths. */
size_t td__sparse_gather_words(const td__sparse_gather *s);
/* Gradient k of the sum; until clear. */
td_sparse_grad td__sparse_gather_sum(const td__sparse_gather *s, int k);
void td__sparse_gather_clear(td__sparse_gather *s);

#endif
