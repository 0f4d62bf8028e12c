/* xent.h -- cross entropies as actions of a kernel (kernels/softmax.cu). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CUDA_XENT_H
#define TD_BACKEND_CUDA_XENT_H

#include "backend/cuda/cuda.h"
#include "backend/cuda/kernels/rows.h"

td__xent_args td__cuda_xent_args(const td_attr_xent *at, int64_t rows, int64_t classes,
                                 td_dtype ids);
/* Losses and gradients of a->rows rows: xent_both. */
TD_NODISCARD td_status td__cuda_add_xent_both(td__cuda *b, td_kernel *k, const td__xent_args *a,
                                              td_dtype t, const td__cuda_bind *bind);

#endif
