/* halving.h -- allreduce by recursive halving and doubling in blocks of ranks. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_COLL_HALVING_H
#define TD_COLL_HALVING_H

#include "coll/algo.h"

/* Any number of ranks; one block if it is a power of two. */
TD_NODISCARD td_status td__halving_run(td__coll_ctx *x, const td__coll_call *c);
double td__halving_cost(const td__coll_ctx *x, const td__coll_call *c);

#endif
