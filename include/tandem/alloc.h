/* tandem/alloc.h -- looking at the library's memory: counters, and failure on demand for tests.
 *
 * Threads   The counters are atomic and process-wide, as the heap is. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_ALLOC_H
#define TD_ALLOC_H

#include "tandem/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct td_alloc_stats {
    uint64_t calls;      /* allocations since the start of the process */
    uint64_t live;       /* allocations not yet freed */
    uint64_t live_bytes; /* bytes in them */
    uint64_t peak_bytes; /* most there ever were */
} td_alloc_stats;

TD_API td_alloc_stats td_alloc_get_stats(void);

/* The nth allocation from now (1 is the next) and all after it fail; 0 switches this off. */
TD_API void td_alloc_fail_at(uint64_t nth);

#ifdef __cplusplus
}
#endif
#endif
