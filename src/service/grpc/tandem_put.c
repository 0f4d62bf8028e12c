/* tandem_put.c -- PutArtifact of tandem.v1: a file of a job that comes piece by piece.
 *
 * Pieces are written to a file in the spool folder as they come, which holds the client back while
 * the disk is slow. When the client has sent all of them, a worker thread hashes the file, makes it
 * durable and renames it into its place; then it is recorded, and the call answered. A call that
 * ends before leaves nothing. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/file_below.h"
#include "base/sha256.h"
#include "service/config.h"
#include "service/grpc/api_impl.h"
#include "tandem.pb-c.h"

enum { PATH_ROOM = 4096, NAME_ROOM = 1024, THREADS = 1 };
static const uint64_t MOST_BYTES = 1ull << 34; /* as over HTTP */

typedef struct put {
    td__grpc_api *api;
    td__call *call; /* NULL: it has ended, and the worker still goes on */
    int32_t job;
    char dir[PATH_ROOM], from[PATH_ROOM], name[NAME_ROOM];
    char wanted[TD_SHA256_HEX], sha256[TD_SHA256_HEX];
    int fd;
    uint64_t nbytes;
    td__work work; /* once the client has sent everything */
    bool working;
    td_status st;
    char text[512];
} put;

static void put_free(put *p)
{
    if (p->fd >= 0)
        close(p->fd);
    if (p->from[0])
        unlink(p->from); /* it is not there any more if all went well */
    td__free(p);
}

static void put_ended(void *data, td__call *c)
{
    put *p = data;

    (void)c;
    p->call = NULL;
    if (!p->working)
        put_free(p);
}

static const td__call_events PUT_EVENTS = {.ended = put_ended};

/* The call has been answered, or is now. */
static void refuse(put *p, td__grpc_code code, const char *why)
{
    td__call_finish(p->call, code, "%s", why);
    put_free(p);
}

/* ---- the worker ---- */

/* A service that is told to stop does not wait until 16 GiB are hashed. */
static td_status hash(put *p)
{
    uint8_t digest[TD_SHA256_BYTES];
    char piece[1 << 16];
    td__sha256 h;
    td_status st = TD_OK;

    TD_TRY(td__sha256_init(&h));
    for (uint64_t at = 0; at < p->nbytes && !st;) {
        ssize_t n = pread(p->fd, piece, sizeof piece, (off_t)at);
        if (atomic_load(&p->api->stopping))
            st = TD_FAIL(TD_EABORTED, "the service is stopping");
        else if (n <= 0 && !(n < 0 && errno == EINTR))
            st = TD_FAIL(TD_EIO, "%s: cannot read it: %s", p->name,
                         n ? strerror(errno) : "it became shorter");
        if (!st && n > 0) {
            td__sha256_update(&h, piece, (size_t)n);
            at += (uint64_t)n;
        }
    }
    if (st) {
        td__sha256_fini(&h);
        return st;
    }
    td__sha256_final(&h, digest);
    td__sha256_hex(digest, p->sha256);
    return TD_OK;
}

static void run_put(void *arg)
{
    put *p = arg;
    char below[NAME_ROOM + 16];

    p->st = hash(p);
    if (!p->st && p->wanted[0] && strcasecmp(p->wanted, p->sha256) != 0)
        p->st = TD_FAIL(TD_EINVAL, "sha256 is %s, not %s: the file was damaged on its way",
                        p->sha256, p->wanted);
    snprintf(below, sizeof below, "artifacts/%s", p->name);
    int error = p->st ? 0 : td__file_place_below(p->dir, below, p->from);
    if (error)
        p->st = TD_FAIL(TD_EIO, "cannot write %s: %s", p->name, strerror(error));
    snprintf(p->text, sizeof p->text, "%s", p->st ? td_last_error() : "");
}

