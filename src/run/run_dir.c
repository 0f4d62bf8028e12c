/* run_dir.c -- names of run directories. mkdir decides who gets a number, so that runs that start
 * at the same moment never share a directory. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "run/run_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/file.h"

enum { MODE = 0777, LAST_NUMBER = 999999, PARENT_MOST = TD__PATH - 512 };

td_status td__run_dir_path(const char *dir, const char *file, char path[TD__PATH])
{
    size_t len = strlen(dir);
    const char *slash = len && dir[len - 1] == '/' ? "" : "/";
    if (snprintf(path, TD__PATH, "%s%s%s", dir, slash, file) >= TD__PATH)
        return TD_FAIL(TD_EINVAL, "the path %.60s.../%s is too long", dir, file);
    return TD_OK;
}

/* A path that cannot be made is the user's mistake; a disk that does not want to is not. */
static td_status mkdir_failed(const char *path, int error)
{
    bool disk = td__disk_full(error) || error == EIO || error == ENOMEM;
    return TD_FAIL(disk ? TD_EIO : TD_EINVAL, "cannot create the directory %s: %s", path,
                   strerror(error));
}

/* mkdir -p */
static td_status make_path(const char *path)
{
    char part[TD__PATH];
    struct stat info;

    if (!*path || strlen(path) > PARENT_MOST)
        return TD_FAIL(TD_EINVAL, "'%.60s' cannot be a run's directory: %s", path,
                       *path ? "the path is too long" : "it is empty");
    snprintf(part, sizeof part, "%s", path);
    for (char *p = part + 1;; p++) {
        if (*p && *p != '/')
            continue;
        char c = *p;
        *p = 0;
        int error = mkdir(part, MODE) != 0 ? errno : 0;
        if (error && error != EEXIST && stat(part, &info) != 0)
            return mkdir_failed(part, error);
        *p = c;
        if (!c)
            break;
    }
    if (stat(path, &info) != 0)
        return mkdir_failed(path, errno);
    if (!S_ISDIR(info.st_mode))
        return TD_FAIL(TD_EINVAL, "%s is not a directory", path);
    return TD_OK;
}

static td_status check_name(const char *name)
{
    if (!*name || *name == '.' || strchr(name, '/') || strlen(name) > 200)
        return TD_FAIL(TD_EINVAL, "'%.60s' cannot be the name of a run: it names a directory",
                       name);
    return TD_OK;
}

/* The number of a directory named NAME-0001; 0 if it is not one. */
static long number_of(const char *entry, const char *name)
{
    size_t len = strlen(name);
    char *end;

    if (strncmp(entry, name, len) != 0 || entry[len] != '-' || entry[len + 1] < '0' ||
        entry[len + 1] > '9')
        return 0;
    long n = strtol(entry + len + 1, &end, 10);
    return *end || n > LAST_NUMBER ? 0 : n;
}

static bool has_job(DIR *parent, const char *run)
{
    char file[256 + sizeof "/job.yaml"];
    struct stat info;

    snprintf(file, sizeof file, "%s/job.yaml", run);
    return fstatat(dirfd(parent), file, &info, 0) == 0;
}

/* The highest number in use; 0: none, or the directory cannot be read. */
static long highest(const char *parent, const char *name, bool with_job)
{
    DIR *d = opendir(parent);
    long most = 0;

    if (!d)
        return 0;
    for (struct dirent *e; (e = readdir(d));) {
        long n = number_of(e->d_name, name);
        if (n > most && (!with_job || has_job(d, e->d_name)))
            most = n;
    }
    closedir(d);
    return most;
}

static td_status numbered(const char *parent, const char *name, long n, char path[TD__PATH])
{
    char file[256];
    snprintf(file, sizeof file, "%s-%04ld", name, n);
    return td__run_dir_path(parent, file, path);
}

td_status td__run_dir_create(const char *parent, const char *name, char path[TD__PATH])
{
    TD_TRY(make_path(parent));
    if (!name) {
        snprintf(path, TD__PATH, "%s", parent);
        return TD_OK;
    }
    TD_TRY(check_name(name));
    for (long n = highest(parent, name, false) + 1; n <= LAST_NUMBER; n++) {
        TD_TRY(numbered(parent, name, n, path));
        if (mkdir(path, MODE) == 0)
            return TD_OK;
        if (errno != EEXIST)
            return mkdir_failed(path, errno);
    }
    return TD_FAIL(TD_EINVAL, "%s: no free number is left for a run of %s", parent, name);
}

td_status td__run_dir_newest(const char *parent, const char *name, char path[TD__PATH])
{
    TD_TRY(check_name(name));
    long n = highest(parent, name, true);
    if (!n)
        return TD_FAIL(TD_EINVAL, "no run of '%s' in %s/; train it first", name, parent);
    return numbered(parent, name, n, path);
}

void td__run_dir_sweep(const char *dir)
{
    static const char *const FILES[] = {"job.yaml.tmp-", "metrics.jsonl.tmp-", "report.html.tmp-",
                                        "trace.json.tmp-", "profile.txt.tmp-"};
    DIR *d = opendir(dir);

    if (!d)
        return;
    for (struct dirent *e; (e = readdir(d));)
        for (size_t i = 0; i < sizeof FILES / sizeof FILES[0]; i++)
            if (strncmp(e->d_name, FILES[i], strlen(FILES[i])) == 0)
                unlinkat(dirfd(d), e->d_name, 0); /* one that stays does no harm */
    closedir(d);
}

void td__run_dir_failed(const char *dir, const char *why)
{
    char path[TD__PATH];
    if (!*dir || td__run_dir_path(dir, "failed.txt", path))
        return;
    if (!why) {
        unlink(path);
        return;
    }
    FILE *f = fopen(path, "we");
    if (!f)
        return;
    bool good = fprintf(f, "%s\n", why) > 0;
    if (fclose(f) != 0 || !good)
        unlink(path);
}
