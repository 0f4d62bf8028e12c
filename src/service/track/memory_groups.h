/* memory_groups.h -- the kernel's limit on the memory of a group's members: a control group for
 * each, made below the one that this process is in, where it may (Linux cgroups, version 1 or 2).
 */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_SERVICE_TRACK_MEMORY_GROUPS_H
#define TD_SERVICE_TRACK_MEMORY_GROUPS_H

#include <stdbool.h>
#include <stdint.h>

#include "tandem/status.h"

typedef struct td__memory_groups td__memory_groups;

/* "tandem-TOKEN-MEMBER" for each member, with at most `limit` bytes. TD_ENOTSUP: this machine has
 * no such groups for us, and the last error says why; *out is NULL then. */
TD_NODISCARD td_status td__memory_groups_create(const char *token, int members, uint64_t limit,
                                                td__memory_groups **out);
/* What this process starts between the two is in the member's group, and all that descends from it.
 * g NULL: nothing happens. */
void td__memory_groups_enter(td__memory_groups *g, int member);
void td__memory_groups_leave(td__memory_groups *g);
/* The most that the member has had, bytes, if the kernel has killed a process of its for memory
 * since this was last asked; else 0. */
uint64_t td__memory_groups_killed(td__memory_groups *g, int member);
/* The groups go, unless something still runs in them. */
void td__memory_groups_destroy(td__memory_groups *g);
/* Those that a killed process has left of this token. */
void td__memory_groups_sweep(const char *token);

#endif
