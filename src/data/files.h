/* files.h -- the files of a source: their names, and opening them with texts that help.
 *
 * A file that is missing, is a folder, or cannot be looked at is TD_EINVAL, one line with the path
 * and what to get. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_DATA_FILES_H
#define TD_DATA_FILES_H

#include "base/file.h"
#include "data/source.h"

enum { TD__PATH = 4096 };

/* dir/name, or name alone if it is absolute or there is no dir. */
TD_NODISCARD td_status td__data_path(const char *dir, const char *name, char path[TD__PATH]);
bool td__is_file(const char *path); /* a regular file, or a link to one */

/* The file that the options name for a part ("train": o->train). NULL: TD_ENOTSUP, and for train
 * TD_EINVAL with `expected`, which says what the file should be. */
TD_NODISCARD td_status td__part_file(const char *source, const td__source_opts *o, const char *part,
                                     const char *expected, const char **name);

/* Map a file read-only; `expected` ends the text when it is not there ("get ... "). */
TD_NODISCARD td_status td__data_map(const char *path, const char *expected, td__file_map *m);

/* The first `want` bytes of what gzip data holds; *got says how many there were, less only at the
 * end. TD_EPROTO if the data is damaged. */
TD_NODISCARD td_status td__gunzip(const uint8_t *data, size_t nbytes, const char *where,
                                  uint8_t *out, size_t want, size_t *got);
static inline bool td__is_gzip(const uint8_t *data, size_t nbytes)
{
    return nbytes >= 2 && data[0] == 0x1f && data[1] == 0x8b;
}
enum { TD__GZIP_MOST = 1040 }; /* deflate never makes more bytes of one than this */

#endif
