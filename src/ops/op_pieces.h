/* op_pieces.h -- where the pieces of a tensor lie in it (td_attr_pieces). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_OPS_OP_PIECES_H
#define TD_OPS_OP_PIECES_H

#include "ops/attr.h"

/* A piece, and its place in the whole: both are (outer, groups, n, inner), row-major, with n of
 * `group` in the whole, `count` in the piece, which has elements [begin, begin + count) of it.
 *
 * A whole that is packed has its pieces one behind the other, each row-major, so that what a rank
 * has of it is one range. Then a piece is (1, 1, n, inner), n all of its rows. */
typedef struct td__tensor_piece {
    int64_t outer, groups, group, begin, count, inner;
} td__tensor_piece;

td__tensor_piece td__piece_of(const td_attr_pieces *a, const td_shape *whole, int w);
/* Elements [*begin, *begin + the result) of a packed whole are those of pieces [w, w + n). */
int64_t td__pieces_range(const td_attr_pieces *a, const td_shape *whole, int w, int n,
                         int64_t *begin);

#endif
