/* pool.h -- blocks of memory that are released late.
 *
 * A block that is given back stays here, idle, for the next request of its size. When more than a
 * threshold is idle, the blocks that have been so for longest are marked, and the next request
 * releases all marked ones that it does not take itself. So memory that is given back and asked for
 * again (programs of changing sizes, generations) costs no call to the system, and a process that
 * asks for nothing releases nothing in the middle of its work.
 *
 * Where blocks come from is a td__pool_source: the process's memory, or a GPU's.
 *
 * Threads   All may use a pool. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_DEVICE_POOL_H
#define TD_DEVICE_POOL_H

#include "device/device.h"

/* What a pool does with the memory behind its blocks. */
typedef struct td__pool_source {
    void *(*alloc)(void *user, size_t nbytes); /* zero-filled, aligned to 64 bytes; NULL: none */
    void (*free)(void *user, void *block, size_t nbytes); /* an idle block */
    /* (optional) A block becomes idle; it is taken again: false, it cannot be. */
    void (*park)(void *user, void *block, size_t nbytes);
    bool (*unpark)(void *user, void *block, size_t nbytes);
    bool (*zero)(void *user, void *block, size_t nbytes); /* false: a failure of the device */
} td__pool_source;

typedef struct td__pool_blocks td__pool_blocks;
/* threshold: idle bytes. user: first argument of the source's functions. */
TD_NODISCARD td_status td__pool_blocks_create(size_t threshold, const td__pool_source *source,
                                              void *user, td__pool_blocks **out);
void td__pool_blocks_destroy(td__pool_blocks *p); /* all blocks are back; NULL is allowed */
/* Zero-filled, aligned to 64 bytes; NULL: no memory. */
void *td__pool_blocks_take(td__pool_blocks *p, size_t nbytes);
void td__pool_blocks_give(td__pool_blocks *p, void *at, size_t nbytes);
td__device_counters td__pool_blocks_count(td__pool_blocks *p);

/* The process's memory (base/alloc.h). */
extern const td__pool_source td__pool_host;

#endif
