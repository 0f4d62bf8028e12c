/* place.h -- where the nodes of a model are to run, if it is spread over ranks.
 *
 * Nodes with a place run on that stage of a pipeline; cut edges become messages. Others follow what
 * they read. Without a pipeline places mean nothing. See docs/pipeline.md. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PLACE_H
#define TD_PLACE_H

#include "tandem/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the node; NULL, and an error of the graph, if there can be no such place. */
TD_API td_node *td_node_place(td_graph *g, td_node *n, int place);

#ifdef __cplusplus
}
#endif
#endif
