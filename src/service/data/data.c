/* data.c -- documents, directories and background work of data sets, runs and models. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "service/data/data.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/file.h"
#include "service/data/data_impl.h"
#include "service/message_json.h"

td_status td__data_create(td__service *s, td__data **out)
{
    td__data *d = td__calloc(1, sizeof *d);
    char path[TD__BUCKET_PATH];
    td_status st;

    *out = NULL;
    if (!d)
        return TD_FAIL(TD_ENOMEM, "data sets: out of memory");
    d->service = s;
    d->store = td__service_store(s);
    d->config = td__service_config_of(s);
    TD_TRY_OR(st, fail, td__work_threads_create(td__service_loop(s), 1, &d->workers));
    TD_TRY_OR(st, fail, td__work_threads_create(td__service_loop(s), 2, &d->waiters));
    TD_TRY_OR(st, fail, td__data_dir(d, d->config->data_bucket, "upload", path) ? TD_EIO : TD_OK);
    TD_TRY_OR(st, fail, td__data_dir(d, d->config->model_bucket, "", path) ? TD_EIO : TD_OK);
    TD_TRY_OR(st, fail, td__versions_resume(d));
    TD_TRY_OR(st, fail, td__job_runs_start(d));
    td__service_set_data_source(s, &(td__dataset_source){.fetch = d->config->data_service[0]
                                                                      ? td__data_of_other
                                                                      : td__data_for_job,
                                                         .arg = d});
    *out = d;
    return TD_OK;
fail:
    td__data_destroy(d);
    return st;
}

void td__data_destroy(td__data *d)
{
    if (!d)
        return;
    td__service_unsubscribe(d->events);
    td__work_threads_destroy(d->workers);
    td__work_threads_destroy(d->waiters);
    td__free(d);
}

/* ---- documents ---- */

td_status td__doc_get(td__data *d, td__arena *a, const char *kind, const char *key,
                      const ProtobufCMessageDescriptor *type, ProtobufCMessage **out)
{
    char *json;
    td_status st;

    *out = NULL;
    TD_TRY(td__job_store_value(d->store, kind, key, &json));
    if (!json)
        return TD_OK;
    st = td__message_from_json(a, type, json, strlen(json), out);
    td__free(json);
    return st;
}

td_status td__doc_put(td__data *d, const char *kind, const char *key, const ProtobufCMessage *m)
{
    td__text json = {0};
    td_status st;

    td__message_to_json(m, &json);
    st = td__text_status(&json);
    if (!st)
        st = td__job_store_put(d->store, kind, key, json.data);
    td__text_fini(&json);
    return st;
}

/* ---- owners ---- */

static char *owner_key(const char *kind, const char *key)
{
    td__text t = {0};

    td__text_printf(&t, "%s/%s", kind, key);
    return t.failed ? NULL : t.data;
}

td_status td__data_set_owner(td__data *d, const td__caller *who, const char *kind, const char *key)
{
    char *full = owner_key(kind, key);
    td_status st = full ? td__job_store_put(d->store, TD_DOC_OWNER, full, who->user)
                        : TD_FAIL(TD_ENOMEM, "data: out of memory");

    td__free(full);
    return st;
}

td__answer td__data_check_owner(td__data *d, const td__caller *who, const char *kind,
                                const char *key)
{
    char *full = owner_key(kind, key), *owner = NULL;
    td__answer a = full ? td__answer_of(td__job_store_value(d->store, TD_DOC_OWNER, full, &owner))
                        : td__answer_fail(TD_ANSWER_UNAVAILABLE, "out of memory");

    if (!a && !who->admin && (!owner || strcmp(owner, who->user) != 0))
        a = td__answer_fail(TD_ANSWER_DENIED, "%s %s belongs to another user",
                            strcmp(kind, TD_DOC_SET) ? "run" : "data set", key);
    td__free(full);
    td__free(owner);
    return a;
}

char *td__data_text(td__arena *a, const char *s)
{
    static char none[] = "";
    char *copy = td__arena_strdup(a, s ? s : "");

    return copy ? copy : none;
}

char *td__data_now(td__data *d, td__arena *a)
{
    int64_t ms = td__service_now_ms(d->service);
    time_t s = (time_t)(ms / 1000);
    struct tm t;
    char text[40], *copy;

    gmtime_r(&s, &t);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &t);
    copy = td__arena_printf(a, "%s.%03dZ", text, (int)(ms % 1000));
    return copy ? copy : td__data_text(a, "");
}

/* ---- files ---- */

