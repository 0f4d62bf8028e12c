/* file_below.c -- see file_below.h. The way down is walked part by part: openat2 would do it in one
 * call, but is not everywhere (older kernels, filters of container engines). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file_below.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int close_with(int fd, int error)
{
    close(fd);
    errno = error;
    return -1;
}

/* O_NONBLOCK: opening a FIFO does not wait; of a regular file it changes nothing. */
static int open_at(int dir, const char *name, int flags, mode_t mode)
{
    struct stat info;
    int fd = openat(dir, name, flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, mode);

    if (fd < 0)
        return -1;
    if (fstat(fd, &info))
        return close_with(fd, errno);
    return S_ISREG(info.st_mode) ? fd : close_with(fd, ENXIO);
}

int td__file_open_plain(const char *path, int flags, mode_t mode)
{
    return open_at(AT_FDCWD, path, flags, mode);
}

static bool good_part(const char *part, size_t n)
{
    return n > 0 && n <= NAME_MAX && !(n <= 2 && strspn(part, ".") >= n);
}

/* The directory of the name's last part, *last; make: those that are missing. */
static int walk(const char *dir, const char *name, bool make, const char **last)
{
    char part[NAME_MAX + 1];
    int at = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    while (at >= 0) {
        size_t n = strcspn(name, "/");
        if (!good_part(name, n))
            return close_with(at, EINVAL);
        if (!name[n])
            break;
        snprintf(part, sizeof part, "%.*s", (int)n, name);
        if (make && mkdirat(at, part, 0755) && errno != EEXIST)
            return close_with(at, errno);
        int next = openat(at, part, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        int error = errno;
        close(at);
        errno = error;
        at = next;
        name += n + 1;
    }
    *last = name;
    return at;
}

int td__file_open_below(const char *dir, const char *name, int flags, mode_t mode)
{
    const char *last;
    int at = walk(dir, name, false, &last);

    if (at < 0)
        return -1;
    int fd = open_at(at, last, flags, mode), error = errno;
    close(at);
    errno = error;
    return fd;
}

int td__file_place_below(const char *dir, const char *name, const char *from)
{
    const char *last;
    int fd = td__file_open_plain(from, O_RDONLY, 0), error = 0;

    if (fd < 0 || fsync(fd))
        error = errno;
    if (fd >= 0)
        close(fd);
    int at = error ? -1 : walk(dir, name, true, &last);
    if (!error && at < 0)
        error = errno;
    if (!error && (renameat(AT_FDCWD, from, at, last) || fsync(at)))
        error = errno;
    if (at >= 0)
        close(at);
    return error;
}
