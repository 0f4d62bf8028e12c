/* pool.h -- blocks of memory that are released late.
 *
 * A block that is given back stays here, idle, for the next request of its size. When more than a
 * threshold is idle, the blocks that have been so for longest are marked, and the next request
 * releases all marked ones that it does not take itself. So memory that is given back and asked for
 * again (programs of changing sizes, generations) costs no call to the system, and a process that
 * asks for nothing releases nothing in the middle of its work.
 *
 * Threads   All may use a pool. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_DEVICE_HOST_POOL_H
#define TD_DEVICE_HOST_POOL_H

#include "device/device.h"

typedef struct td__pool_blocks td__pool_blocks;
/* threshold: idle bytes. */
TD_NODISCARD td_status td__pool_blocks_create(size_t threshold, td__pool_blocks **out);
void td__pool_blocks_destroy(td__pool_blocks *p); /* all blocks are back; NULL is allowed */
/* Zero-filled, aligned to 64 bytes; NULL: no memory. */
void *td__pool_blocks_take(td__pool_blocks *p, size_t nbytes);
void td__pool_blocks_give(td__pool_blocks *p, void *block, size_t nbytes);
td__device_counters td__pool_blocks_count(td__pool_blocks *p);

#endif
