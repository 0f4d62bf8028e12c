/* file.c -- whole files: mapped or copied for reading, and replaced as a whole when written. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/fail.h"

enum { BUFFER = 64 << 10, TRIES = 100, TEMP_EXTRA = 64, SMALL = 4 << 20 };

static const uint8_t EMPTY[1];

static td_status map_file(td__file_map *m, int fd, size_t nbytes, const char *path)
{
    void *p = mmap(NULL, nbytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED)
        return TD_FAIL(TD_EIO, "%s: cannot map %zu bytes: %s", path, nbytes, strerror(errno));
    *m = (td__file_map){.data = p, .nbytes = nbytes, .mapped = nbytes};
    return TD_OK;
}

/* What is there, if the file has become shorter meanwhile. */
static td_status copy_file(td__file_map *m, int fd, size_t nbytes, const char *path)
{
    uint8_t *p = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    size_t got = 0;
    ssize_t n = 1;

    if (p == MAP_FAILED)
        return TD_FAIL(TD_EIO, "%s: cannot map %zu bytes: %s", path, nbytes, strerror(errno));
    while (got < nbytes && (n > 0 || (n < 0 && errno == EINTR))) {
        n = read(fd, p + got, nbytes - got);
        got += n > 0 ? (size_t)n : 0;
    }
    *m = (td__file_map){.data = p, .nbytes = got, .mapped = nbytes, .copied = true};
    if (n >= 0)
        return TD_OK;
    td_status st = TD_FAIL(TD_EIO, "%s: cannot read: %s", path, strerror(errno));
    td__file_map_close(m);
    return st;
}

/* Files of at most `copied` bytes are copied, those beyond `most` refused. */
static td_status open_map(td__file_map *m, const char *path, size_t copied, size_t most)
{
    struct stat info;
    td_status st = TD_OK;

    *m = (td__file_map){.data = EMPTY};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a fifo must not block us */
    if (fd < 0)
        return TD_FAIL(TD_EIO, "%s: cannot open: %s", path, strerror(errno));
    if (fstat(fd, &info) != 0) {
        st = TD_FAIL(TD_EIO, "%s: cannot stat: %s", path, strerror(errno));
    } else if (!S_ISREG(info.st_mode)) {
        st = TD_FAIL(TD_EIO, "%s: not a regular file", path);
    } else if ((uintmax_t)info.st_size > most) {
        st = TD_FAIL(TD_EINVAL, "%s: it has %lld bytes, more than the %zu that are read of it",
                     path, (long long)info.st_size, most);
    } else if (info.st_size > 0) {
        st = (size_t)info.st_size > copied ? map_file(m, fd, (size_t)info.st_size, path)
                                           : copy_file(m, fd, (size_t)info.st_size, path);
    }
    close(fd);
    return st;
}

td_status td__file_map_open(td__file_map *m, const char *path)
{
    return open_map(m, path, SMALL, SIZE_MAX);
}

td_status td__file_map_copy(td__file_map *m, const char *path, size_t most)
{
    return open_map(m, path, SIZE_MAX, most);
}

void td__file_map_close(td__file_map *m)
{
    if (m->mapped)
        munmap((void *)(uintptr_t)m->data, m->mapped);
    *m = (td__file_map){.data = EMPTY};
}

void td__file_map_forget(const td__file_map *m, size_t begin, size_t nbytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), from = td__align_up(begin, page);
    size_t to = (begin + nbytes) & ~(page - 1);
    if (from < to && !m->copied) /* a copy would be lost */
        madvise((void *)(uintptr_t)(m->data + from), to - from, MADV_DONTNEED); /* a wish */
}

static void release(td__file_out *f)
{
    if (f->fd >= 0)
        close(f->fd);
    td__free(f->path);
    td__free(f->temp);
    td__free(f->buf);
    *f = (td__file_out){.fd = -1};
}

bool td__disk_full(int error)
{
    return error == ENOSPC || error == EDQUOT || error == EFBIG;
}

