/* append_file.c -- a file that is written at its end only. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "train/append_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"

td_status td__append_open(td__append_file *f, const char *dir, const char *file, uint64_t keep)
{
    f->fd = -1;
    TD_TRY(td__run_dir_path(dir, file, f->path));
    int fd = open(f->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
    if (fd < 0)
        return TD_FAIL(errno == ENOSPC ? TD_EIO : TD_EINVAL, "%s: cannot open it for writing: %s",
                       f->path, strerror(errno));
    if (ftruncate(fd, (off_t)keep) != 0) {
        td_status st = TD_FAIL(TD_EIO, "%s: cannot cut it: %s", f->path, strerror(errno));
        close(fd);
        return st;
    }
    f->fd = fd;
    return TD_OK;
}

td_status td__append_write(td__append_file *f, const void *data, size_t nbytes)
{
    const char *p = data;

    while (nbytes) {
        ssize_t n = write(f->fd, p, nbytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return TD_FAIL(TD_EIO, "%s: cannot write: %s", f->path,
                           strerror(n < 0 ? errno : ENOSPC));
        p += n;
        nbytes -= (size_t)n;
    }
    return TD_OK;
}

void td__append_close(td__append_file *f)
{
    if (f->fd >= 0)
        close(f->fd);
    f->fd = -1;
}
