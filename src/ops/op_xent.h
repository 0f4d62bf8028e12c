/* op_xent.h -- a row of a cross entropy, for the reference kernels of the operators that have one
 * (op_xent.c has the formulas). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_OPS_OP_XENT_H
#define TD_OPS_OP_XENT_H

#include "ops/op_check.h"

/* Does a row with this target count? */
bool td__xent_counts(const td_attr_xent *at, int64_t target);
/* The loss of n logits with target t, 0 if it does not count; *lse is theirs. */
double td__xent_row(const td_attr_xent *at, const double *x, int64_t n, int64_t t, double *lse);
/* Their gradient; scale: the loss's, divided by the rows that count. dx may be x. */
void td__xent_row_back(const td_attr_xent *at, const double *x, int64_t n, int64_t t, double lse,
                       double scale, double *dx);

#endif
