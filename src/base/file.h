/* file.h -- whole files: mapped or copied for reading, and replaced as a whole when written. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BASE_FILE_H
#define TD_BASE_FILE_H

#include <stdbool.h>

#include "base/sha256.h"
#include "tandem/status.h"

/* A regular file, read-only. Small ones are copied: lists of hosts, logs and the like are edited
 * and cut while somebody reads them. Large ones are mapped: data and weights are replaced by
 * renaming, so that a mapping stays whole; who cuts one under its reader gets SIGBUS, as with any
 * mapping. */
typedef struct td__file_map {
    const uint8_t *data; /* not NULL, also for an empty file */
    size_t nbytes;
    size_t mapped; /* of memory; 0: none */
    bool copied;   /* into memory of ours, which is not the file's */
} td__file_map;

TD_NODISCARD td_status td__file_map_open(td__file_map *m, const char *path);
/* The same, always copied: for files that programs of others may cut while they are read, by a
 * process that is not to die of it. Nor of their size: TD_EINVAL beyond `most` bytes. */
TD_NODISCARD td_status td__file_map_copy(td__file_map *m, const char *path, size_t most);
void td__file_map_close(td__file_map *m); /* a zeroed struct is allowed */
/* Bytes [begin, begin + nbytes) will not be read again soon: they need no memory of ours. */
void td__file_map_forget(const td__file_map *m, size_t begin, size_t nbytes);

/* Is this errno about room: a full disk, a quota, or a limit on the size of files? */
bool td__disk_full(int error);

/* A file in the making. Errors are kept: write any number of times, look once, at commit.
 *
 *     TD_TRY(td__file_out_open(&f, path));
 *     td__file_out_write(&f, data, nbytes);
 *     return td__file_out_commit(&f);
 *
 * commit flushes, fsyncs, renames into place and fsyncs the directory; if anything failed, it
 * removes the temporary file, leaves the old one alone and returns the first error. */
typedef struct td__file_out {
    int fd;
    int error;       /* first errno; 0 for none */
    uint64_t offset; /* bytes written so far */
    size_t used;     /* bytes in buf */
    bool passing;    /* set after open: not fsynced, as it is written again before long */
    char *path, *temp;
    uint8_t *buf;
} td__file_out;

TD_NODISCARD td_status td__file_out_open(td__file_out *f, const char *path);
void td__file_out_write(td__file_out *f, const void *data, size_t nbytes);
TD_NODISCARD td_status td__file_out_commit(td__file_out *f);
void td__file_out_abandon(td__file_out *f); /* instead of commit; removes the temporary file */
/* A whole file at once. */
TD_NODISCARD td_status td__file_save(const char *path, const void *data, size_t nbytes);
/* A copy of a regular file that is open; `to` is whole or as it was. hash (may be NULL): of what is
 * copied. TD_EIO also if somebody cuts the file meanwhile; `name` is for the text of errors. */
TD_NODISCARD td_status td__file_copy_fd(int fd, const char *name, const char *to, td__sha256 *hash);

#endif
