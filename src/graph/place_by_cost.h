/* place_by_cost.h -- places for the nodes of a model, so that each has about the same work: the
 * chunks of a pipeline. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_GRAPH_PLACE_BY_COST_H
#define TD_GRAPH_PLACE_BY_COST_H

#include "tandem/graph.h"

/* Who works at a place: places of one stage are one after another there, so that its work is their
 * sum. */
typedef struct td__stages {
    int places;
    int (*stage_of)(void *user, int place); /* below places; NULL: each place is a stage */
    void *user;
} td__stages;

/* Nodes keep their order: those of place k come before those of place k + 1. A place begins with a
 * layer that has params, and where few bytes cross. A leaf is at the place of its first reader.
 * TD_EINVAL if the loss depends on fewer such layers than there are places. */
TD_NODISCARD td_status td__graph_place_by_cost(td_graph *g, const td_node *loss,
                                               const td__stages *to);

/* The places of another graph, built alike for another number of rows: what a place costs, and so
 * where a boundary would lie, may depend on them. TD_ENOTSUP if the nodes are not the same. */
TD_NODISCARD td_status td__graph_place_as(td_graph *g, const td_graph *model);

#endif
