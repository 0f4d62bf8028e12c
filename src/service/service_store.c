/* service_store.c -- what jobs on other machines reach of the service, over HTTP and with a token
 * of their own: their checkpoints, artifacts and metrics, and their data set to be read.
 *
 * The token of an attempt is its name and a digest of that with the service's key: nothing is
 * stored. It is good while that attempt is its job's and has not ended. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/file_below.h"
#include "base/sha256.h"
#include "service/group_env.h"
#include "service/service_impl.h"

#define CHECKPOINTS "checkpoints"

void td__service_listens_http(td__service *s, const char *http, bool tls)
{
    snprintf(s->http, sizeof s->http, "%s", http);
    s->http_tls = tls;
}

bool td__service_http(const td__service *s, const char *tracker, char url[TD_ADDRESS_BYTES + 16])
{
    char at[TD_ADDRESS_BYTES];

    if (!*s->http || !td__advertised_http(s->config, s->http, tracker, at))
        return false;
    snprintf(url, TD_ADDRESS_BYTES + 16, "http%s://%s", s->http_tls ? "s" : "", at);
    return true;
}

/* ---- tokens ---- */

static td_status digest_of(td__service *s, const char *attempt, char hex[TD_SHA256_HEX])
{
    uint8_t digest[TD_SHA256_BYTES];
    td__text text = {0};

    TD_TRY(td__service_key(s));
    td__text_append(&text, (const char *)s->key, sizeof s->key);
    td__text_add(&text, "http ");
    td__text_add(&text, attempt);
    td_status st = td__text_status(&text);
    if (!st)
        st = td__sha256_of(text.data, text.used, digest);
    td__text_fini(&text);
    if (!st)
        td__sha256_hex(digest, hex);
    return st;
}

td_status td__service_job_token(td__service *s, const td__job_record *r, char token[TD__JOB_TOKEN])
{
    char hex[TD_SHA256_HEX];

    TD_TRY(digest_of(s, r->token, hex));
    snprintf(token, TD__JOB_TOKEN, "%s.%s", r->token, hex);
    return TD_OK;
}

/* Takes the same time wherever they differ. */
static bool same(const char *a, const char *b, size_t n)
{
    volatile unsigned char differs = 0;

    for (size_t i = 0; i < n; i++)
        differs = (unsigned char)(differs | (a[i] ^ b[i]));
    return differs == 0;
}

const td__job_record *td__service_job_of_token(td__service *s, const char *token)
{
    char attempt[TD__TOKEN], hex[TD_SHA256_HEX];
    const char *dot = strchr(token, '.');
    int32_t id;

    if (!dot || (size_t)(dot - token) >= sizeof attempt || strlen(dot + 1) != TD_SHA256_HEX - 1)
        return NULL;
    snprintf(attempt, sizeof attempt, "%.*s", (int)(dot - token), token);
    if (sscanf(attempt, "job-%" SCNd32 "-", &id) != 1 || digest_of(s, attempt, hex) ||
        !same(hex, dot + 1, TD_SHA256_HEX - 1))
        return NULL;
    const td__active *a = td__active_find(s, id);
    bool runs = a && (td__service_is_starting(a->r) || a->r->state == TD_JOB_RUNNING);
    return runs && !strcmp(a->r->token, attempt) ? a->r : NULL;
}

/* ---- checkpoints ---- */

td__answer td__service_checkpoint_open(td__service *s, int32_t job, const char *name, int *fd,
                                       uint64_t *nbytes)
{
    char dir[TD__JOB_PATH], below[1100];
    const td__job_record *r;
    struct stat info;
    td__answer a = td__service_get(s, job, &r);

    if (a)
        return a;
    snprintf(below, sizeof below, CHECKPOINTS "/%s", name);
    *fd =
        td__service_good_name(name)
            ? td__file_open_below(td__service_job_dir(s, job, dir, sizeof dir), below, O_RDONLY, 0)
            : -1;
    if (*fd < 0)
        return td__answer_fail(TD_ANSWER_NOT_FOUND, "job %d has no %s/%.200s", job, CHECKPOINTS,
                               name);
    *nbytes = fstat(*fd, &info) ? 0 : (uint64_t)info.st_size;
    return TD_ANSWER_OK;
}

td__answer td__service_checkpoint_place(td__service *s, const td__caller *who, int32_t job,
                                        const char *name, char *dir, size_t nbytes)
{
    const td__job_record *r;
    td__answer a = td__service_find_own(s, who, job, &r);

    if (!a && !td__service_good_name(name))
        a = td__answer_fail(TD_ANSWER_INVALID, "'%.200s' is not a name of a file", name);
    if (a)
        return a;
    td__service_job_dir(s, job, dir, nbytes);
    return td__answer_of(td__service_make_job_dir(s, job));
}

/* The last name below `dir`, in which no folder is a link. */
static int remove_below(const char *dir, const char *name)
{
    int at = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), error;
    char part[256];

    for (const char *slash; at >= 0 && (slash = strchr(name, '/')); name = slash + 1) {
        snprintf(part, sizeof part, "%.*s", (int)(slash - name), name);
        int next = openat(at, part, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        close(at);
        at = next;
    }
    if (at < 0)
        return errno;
    error = unlinkat(at, name, 0) ? errno : 0;
    close(at);
    return error;
}

td__answer td__service_checkpoint_remove(td__service *s, const td__caller *who, int32_t job,
                                         const char *name)
{
    char dir[TD__JOB_PATH], below[1100];
    td__answer a = td__service_checkpoint_place(s, who, job, name, dir, sizeof dir);

    if (a)
        return a;
    snprintf(below, sizeof below, CHECKPOINTS "/%s", name);
    int error = remove_below(dir, below);
    if (error == ENOENT || error == ENOTDIR || error == ELOOP)
        return td__answer_fail(TD_ANSWER_NOT_FOUND, "job %d has no %s/%.200s", job, CHECKPOINTS,
                               name);
    return error ? td__answer_fail(TD_ANSWER_INTERNAL, "%s: %s", name, strerror(error))
                 : TD_ANSWER_OK;
}
