/* memory_groups.c -- control groups for members (see memory_groups.h).
 *
 * /proc/self/cgroup says in which group we are, /proc/self/mountinfo where that lies. In version 2
 * a group that has processes and is not the root cannot have limits on groups below it: then there
 * are none, unless who started the service made its group for that. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "service/track/memory_groups.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fail.h"

enum { PATH_BYTES = 4096, NAME_BYTES = 200, FILE_BYTES = 1 << 16 };

struct td__memory_groups {
    char own[PATH_BYTES]; /* our group's directory */
    bool v2;
    int members;
    char name[NAME_BYTES - 16]; /* "tandem-TOKEN" */
    uint64_t kills[];           /* (members) that were asked for */
};

/* Up to FILE_BYTES - 1 of a small file as text; "" if it cannot be read. */
static void slurp(const char *path, char text[FILE_BYTES])
{
    size_t used = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    for (ssize_t n; fd >= 0 && used < FILE_BYTES - 1; used += (size_t)n) {
        n = read(fd, text + used, FILE_BYTES - 1 - used);
        if (n <= 0)
            break;
    }
    if (fd >= 0)
        close(fd);
    text[used] = '\0';
}

static bool put(const char *folder, const char *name, const char *value)
{
    char path[PATH_BYTES + NAME_BYTES];
    ssize_t n = -1;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
        n = write(fd, value, strlen(value));
        close(fd);
    }
    return n == (ssize_t)strlen(value);
}

/* Is `word` one of the words between the separators? */
static bool has_word(const char *text, const char *separators, const char *word)
{
    size_t n = strlen(word);

    while (*text) {
        size_t length = strcspn(text, separators);
        if (length == n && !strncmp(text, word, n))
            return true;
        text += length + (text[length] != '\0');
    }
    return false;
}

/* The path of our group in its hierarchy: of version 1's memory, or the one of version 2. */
static bool own_path(bool v2, char path[PATH_BYTES])
{
    char *text = td__malloc(FILE_BYTES), *save = NULL;
    bool found = false;

    if (!text)
        return false;
    slurp("/proc/self/cgroup", text);
    for (char *line = strtok_r(text, "\n", &save); line && !found;
         line = strtok_r(NULL, "\n", &save)) {
        char *kinds = strchr(line, ':'), *at = kinds ? strchr(kinds + 1, ':') : NULL;
        if (!at)
            continue;
        *at++ = '\0';
        found = v2 ? !strncmp(line, "0:", 2) && !kinds[1] : has_word(kinds + 1, ",", "memory");
        if (found)
            snprintf(path, PATH_BYTES, "%s", at);
    }
    td__free(text);
    return found;
}

/* Where that path is mounted. A container may see only the part from its own group on. */
static bool mounted_at(bool v2, const char *path, char out[PATH_BYTES])
{
    char *text = td__malloc(FILE_BYTES), *save = NULL;
    bool found = false;

    if (!text)
        return false;
    slurp("/proc/self/mountinfo", text);
    for (char *line = strtok_r(text, "\n", &save); line && !found;
         line = strtok_r(NULL, "\n", &save)) {
        char root[1024], folder[1024], type[64], options[1024];
        const char *rest = strstr(line, " - ");
        if (!rest || sscanf(line, "%*s %*s %*s %1023s %1023s", root, folder) != 2 ||
            sscanf(rest, " - %63s %*s %1023s", type, options) != 2)
            continue;
        if (strcmp(type, v2 ? "cgroup2" : "cgroup") != 0 ||
            (!v2 && !has_word(options, ",", "memory")))
            continue;
        size_t n = strcmp(root, "/") ? strlen(root) : 0;
        const char *below = !strncmp(path, root, n) ? path + n : "";
        snprintf(out, PATH_BYTES, "%s%.3000s", folder, strcmp(below, "/") ? below : "");
        found = access(out, W_OK) == 0;
    }
    td__free(text);
    return found;
}

/* Version 2 gives a limit to groups below ours if ours says that they may have one. */
static bool may_limit(const char *own)
{
    char path[PATH_BYTES + NAME_BYTES], *text = td__malloc(FILE_BYTES);
    bool may = false;

    if (text) {
        snprintf(path, sizeof path, "%s/cgroup.subtree_control", own);
        slurp(path, text);
        may = has_word(text, " \n", "memory") || put(own, "cgroup.subtree_control", "+memory");
    }
    td__free(text);
    return may;
}

static bool find_own(char own[PATH_BYTES], bool *v2)
{
    char path[PATH_BYTES];

    for (int version = 1; version <= 2; version++) {
        *v2 = version == 2;
        if (own_path(*v2, path) && mounted_at(*v2, path, own) && (!*v2 || may_limit(own)))
            return true;
    }
    return false;
}

