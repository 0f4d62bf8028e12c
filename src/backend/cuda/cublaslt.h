/* cublaslt.h -- cuBLASLt, loaded when the backend is made. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CUDA_CUBLASLT_H
#define TD_BACKEND_CUDA_CUBLASLT_H

#include "backend/cuda/product.h"

/* The library for a device, with one holder more; NULL if it is not on this machine, which is said
 * once in the log. */
TD_NODISCARD td_status td__cublaslt_get(const td_device *d, td__cublaslt **out);
void td__cublaslt_release(td__cublaslt *lt); /* NULL is allowed */
/* "13.0.2", of the library that a backend of this process holds; "": none does. */
void td__cublaslt_held(char version[32]);
/* The one that would be loaded; "": none, or the build has no headers of it. */
void td__cublaslt_look(char version[32]);

/* As td__cuda_add_product(); TD_ENOTSUP without an error text: not this product. */
TD_NODISCARD td_status td__cublaslt_add(td__cuda *b, td_kernel *k, const td__cuda_product *p,
                                        size_t scratch);

#endif
