/* op_pieces.h -- where the pieces of a tensor lie in it (td_attr_pieces). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_OPS_OP_PIECES_H
#define TD_OPS_OP_PIECES_H

#include "ops/attr.h"

/* A piece, and its place in the whole: both are (outer, groups, n, inner), row-major, with n of
 * `group` in the whole, `count` in the piece, which has elements [begin, begin + count) of it. */
typedef struct td__tensor_piece {
    int64_t outer, groups, group, begin, count, inner;
} td__tensor_piece;

td__tensor_piece td__piece_of(const td_attr_pieces *a, const td_shape *whole, int w);
td_shape td__piece_shape(const td_attr_pieces *a, const td_shape *whole, int w);

#endif
