/* file_below.h -- files in directories that somebody else may write to, such as those of jobs: a
 * symbolic link there may lead anywhere, and a FIFO makes its reader wait. Nothing here follows a
 * link below `dir`, waits, or opens anything but regular files.
 *
 * A name is relative: parts that are empty, "." or ".." are refused with EINVAL. Errors: -1 and
 * errno; ELOOP or ENOTDIR for a link, ENXIO for what is no regular file. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BASE_FILE_BELOW_H
#define TD_BASE_FILE_BELOW_H

#include <sys/types.h>

/* flags: O_RDONLY, O_WRONLY | O_CREAT | O_APPEND and the like; O_CLOEXEC is added. */
int td__file_open_plain(const char *path, int flags, mode_t mode);
/* The same of `name` below `dir`: links in the path of `dir` itself are followed. */
int td__file_open_below(const char *dir, const char *name, int flags, mode_t mode);
/* Renames the file `from` to `name` below `dir`, with the directories that it needs, and makes it
 * durable. 0, or errno. */
int td__file_place_below(const char *dir, const char *name, const char *from);

#endif
