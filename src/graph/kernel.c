/* kernel.c -- kernels that fail. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fail.h"
#include "graph/backend.h"

void td__kernel_check(const td_kernel_call *c, td_status st)
{
    if (!st)
        return;
    const td_node *n = c->kernel->node;
    TD_ASSERT(c->stream, "%s", td_last_error()); /* a kernel called by hand */
    td__stream_fail(c->stream, st, "node '%s' (%s): %s", n->name, td__op(n->op)->name,
                    td_last_error());
}
