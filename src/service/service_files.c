/* service_files.c -- the service's directories: jobs with their artifacts, and buckets.
 *
 *     data.dir/service.db
 *     data.dir/jobs/ID/{job.yaml, run/, work/, artifacts/, checkpoints/, attempts/TOKEN/, ...}
 *     data.dir/buckets/BUCKET/KEY
 *
 * Names of strangers become paths only here, after they were checked: no part is empty, "." or
 * "..", and none begins with "/". */
/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/file.h"
#include "base/file_below.h"
#include "base/log.h"
#include "base/text.h"
#include "base/utf8.h"
#include "service/service_impl.h"
#include "service/track/artifact_list.h"

enum { MODE = 0700, MOST_OPEN = 16, LIST_MOST = 64 << 20 };

static td_status make_dir(const char *path)
{
    return mkdir(path, MODE) && errno != EEXIST
               ? TD_FAIL(TD_EIO, "cannot make %s: %s", path, strerror(errno))
               : TD_OK;
}

/* With the directories above it. */
static td_status make_path(const char *path)
{
    char part[TD__JOB_PATH + 64];

    snprintf(part, sizeof part, "%s", path);
    for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        TD_TRY(make_dir(part));
        *slash = '/';
    }
    return make_dir(part);
}

static void remove_left(td__service *s, const char *jobs);

td_status td__service_make_dirs(td__service *s)
{
    static const char *const NAMES[] = {"jobs", "buckets"};
    char path[TD__JOB_PATH + 64];

    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", s->dir, NAMES[i]);
        TD_TRY(make_path(path));
    }
    snprintf(path, sizeof path, "%s/jobs", s->dir);
    remove_left(s, path);
    return TD_OK;
}

td_status td__service_key(td__service *s)
{
    char path[TD__JOB_PATH];

    if (s->has_key)
        return TD_OK;
    snprintf(path, sizeof path, "%s/key", s->dir);
    int fd = td__file_open_plain(path, O_RDWR | O_CREAT, 0600);
    ssize_t n = fd >= 0 ? read(fd, s->key, sizeof s->key) : -1;
    bool good = n == (ssize_t)sizeof s->key;
    if (n == 0)
        good = getrandom(s->key, sizeof s->key, 0) == (ssize_t)sizeof s->key &&
               write(fd, s->key, sizeof s->key) == (ssize_t)sizeof s->key && fsync(fd) == 0;
    td_status st = good ? TD_OK : TD_FAIL(TD_EIO, "%s: it cannot be read or made", path);
    if (fd >= 0)
        close(fd);
    s->has_key = good;
    return st;
}

char *td__service_job_dir(const td__service *s, int32_t job, char *path, size_t nbytes)
{
    snprintf(path, nbytes, "%s/jobs/%d", s->dir, job);
    return path;
}

td_status td__service_make_job_dir(td__service *s, int32_t job)
{
    static const char *const NAMES[] = {"", "/work", "/artifacts", "/checkpoints", "/attempts"};
    char path[TD__JOB_PATH + 64];

    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        snprintf(path, sizeof path, "%s/jobs/%d%s", s->dir, job, NAMES[i]);
        TD_TRY(make_dir(path));
    }
    return TD_OK;
}

/* Removing: the job's record is gone, which is committed; then its directory gets another name, at
 * once, and a thread removes it, since that may take long. What was not removed when the service
 * ended is found by its name at the next start. */

#define GONE ".gone-"

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *place)
{
    (void)info;
    (void)kind;
    (void)place;
    return remove(path) && errno != ENOENT ? -1 : 0;
}

typedef struct removal {
    td__work work;
    char path[TD__JOB_PATH];
} removal;

static void run_removal(void *arg)
{
    removal *r = arg;

    if (nftw(r->path, remove_one, MOST_OPEN, FTW_DEPTH | FTW_PHYS) && errno != ENOENT)
        TD_LOG(WARN, SERVICE, "%s was not removed: %s", r->path, strerror(errno));
}

static void end_removal(void *arg, bool was_run)
{
    (void)was_run; /* else at the next start */
    td__free(arg);
}

/* A directory that has its last name. */
static void remove_later(td__service *s, const char *name)
{
    removal *r = td__calloc(1, sizeof *r);

    if (!r || (!s->cleaners && td__work_threads_create(s->o.loop, 1, &s->cleaners))) {
        td__free(r);
        return; /* at the next start */
    }
    snprintf(r->path, sizeof r->path, "%s/jobs/%s", s->dir, name);
    r->work = (td__work){.run = run_removal, .done = end_removal, .arg = r};
    td__work_threads_add(s->cleaners, &r->work);
}

