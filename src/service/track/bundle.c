/* bundle.c -- see bundle.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "service/track/bundle.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/config.h"
#include "base/fail.h"
#include "base/file.h"
#include "service/track/artifact_list.h"

enum { PATH_BYTES = 5300, MANIFEST_MOST = 64 << 20, KEPT = 2 };

#define MANIFEST "MANIFEST"

static td_status send_one(td__remote *r, const char *dir, const td__artifact_line *line,
                          const char *url, td__deadline until)
{
    char path[PATH_BYTES], to[PATH_BYTES], sha256[TD_SHA256_HEX];

    if (!strcmp(line->name, MANIFEST))
        return TD_FAIL(TD_EINVAL, "%s: a file must not be named " MANIFEST ", as the list of all",
                       dir);
    snprintf(path, sizeof path, "%.4200s/%s", dir, line->name);
    snprintf(to, sizeof to, "%.4200s/%s", url, line->name);
    TD_TRY(td__remote_put_file(r, to, path, sha256, until));
    return strcmp(sha256, line->sha256) == 0
               ? TD_OK
               : TD_FAIL(TD_EIO, "%s was changed while it was sent", path);
}

td_status td__bundle_send(td__remote *r, const char *dir, const char *list, const char *url,
                          bool (*stop)(void *arg), void *arg, td__deadline until)
{
    char to[PATH_BYTES];
    td__artifact_line line;
    td__file_map m;
    td_status st = TD_OK;

    TD_TRY(td__file_map_copy(&m, list, TD__ARTIFACT_LIST_BYTES));
    for (size_t at = 0; !st && td__artifact_list_next((const char *)m.data, m.nbytes, &at, &line);)
        st = stop && stop(arg) ? TD_FAIL(TD_EABORTED, "stopped before all files were sent")
                               : send_one(r, dir, &line, url, until);
    snprintf(to, sizeof to, "%.4200s/" MANIFEST, url);
    if (!st)
        st = td__remote_put(r, to, m.data, m.nbytes, until);
    td__file_map_close(&m);
    return st;
}

/* A name that a manifest says: it must stay below the directory. */
static bool good_name(const char *name)
{
    for (;; name++) {
        size_t n = strcspn(name, "/");
        if (!n || (n <= 2 && strspn(name, ".") >= n))
            return false;
        name += n;
        if (!*name)
            return true;
    }
}

static td_status make_folders(char *path, size_t from)
{
    for (char *slash = strchr(path + from, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        int failed = mkdir(path, 0777) && errno != EEXIST ? errno : 0;
        *slash = '/';
        if (failed)
            return TD_FAIL(TD_EIO, "%s: %s", path, strerror(failed));
    }
    return TD_OK;
}

/* Each file whole; others that the directory has stay. */
static td_status fetch(td__remote *r, const char *url, const char *dir, td__deadline until)
{
    char from[PATH_BYTES], path[PATH_BYTES];
    td__artifact_line line;
    td__text list = {0};

    snprintf(from, sizeof from, "%.4200s/" MANIFEST, url);
    td_status st = td__remote_get(r, from, MANIFEST_MOST, &list, until);
    if (!st && mkdir(dir, 0777) && errno != EEXIST)
        st = TD_FAIL(TD_EIO, "%s: %s", dir, strerror(errno));
    for (size_t at = 0;
         !st && list.used && td__artifact_list_next(list.data, list.used, &at, &line);) {
        if (!good_name(line.name)) {
            st = TD_FAIL(TD_EPROTO, "%s: '%.100s' is no name of a file", from, line.name);
            break;
        }
        int n = snprintf(path, sizeof path, "%.4200s/", dir);
        snprintf(path + n, sizeof path - (size_t)n, "%s", line.name);
        st = make_folders(path, (size_t)n);
        if (st)
            break;
        snprintf(from, sizeof from, "%.4200s/%s", url, line.name);
        st = td__remote_get_file(r, from, path, line.sha256, until);
    }
    td__text_fini(&list);
    return st;
}

/* ---- saves ---- */

/* Of the last whole one; 0: there is none. */
static td_status latest(td__remote *r, const char *url, int64_t *number, td__deadline until)
{
    char from[PATH_BYTES];
    td__text text = {0};

    *number = 0;
    snprintf(from, sizeof from, "%.4200s/latest", url);
    td_status st = td__remote_get(r, from, 64, &text, until);
    if (st && td__remote_absent(r))
        st = TD_OK;
    else if (!st && (!text.data || sscanf(text.data, "save-%" SCNd64, number) != 1 || *number < 1))
        st = TD_FAIL(TD_EPROTO, "%s: expected the name of a save", from);
    td__text_fini(&text);
    return st;
}

static bool remove_one(void *arg, const char *name, uint64_t nbytes)
{
    (void)nbytes;
    td__text_append(arg, name, strlen(name) + 1);
    return true;
}

/* The manifest first: half of it is none. What cannot be removed costs room, no more. */
static void remove_save(td__remote *r, const char *url, int64_t number, td__deadline until)
{
    char base[PATH_BYTES], from[PATH_BYTES];
    td__text names = {0};

    snprintf(base, sizeof base, "%.4100s/save-%" PRId64, url, number);
    snprintf(from, sizeof from, "%.4200s/" MANIFEST, base);
    if (!td__remote_delete(r, from, until) &&
        !td__remote_list(r, base, remove_one, &names, until) && !names.failed)
        for (size_t at = 0; at < names.used; at += strlen(names.data + at) + 1) {
            snprintf(from, sizeof from, "%.4200s/%s", base, names.data + at);
            if (td__remote_delete(r, from, until))
                break;
        }
    td__text_fini(&names);
}

td_status td__bundle_save(td__remote *r, const char *dir, const char *url, int64_t *number,
                          td__deadline until)
{
    const char *temporary = td__env_get(TD_ENV_TMPDIR);
    char list[PATH_BYTES], to[PATH_BYTES], name[40];
    td_status st;

    TD_TRY(latest(r, url, number, until));
    snprintf(list, sizeof list, "%.4200s/tandem-save-XXXXXX", temporary ? temporary : "/tmp");
    int fd = mkstemp(list);
    if (fd < 0)
        return TD_FAIL(TD_EIO, "%s: %s", list, strerror(errno));
    close(fd);
    ++*number;
    int n = snprintf(name, sizeof name, "save-%" PRId64 "\n", *number);
    snprintf(to, sizeof to, "%.4200s/%.*s", url, n - 1, name);
    TD_TRY_OR(st, done, td__artifact_list_write(dir, list, &(td__artifact_opts){.all = true}));
    TD_TRY_OR(st, done, td__bundle_send(r, dir, list, to, NULL, NULL, until));
    snprintf(to, sizeof to, "%.4200s/latest", url);
    TD_TRY_OR(st, done, td__remote_put(r, to, name, (size_t)n, until));
    if (*number > KEPT)
        remove_save(r, url, *number - KEPT, until);
done:
    unlink(list);
    return st;
}

td_status td__bundle_load(td__remote *r, const char *url, const char *dir, int64_t *number,
                          td__deadline until)
{
    char from[PATH_BYTES];

    TD_TRY(latest(r, url, number, until));
    snprintf(from, sizeof from, "%.4200s/save-%" PRId64, url, *number);
    return *number ? fetch(r, from, dir, until) : TD_OK;
}
