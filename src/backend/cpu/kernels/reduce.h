/* reduce.h -- sums, means and maxima over any axes of f32, bf16 and f16 tensors.
 *
 * Neighbouring axes of one kind (kept, reduced) are merged first. Then either the last axis is
 * reduced, and each result is built from whole runs of memory; or it is kept, and rows are added up
 * column by column, a block of columns at a time. Both orders are fixed. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CPU_KERNELS_REDUCE_H
#define TD_BACKEND_CPU_KERNELS_REDUCE_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/cpu/isa.h"
#include "tandem/types.h"

/* Axes walked by one of the two outer loops, sizes and steps in elements, the last one fastest. */
typedef struct td__axes {
    int n;
    int64_t dim[TD_MAX_DIMS], step[TD_MAX_DIMS];
} td__axes;

typedef struct td__reduce {
    td__axes kept, reduced; /* all but the last axis */
    bool last_reduced;
    int64_t last; /* size of the last axis */
    td_dtype in, out;
    float scale; /* of the result: 1/n for means */
    bool is_max;
} td__reduce;

typedef void td__reduce_fn(const td__reduce *p, void *y, const void *x);
TD_ISA_DECLARE(void, td__reduce, (const td__reduce *p, void *y, const void *x));

#endif
