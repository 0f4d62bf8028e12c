/* publish.c -- see publish.h. Files are linked: a checkpoint is never changed, and the run is over.
 * Where a link is not possible, as between file systems, they are copied. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "service/track/publish.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/file.h"

enum { PATH_BYTES = 4400 };

static td_status copy(const char *from, const char *to)
{
    td__file_map m;
    td__file_out f;

    TD_TRY(td__file_map_open(&m, from));
    td_status st = td__file_out_open(&f, to);
    if (!st) {
        td__file_out_write(&f, m.data, m.nbytes);
        st = td__file_out_commit(&f);
    }
    td__file_map_close(&m);
    return st;
}

static td_status publish(const char *from, const char *artifacts, const char *name)
{
    char to[PATH_BYTES];

    snprintf(to, sizeof to, "%.4200s/%s", artifacts, name);
    unlink(to);
    if (link(from, to) == 0 || errno == ENOENT)
        return TD_OK;
    return copy(from, to);
}

/* The name that checkpoints/best or checkpoints/latest holds; false: there is none. */
static bool read_name(const char *run, const char *which, char *name, size_t nbytes)
{
    char path[PATH_BYTES];

    snprintf(path, sizeof path, "%.4200s/checkpoints/%s", run, which);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, name, nbytes - 1) : 0;
    if (fd >= 0)
        close(fd);
    name[n > 0 ? n : 0] = '\0';
    name[strcspn(name, "\n")] = '\0';
    return *name && !strchr(name, '/');
}

td_status td__publish_run(const char *run, const char *artifacts)
{
    static const char *const FILES[] = {"job.yaml", "metrics.jsonl", "report.html"};
    char path[PATH_BYTES], name[128];

    if (read_name(run, "best", name, sizeof name) || read_name(run, "latest", name, sizeof name)) {
        snprintf(path, sizeof path, "%.4000s/checkpoints/%s/model.safetensors", run, name);
        TD_TRY(publish(path, artifacts, "model.safetensors"));
    }
    for (size_t i = 0; i < sizeof FILES / sizeof FILES[0]; i++) {
        snprintf(path, sizeof path, "%.4200s/%s", run, FILES[i]);
        TD_TRY(publish(path, artifacts, FILES[i]));
    }
    return TD_OK;
}
