/* col_sum.h -- sums over the rows of a matrix: the gradient of a bias. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CPU_KERNELS_COL_SUM_H
#define TD_BACKEND_CPU_KERNELS_COL_SUM_H

#include <stdint.h>

#include "backend/cpu/isa.h"
#include "tandem/types.h"

/* y (cols) = sum over r of x (rows, cols), x f32 or bf16, dense. Runs of rows are summed first and
 * then added up, so that errors do not grow with all of the rows. */
TD_ISA_DECLARE(void, td__col_sum,
               (float *y, const void *x, td_dtype dtype, int64_t rows, int64_t cols));

#endif
