/* run_lock.h -- one job at a time writes into a run's directory.
 *
 * The lock belongs to a job, not to a process: all its ranks hold it, and the directory is free
 * when the last of them is gone. So a job whose rank 0 dies keeps its directory while another rank
 * takes over, and nobody else can come in between.
 *
 * It is the file DIR/.lock, which holds the mark of the job. Every holder has a read lock on it
 * (open file description locks: released by the kernel however a process ends). A process that gets
 * a write lock is alone: it writes its mark and turns the lock into a read lock, which is one
 * operation. One that gets only a read lock compares the mark with its own. Where the file system
 * has no locks, nothing is locked. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_RUN_RUN_LOCK_H
#define TD_RUN_RUN_LOCK_H

#include "base/deadline.h"
#include "tandem/status.h"

#define TD__RUN_LOCK_FILE ".lock"

/* Take the lock of `dir` for the job that `mark` names (at most 64 characters, without a newline;
 * NULL: this process alone). TD_EINVAL if another job still holds it when `until` has passed. *fd
 * is the lock, closed to give it up; -1 on failure. */
TD_NODISCARD td_status td__run_lock_take(const char *dir, const char *mark, td__deadline until,
                                         int *fd);
/* Does a job hold it? Looking does not disturb anybody. */
bool td__run_lock_held(const char *dir);

#endif
