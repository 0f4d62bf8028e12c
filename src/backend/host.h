/* host.h -- what backends that compute with the processor's own kernels share: the object itself,
 * a thread that is left as it is; and the constructors behind the table of names. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_HOST_H
#define TD_BACKEND_HOST_H

#include "graph/backend.h"

/* A zeroed object of `size` bytes that begins with a td_backend of these ops; freed by destroy. */
TD_NODISCARD td_status td__host_create(const td_backend_ops *ops, size_t size, td_backend **out);
/* The same, on a device of this name instead of the ops'. */
TD_NODISCARD td_status td__host_create_on(const td_backend_ops *ops, size_t size,
                                          const char *device, td_backend **out);

/* The entries of td_backend_ops that need nothing special. */

void td__host_destroy(td_backend *b);
/* enter and leave: the thread needs no preparation. */
void td__host_enter(td_backend *b, unsigned *saved);
void td__host_leave(td_backend *b, unsigned saved);

/* One constructor per backend. */
TD_NODISCARD td_status td__cpu_create(td_backend **out);
TD_NODISCARD td_status td__ref_create(td_backend **out);
TD_NODISCARD td_status td__null_create(td_backend **out);
TD_NODISCARD td_status td__far_create(td_backend **out);
TD_NODISCARD td_status td__cuda_create(td_backend **out);
TD_NODISCARD td_status td__cuda_create_on(const char *device, td_backend **out); /* "cuda:1" */
/* ", cuBLASLt 13.1.0, cuDNN 9.19.0": those that backends of this process hold. */
void td__cuda_libraries(char *out, size_t room);

#endif