static void end_put(void *arg, bool was_run)
{
    put *p = arg;
    td__service *s = p->api->o.service;
    Tandem__V1__Artifact m = TANDEM__V1__ARTIFACT__INIT;
    td__answer a = TD_ANSWER_UNAVAILABLE;

    if (!was_run)
        snprintf(p->text, sizeof p->text, "the service is stopping");
    else if (p->st && p->st != TD_EABORTED)
        a = td__answer_of(p->st);
    else if (!p->st) /* it lies there: also if nobody waits for the answer any more */
        a = td__service_artifact_add(s, p->job, p->name, p->nbytes, p->sha256);
    if (was_run && !p->st && a)
        snprintf(p->text, sizeof p->text, "%s", td_last_error());
    if (p->call && a) {
        td__call_finish(p->call, (td__grpc_code)td__answer_grpc(a), "%s", p->text);
    } else if (p->call) {
        m.name = p->name;
        m.bytes = (int64_t)p->nbytes;
        m.sha256 = p->sha256;
        m.time_ms = td__service_now_ms(s);
        td__call_reply(p->call, &m.base);
    }
    put_free(p);
}

/* ---- messages ---- */

static put *begin(td__call *c, td__grpc_api *a, const Tandem__V1__PutArtifactRequest *q)
{
    td__caller who = td__grpc_caller(c);
    put *p = td__calloc(1, sizeof *p);

    if (!p) {
        td__call_finish(c, TD_GRPC_RESOURCE_EXHAUSTED, "out of memory");
        return NULL;
    }
    *p = (put){.api = a, .call = c, .job = q->job_id, .fd = -1};
    if (td__grpc_refused(c, td__service_artifact_place(a->o.service, &who, q->job_id, q->name,
                                                       p->dir, sizeof p->dir))) {
        put_free(p);
        return NULL;
    }
    snprintf(p->name, sizeof p->name, "%s", q->name);
    snprintf(p->wanted, sizeof p->wanted, "%s", q->sha256);
    snprintf(p->from, sizeof p->from, "%.3900s/spool/upload-XXXXXX",
             td__service_config_of(a->o.service)->data_dir);
    p->fd = mkostemp(p->from, O_CLOEXEC);
    if (p->fd < 0) {
        td__call_finish(c, TD_GRPC_INTERNAL, "%s: %s", p->from, strerror(errno));
        p->from[0] = '\0';
        put_free(p);
        return NULL;
    }
    td__call_follow(c, &PUT_EVENTS, p);
    return p;
}

void td__tandem_put_artifact(td__call *c, void *arg, const void *request)
{
    const Tandem__V1__PutArtifactRequest *q = request;
    put *p = td__call_data(c);

    if (!p && !(p = begin(c, arg, q)))
        return;
    if (q->data.len > MOST_BYTES - p->nbytes) {
        refuse(p, TD_GRPC_RESOURCE_EXHAUSTED, "the file is longer than 16 GiB");
        return;
    }
    for (size_t at = 0; at < q->data.len;) {
        ssize_t n = write(p->fd, q->data.data + at, q->data.len - at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            refuse(p, TD_GRPC_RESOURCE_EXHAUSTED, strerror(n ? errno : ENOSPC));
            return;
        }
        at += (size_t)n;
    }
    p->nbytes += q->data.len;
}

void td__tandem_put_end(td__call *c, void *arg)
{
    td__grpc_api *a = arg;
    put *p = td__call_data(c);

    if (!p) {
        td__call_finish(c, TD_GRPC_INVALID_ARGUMENT, "expected a message with job_id and name");
        return;
    }
    if (!a->workers &&
        td__work_threads_create(td__service_loop(a->o.service), THREADS, &a->workers)) {
        refuse(p, TD_GRPC_UNAVAILABLE, td_last_error());
        return;
    }
    p->work = (td__work){.run = run_put, .done = end_put, .arg = p};
    p->working = true;
    td__work_threads_add(a->workers, &p->work);
}
