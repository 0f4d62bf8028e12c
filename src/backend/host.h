/* host.h -- what backends that compute with the processor's own kernels share: the object itself,
 * a thread that is left as it is; and the constructors behind the table of names. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_HOST_H
#define TD_BACKEND_HOST_H

#include "graph/backend.h"
#include "graph/backend_auto.h"

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

/* One constructor per backend; and the GPUs of those that have some. */
#define TD_BACKEND(name, ...) TD_NODISCARD td_status td__##name##_create(td_backend **out);
#define TD_BACKEND_INNER TD_BACKEND
#include "backend/backends.def"
#undef TD_BACKEND_INNER
#undef TD_BACKEND
extern const td__gpus td__cuda_gpus;

#endif
