/* lone_norm.h -- batch norms that have one value per channel, hence no variance: what they give in
 * training does not depend on their input. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_GRAPH_LONE_NORM_H
#define TD_GRAPH_LONE_NORM_H

#include "tandem/graph.h"

const td_node *td__graph_lone_norm(const td_graph *g); /* the first; NULL: there is none */

#endif
