/* blend.h -- weighted sums of blocks: how gradients of micro-batches are added.
 *
 * Compiled once per instruction set (base/isa.h), without fused products: every set gives the same
 * bits, for any slicing. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BASE_KERNELS_BLEND_H
#define TD_BASE_KERNELS_BLEND_H

#include <stddef.h>

#include "base/isa.h"

/* y = a y + b x; the arrays do not overlap. */
TD_ISA_DECLARE(void, td__blend, (float *y, float a, const float *x, float b, size_t n));
/* z = a y + b x; z overlaps neither. */
TD_ISA_DECLARE(void, td__blended,
               (float *z, const float *y, float a, const float *x, float b, size_t n));
/* y = b x */
TD_ISA_DECLARE(void, td__scaled_copy, (float *y, const float *x, float b, size_t n));
/* The same, past the caches, for memory that others will read: it is there for them as soon as
 * something else is that was written later. */
TD_ISA_DECLARE(void, td__scaled_stream, (float *y, const float *x, float b, size_t n));

#endif