void td__service_remove_job_dir(td__service *s, int32_t job)
{
    char from[TD__JOB_PATH], to[TD__JOB_PATH + 64], name[32];

    td__service_job_dir(s, job, from, sizeof from);
    snprintf(name, sizeof name, GONE "%d", job);
    snprintf(to, sizeof to, "%s/jobs/%s", s->dir, name);
    if (!rename(from, to))
        remove_later(s, name);
    else if (errno != ENOENT)
        TD_LOG(WARN, SERVICE, "%s was not removed: %s", from, strerror(errno));
}

static void remove_left(td__service *s, const char *jobs)
{
    DIR *dir = opendir(jobs);
    const struct dirent *e;

    while (dir && (e = readdir(dir)))
        if (!strncmp(e->d_name, GONE, strlen(GONE)))
            remove_later(s, e->d_name);
    if (dir)
        closedir(dir);
}

static bool good_part(const char *part, size_t n)
{
    return n > 0 && n < 256 && !(n == 1 && part[0] == '.') &&
           !(n == 2 && part[0] == '.' && part[1] == '.') && !memchr(part, '\\', n);
}

/* A relative name whose parts stay below where it starts. */
bool td__service_good_name(const char *name)
{
    if (strlen(name) > 1000 || !td__utf8_valid(name, strlen(name)))
        return false;
    for (;;) {
        size_t n = strcspn(name, "/");
        if (!good_part(name, n))
            return false;
        if (!name[n])
            return true;
        name += n + 1;
    }
}

td__answer td__service_bucket_path(const td__service *s, const char *bucket, const char *key,
                                   char *path, size_t nbytes)
{
    if (!td__service_good_name(bucket) || strchr(bucket, '/') ||
        (*key && !td__service_good_name(key)))
        return td__answer_fail(TD_ANSWER_INVALID, "'%.100s/%.200s' is not a bucket and a key",
                               bucket, key);
    snprintf(path, nbytes, "%s/buckets/%s%s%s", s->dir, bucket, *key ? "/" : "", key);
    return TD_ANSWER_OK;
}

/* `name` below `dir`, for reading. */
static td__answer open_below(const char *dir, const char *name, int *fd, uint64_t *nbytes)
{
    struct stat info;

    *fd = td__file_open_below(dir, name, O_RDONLY, 0);
    if (*fd < 0)
        return td__answer_fail(TD_ANSWER_NOT_FOUND, "there is no %.200s", name);
    *nbytes = fstat(*fd, &info) ? 0 : (uint64_t)info.st_size;
    return TD_ANSWER_OK;
}

td__answer td__service_object_open(td__service *s, const char *bucket, const char *key, int *fd,
                                   uint64_t *nbytes)
{
    char dir[TD__JOB_PATH];
    td__answer a = td__service_bucket_path(s, bucket, "", dir, sizeof dir);

    return a ? a : open_below(dir, key, fd, nbytes);
}

td__answer td__service_object_place(td__service *s, const td__caller *who, const char *bucket,
                                    const char *key, char *dir, size_t nbytes)
{
    char path[TD__JOB_PATH], *owner = NULL;
    td__answer a = td__service_bucket_path(s, bucket, key, path, sizeof path);

    if (!a && !*key)
        a = td__answer_fail(TD_ANSWER_INVALID, "a key is required");
    if (!a && !who->admin && access(path, F_OK) == 0) {
        a = td__answer_of(
            td__job_store_value(s->store, TD__DOC_OBJECT, path + strlen(s->dir), &owner));
        if (!a && (!owner || strcmp(owner, who->user) != 0))
            a = td__answer_fail(TD_ANSWER_DENIED, "%.100s/%.200s belongs to another user", bucket,
                                key);
        td__free(owner);
    }
    if (!a)
        a = td__service_bucket_path(s, bucket, "", dir, nbytes);
    return a ? a : td__answer_of(make_path(dir));
}

td__answer td__service_object_put(td__service *s, const char *user, const char *bucket,
                                  const char *key)
{
    char path[TD__JOB_PATH];
    td__answer a = td__service_bucket_path(s, bucket, key, path, sizeof path);

    if (!a)
        a = td__answer_of(td__job_store_put(s->store, TD__DOC_OBJECT, path + strlen(s->dir), user));
    td__service_touch(s);
    return a;
}

/* Artifacts. */

