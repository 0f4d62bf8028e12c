/* convert.h -- whole arrays between f32 and the 16-bit types. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CPU_KERNELS_CONVERT_H
#define TD_BACKEND_CPU_KERNELS_CONVERT_H

#include <stdint.h>

#include "backend/cpu/isa.h"
#include "base/half.h"

TD_ISA_DECLARE(void, td__bf16_to_f32_array, (float *y, const td_bf16 *x, int64_t n));
TD_ISA_DECLARE(void, td__f32_to_bf16_array, (td_bf16 * y, const float *x, int64_t n));

#endif
