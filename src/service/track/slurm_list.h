/* slurm_list.h -- what squeue said of all our jobs, for all groups at once: one call a second
 * however many groups there are. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_SERVICE_TRACK_SLURM_LIST_H
#define TD_SERVICE_TRACK_SLURM_LIST_H

#include "base/text.h"

typedef struct td__slurm_list td__slurm_list;

/* ask: lines of "NAME|STATE|REASON|ID", one for each job; may block, and is called by one thread at
 * a time. now: a clock, in ns. */
TD_NODISCARD td_status td__slurm_list_create(td_status (*ask)(void *arg, td__text *out),
                                             uint64_t (*now)(void), void *arg,
                                             td__slurm_list **out);
void td__slurm_list_destroy(td__slurm_list *s); /* NULL is allowed */
/* "STATE|REASON|ID" of the job of that name; empty: Slurm does not know it. Not older than a
 * second, nor than the last td__slurm_list_changed(). From any thread. */
TD_NODISCARD td_status td__slurm_list_find(td__slurm_list *s, const char *name, td__text *out);
/* A job was submitted or cancelled: what was said before is old. */
void td__slurm_list_changed(td__slurm_list *s);

#endif
