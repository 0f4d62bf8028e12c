/* init.h -- filling a param with its first values, as its td_init says. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_GRAPH_INIT_H
#define TD_GRAPH_INIT_H

#include "tandem/graph.h"

/* Fill out[td_shape_count(shape)]. The values are a pure function of (init, shape, seed, name):
 * they do not depend on the other params of the model, nor on the order in which they are made.
 * TD_EINVAL, naming the param, if the initialiser does not fit the shape or its numbers make no
 * sense. */
TD_NODISCARD td_status td__init_fill(const td_init *init, const td_shape *shape, uint64_t seed,
                                     const char *name, float *out);

/* Elements [at, at + n) of what td__init_fill gives a param of that name with TD_INIT_NORMAL, for
 * those that do not make all of it. */
void td__init_normals(uint64_t seed, const char *name, double std, uint64_t at, size_t n,
                      float *out);

#endif
