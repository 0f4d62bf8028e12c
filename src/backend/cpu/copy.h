/* copy.h -- copying a box of elements of any type between two strided places: what permute, slice,
 * concat, pad and expand all are. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CPU_COPY_H
#define TD_BACKEND_CPU_COPY_H

#include "tandem/types.h"

/* Steps and firsts count elements of `size` bytes (1, 2, 4 or 8). A `from` step of 0 repeats. */
typedef struct td__copy {
    int ndim;
    int64_t dim[TD_MAX_DIMS];
    int64_t to[TD_MAX_DIMS], from[TD_MAX_DIMS];
    int64_t to_first, from_first;
    size_t size;
} td__copy;

/* Merge axes that step alike on both sides; do this once, before copies. */
void td__copy_simplify(td__copy *c);
void td__copy_run(const td__copy *c, void *to, const void *from);

#endif