static void folder_of(const td__memory_groups *g, int member, char out[PATH_BYTES + NAME_BYTES])
{
    snprintf(out, PATH_BYTES + NAME_BYTES, "%s/%s-%d", g->own, g->name, member);
}

static bool make(const td__memory_groups *g, int member, uint64_t limit)
{
    char folder[PATH_BYTES + NAME_BYTES], text[32];

    folder_of(g, member, folder);
    snprintf(text, sizeof text, "%llu", (unsigned long long)limit);
    if (mkdir(folder, 0755) != 0 && errno != EEXIST)
        return false;
    if (!put(folder, g->v2 ? "memory.max" : "memory.limit_in_bytes", text))
        return false;
    /* Swap is no way around it, where there is any; all processes of a member go together. */
    (void)put(folder, g->v2 ? "memory.swap.max" : "memory.memsw.limit_in_bytes",
              g->v2 ? "0" : text);
    if (g->v2)
        (void)put(folder, "memory.oom.group", "1");
    return true;
}

td_status td__memory_groups_create(const char *token, int members, uint64_t limit,
                                   td__memory_groups **out)
{
    td__memory_groups *g = td__calloc(1, sizeof *g + (size_t)members * sizeof g->kills[0]);

    *out = NULL;
    if (!g)
        return TD_FAIL(TD_ENOMEM, "out of memory for control groups");
    g->members = members;
    snprintf(g->name, sizeof g->name, "tandem-%.100s", token);
    if (!find_own(g->own, &g->v2)) {
        td__free(g);
        return TD_FAIL(TD_ENOTSUP, "there is no control group for memory that may be divided");
    }
    for (int i = 0; i < members; i++)
        if (!make(g, i, limit)) {
            td_status st = TD_FAIL(TD_ENOTSUP, "%s/%s-%d: %s", g->own, g->name, i, strerror(errno));
            td__memory_groups_destroy(g);
            return st;
        }
    *out = g;
    return TD_OK;
}

void td__memory_groups_enter(td__memory_groups *g, int member)
{
    char folder[PATH_BYTES + NAME_BYTES];

    if (!g)
        return;
    folder_of(g, member, folder);
    (void)put(folder, "cgroup.procs", "0"); /* else it is only looked at now and then */
}

void td__memory_groups_leave(td__memory_groups *g)
{
    if (g)
        (void)put(g->own, "cgroup.procs", "0");
}

/* "NAME NUMBER" on a line of its own; 0: there is none. */
static uint64_t number_of(const char *text, const char *name)
{
    size_t n = strlen(name);

    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        unsigned long long value;
        if (!strncmp(line, name, n) && line[n] == ' ' && sscanf(line + n, "%llu", &value) == 1)
            return value;
    }
    return 0;
}

uint64_t td__memory_groups_killed(td__memory_groups *g, int member)
{
    char path[PATH_BYTES + 2 * NAME_BYTES], folder[PATH_BYTES + NAME_BYTES];
    char *text = g ? td__malloc(FILE_BYTES) : NULL;
    unsigned long long peak = 0;

    if (!text)
        return 0;
    folder_of(g, member, folder);
    snprintf(path, sizeof path, "%s/%s", folder, g->v2 ? "memory.events" : "memory.oom_control");
    slurp(path, text);
    uint64_t kills = number_of(text, "oom_kill");
    if (kills > g->kills[member]) {
        snprintf(path, sizeof path, "%s/%s", folder,
                 g->v2 ? "memory.peak" : "memory.max_usage_in_bytes");
        slurp(path, text);
        if (sscanf(text, "%llu", &peak) != 1 || !peak)
            peak = 1; /* older kernels do not say */
    }
    g->kills[member] = kills;
    td__free(text);
    return peak;
}

void td__memory_groups_destroy(td__memory_groups *g)
{
    char folder[PATH_BYTES + NAME_BYTES];

    for (int i = 0; g && i < g->members; i++) {
        folder_of(g, i, folder);
        (void)rmdir(folder);
    }
    td__free(g);
}

void td__memory_groups_sweep(const char *token)
{
    char own[PATH_BYTES], name[NAME_BYTES], path[PATH_BYTES + 300];
    bool v2;

    snprintf(name, sizeof name, "tandem-%.100s-", token);
    DIR *d = find_own(own, &v2) ? opendir(own) : NULL;
    for (const struct dirent *e; d && (e = readdir(d));)
        if (!strncmp(e->d_name, name, strlen(name))) {
            snprintf(path, sizeof path, "%s/%s", own, e->d_name);
            (void)rmdir(path);
        }
    if (d)
        closedir(d);
}
