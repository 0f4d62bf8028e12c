/* unnamed_file.h -- files without a name: what does not fit in memory is put there, and they go
 * with their descriptor, also if the process is killed. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BASE_UNNAMED_FILE_H
#define TD_BASE_UNNAMED_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* $TMPDIR, or /tmp. */
const char *td__temp_dir(void);
/* A file in `folder` (NULL: td__temp_dir()), to read and write; -1: errno says why not. */
int td__unnamed_open(const char *folder);
/* All bytes to a place in the file, or from it. false: errno says why not; 0: the file is short. */
bool td__unnamed_put(int fd, uint64_t at, const void *data, size_t nbytes);
bool td__unnamed_get(int fd, uint64_t at, void *data, size_t nbytes);

#endif
