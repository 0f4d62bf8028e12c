/* export_impl.h -- what both forms share: the walk over the graph. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_EXPORT_EXPORT_IMPL_H
#define TD_EXPORT_EXPORT_IMPL_H

#include "base/text.h"
#include "export/export.h"
#include "ops/attr.h"
#include "ops/node.h"

/* The nodes that the output needs, in order; freed by the caller. */
typedef struct td__export_node {
    const td_node *n, *other;
} td__export_node;
TD_NODISCARD td_status td__export_walk(const td__export *e, td__export_node **out, int *count);

/* Does size `axis` of output 0 follow from the number of rows? */
static inline bool td__export_open(const td__export_node *x, int axis)
{
    return x->n->out[0].shape.dim[axis] != x->other->out[0].shape.dim[axis];
}
/* The shape as a target of reshaping: -1 where it is open; an error if that is more than one. */
TD_NODISCARD td_status td__export_target(const td__export_node *x, int64_t dims[TD_MAX_DIMS]);
/* The values of a leaf, f32: of a param or state. */
TD_NODISCARD td_status td__export_weight(const td__export *e, const td_node *leaf, td_tensor *out);
/* Of a recurrent node that begins with zeros: the product x w_ih' + b_ih that it reads, which is
 * part of it elsewhere; NULL: it is another one. */
const td_node *td__export_recurrent(const td_node *n);
/* Of an embedding_bag whose bags have one length: that; 0: they have not. */
int64_t td__export_bag_length(const td_node *n);
TD_NODISCARD td_status td__export_refuse(const td_node *n, const char *format);

#endif