td__answer td__service_artifacts(td__service *s, int32_t job, td__artifact_each each, void *arg)
{
    const td__job_record *r;
    td__answer a = td__service_get(s, job, &r);

    return a ? a : td__answer_of(td__job_store_artifacts(s->store, job, each, arg));
}

typedef struct finding {
    const char *name;
    bool found;
} finding;

static bool find_name(void *arg, const td__artifact *a)
{
    finding *f = arg;

    f->found = f->found || !strcmp(a->name, f->name);
    return !f->found;
}

/* Below the job's directory, which the service has made: what lies in it is the job's. */
td__answer td__service_artifact_open(td__service *s, int32_t job, const char *name, int *fd,
                                     uint64_t *nbytes)
{
    finding f = {.name = name};
    char dir[TD__JOB_PATH], below[1100];
    td__answer a = td__service_artifacts(s, job, find_name, &f);

    if (a)
        return a;
    if (!f.found || !td__service_good_name(name))
        return td__answer_fail(TD_ANSWER_NOT_FOUND, "job %d has no artifact '%.200s'", job, name);
    snprintf(below, sizeof below, "artifacts/%s", name);
    return open_below(td__service_job_dir(s, job, dir, sizeof dir), below, fd, nbytes);
}

td__answer td__service_artifact_place(td__service *s, const td__caller *who, int32_t job,
                                      const char *name, char *dir, size_t nbytes)
{
    const td__job_record *r;
    td__answer a = td__service_find_own(s, who, job, &r);

    if (a)
        return a;
    if (!td__service_good_name(name))
        return td__answer_fail(TD_ANSWER_INVALID, "'%.200s' is not a name of an artifact", name);
    td__service_job_dir(s, job, dir, nbytes);
    return td__answer_of(td__service_make_job_dir(s, job));
}

td__answer td__service_artifact_add(td__service *s, int32_t job, const char *name, uint64_t nbytes,
                                    const char *sha256)
{
    const td__job_record *r;
    td__artifact x = {.job = job, .name = name, .nbytes = (int64_t)nbytes};
    td__answer a = td__service_get(s, job, &r);

    if (a)
        return a;
    x.time_ms = td__service_now_ms(s);
    snprintf(x.sha256, sizeof x.sha256, "%s", sha256);
    a = td__answer_of(td__job_store_artifact(s->store, &x));
    if (!a)
        td__service_say(s, r, TD_EVENT_ARTIFACT, 0, "%s", name);
    return a;
}

/* The list of the job's last attempt, in a directory that the job may have written to; false: there
 * is none. */
static bool read_list(td__service *s, const td__job_record *r, td__text *list)
{
    char dir[TD__JOB_PATH], name[TD__TOKEN + 32], piece[4096];
    ssize_t n = 0;

    snprintf(name, sizeof name, "attempts/%s/" TD__ARTIFACT_LIST, r->token);
    td__service_job_dir(s, r->id, dir, sizeof dir);
    int fd = td__file_open_below(dir, name, O_RDONLY, 0);
    while (fd >= 0 && list->used < LIST_MOST && (n = read(fd, piece, sizeof piece)) > 0)
        td__text_append(list, piece, (size_t)n);
    if (fd >= 0)
        close(fd);
    return fd >= 0 && n >= 0 && list->used > 0 && !td__text_status(list);
}

/* The supervisor has hashed them: "SHA256 BYTES NAME" in each line (track/artifact_list.h). */
void td__service_collect_artifacts(td__service *s, const td__job_record *r)
{
    td__artifact_line line;
    td__text list = {0};

    if (r->state != TD_JOB_SUCCEEDED)
        return;
    /* Without a list: a tracker whose jobs keep their artifacts elsewhere. */
    bool have = read_list(s, r, &list);
    for (size_t at = 0; have && td__artifact_list_next(list.data, list.used, &at, &line);) {
        td__artifact a = {.job = r->id,
                          .name = line.name,
                          .nbytes = line.nbytes,
                          .time_ms = td__service_now_ms(s)};
        snprintf(a.sha256, sizeof a.sha256, "%s", line.sha256);
        if (!td__service_good_name(line.name)) {
            TD_LOG(WARN, SERVICE, "job %d: an artifact is left out: its name is no UTF-8 text",
                   r->id);
            continue;
        }
        if (td__job_store_artifact(s->store, &a))
            break;
        td__service_say(s, r, TD_EVENT_ARTIFACT, 0, "%s", a.name);
    }
    td__text_fini(&list);
}
