/* draw.h -- a graph as a picture that any browser shows (SVG). For Graphviz: td_graph_write_dot. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_GRAPH_DRAW_H
#define TD_GRAPH_DRAW_H

#include "base/text.h"
#include "tandem/graph.h"

/* Nodes with operator and shape, top to bottom, edges where values flow; params stand in the node
 * that uses them. */
TD_NODISCARD td_status td__graph_svg(td__text *out, const td_graph *g, const char *title);

/* The same as TensorFlow's GraphDef, for TensorBoard: names, operators, inputs, output shapes. */
void td__graph_def(td__text *out, const td_graph *g);

#endif
