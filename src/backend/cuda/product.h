/* product.h -- matrix products as actions of a kernel: by cuBLASLt where it is there and takes the
 * operands, else by our own kernel (kernels/product.cu). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CUDA_PRODUCT_H
#define TD_BACKEND_CUDA_PRODUCT_H

#include "backend/cuda/cuda.h"

/* c (m, n) = act(a (m, k) b (k, n) + bias (n)) + residual, or times the slope of act at slope_at;
 * see kernels/product.h. a and b have one type; the others have c's. */
typedef struct td__cuda_product {
    int64_t m, n, k;
    td__cuda_at a, b, c, pre, bias, residual, slope_at;
    int64_t a_row, a_col, b_row, b_col;
    int n_batch;
    int64_t batch[TD_MAX_DIMS], a_step[TD_MAX_DIMS], b_step[TD_MAX_DIMS];
    td_dtype in, out;
    td_act act;
    int align; /* of all operands in bytes; 0: 64 */
} td__cuda_product;

/* Scratch may be used from `scratch` on; the kernel's is raised to what is wanted. */
TD_NODISCARD td_status td__cuda_add_product(td__cuda *b, td_kernel *k, const td__cuda_product *p,
                                            size_t scratch);

/* Input i (f32, count elements) as the products take it beside `t`: itself, or rounded to bf16,
 * once after each change of the params where it is one. *packed and *scratch are the bytes taken so
 * far of that memory. */
TD_NODISCARD td_status td__cuda_add_weight(td__cuda *b, td_kernel *k, int i, bool is_param,
                                           td_dtype t, size_t *scratch, td__cuda_at *out);

#endif
