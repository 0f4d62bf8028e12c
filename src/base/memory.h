/* memory.h -- what the operating system says that this process has of memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BASE_MEMORY_H
#define TD_BASE_MEMORY_H

#include "tandem/status.h"

typedef struct td__memory_use {
    size_t now, peak; /* bytes: resident; the most at once since the program started; 0: unknown */
} td__memory_use;

td__memory_use td__memory_read(void);

#endif
