/* run_lock.c -- the lock of a run's directory; see run_lock.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "run/run_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/file.h"
#include "run/run_dir.h"

enum { POLL_MS = 5, MARK = 64 };

static td_status open_lock(const char *dir, int flags, int *fd)
{
    char path[TD__PATH];
    *fd = -1;
    TD_TRY(td__run_dir_path(dir, TD__RUN_LOCK_FILE, path));
    *fd = open(path, flags | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (*fd < 0)
        return TD_FAIL(td__disk_full(errno) ? TD_EIO : TD_EINVAL, "%s: cannot open it: %s", path,
                       strerror(errno));
    return TD_OK;
}

/* false: somebody else has a lock that excludes this one. */
static bool lock(int fd, short type)
{
    struct flock l = {.l_type = type, .l_whence = SEEK_SET};
    return fcntl(fd, F_OFD_SETLK, &l) == 0 || (errno != EAGAIN && errno != EACCES);
}

static bool write_mark(int fd, const char *mark)
{
    size_t n = strlen(mark);
    return ftruncate(fd, 0) == 0 && pwrite(fd, mark, n, 0) == (ssize_t)n;
}

static bool has_mark(int fd, const char *mark)
{
    char text[MARK + 1];
    ssize_t n = pread(fd, text, sizeof text, 0);
    return n == (ssize_t)strlen(mark) && memcmp(text, mark, (size_t)n) == 0;
}

/* One try; *taken: it is ours. */
static td_status try_lock(int fd, const char *dir, const char *mark, bool *taken)
{
    *taken = true;
    if (lock(fd, F_WRLCK)) {
        if (!write_mark(fd, mark))
            return TD_FAIL(TD_EIO, "%s/" TD__RUN_LOCK_FILE ": cannot write: %s", dir,
                           strerror(errno));
        (void)lock(fd, F_RDLCK); /* from write to read: nothing can be in the way */
        return TD_OK;
    }
    if (lock(fd, F_RDLCK) && has_mark(fd, mark))
        return TD_OK;
    (void)lock(fd, F_UNLCK);
    *taken = false;
    return TD_OK;
}

td_status td__run_lock_take(const char *dir, const char *mark, td__deadline until, int *fd)
{
    char own[MARK + 1];
    bool taken = false;
    td_status st;

    /* Of a process alone: no other one has this number and this address at once. */
    snprintf(own, sizeof own, "%ld-%p", (long)getpid(), (void *)fd);
    mark = mark ? mark : own;
    TD_ASSERT(strlen(mark) <= MARK, "a mark of %zu characters", strlen(mark));
    TD_TRY(open_lock(dir, O_RDWR | O_CREAT, fd));
    for (;;) {
        st = try_lock(*fd, dir, mark, &taken);
        if (st || taken || td__deadline_passed(until))
            break;
        (void)poll(NULL, 0, POLL_MS); /* locks cannot be waited for with a deadline */
    }
    if (!st && !taken)
        st = TD_FAIL(TD_EINVAL, "%s: another job is training there", dir);
    if (st) {
        close(*fd);
        *fd = -1;
    }
    return st;
}

bool td__run_lock_held(const char *dir)
{
    int fd;
    if (open_lock(dir, O_RDONLY, &fd))
        return false;
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    bool held = fcntl(fd, F_OFD_GETLK, &l) == 0 && l.l_type != F_UNLCK;
    close(fd);
    return held;
}
