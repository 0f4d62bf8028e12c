/* frozen.h -- params that are not to be trained. A frozen param is a state that nothing updates: it
 * has no gradient, nor has what only leads to it, and checkpoints hold it under its name. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_GRAPH_FROZEN_H
#define TD_GRAPH_FROZEN_H

#include "tandem/graph.h"

typedef bool td__frozen_fn(void *user, const char *name);
/* Params made from now on for which fn is true are frozen; NULL: none. */
void td__graph_freeze(td_graph *g, td__frozen_fn *fn, void *user);

#endif
