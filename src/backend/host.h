/* host.h -- what backends that compute in host memory share: its allocation, and the table of
 * backends by name. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_HOST_H
#define TD_BACKEND_HOST_H

#include "graph/backend.h"

/* td_backend_ops.alloc and .free on td__alloc_block. */
TD_NODISCARD td_status td__host_alloc(td_backend *b, size_t nbytes, void **out);
void td__host_free(td_backend *b, void *p, size_t nbytes);

/* One constructor per backend. */
TD_NODISCARD td_status td__cpu_create(td_backend **out);
TD_NODISCARD td_status td__ref_create(td_backend **out);
TD_NODISCARD td_status td__null_create(td_backend **out);

#endif
