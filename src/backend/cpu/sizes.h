/* sizes.h -- small arithmetic on sizes that planners share, and the laying out of scratch. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CPU_SIZES_H
#define TD_BACKEND_CPU_SIZES_H

#include "base/check.h"

static inline int64_t td__min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline size_t td__max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* The offset of the next nbytes of a block, of which *used are taken (0 at first). Parts begin at
 * multiples of 64. */
static inline size_t td__take(size_t *used, size_t nbytes)
{
    size_t offset = *used;
    *used = td__align_up(offset + nbytes, 64);
    return offset;
}

#endif