td__answer td__data_dir(td__data *d, const char *bucket, const char *key,
                        char path[TD__BUCKET_PATH])
{
    td__answer a = td__service_bucket_path(d->service, bucket, key, path, TD__BUCKET_PATH);

    if (a)
        return a;
    for (char *slash = strchr(path + 1, '/');; slash = strchr(slash + 1, '/')) {
        if (slash)
            *slash = 0;
        if (mkdir(path, 0755) && errno != EEXIST)
            return td__answer_fail(TD_ANSWER_INTERNAL, "cannot make %s: %s", path, strerror(errno));
        if (!slash)
            return TD_ANSWER_OK;
        *slash = '/';
    }
}

/* Of a job, or of who has put it there: it may be cut while it is read. */
static td_status copy_file(const char *from, const char *to)
{
    int fd = open(from, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0)
        return TD_FAIL(TD_EIO, "%s: cannot open: %s", from, strerror(errno));
    td_status st = td__file_copy_fd(fd, from, to, NULL);
    close(fd);
    return st;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b); /* not of the locale */
}

/* Names in a directory, sorted, in the arena. */
static td_status list_dir(td__arena *a, const char *path, const char ***names, size_t *n)
{
    DIR *dir = opendir(path);
    size_t room = 0;
    struct dirent *e;
    td_status st = TD_OK;

    *n = 0;
    if (!dir)
        return TD_FAIL(TD_EIO, "%s: %s", path, strerror(errno));
    while (!st && (e = readdir(dir)) != NULL) {
        if (e->d_name[0] == '.')
            continue;
        if (*n == room) {
            size_t more = room ? 2 * room : 64;
            const char **at = td__arena_alloc(a, more * sizeof *at);

            if (at && *n)
                memcpy(at, *names, *n * sizeof *at);
            *names = at;
            room = more;
        }
        if (!*names || !((*names)[*n] = td__arena_strdup(a, e->d_name)))
            st = TD_FAIL(TD_ENOMEM, "%s: out of memory", path);
        ++*n;
    }
    closedir(dir);
    if (!st && *n)
        qsort(*names, *n, sizeof **names, by_name);
    return st;
}

/* prefix NULL: under its own name. */
static td_status copy_as(const char *from, const char *name, const char *to, const char *prefix,
                         int *n_files)
{
    char source[TD__BUCKET_PATH], target[TD__BUCKET_PATH];
    struct stat sb;

    snprintf(source, sizeof source, "%s%s%s", from, name[0] ? "/" : "", name);
    if (prefix)
        snprintf(target, sizeof target, "%s/%s%d", to, prefix, *n_files);
    else
        snprintf(target, sizeof target, "%s/%s", to, name[0] ? name : strrchr(from, '/') + 1);
    if (lstat(source, &sb))
        return TD_FAIL(TD_EIO, "%s: %s", source, strerror(errno));
    if (!S_ISREG(sb.st_mode))
        return TD_OK; /* a folder below it is another prefix */
    TD_TRY(copy_file(source, target));
    ++*n_files;
    return TD_OK;
}

td_status td__data_copy(const char *from, const char *to, const char *prefix, int *n_files)
{
    td__arena *a;
    const char **names = NULL;
    size_t n;
    struct stat sb;
    td_status st;

    *n_files = 0;
    if (stat(from, &sb))
        return TD_FAIL(TD_EINVAL, "%s: %s", strrchr(from, '/') + 1, strerror(errno));
    if (!S_ISDIR(sb.st_mode))
        return copy_as(from, "", to, prefix, n_files);
    TD_TRY(td__arena_create(&a));
    st = list_dir(a, from, &names, &n);
    for (size_t i = 0; i < n && !st; i++)
        st = copy_as(from, names[i], to, prefix, n_files);
    td__arena_destroy(a);
    return st;
}

/* ---- background ---- */

static void work_run(void *arg)
{
    td__data_work *w = arg;

    w->st = w->run(w);
    if (w->st)
        snprintf(w->error, sizeof w->error, "%s", td_last_error());
}

static void work_done(void *arg, bool was_run)
{
    td__data_work *w = arg;
    ProtobufCMessage *m = NULL;
    td__answer a;

    if (!was_run)
        a = td__answer_fail(TD_ANSWER_UNAVAILABLE, "the service is stopping");
    else
        a = w->finish(w, &m);
    if (w->done)
        w->done(w->arg, a, a ? NULL : m);
    td__arena_destroy(w->arena);
    td__free(w);
}

td__answer td__data_work_failed(const td__data_work *w)
{
    return w->st ? td__answer_fail(td__answer_of(w->st), "%s", w->error) : TD_ANSWER_OK;
}

void td__data_work_start_on(td__data *d, td__work_threads *threads, td__data_work *w)
{
    w->data = d;
    w->work = (td__work){.run = work_run, .done = work_done, .arg = w};
    td__work_threads_add(threads, &w->work);
}

void td__data_work_start(td__data *d, td__data_work *w)
{
    td__data_work_start_on(d, d->workers, w);
}
