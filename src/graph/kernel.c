/* kernel.c -- kernels that fail. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/check.h"
#include "base/fail.h"
#include "graph/backend.h"
#include "graph/graph_impl.h"

char *td__kernel_text(const td_node *n, char *buf, size_t room)
{
    char one[160];
    size_t at = 0;
    for (int i = -1; i <= n->n_in && at < room; i++) {
        if (i < 0)
            at += (size_t)snprintf(buf, room, "node '%s' (%s", n->name, td__op(n->op)->name);
        else if (i < n->n_in)
            at += (size_t)snprintf(buf + at, room - at, "%s %s", i ? "," : " of",
                                   td__desc_text(&n->in[i]->out[0], one, sizeof one));
        else
            at += (size_t)snprintf(buf + at, room - at, ")");
    }
    return buf;
}

void td__kernel_check(const td_kernel_call *c, td_status st)
{
    if (!st)
        return;
    char text[512];
    TD_ASSERT(c->stream, "%s", td_last_error()); /* a kernel called by hand */
    td__stream_fail(c->stream, st, "%s: %s", td__kernel_text(c->kernel->node, text, sizeof text),
                    td_last_error());
}
