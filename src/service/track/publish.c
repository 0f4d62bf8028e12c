/* publish.c -- see publish.h. Files are linked: a checkpoint is never changed, and the run is over.
 * Where a link is not possible, as between file systems, they are copied. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "service/track/publish.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/file.h"
#include "base/file_below.h"

enum { PATH_BYTES = 4400 };

static td_status copy(int from, const char *to, const td__artifact_opts *o)
{
    char piece[1 << 16];
    td__file_out f;
    ssize_t n;

    TD_TRY(td__file_out_open(&f, to));
    bool stopped = false;
    while (!(stopped = o && o->stop && o->stop(o->arg)) &&
           (n = read(from, piece, sizeof piece)) > 0)
        td__file_out_write(&f, piece, (size_t)n);
    if (!stopped && n == 0)
        return td__file_out_commit(&f);
    td_status st = stopped
                       ? TD_FAIL(TD_EABORTED, "%s: stopped before it was copied", to)
                       : TD_FAIL(TD_EIO, "%s: its source cannot be read: %s", to, strerror(errno));
    td__file_out_abandon(&f);
    return st;
}

/* What is behind a link is left out like what is not there; what this process may not read, too,
 * but it is told. */
static td_status publish(const char *run, const char *from, const char *artifacts, const char *name,
                         const td__artifact_opts *o)
{
    char to[PATH_BYTES], self[48];
    int fd = td__file_open_below(run, from, O_RDONLY, 0);

    if (fd < 0) {
        if ((errno == EACCES || errno == EPERM) && o)
            td__left_out_add(o->left_out, name, strerror(errno));
        return TD_OK;
    }
    snprintf(to, sizeof to, "%.4200s/%s", artifacts, name);
    snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    unlink(to);
    td_status st =
        linkat(AT_FDCWD, self, AT_FDCWD, to, AT_SYMLINK_FOLLOW) ? copy(fd, to, o) : TD_OK;
    close(fd);
    return st;
}

/* The name that checkpoints/best or checkpoints/latest holds; false: there is none. */
static bool read_name(const char *run, const char *which, char *name, size_t nbytes)
{
    char path[64];

    snprintf(path, sizeof path, "checkpoints/%s", which);
    int fd = td__file_open_below(run, path, O_RDONLY, 0);
    ssize_t n = fd >= 0 ? read(fd, name, nbytes - 1) : 0;
    if (fd >= 0)
        close(fd);
    name[n > 0 ? n : 0] = '\0';
    name[strcspn(name, "\n")] = '\0';
    return *name && !strchr(name, '/');
}

static bool is_folder(const char *path)
{
    struct stat info;

    return lstat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

td_status td__publish_run(const char *run, const char *artifacts, const td__artifact_opts *o)
{
    static const char *const FILES[] = {"job.yaml", "metrics.jsonl", "report.html"};
    char path[256], name[128];

    if (!is_folder(run))
        return TD_OK;
    if (!is_folder(artifacts))
        return TD_FAIL(TD_EINVAL, "%s: not a directory", artifacts);
    if (read_name(run, "best", name, sizeof name) || read_name(run, "latest", name, sizeof name)) {
        snprintf(path, sizeof path, "checkpoints/%s/model.safetensors", name);
        TD_TRY(publish(run, path, artifacts, "model.safetensors", o));
    }
    for (size_t i = 0; i < sizeof FILES / sizeof FILES[0]; i++)
        TD_TRY(publish(run, FILES[i], artifacts, FILES[i], o));
    return TD_OK;
}
