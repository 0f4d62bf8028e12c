/* claim.c -- who has an attempt: a file that is linked into place whole, once; see supervise.h.
 *
 * A process is known by its number, the time of its start and the boot: numbers are used again. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fail.h"
#include "service/track/supervise.h"

enum { PATH_BYTES = 4200 };

static bool read_small(const char *path, char *text, size_t nbytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a job may have made a FIFO of it */
    ssize_t n = fd >= 0 ? read(fd, text, nbytes - 1) : -1;

    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    return n > 0;
}

/* Field 22 of /proc/PID/stat; the name before it may contain anything but ends with ')'. */
static bool start_of(pid_t pid, unsigned long long *start)
{
    char path[64], text[1024];

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    if (!read_small(path, text, sizeof text))
        return false;
    const char *p = strrchr(text, ')');
    for (int field = 2; p && field < 22; field++)
        p = strchr(p + 1, ' ');
    return p && sscanf(p, "%llu", start) == 1;
}

static void boot_id(char out[40])
{
    if (!read_small("/proc/sys/kernel/random/boot_id", out, 40))
        snprintf(out, 40, "unknown");
    out[strcspn(out, "\n")] = '\0';
}

/* Of this process, or of the machine: for now. */
static bool short_of_something(int error)
{
    return error == EMFILE || error == ENFILE || error == ENOMEM;
}

td_status td__claim_take(const char *dir, pid_t pid, bool *won)
{
    char path[PATH_BYTES], temp[PATH_BYTES], text[128], boot[40];
    unsigned long long start = 0;

    *won = false;
    if (pid && !start_of(pid, &start))
        return TD_FAIL(TD_EIO, "process %d: its start time is not known", (int)pid);
    boot_id(boot);
    int n = snprintf(text, sizeof text, "%d %llu %s\n", (int)pid, start, boot);
    snprintf(path, sizeof path, "%s/claim", dir);
    snprintf(temp, sizeof temp, "%s/claim.%d", dir, (int)getpid());
    int fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    bool written = fd >= 0 && write(fd, text, (size_t)n) == n && fsync(fd) == 0;
    if (fd >= 0)
        close(fd);
    if (written && link(temp, path) == 0)
        *won = true;
    int error = errno;
    unlink(temp);
    return *won || (written && error == EEXIST) ? TD_OK
                                                : TD_FAIL(TD_EIO, "%s: %s", path, strerror(error));
}

bool td__claim_read(const char *dir, td__claim *out)
{
    char path[PATH_BYTES], text[128];
    int pid;

    snprintf(path, sizeof path, "%s/claim", dir);
    if (!read_small(path, text, sizeof text) ||
        sscanf(text, "%d %llu %39s", &pid, &out->start, out->boot) != 3)
        return false;
    out->pid = pid;
    return true;
}

int td__claim_open(const td__claim *c)
{
    unsigned long long start;
    char boot[40];

    int fd = c->pid ? (int)syscall(SYS_pidfd_open, c->pid, 0) : -1;
    if (fd < 0) {
        errno = c->pid && short_of_something(errno) ? errno : ESRCH;
        return -1;
    }
    errno = 0; /* looked at below: what cannot be read now may be the same all the same */
    boot_id(boot);
    if (strcmp(boot, c->boot) == 0 && start_of(c->pid, &start) && start == c->start)
        return fd;
    int error = short_of_something(errno) ? errno : ESRCH; /* another has its number */
    close(fd);
    errno = error;
    return -1;
}
