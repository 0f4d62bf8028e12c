/* api_files.c -- artifacts of jobs and objects of buckets: sent as files, and received whole or not
 * at all; and checkpoints of jobs on other machines.
 *
 * An upload lies in the spool folder, on the same file system, when its handler runs. A worker
 * thread (rpc/work.h) makes it durable and renames it into its place, since both may block; then
 * the loop thread records it and answers. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/file_below.h"
#include "service/http/api_impl.h"

enum { PATH_ROOM = 4096 };

/* An upload on its way to its place. */
typedef struct save {
    td__http_api *api;
    td__httpd_request *r;
    int32_t job;     /* 0: an object of a bucket */
    bool checkpoint; /* of the job; else an artifact */
    char from[PATH_ROOM], dir[PATH_ROOM], name[PATH_ROOM], sha256[65];
    char user[256], bucket[256]; /* of an object */
    uint64_t nbytes;
    td__work work;
    int error; /* errno; 0: done */
} save;

/* ---- sending ---- */

static void send_file(td__httpd_request *r, int fd, uint64_t nbytes)
{
    td__httpd_set(r, "Content-Disposition", "attachment");
    td__httpd_reply_file(r, "application/octet-stream", fd, nbytes);
}

typedef struct listing {
    td__text out;
    int n;
} listing;

static bool add_artifact(void *arg, const td__artifact *f)
{
    listing *l = arg;
    td__text_add(&l->out, l->n++ ? ",{\"name\":" : "{\"name\":");
    td__text_json(&l->out, f->name);
    td__text_printf(&l->out, ",\"nbytes\":%lld,\"sha256\":\"%s\",\"time_ms\":%lld}",
                    (long long)f->nbytes, f->sha256, (long long)f->time_ms);
    return true;
}

void td__http_list_artifacts(void *arg, td__httpd_request *r)
{
    td__http_api *a = arg;
    listing l = {0};
    int32_t id = td__http_job_id(r);
    if (!id)
        return;
    td__text_add(&l.out, "{\"artifacts\":[");
    if (!td__http_api_refused(r, td__service_artifacts(a->o.service, id, add_artifact, &l))) {
        td__text_add(&l.out, "]}\n");
        td__httpd_reply_json(r, 200, &l.out);
    }
    td__text_fini(&l.out);
}

void td__http_get_artifact(void *arg, td__httpd_request *r)
{
    td__http_api *a = arg;
    uint64_t nbytes;
    int fd;
    int32_t id = td__http_job_id(r);
    if (id &&
        !td__http_api_refused(r, td__service_artifact_open(
                                     a->o.service, id, td__httpd_param(r, "name"), &fd, &nbytes)))
        send_file(r, fd, nbytes);
}

void td__http_get_object(void *arg, td__httpd_request *r)
{
    td__http_api *a = arg;
    uint64_t nbytes;
    int fd;
    if (!td__http_api_refused(r, td__service_object_open(a->o.service, td__httpd_param(r, "bucket"),
                                                         td__httpd_param(r, "key"), &fd, &nbytes)))
        send_file(r, fd, nbytes);
}

/* ---- receiving ---- */

/* On a worker thread. */
static void save_run(void *arg)
{
    save *s = arg;
    char below[PATH_ROOM + 16];
    snprintf(below, sizeof below, "%s%s",
             s->checkpoint ? "checkpoints/"
             : s->job      ? "artifacts/"
                           : "",
             s->name);
    s->error = td__file_place_below(s->dir, below, s->from);
}

static void save_reply(save *s)
{
    td__service *service = s->api->o.service;
    td__text t = {0};
    td__answer a = s->checkpoint ? TD_ANSWER_OK
                   : s->job
                       ? td__service_artifact_add(service, s->job, s->name, s->nbytes, s->sha256)
                       : td__service_object_put(service, s->user, s->bucket, s->name);
    if (td__http_api_refused(s->r, a))
        return;
    td__text_add(&t, "{\"name\":");
    td__text_json(&t, s->name);
    td__text_printf(&t, ",\"nbytes\":%llu,\"sha256\":\"%s\"}\n", (unsigned long long)s->nbytes,
                    s->sha256);
    td__httpd_reply_json(s->r, 201, &t);
}