td_status td__file_out_open(td__file_out *f, const char *path)
{
    size_t temp_bytes = strlen(path) + TEMP_EXTRA;

    *f = (td__file_out){.fd = -1};
    /* Renaming would put a file in the place of a device or a pipe. */
    struct stat old;
    if (stat(path, &old) == 0 && !S_ISREG(old.st_mode))
        return TD_FAIL(TD_EIO, "%s: cannot write: not a regular file", path);
    f->path = td__strdup(path);
    f->temp = td__malloc(temp_bytes);
    f->buf = td__malloc(BUFFER);
    if (!f->path || !f->temp || !f->buf) {
        release(f);
        return TD_FAIL(TD_ENOMEM, "%s: no memory to write it", path);
    }
    /* Not mkstemp: its files are private to the user, ours shall follow the umask. */
    for (int i = 0; i < TRIES && f->fd < 0; i++) {
        snprintf(f->temp, temp_bytes, "%s.tmp-%ld-%" PRIx64, path, (long)getpid(), td__clock_ns());
        f->fd = open(f->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (f->fd < 0 && errno != EEXIST)
            break;
    }
    if (f->fd < 0) {
        td_status st = TD_FAIL(TD_EIO, "%s: cannot create: %s", f->temp, strerror(errno));
        release(f);
        return st;
    }
    return TD_OK;
}

static void write_all(td__file_out *f, const uint8_t *p, size_t nbytes)
{
    while (nbytes && !f->error) {
        ssize_t n = write(f->fd, p, nbytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            f->error = n < 0 ? errno : EIO;
            return;
        }
        p += n;
        nbytes -= (size_t)n;
    }
}

static void flush(td__file_out *f)
{
    write_all(f, f->buf, f->used);
    f->used = 0;
}

void td__file_out_write(td__file_out *f, const void *data, size_t nbytes)
{
    if (!nbytes)
        return;
    f->offset += nbytes;
    if (nbytes >= BUFFER - f->used)
        flush(f);
    if (nbytes >= BUFFER) {
        write_all(f, data, nbytes);
        return;
    }
    memcpy(f->buf + f->used, data, nbytes);
    f->used += nbytes;
}

/* So that the new name survives a crash. Directories that cannot be opened or synced (some network
 * file systems) are passed over: the file itself is safe. */
static void sync_directory(char *path)
{
    char *slash = strrchr(path, '/');
    const char *dir = ".";

    if (slash) {
        slash[slash == path] = 0; /* "/x" is in "/" */
        dir = path;
    }
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
}

td_status td__file_out_commit(td__file_out *f)
{
    td_status st = TD_OK;

    flush(f);
    if (!f->error && !f->passing && fsync(f->fd) != 0)
        f->error = errno;
    if (close(f->fd) != 0 && !f->error)
        f->error = errno;
    f->fd = -1;
    if (!f->error && rename(f->temp, f->path) != 0)
        f->error = errno;
    if (f->error) {
        st = TD_FAIL(TD_EIO, "%s: cannot write: %s", f->path, strerror(f->error));
        unlink(f->temp);
    } else if (!f->passing) {
        sync_directory(f->path);
    }
    release(f);
    return st;
}

void td__file_out_abandon(td__file_out *f)
{
    if (f->fd >= 0)
        unlink(f->temp);
    release(f);
}

td_status td__file_save(const char *path, const void *data, size_t nbytes)
{
    td__file_out f;

    TD_TRY(td__file_out_open(&f, path));
    td__file_out_write(&f, data, nbytes);
    return td__file_out_commit(&f);
}

td_status td__file_copy_fd(int fd, const char *name, const char *to, td__sha256 *hash)
{
    struct stat info;
    uint8_t piece[BUFFER];
    uint64_t at = 0;
    td__file_out f;

    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
        return TD_FAIL(TD_EIO, "%s: not a regular file", name);
    TD_TRY(td__file_out_open(&f, to));
    while (at < (uint64_t)info.st_size) {
        uint64_t left = (uint64_t)info.st_size - at;
        ssize_t n = pread(fd, piece, left < sizeof piece ? (size_t)left : sizeof piece, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            td__file_out_abandon(&f);
            return TD_FAIL(TD_EIO, "%s: %s", name,
                           n ? strerror(errno) : "it became shorter while it was copied");
        }
        td__file_out_write(&f, piece, (size_t)n);
        if (hash)
            td__sha256_update(hash, piece, (size_t)n);
        at += (uint64_t)n;
    }
    return td__file_out_commit(&f);
}
