/* tree_memory.c -- see tree_memory.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "service/track/tree_memory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fail.h"

enum { DEEPEST = 64 }; /* parents that are followed */

typedef struct process {
    pid_t pid, parent, group;
} process;

typedef struct table {
    process *at;
    size_t n, room;
} table;

/* Into text, which ends with a 0; false: there is none. */
static bool read_proc(pid_t pid, const char *name, char *text, size_t nbytes)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, nbytes - 1) : -1;
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    return n > 0;
}

static td_status note(table *t, pid_t pid)
{
    char text[512];
    int parent, group;

    /* The name, in brackets, may contain anything. */
    const char *after = read_proc(pid, "stat", text, sizeof text) ? strrchr(text, ')') : NULL;
    if (!after || sscanf(after + 1, " %*c %d %d", &parent, &group) != 2)
        return TD_OK; /* it has just ended */
    if (t->n == t->room) {
        size_t room = t->room ? 2 * t->room : 256;
        process *more = td__realloc(t->at, room * sizeof *more);
        if (!more)
            return TD_FAIL(TD_ENOMEM, "processes: out of memory");
        t->at = more;
        t->room = room;
    }
    t->at[t->n++] = (process){pid, parent, group};
    return TD_OK;
}

static const process *find(const table *t, pid_t pid)
{
    for (size_t i = 0; i < t->n; i++)
        if (t->at[i].pid == pid)
            return &t->at[i];
    return NULL;
}

static int root_of(const table *t, const process *p, const pid_t *roots, int n)
{
    const process *up = p;

    for (int depth = 0; up && depth < DEEPEST; depth++) {
        for (int i = 0; i < n; i++)
            if (roots[i] && (up->pid == roots[i] || p->group == roots[i]))
                return i;
        up = find(t, up->parent);
    }
    return -1;
}

/* Pss where it can be read, else all resident pages. */
static uint64_t memory_of(pid_t pid)
{
    char text[2048];
    unsigned long long kb, pages;

    if (read_proc(pid, "smaps_rollup", text, sizeof text)) {
        const char *line = strstr(text, "\nPss:");
        if (line && sscanf(line, "\nPss: %llu", &kb) == 1)
            return kb << 10;
    }
    if (read_proc(pid, "statm", text, sizeof text) && sscanf(text, "%*u %llu", &pages) == 1)
        return pages * (uint64_t)sysconf(_SC_PAGESIZE);
    return 0;
}

td_status td__tree_memory(const pid_t *roots, int n, uint64_t *nbytes)
{
    DIR *dir = opendir("/proc");
    const struct dirent *e;
    td_status st = dir ? TD_OK : TD_FAIL(TD_EIO, "/proc: %s", strerror(errno));
    table t = {0};

    memset(nbytes, 0, (size_t)n * sizeof *nbytes);
    while (!st && (e = readdir(dir)))
        if (e->d_name[0] >= '1' && e->d_name[0] <= '9')
            st = note(&t, (pid_t)strtol(e->d_name, NULL, 10));
    if (dir)
        closedir(dir);
    for (size_t i = 0; i < t.n && !st; i++) {
        int root = root_of(&t, &t.at[i], roots, n);
        if (root >= 0)
            nbytes[root] += memory_of(t.at[i].pid);
    }
    td__free(t.at);
    return st;
}
