/* mesh_inproc.h -- ranks as threads of one process: for tests and for training on threads. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_NET_MESH_INPROC_H
#define TD_NET_MESH_INPROC_H

#include "net/mesh.h"

/* All ranks at once: out[0..size), each to be driven by one thread and destroyed by itself. */
TD_NODISCARD td_status td__mesh_inproc_create(int size, td__mesh **out);

#endif
