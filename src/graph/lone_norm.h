/* lone_norm.h -- batch norms that need a look before training: those that have one value per
 * channel, hence no variance, so that what they give does not depend on their input; those whose
 * statistics are of all micro-batches. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_GRAPH_LONE_NORM_H
#define TD_GRAPH_LONE_NORM_H

#include "tandem/graph.h"

const td_node *td__graph_lone_norm(const td_graph *g); /* the first; NULL: there is none */
bool td__graph_sync_norm(const td_graph *g);           /* is there one over all micro-batches? */

#endif
