/* remote_file.c -- the calls of remote.h for files and folders. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/file.h"
#include "remote/remote_impl.h"

enum { DEEPEST = 32 };

/* 404 where there is nothing, as a server says it. */
static void note_absent(td__remote *r, const char *path)
{
    r->status = access(path, F_OK) == 0 || errno != ENOENT ? 0 : 404;
}

td_status td__file_get(td__remote *r, const char *path, size_t max_nbytes, td__text *out)
{
    td__file_map m;
    struct stat s;

    note_absent(r, path);
    if (stat(path, &s) == 0 && (uint64_t)s.st_size > max_nbytes)
        return TD_FAIL(TD_EPROTO, "%s: it is longer than %zu bytes", path, max_nbytes);
    TD_TRY(td__file_map_copy(&m, path, max_nbytes));
    td__text_append(out, (const char *)m.data, m.nbytes);
    td__file_map_close(&m);
    return td__text_status(out);
}

/* The folders above a file, as a bucket has them by itself. */
static td_status make_folders(const char *path)
{
    char folder[TD__URL_BYTES];

    snprintf(folder, sizeof folder, "%s", path);
    for (char *c = folder + 1; *c; c++)
        if (*c == '/') {
            *c = '\0';
            if (mkdir(folder, 0777) != 0 && errno != EEXIST)
                return TD_FAIL(TD_EIO, "%s: cannot create it: %s", folder, strerror(errno));
            *c = '/';
        }
    return TD_OK;
}

td_status td__file_put(const char *path, const void *data, size_t nbytes)
{
    td__file_out f;

    TD_TRY(make_folders(path));
    TD_TRY(td__file_out_open(&f, path));
    td__file_out_write(&f, data, nbytes);
    return td__file_out_commit(&f);
}

td_status td__file_copy(int fd, const char *from, const char *to, char hex[TD_SHA256_HEX])
{
    uint8_t digest[TD_SHA256_BYTES];
    td__sha256 hash;

    TD_TRY(make_folders(to));
    TD_TRY(td__sha256_init(&hash));
    td_status st = td__file_copy_fd(fd, from, to, &hash);
    td__sha256_final(&hash, digest);
    td__sha256_hex(digest, hex);
    return st;
}

td_status td__file_fetch(td__remote *r, const char *from, const char *to, const char *sha256)
{
    char hex[TD_SHA256_HEX];

    note_absent(r, from);
    int fd = open(from, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat s;
    if (fd < 0)
        return TD_FAIL(TD_EIO, "%s: cannot open: %s", from, strerror(errno));
    td_status st = TD_OK;
    if (sha256 && fstat(fd, &s) == 0 && S_ISREG(s.st_mode)) {
        st = td__sha256_fd(fd, 0, (uint64_t)s.st_size, from, hex);
        if (!st && strcmp(hex, sha256) != 0) /* before it takes the place of another */
            st = TD_FAIL(TD_EPROTO, "%s: its sha256 is %.12s..., and should be %.12s...", from, hex,
                         sha256);
    }
    if (!st)
        st = td__file_copy(fd, from, to, hex);
    close(fd);
    return st;
}

td_status td__file_delete(const char *path)
{
    if (unlink(path) != 0 && errno != ENOENT)
        return TD_FAIL(TD_EIO, "%s: cannot remove it: %s", path, strerror(errno));
    return TD_OK;
}

/* Files below root/name; names are relative to root. */
static td_status walk(const char *root, const char *name, int depth, td__remote_each each,
                      void *user, bool *more)
{
    char folder[TD__URL_BYTES], path[TD__URL_BYTES], below[TD__URL_BYTES];
    struct stat s;
    td_status st = TD_OK;

    if (depth > DEEPEST)
        return TD_FAIL(TD_EINVAL, "%s: folders are nested too deeply", root);
    snprintf(folder, sizeof folder, "%s%s%s", root, name[0] ? "/" : "", name);
    DIR *d = opendir(folder);
    if (!d && errno == ENOENT)
        return TD_OK;
    if (!d)
        return TD_FAIL(TD_EIO, "%s: cannot read it: %s", folder, strerror(errno));
    for (const struct dirent *e; *more && !st && (e = readdir(d));) {
        int n = snprintf(below, sizeof below, "%s%s%s", name, name[0] ? "/" : "", e->d_name);
        int m = snprintf(path, sizeof path, "%s/%s", root, below);
        if (e->d_name[0] == '.' || n >= (int)sizeof below || m >= (int)sizeof path ||
            lstat(path, &s) != 0)
            continue;
        if (S_ISDIR(s.st_mode))
            st = walk(root, below, depth + 1, each, user, more);
        else if (S_ISREG(s.st_mode))
            *more = each(user, below, (uint64_t)s.st_size);
    }
    closedir(d);
    return st;
}

td_status td__file_list(td__remote *r, const char *path, td__remote_each each, void *user)
{
    bool more = true;
    r->status = 0;
    return walk(path, "", 0, each, user, &more);
}
