/* branches.c -- nodes that need not be waited for at once: gradients of convolutions' weights,
 * which nothing in the program reads. A device with graphs may carry out such a node beside those
 * that follow it, up to the next of its kind, or to the end; its inputs stay where they are until
 * then. Which value is computed how does not depend on it.
 *
 * Those of linear layers fill a GPU by themselves: beside others they gain nothing, so they are not
 * taken unless TANDEM_CUDA_BRANCHES says "all". */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/config.h"
#include "base/fail.h"
#include "graph/program_impl.h"

/* All its outputs are gradients of params, which have places of their own and no other reader. */
static bool aside(const td_program *p, const td_node *n, const bool *read, bool all)
{
    if (n->op != TD_OP_CONV2D_BACK_WEIGHT && !(all && n->op == TD_OP_LINEAR_BACK_WEIGHT))
        return false;
    for (int k = 0; k < n->n_out; k++)
        if (td__location_of(p, n, k)->space != TD_SPACE_GRAD || read[n->id])
            return false;
    return true;
}

td_status td__plan_branches(td_program *p)
{
    const td_graph *g = p->g;
    const char *which = td__env_get(TD_ENV_CUDA_BRANCHES);
    if (p->evaluate || !td__device_tapes(p->backend->device) || (which && !strcmp(which, "none")))
        return TD_OK;
    bool all = which && !strcmp(which, "all");
    bool *read = td__calloc((size_t)g->n_nodes + 1, sizeof *read);
    td__free(p->beside);
    p->beside = td__calloc((size_t)g->n_nodes + 1, sizeof *p->beside);
    if (!read || !p->beside) {
        td__free(read);
        return TD_FAIL(TD_ENOMEM, "no memory to plan %d nodes", g->n_nodes);
    }
    for (int i = 0, part; i < g->n_nodes; i++) /* an output that is not the first has a view */
        for (int k = 0; k < g->nodes[i]->n_in && !td__op(g->nodes[i]->op)->is_view; k++)
            read[td__view_base(g->nodes[i]->in[k], &part)->id] = true;
    for (int i = g->n_nodes - 1, next = g->n_nodes; i >= 0; i--)
        if (aside(p, g->nodes[i], read, all)) {
            p->beside[i] = next;
            next = i;
        }
    td__free(read);
    return TD_OK;
}

int td__beside(const td_program *p, const td_node *n)
{
    return p->beside ? p->beside[n->id] : 0;
}
