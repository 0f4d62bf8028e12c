/* components.h -- which of n updates may run at the same time: those that touch no row in common,
 * not even by way of others. Union-find over updates, joined by the rows that they touch; a
 * connected component is a list of updates in their order, and components are dealt out to threads,
 * each whole.
 *
 *     begin, touch (update by update, in order), deal, then order and bounds */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PARALLEL_COMPONENTS_H
#define TD_PARALLEL_COMPONENTS_H

#include "tandem/status.h"

typedef struct td__components td__components;

/* For up to `most` updates of `rows` rows in all, on `threads` threads. */
TD_NODISCARD td_status td__components_create(int most, size_t rows, int threads,
                                             td__components **out);
void td__components_destroy(td__components *c); /* NULL is allowed */

/* Forget what was before; n updates. */
void td__components_begin(td__components *c, int n);
/* Update u touches row r. */
void td__components_touch(td__components *c, int u, size_t r);
/* Deal out all components: the largest first, each to the thread with the fewest updates. Returns
 * how many components there are; *largest: updates of the largest. */
int td__components_deal(td__components *c, int *largest);
/* The updates of a thread, in the order in which it is to run them; *n: how many. */
const int *td__components_of(const td__components *c, int thread, int *n);

#endif
