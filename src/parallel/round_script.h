/* round_script.h -- the script (shard_script.h) that the ranks of a round follow: one micro-batch
 * on each rank, or none on some. It is that of the micro-batches' program; where they are of two
 * sizes and the scripts of their programs differ, the plain script, which fits all. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PARALLEL_ROUND_SCRIPT_H
#define TD_PARALLEL_ROUND_SCRIPT_H

#include "parallel/shard_script.h"
#include "step/micro_batches.h"
#include "step/row_cache.h"

/* The first five are given, all are borrowed; the rest begins as zeros. */
typedef struct td__round_scripts {
    const td__ownership *map;
    td__micro_batch_set *set;
    const td_params *ps;
    bool params, evaluate;                    /* params are sharded; no gradients */
    td__shard_script scripts[TD__ROW_PLACES]; /* by place of the cache */
    td__row_cache cache;                      /* 0 rows: the plain script */
} td__round_scripts;

/* Rows of micro-batch `index` of a batch; 0: of none (-1). */
int64_t td__round_rows(int64_t batch_rows, int micro_batches, int index);
/* run: by rank, which micro-batch of the batch it runs; -1: none. Valid until the next call. */
TD_NODISCARD td_status td__round_script(td__round_scripts *r, int64_t batch_rows, int micro_batches,
                                        const int *run, const td__shard_script **out);
void td__round_scripts_fini(td__round_scripts *r);

#endif
