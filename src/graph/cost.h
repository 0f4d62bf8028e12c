/* cost.h -- what parts of a graph cost: params and arithmetic. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_GRAPH_COST_H
#define TD_GRAPH_COST_H

#include "ops/phase.h"
#include "tandem/program.h"

typedef struct td__cost {
    int64_t params;
    double flops;   /* a multiply-add counts as two; what only moves data counts nothing */
    double weights; /* elements that arithmetic reads: params, but not tables for looking up */
} td__cost;

/* Of nodes [from, to). */
td__cost td__graph_cost(const td_graph *g, int from, int to);

/* How long nodes take beside each other: arithmetic, and the memory that they write, in the
 * arithmetic that takes as long. Of a node; of a program's steps, by phase. */
double td__node_work(const td_graph *g, int node);
void td__program_work(const td_program *p, double work[TD_RUN_PHASE_COUNT]);

/* Nodes from `from` on, cut where params are read: one call per layer, with the name that its
 * params share, the operator that reads them, its last node and its range. */
typedef td_status (*td__cost_sink)(void *user, const char *name, const char *kind, const td_node *y,
                                   int from, int to);
TD_NODISCARD td_status td__graph_cut(const td_graph *g, int from, td__cost_sink sink, void *user);

#endif
