/* element.c -- see element.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "support/element.h"

#include "base/half.h"

double element_get(td_dtype t, const void *data, int64_t i)
{
    switch (t) {
    case TD_F32: return (double)((const float *)data)[i];
    case TD_BF16: return (double)td__bf16_to_f32(((const td_bf16 *)data)[i]);
    case TD_F16: return (double)td__f16_to_f32(((const td_f16 *)data)[i]);
    case TD_F64: return ((const double *)data)[i];
    case TD_I32: return (double)((const int32_t *)data)[i];
    case TD_I64: return (double)((const int64_t *)data)[i];
    case TD_U8:
    case TD_BOOL: return (double)((const uint8_t *)data)[i];
    case TD_DTYPE_COUNT: break;
    }
    return 0;
}

void element_set(td_dtype t, void *data, int64_t i, double v)
{
    switch (t) {
    case TD_F32: ((float *)data)[i] = (float)v; break;
    case TD_BF16: ((td_bf16 *)data)[i] = td__bf16_from_f32((float)v); break;
    case TD_F16: ((td_f16 *)data)[i] = td__f16_from_f32((float)v); break;
    case TD_F64: ((double *)data)[i] = v; break;
    case TD_I32: ((int32_t *)data)[i] = (int32_t)v; break;
    case TD_I64: ((int64_t *)data)[i] = (int64_t)v; break;
    case TD_U8: ((uint8_t *)data)[i] = (uint8_t)v; break;
    case TD_BOOL: ((uint8_t *)data)[i] = v != 0; break;
    case TD_DTYPE_COUNT: break;
    }
}
