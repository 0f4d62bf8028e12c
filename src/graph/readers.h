/* readers.h -- who reads a node. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_GRAPH_READERS_H
#define TD_GRAPH_READERS_H

#include "tandem/graph.h"

/* The first node that reads `ids` otherwise than as the rows of a table for which fn, asked with
 * its name, is true; NULL: there is none. */
const td_node *td__graph_reads_otherwise(const td_graph *g, const td_node *ids,
                                         bool (*fn)(const void *user, const char *table),
                                         const void *user);

#endif
