/* table_files.c -- files of tables on servers. See tables.h.
 *
 *     tables/NAME.SERVER-of-SERVERS.STEP.all     all rows
 *     tables/NAME.SERVER-of-SERVERS.STEP.delta   what has changed since the file before
 *
 * A table at a step is, of each server that has a file of that step, its last file with all rows
 * and the deltas after it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/log.h"
#include "ps/tables_impl.h"

enum { WHOLE_EVERY = 16, PATH = 4096 };

/* The folder, and the one around it. */
static td_status make_folder(const char *path)
{
    char outer[TD__TABLES_PATH];
    snprintf(outer, sizeof outer, "%s", path);
    *strrchr(outer, '/') = '\0';
    if ((mkdir(outer, 0777) && errno != EEXIST) || (mkdir(path, 0777) && errno != EEXIST))
        return TD_FAIL(TD_EIO, "%s: %s", path, strerror(errno));
    return TD_OK;
}

static void name_file(const td__ps_tables *t, const char *table, int server, int servers,
                      uint64_t step, bool all, char out[PATH])
{
    snprintf(out, PATH, "%s/%s.%d-of-%d.%llu.%s", t->folder, table, server, servers,
             (unsigned long long)step, all ? "all" : "delta");
}

/* ---- What is there --------------------------------------------------------------------------- */

typedef struct file {
    int server, servers;
    uint64_t step;
    bool all;
} file;

typedef struct files {
    file *at;
    size_t n, room;
} files;

/* Is it a file of this table? */
static bool parse(const char *name, const char *table, file *out)
{
    size_t n = strlen(table);
    unsigned long long step;
    char kind[8];
    if (strncmp(name, table, n) != 0 || name[n] != '.' ||
        sscanf(name + n + 1, "%d-of-%d.%llu.%7s", &out->server, &out->servers, &step, kind) != 4)
        return false;
    out->step = step;
    out->all = strcmp(kind, "all") == 0;
    return out->all || strcmp(kind, "delta") == 0;
}

static int by_server_and_step(const void *a, const void *b)
{
    const file *x = a, *y = b;
    if (x->server != y->server)
        return x->server < y->server ? -1 : 1;
    return x->step < y->step ? -1 : x->step > y->step;
}

static td_status list(const char *folder, const char *table, files *out)
{
    td_status st = TD_OK;
    DIR *d = opendir(folder);
    if (!d)
        return TD_FAIL(TD_EIO, "%s: %s", folder, strerror(errno));
    for (struct dirent *e; !st && (e = readdir(d));) {
        file f;
        if (!parse(e->d_name, table, &f))
            continue;
        if (out->n == out->room) {
            size_t room = out->room ? 2 * out->room : 64;
            file *more = td__realloc(out->at, room * sizeof *more);
            if (!more) {
                st = TD_FAIL(TD_ENOMEM, "no memory for %zu files", room);
                break;
            }
            out->at = more;
            out->room = room;
        }
        out->at[out->n++] = f;
    }
    closedir(d);
    if (!st && out->n)
        qsort(out->at, out->n, sizeof *out->at, by_server_and_step);
    return st;
}

/* ---- Writing --------------------------------------------------------------------------------- */

/* After the first file of a run that goes on from an earlier step: later ones, and those that
 * another number of servers wrote at this step, are of a run that went another way. A delta after
 * this file must not follow one of them. */
static td_status remove_others(const td__ps_tables *t, const char *table, uint64_t step)
{
    files f = {.at = NULL};
    char path[PATH];
    td_status st = list(t->folder, table, &f);
    for (size_t i = 0; !st && i < f.n; i++) {
        const file *a = &f.at[i];
        if (a->step < step || (a->step == step && a->servers == t->servers))
            continue;
        name_file(t, table, a->server, a->servers, a->step, a->all, path);
        if (unlink(path))
            st = TD_FAIL(TD_EIO, "%s: a file of another run that cannot be removed: %s", path,
                         strerror(errno));
    }
    td__free(f.at);
    return st;
}

td_status td__rows_clean(td__ps_tables *t, uint64_t step)
{
    for (int k = 0; k < t->n; k++)
        TD_TRY(remove_others(t, t->at[k].is.param, step));
    return TD_OK;
}

/* The step of the oldest checkpoint that there is; UINT64_MAX: there is none. They lie around the
 * folder of tables. */
static td_status oldest_checkpoint(const td__ps_tables *t, uint64_t *out)
{
    char outer[TD__TABLES_PATH];
    snprintf(outer, sizeof outer, "%s", t->folder);
    *strrchr(outer, '/') = '\0';
    DIR *d = opendir(outer);
    *out = UINT64_MAX;
    if (!d)
        return TD_FAIL(TD_EIO, "%s: %s", outer, strerror(errno));
    for (struct dirent *e; (e = readdir(d));) {
        unsigned long long step;
        int n = 0;
        if (sscanf(e->d_name, "step-%llu%n", &step, &n) == 1 && n && !e->d_name[n] && step < *out)
            *out = step;
    }
    closedir(d);
    return TD_OK;
}

/* Is there a file with all rows of the same server after file i, at a step not after `step`? */
static bool is_replaced(const files *f, size_t i, uint64_t step)
{
    const file *a = &f->at[i];
    for (size_t j = 0; j < f->n; j++) {
        const file *b = &f->at[j];
        if (b->server == a->server && b->servers == a->servers && b->all && b->step > a->step &&
            b->step <= step)
            return true;
    }
    return false;
}

