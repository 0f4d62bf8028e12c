/* reduce.h -- the inner loops of reductions, once per instruction set (base/isa.h), without fused
 * products: an element gets the same bits from any set. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_COLL_KERNELS_REDUCE_H
#define TD_COLL_KERNELS_REDUCE_H

#include "base/isa.h"
#include "tandem/coll.h"

/* out[i] = op over part[0..n)[i] in the tree of td__reduce_tree, for n of 2, 3, 4 and 8. out may be
 * one of the parts. */
TD_ISA_DECLARE(void, td__reduce_k,
               (void *out, const void *const *part, int n, size_t count, td_dtype dtype,
                td_reduce_op op));
/* x[i] /= by; integers are cut towards zero. */
TD_ISA_DECLARE(void, td__divide_k, (void *x, size_t count, td_dtype dtype, int by));

#endif
