/* reorder.h -- transposes of matrices of 1-, 2-, 4- or 8-byte elements: y (cols, rows) from
 * x (rows, cols). An image tensor changes layout by one per sample. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CPU_KERNELS_REORDER_H
#define TD_BACKEND_CPU_KERNELS_REORDER_H

#include <stddef.h>
#include <stdint.h>

#include "backend/cpu/isa.h"

TD_ISA_DECLARE(void, td__transpose,
               (void *y, const void *x, int64_t rows, int64_t cols, size_t element_bytes));

#endif
