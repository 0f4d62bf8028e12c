/* ref_exec.h -- the reference executor: any node as a kernel that runs the operator's definition.
 *
 * Reference kernels see plain row-major doubles (ops/op.h); nodes have other types and, for images,
 * another memory order. The executor stands between: it widens and un-orders inputs into scratch,
 * runs `ref` (or `scalar` over broadcast elements), rounds once and re-orders the outputs. It is
 * the whole of the reference backend and the fall-back of the others. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_REF_EXEC_H
#define TD_BACKEND_REF_EXEC_H

#include "graph/backend.h"

/* Fill *k for n. Fails only for leaves and views, and for sizes that overflow. */
TD_NODISCARD td_status td__ref_exec_plan(const td_node *n, td_kernel *k);

/* The attributes of an elementwise operator as the numbers that `scalar` wants; NULL for none. */
const double *td__scalar_numbers(const td_op_def *def, const void *attr);

#endif
