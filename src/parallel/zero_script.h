/* zero_script.h -- what ranks do together while a micro-batch runs: when to gather which bucket of
 * params, when to give it back, when to bring which bucket of gradients to its owners.
 *
 * Made once for a program. All ranks follow the same script step by step, also those that have no
 * micro-batch to run: that is why nothing in it may depend on a rank.
 *
 * Gathering (stage 3): a bucket is gathered before the first step that reads it and stays as long
 * as there is room for it; if there is not, the one goes whose next use is farthest away (Belady's
 * rule, which the script, knowing the future, can follow). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PARALLEL_ZERO_SCRIPT_H
#define TD_PARALLEL_ZERO_SCRIPT_H

#include "parallel/ownership.h"

typedef enum td__zero_act { TD__ZERO_GATHER, TD__ZERO_DROP, TD__ZERO_REDUCE } td__zero_act;

typedef struct td__zero_op {
    int step; /* before this one */
    td__zero_act act;
    int bucket;
} td__zero_op;

typedef struct td__zero_script {
    td__zero_op *ops; /* in order of steps */
    int n, room;
    size_t most; /* elements of params that are there at once */
} td__zero_script;

/* For p at a stage (2: gradients alone; evaluation programs: params alone). p NULL: the script that
 * fits every program: all is gathered before and reduced after. */
TD_NODISCARD td_status td__zero_script_init(td__zero_script *s, const td__ownership *m,
                                            const td_program *p, const td_params *ps, int stage,
                                            bool evaluate);
void td__zero_script_fini(td__zero_script *s);
/* Do both do the same in the same order? */
bool td__zero_script_same(const td__zero_script *a, const td__zero_script *b);

#endif
