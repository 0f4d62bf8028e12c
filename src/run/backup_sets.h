/* backup_sets.h -- whose work counted in each step of a run with backup workers or parameter
 * servers, and in which order ranks that are not in step applied each other's messages, as the
 * metrics.jsonl of the run tells: for a run that is to have the same bits. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_RUN_BACKUP_SETS_H
#define TD_RUN_BACKUP_SETS_H

#include "tandem/status.h"
#include "run/observer.h"

typedef struct td__backup_sets td__backup_sets;
/* TD_EINVAL if a step of the file says nothing about it, or names a rank of `ranks` or more, or if
 * the run was one on another number of ranks. */
TD_NODISCARD td_status td__backup_sets_read(const char *path, int ranks, td__backup_sets **out);
void td__backup_sets_destroy(td__backup_sets *s); /* NULL is allowed */
/* Into counted (by rank). TD_EINVAL if the file does not have this step. */
TD_NODISCARD td_status td__backup_sets_get(const td__backup_sets *s, uint64_t step, bool *counted);
/* TD_EINVAL if the run was resumed, where work that was under way was left, which the file does not
 * tell; or has fewer than `steps` (0: not known), and did not stop early. Of orders: also if its
 * ranks did not meet there. */
TD_NODISCARD td_status td__backup_sets_check_whole(const td__backup_sets *s, uint64_t steps);

/* The same file, for the order of messages (td__order_event) of each rank. TD_EINVAL if the run was
 * one with another sync rule, or not all ranks tell of the same meetings. */
TD_NODISCARD td_status td__backup_sets_read_orders(const char *path, int ranks, const char *rule,
                                                   td__backup_sets **out);
const int32_t *td__backup_sets_order(const td__backup_sets *s, int rank, size_t *n);

/* Ranks of the run of that metrics.jsonl; TD_EINVAL: more than a run can have. */
TD_NODISCARD td_status td__backup_sets_ranks(const char *path, int *out);

#endif
