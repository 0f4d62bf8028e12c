/* files.c -- the files of a source; see files.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "data/files.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

#include "base/alloc.h"
#include "base/fail.h"

td_status td__data_path(const char *dir, const char *name, char path[TD__PATH])
{
    bool bare = !dir || !*dir || name[0] == '/';
    int n = snprintf(path, TD__PATH, "%s%s%s", bare ? "" : dir, bare ? "" : "/", name);

    if (n < 0 || n >= TD__PATH)
        return TD_FAIL(TD_EINVAL, "the path of a data file is longer than %d bytes", TD__PATH);
    return TD_OK;
}

bool td__is_file(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

td_status td__part_file(const char *source, const td__source_opts *o, const char *part,
                        const char *expected, const char **name)
{
    *name = strcmp(part, "train") == 0   ? o->train
            : strcmp(part, "valid") == 0 ? o->valid
            : strcmp(part, "test") == 0  ? o->test
                                         : NULL;
    if (*name)
        return TD_OK;
    if (strcmp(part, "train") == 0)
        return TD_FAIL(TD_EINVAL, "%s: no file is named: set data.train to %s", source, expected);
    return TD_FAIL(TD_ENOTSUP, "%s: no file for part %s", source, part);
}

td_status td__data_map(const char *path, const char *expected, td__file_map *m)
{
    struct stat info;

    *m = (td__file_map){0};
    if (stat(path, &info) != 0)
        return TD_FAIL(TD_EINVAL, "%s: %s; expected %s", path, strerror(errno), expected);
    if (!S_ISREG(info.st_mode))
        return TD_FAIL(TD_EINVAL, "%s: %s; expected %s", path,
                       S_ISDIR(info.st_mode) ? "is a directory" : "not a regular file", expected);
    return td__file_map_open(m, path);
}

td_status td__gunzip(const uint8_t *data, size_t nbytes, const char *where, uint8_t *out,
                     size_t want, size_t *got)
{
    z_stream z = {0};
    size_t in_at = 0, out_at = 0;
    int rc = Z_OK;

    *got = 0;
    if (inflateInit2(&z, 15 + 16) != Z_OK) /* 16: with gzip's header */
        return TD_FAIL(TD_ENOMEM, "%s: no memory to decompress it", where);
    while (rc == Z_OK && out_at < want) {
        size_t in_left = nbytes - in_at, out_left = want - out_at;
        z.next_in = (Bytef *)(uintptr_t)(data + in_at);
        z.avail_in = in_left > INT_MAX ? INT_MAX : (uInt)in_left;
        z.next_out = out + out_at;
        z.avail_out = out_left > INT_MAX ? INT_MAX : (uInt)out_left;
        rc = inflate(&z, Z_NO_FLUSH);
        in_at = (size_t)(z.next_in - data);
        out_at = (size_t)(z.next_out - out);
    }
    inflateEnd(&z);
    if (out_at < want && rc != Z_STREAM_END)
        return TD_FAIL(TD_EPROTO, "%s: damaged or truncated: decompression stops after %zu bytes",
                       where, out_at);
    *got = out_at;
    return TD_OK;
}
