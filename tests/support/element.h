/* element.h -- elements of tensors as numbers, for tests. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TESTS_SUPPORT_ELEMENT_H
#define TD_TESTS_SUPPORT_ELEMENT_H

#include "tandem/types.h"

/* Element i, in memory order, and back: rounded to the type, integers cut down. */
double element_get(td_dtype t, const void *data, int64_t i);
void element_set(td_dtype t, void *data, int64_t i, double v);

#endif
