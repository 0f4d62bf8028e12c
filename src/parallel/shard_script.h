/* shard_script.h -- what ranks do together while a micro-batch runs: when to gather which bucket of
 * params, when to give it back, when to bring which bucket of gradients to its owners.
 *
 * Made once for a program. All ranks follow the same script step by step, also those that have no
 * micro-batch to run: that is why nothing in it may depend on a rank.
 *
 * Gathering, where params are sharded: a bucket is gathered before the first step that reads it and
 * stays as long as there is room for it; if there is not, the one goes whose next use is farthest
 * away (Belady's rule, which the script, knowing the future, can follow). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PARALLEL_SHARD_SCRIPT_H
#define TD_PARALLEL_SHARD_SCRIPT_H

#include "parallel/ownership.h"

typedef enum td__shard_act { TD__SHARD_GATHER, TD__SHARD_DROP, TD__SHARD_REDUCE } td__shard_act;

typedef struct td__shard_op {
    int step; /* before this one */
    td__shard_act act;
    int bucket;
} td__shard_op;

typedef struct td__shard_script {
    td__shard_op *ops; /* in order of steps */
    int n, room;
    size_t most; /* elements of params that are there at once */
} td__shard_script;

/* For p; params: they are sharded, else gradients alone are (of evaluation programs: nothing). p
 * NULL: the script that fits every program: all is gathered before and reduced after. */
TD_NODISCARD td_status td__shard_script_init(td__shard_script *s, const td__ownership *m,
                                             const td_program *p, const td_params *ps, bool params,
                                             bool evaluate);
void td__shard_script_fini(td__shard_script *s);
/* Do both do the same in the same order? */
bool td__shard_script_same(const td__shard_script *a, const td__shard_script *b);

#endif
