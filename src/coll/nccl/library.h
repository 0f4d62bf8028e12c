/* library.h -- what is used of NCCL, 2.17 or later, which is loaded when it is first asked for. Its
 * types are written out, so that no header of it is needed to build. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_COLL_NCCL_LIBRARY_H
#define TD_COLL_NCCL_LIBRARY_H

#include <stddef.h>

#include "tandem/status.h"

enum { TD_NCCL_SUCCESS = 0, TD_NCCL_IN_PROGRESS = 7 }; /* results */
enum { TD_NCCL_U8 = 1, TD_NCCL_F32 = 7, TD_NCCL_SUM = 0 };

typedef struct td__nccl_id {
    char bytes[128];
} td__nccl_id;

/* The fields that version 2.17 has; NCCL takes the size as it is. */
typedef struct td__nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking, cluster, min_blocks, max_blocks;
    const char *network;
} td__nccl_config;
#define TD_NCCL_UNSET (-2147483647 - 1)
#define TD_NCCL_CONFIG                                                                         \
    {                                                                                          \
        .size = sizeof(td__nccl_config), .magic = 0xcafebeef, .version = 21700, .blocking = 0, \
        .cluster = TD_NCCL_UNSET, .min_blocks = TD_NCCL_UNSET, .max_blocks = TD_NCCL_UNSET     \
    }

/* name, arguments: all return a result but GetErrorString. */
#define TD_NCCL_MAP(X)                                                                           \
    X(GetVersion, int, (int *version))                                                           \
    X(GetErrorString, const char *, (int result))                                                \
    X(GetUniqueId, int, (td__nccl_id * id))                                                      \
    X(CommInitRankConfig, int,                                                                   \
      (void **comm, int ranks, td__nccl_id id, int rank, td__nccl_config *config))               \
    X(CommGetAsyncError, int, (void *comm, int *result))                                         \
    X(CommAbort, int, (void *comm))                                                              \
    X(GroupStart, int, (void))                                                                   \
    X(GroupEnd, int, (void))                                                                     \
    X(Send, int, (const void *from, size_t n, int type, int peer, void *comm, void *stream))     \
    X(Recv, int, (void *to, size_t n, int type, int peer, void *comm, void *stream))             \
    X(AllGather, int, (const void *in, void *out, size_t n, int type, void *comm, void *stream)) \
    X(AllReduce, int,                                                                            \
      (const void *in, void *out, size_t n, int type, int op, void *comm, void *stream))

typedef struct td__nccl_api {
#define X(name, type, args) type(*name) args;
    TD_NCCL_MAP(X)
#undef X
    int version; /* 22803: 2.28.3 */
} td__nccl_api;

/* The library of the process, never unloaded. TD_ENOTSUP: there is none, or it is too old. */
TD_NODISCARD td_status td__nccl_load(const td__nccl_api **out);

#endif
