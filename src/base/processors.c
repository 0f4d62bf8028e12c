/* processors.c -- how many processors this process may use: those of its affinity mask, but no more
 * than the time that its control groups grant. A container that gets 2 of 64 processors sees all 64
 * in its mask; 64 threads would spend most of each period throttled.
 *
 * The limits of a group and of all groups around it hold, in one file per group (version 2) or two
 * (version 1). A group that is not visible under its path, as in containers without a namespace of
 * their own, is looked for at the root, where such containers see themselves. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cpu.h"

enum { PATH_BYTES = 4096 };

/* A small file as text; "" if it cannot be read. */
static void read_small(const char *path, char *text, size_t nbytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, nbytes - 1) : 0;
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = 0;
}

/* Processors that the group in `folder` may use; INFINITY: no limit. */
static double limit_of(const char *folder)
{
    char path[PATH_BYTES + 32], text[64], text_period[64];
    long long quota = -1, period = 0;
    snprintf(path, sizeof path, "%s/cpu.max", folder);
    read_small(path, text, sizeof text);
    if (!*text) {
        snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", folder);
        read_small(path, text, sizeof text);
        snprintf(path, sizeof path, "%s/cpu.cfs_period_us", folder);
        read_small(path, text_period, sizeof text_period);
        size_t used = strcspn(text, "\n");
        snprintf(text + used, sizeof text - used, " %s", text_period);
    }
    /* "max 100000" and "-1 100000" have no quota. */
    if (sscanf(text, "%lld %lld", &quota, &period) != 2 || quota <= 0 || period <= 0)
        return INFINITY;
    return (double)quota / (double)period;
}

/* The least limit of the group `path` and those around it, in the hierarchy mounted at `mount`. */
static double least_limit(const char *mount, char *path)
{
    char folder[PATH_BYTES];
    double least = INFINITY;
    for (;;) {
        char *end = strrchr(path, '/');
        snprintf(folder, sizeof folder, "%s%s", mount, end && end[1] ? path : "");
        least = fmin(least, limit_of(folder));
        if (!end || !end[1])
            return least;
        end[end == path] = 0; /* "/a/b", "/a", "/" */
    }
}

static bool has_cpu(const char *controllers)
{
    for (const char *c = controllers; *c; c += strcspn(c, ","), c += *c == ',')
        if (strcspn(c, ",") == 3 && !strncmp(c, "cpu", 3))
            return true;
    return false;
}

int td__cpu_quota(const char *root)
{
    char path[PATH_BYTES], text[PATH_BYTES], mount[PATH_BYTES], *rest = text;
    double least = INFINITY;
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    read_small(path, text, sizeof text);
    for (char *line; (line = strsep(&rest, "\n")) && *line;) { /* "4:cpu,cpuacct:/a", "0::/a/b" */
        char *number = strsep(&line, ":"), *controllers = strsep(&line, ":");
        if (!number || !controllers || !line || (*controllers && !has_cpu(controllers)))
            continue;
        snprintf(mount, sizeof mount, "%.1024s/sys/fs/cgroup%s%.256s", root,
                 *controllers ? "/" : "", controllers);
        least = fmin(least, least_limit(mount, line));
    }
    return isinf(least) ? 0 : least < 1 ? 1 : (int)ceil(fmin(least, 1e6));
}

int td__processors(void)
{
    static atomic_int cached; /* the quota + 1; 0: not asked yet */
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
    int quota = atomic_load_explicit(&cached, memory_order_relaxed) - 1;
    if (quota < 0) {
        quota = td__cpu_quota("");
        atomic_store_explicit(&cached, quota + 1, memory_order_relaxed);
    }
    return quota && quota < n ? quota : n > 0 ? n : 1;
}
