/* append_file.c -- a file that is written at its end only. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "run/append_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/file.h"
#include "base/log.h"

enum { MOST_HELD = 64 << 20 };

td_status td__append_open(td__append_file *f, const char *dir, const char *file, uint64_t keep)
{
    *f = (td__append_file){.fd = -1};
    TD_TRY(td__run_dir_path(dir, file, f->path));
    int fd = open(f->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
    if (fd < 0)
        return TD_FAIL(td__disk_full(errno) ? TD_EIO : TD_EINVAL,
                       "%s: cannot open it for writing: %s", f->path, strerror(errno));
    if (ftruncate(fd, (off_t)keep) != 0) {
        td_status st = TD_FAIL(TD_EIO, "%s: cannot truncate it: %s", f->path, strerror(errno));
        close(fd);
        return st;
    }
    f->fd = fd;
    return TD_OK;
}

/* All of it, or nothing: half a line would be taken for a broken file. */
static td_status put(td__append_file *f, const char *p, size_t nbytes)
{
    for (size_t done = 0; done < nbytes;) {
        ssize_t n = write(f->fd, p + done, nbytes - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            f->error = n < 0 ? errno : ENOSPC;
            off_t end = lseek(f->fd, 0, SEEK_END);
            if (done && end >= (off_t)done && ftruncate(f->fd, end - (off_t)done) != 0)
                TD_LOG(WARN, TRAIN, "%s: cannot truncate it: %s", f->path, strerror(errno));
            return TD_FAIL(TD_EIO, "%s: cannot write: %s", f->path, strerror(f->error));
        }
        done += (size_t)n;
    }
    return TD_OK;
}

/* It is to be written before all that follows. */
static td_status hold(td__append_file *f, const char *p, size_t nbytes)
{
    if (f->held.used + nbytes > MOST_HELD)
        return TD_FAIL(TD_EIO, "%s: the disk is full, and the buffer in memory too", f->path);
    if (!f->held.used)
        TD_LOG(WARN, TRAIN, "%s; keeping it in memory until the disk has space", td_last_error());
    td__text_append(&f->held, p, nbytes);
    return td__text_status(&f->held);
}

td_status td__append_flush(td__append_file *f)
{
    if (!f->held.used)
        return TD_OK;
    TD_TRY(put(f, f->held.data, f->held.used));
    td__text_clear(&f->held);
    return TD_OK;
}

td_status td__append_write(td__append_file *f, const void *data, size_t nbytes)
{
    td_status st = td__append_flush(f);
    if (!st)
        st = put(f, data, nbytes);
    if (!st || !f->holds || !td__disk_full(f->error))
        return st;
    return hold(f, data, nbytes);
}

td_status td__append_cut(td__append_file *f, uint64_t keep)
{
    if (ftruncate(f->fd, (off_t)keep) != 0)
        return TD_FAIL(TD_EIO, "%s: cannot cut it: %s", f->path, strerror(errno));
    return TD_OK;
}

void td__append_close(td__append_file *f)
{
    if (f->fd >= 0)
        close(f->fd);
    f->fd = -1;
    td__text_fini(&f->held);
}
