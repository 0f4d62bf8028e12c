/* product_ref.h -- what tests of matrix products share: random factors whose values are known as
 * doubles, and activations in double. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TESTS_SUPPORT_PRODUCT_REF_H
#define TD_TESTS_SUPPORT_PRODUCT_REF_H

#include <stdbool.h>

#include "tandem/ops.h"

/* Random numbers of [-1, 1) as f32 or bf16, advancing *seed. value[]: what the product sees, which
 * is rounded to bf16 with `round`. */
void product_fill(uint32_t *seed, td_dtype dtype, bool round, int64_t count, void *data,
                  double *value);

double product_activate(td_act act, double x);

#endif
