/* unnamed_file.c -- see unnamed_file.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/unnamed_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/config.h"

const char *td__temp_dir(void)
{
    const char *given = td__env_get(TD_ENV_TMPDIR);
    return given ? given : "/tmp";
}

int td__unnamed_open(const char *folder)
{
    char path[4096];

    folder = folder ? folder : td__temp_dir();
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR))
        return fd;
    /* A file system without such files. */
    if (snprintf(path, sizeof path, "%s/tandem-XXXXXX", folder) >= (int)sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0)
        unlink(path);
    return fd;
}

bool td__unnamed_put(int fd, uint64_t at, const void *data, size_t nbytes)
{
    const char *from = data;

    for (size_t done = 0; done < nbytes;) {
        ssize_t n = pwrite(fd, from + done, nbytes - done, (off_t)(at + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        done += (size_t)n;
    }
    return true;
}

bool td__unnamed_get(int fd, uint64_t at, void *data, size_t nbytes)
{
    char *to = data;

    for (size_t done = 0; done < nbytes;) {
        ssize_t n = pread(fd, to + done, nbytes - done, (off_t)(at + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            errno = 0;
        if (n <= 0)
            return false;
        done += (size_t)n;
    }
    return true;
}
