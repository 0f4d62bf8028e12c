/* strided.h -- walking over strided elements; shared inside the tensor layer. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TENSOR_STRIDED_H
#define TD_TENSOR_STRIDED_H

#include "tandem/tensor.h"

/* Row-major strides of a valid shape (all 0 if it is empty). */
void td__row_major(const td_shape *shape, int64_t *stride);

/* td_tensor_copy after its checks: equal shapes, known dtypes, no overlap. Pointers and strides
 * need not be aligned to the element. */
void td__strided_copy(td_tensor *to, const td_tensor *from);

#endif
