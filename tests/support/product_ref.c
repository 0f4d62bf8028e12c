/* product_ref.c -- see product_ref.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "support/product_ref.h"

#include <math.h>

#include "base/half.h"
#include "support/element.h"

void product_fill(uint32_t *seed, td_dtype dtype, bool round, int64_t count, void *data,
                  double *value)
{
    for (int64_t i = 0; i < count; i++) {
        *seed = *seed * 1664525u + 1013904223u;
        const float f = (float)(*seed >> 8) / (float)(1 << 23) - 1.0f;
        element_set(dtype, data, i, (double)f);
        value[i] = (double)(round ? td__bf16_to_f32(td__bf16_from_f32(f)) : f);
    }
}

double product_activate(td_act act, double x)
{
    switch (act) {
    case TD_ACT_RELU: return x > 0 ? x : 0;
    case TD_ACT_GELU: return 0.5 * x * (1 + erf(x / sqrt(2.0)));
    case TD_ACT_GELU_TANH:
        return 0.5 * x * (1 + tanh(sqrt(2 / acos(-1.0)) * (x + 0.044715 * x * x * x)));
    default: return x;
    }
}