/* Has the step of a checkpoint, or a later one, a file of as many servers? */
static bool is_of_use(const files *f, int servers, uint64_t step)
{
    for (size_t i = 0; i < f->n; i++)
        if (f->at[i].servers == servers && f->at[i].step >= step)
            return true;
    return false;
}

/* Files that no checkpoint needs any more. One that cannot be removed takes room, and is in
 * nobody's way: this is said once. */
static td_status remove_old(td__ps_tables *t, const char *table)
{
    files f = {.at = NULL};
    uint64_t oldest;
    char path[PATH];
    TD_TRY(oldest_checkpoint(t, &oldest));
    if (oldest == UINT64_MAX)
        return TD_OK;
    td_status st = list(t->folder, table, &f);
    for (size_t i = 0; !st && i < f.n; i++) {
        const file *a = &f.at[i];
        if (a->step >= oldest || (is_of_use(&f, a->servers, oldest) && !is_replaced(&f, i, oldest)))
            continue;
        name_file(t, table, a->server, a->servers, a->step, a->all, path);
        if (unlink(path) == 0 || errno == ENOENT)
            continue;
        if (!t->keeps_old)
            TD_LOG(WARN, TRAIN, "%s: an old file that cannot be removed stays: %s", path,
                   strerror(errno));
        t->keeps_old = true;
    }
    td__free(f.at);
    return st;
}

/* Ranks may meet twice after a step: what has changed since belongs to the next file. */
td_status td__rows_save(td__ps_tables *t, uint64_t step)
{
    char path[PATH];
    bool all = t->saved % WHOLE_EVERY == 0;
    td_status st = TD_OK;
    if (t->saved && step == t->last)
        return TD_OK;
    TD_TRY(make_folder(t->folder));
    pthread_mutex_lock(&t->lock);
    for (int k = 0; !st && k < t->n; k++) {
        const char *table = t->at[k].is.param;
        name_file(t, table, t->server, t->servers, step, !all, path);
        (void)unlink(path); /* of a run that went on from an earlier step */
        name_file(t, table, t->server, t->servers, step, all, path);
        if (!st)
            st = td__id_table_expire(t->at[k].rows, step);
        if (!st)
            st = td__id_table_save(t->at[k].rows, path, step, all);
        if (!st && all && t->server == 0) /* for all servers: their files are in one folder */
            st = remove_old(t, table);
    }
    t->saved += !st;
    t->last = step;
    pthread_mutex_unlock(&t->lock);
    return st;
}

/* ---- Reading --------------------------------------------------------------------------------- */

static bool mine(const void *user, int64_t id)
{
    const td__ps_tables *t = user;
    return td__rows_has(t->servers, t->copies, t->server, td__rows_owner(t, id));
}

/* So many servers wrote files of this step, each its own; 0: none. there: files that there are, of
 * the last ones of which some are missing. */
static int servers_at(const files *f, uint64_t step, int *there)
{
    int servers = 0;
    *there = 0;
    for (size_t i = 0; i < f->n && (!servers || *there < servers); i++) {
        if (f->at[i].step != step)
            continue;
        servers = f->at[i].servers;
        *there = 0;
        for (size_t j = 0; j < f->n; j++)
            *there += f->at[j].step == step && f->at[j].servers == servers;
    }
    return servers;
}

static td_status load_files(td__ps_tables *t, td__ps_table *b, const files *f, uint64_t step)
{
    int there, servers = servers_at(f, step, &there);
    char path[PATH];
    if (!servers || there != servers)
        return TD_FAIL(TD_EINVAL, "%s: files of %d of %d servers for table %s at step %llu",
                       t->folder, there, servers, b->is.param, (unsigned long long)step);
    for (size_t i = 0; i < f->n; i++) {
        const file *a = &f->at[i];
        bool later = false; /* is there another one with all rows? */
        if (a->servers != servers || a->step > step)
            continue;
        for (size_t j = i + 1; j < f->n; j++)
            later = later || (f->at[j].server == a->server && f->at[j].servers == servers &&
                              f->at[j].all && f->at[j].step <= step);
        if (later)
            continue;
        name_file(t, b->is.param, a->server, a->servers, a->step, a->all, path);
        TD_TRY(td__id_table_load(b->rows, path, mine, t));
    }
    return TD_OK;
}

td_status td__rows_are_saved(const td__ps_tables *t, uint64_t step, bool *yes)
{
    *yes = *t->folder && access(t->folder, R_OK) == 0;
    for (int k = 0; *yes && k < t->n; k++) {
        files f = {.at = NULL};
        int there = 0, servers = 0;
        td_status st = list(t->folder, t->at[k].is.param, &f);
        if (!st)
            servers = servers_at(&f, step, &there);
        td__free(f.at);
        TD_TRY(st);
        *yes = servers && there == servers;
    }
    return TD_OK;
}

td_status td__rows_load(td__ps_tables *t, uint64_t step)
{
    td_status st = TD_OK;
    pthread_mutex_lock(&t->lock);
    for (int k = 0; !st && k < t->n; k++) {
        files f = {.at = NULL};
        st = list(t->folder, t->at[k].is.param, &f);
        if (!st)
            st = load_files(t, &t->at[k], &f, step);
        td__free(f.at);
    }
    t->placed = !st;
    pthread_mutex_unlock(&t->lock);
    return st;
}
