/* tree_memory.h -- how much memory processes and their descendants have, as /proc tells it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_SERVICE_TRACK_TREE_MEMORY_H
#define TD_SERVICE_TRACK_TREE_MEMORY_H

#include <sys/types.h>

#include "tandem/status.h"

/* nbytes[i]: of roots[i] (0: none, 0 bytes), of what descends from it, and of what is in its
 * process group. Pages that several processes share count in parts (Pss), those of the page cache
 * that nobody maps do not. Looked at one after another: a sum of moments. */
TD_NODISCARD td_status td__tree_memory(const pid_t *roots, int n, uint64_t *nbytes);

#endif