static void save_done(void *arg, bool was_run)
{
    save *s = arg;
    if (!was_run)
        td__httpd_fail(s->r, 503, "the service is stopping");
    else if (s->error)
        td__httpd_fail(s->r, 500, "cannot write %s: %s", s->name, strerror(s->error));
    else
        save_reply(s);
    td__free(s);
}

/* bucket NULL: a file of the job. */
static void save_start(td__http_api *a, td__httpd_request *r, int32_t job, bool checkpoint,
                       const char *bucket, const char *name, const char *dir)
{
    uint64_t nbytes;
    const char *sha, *from = td__httpd_upload(r, &nbytes, &sha);
    const char *wanted = td__httpd_query(r, "sha256");
    if (wanted && strcasecmp(wanted, sha) != 0) {
        td__httpd_fail(r, 400, "sha256 is %s, not %s: the file was damaged on its way", sha,
                       wanted);
        return;
    }
    save *s = td__calloc(1, sizeof *s);
    if (!s) {
        td__httpd_fail(r, 503, "out of memory");
        return;
    }
    *s = (save){.api = a, .r = r, .job = job, .checkpoint = checkpoint, .nbytes = nbytes};
    snprintf(s->from, sizeof s->from, "%s", from);
    snprintf(s->dir, sizeof s->dir, "%s", dir);
    snprintf(s->bucket, sizeof s->bucket, "%s", bucket ? bucket : "");
    snprintf(s->user, sizeof s->user, "%s", td__http_caller(r).user);
    snprintf(s->name, sizeof s->name, "%s", name);
    snprintf(s->sha256, sizeof s->sha256, "%s", sha);
    s->work = (td__work){.run = save_run, .done = save_done, .arg = s};
    td__work_threads_add(a->workers, &s->work);
}

void td__http_put_artifact(void *arg, td__httpd_request *r)
{
    td__http_api *a = arg;
    char dir[PATH_ROOM];
    const char *name = td__httpd_param(r, "name");
    td__caller who = td__http_caller(r);
    int32_t id = td__http_job_id(r);
    if (id && !td__http_api_refused(
                  r, td__service_artifact_place(a->o.service, &who, id, name, dir, sizeof dir)))
        save_start(a, r, id, false, NULL, name, dir);
}

void td__http_put_object(void *arg, td__httpd_request *r)
{
    td__http_api *a = arg;
    char dir[PATH_ROOM];
    td__caller who = td__http_caller(r);
    const char *bucket = td__httpd_param(r, "bucket"), *key = td__httpd_param(r, "key");
    if (!td__http_api_refused(
            r, td__service_object_place(a->o.service, &who, bucket, key, dir, sizeof dir)))
        save_start(a, r, 0, false, bucket, key, dir);
}

/* ---- checkpoints ---- */

void td__http_get_checkpoint(void *arg, td__httpd_request *r)
{
    td__http_api *a = arg;
    uint64_t nbytes;
    int fd;
    int32_t id = td__http_job_id(r);
    if (id &&
        !td__http_api_refused(r, td__service_checkpoint_open(
                                     a->o.service, id, td__httpd_param(r, "name"), &fd, &nbytes)))
        send_file(r, fd, nbytes);
}

void td__http_put_checkpoint(void *arg, td__httpd_request *r)
{
    td__http_api *a = arg;
    char dir[PATH_ROOM];
    const char *name = td__httpd_param(r, "name");
    td__caller who = td__http_caller(r);
    int32_t id = td__http_job_id(r);
    if (id && !td__http_api_refused(
                  r, td__service_checkpoint_place(a->o.service, &who, id, name, dir, sizeof dir)))
        save_start(a, r, id, true, NULL, name, dir);
}

void td__http_delete_checkpoint(void *arg, td__httpd_request *r)
{
    td__http_api *a = arg;
    td__caller who = td__http_caller(r);
    int32_t id = td__http_job_id(r);
    if (id && !td__http_api_refused(r, td__service_checkpoint_remove(a->o.service, &who, id,
                                                                     td__httpd_param(r, "name"))))
        td__http_done(r, 200, id);
}
