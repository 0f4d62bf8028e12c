/* phases.c -- which nodes run in which phase, and nodes in the order of phases. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/phases.h"

#include <string.h>

#include "base/check.h"
#include "base/fail.h"
#include "graph/graph_impl.h"
#include "graph/program_impl.h"

const char *td__run_phase_name(td_run_phase phase)
{
    static const char *const NAMES[TD_RUN_PHASE_COUNT] = {
        [TD_RUN_FORWARD] = "forward",
        [TD_RUN_BACKWARD] = "backward",
        [TD_RUN_WEIGHT] = "weight",
    };
    return NAMES[phase];
}

static td_run_phase phase_of_root(td__root_kind kind)
{
    switch (kind) {
    case TD_ROOT_LOSS:
    case TD_ROOT_OUTPUT:
    case TD_ROOT_TRACK: return TD_RUN_FORWARD;
    case TD_ROOT_INPUT_GRAD: return TD_RUN_BACKWARD;
    default: return TD_RUN_WEIGHT;
    }
}

void td__settle_phases(td_graph *g)
{
    for (int i = 0; i < g->n_roots; i++)
        td__need_in(g->roots[i].node, phase_of_root(g->roots[i].kind));
    for (int i = g->n_nodes - 1; i >= 0; i--) {
        td_node *n = g->nodes[i];
        if (td__is_leaf(n))
            n->phase = TD_RUN_FORWARD;
        for (int k = 0; k < n->n_in; k++)
            td__need_in(n->in[k], n->phase);
    }
}

/* Inputs are never of a later phase than their reader, so they stay before it. */
td_status td__order_by_phase(td_graph *g)
{
    td_node **sorted = td__calloc((size_t)g->n_nodes + 1, sizeof *sorted);
    int n = 0;
    if (!sorted)
        return TD_FAIL(TD_ENOMEM, "no memory to order %d nodes", g->n_nodes);
    for (int phase = 0; phase < TD_RUN_PHASE_COUNT; phase++)
        for (int i = 0; i < g->n_nodes; i++)
            if ((int)g->nodes[i]->phase == phase)
                sorted[n++] = g->nodes[i];
    for (int i = 0; i < n; i++)
        sorted[i]->id = i;
    memcpy(g->nodes, sorted, (size_t)n * sizeof *sorted);
    td__free(sorted);
    return TD_OK;
}

int td__program_phase_end(const td_program *p, td_run_phase phase)
{
    TD_ASSERT(p->phased, "steps of phase %d", (int)phase);
    return p->phase_end[phase];
}
