/* remote_get.c -- downloads to files.
 *
 * Bytes go to PATH.part. After a cut the rest is asked for by its range, on condition that the
 * object is still the same (its ETag). A .part that an earlier process left is gone on with only
 * where the sha256 of the whole is known; if that is not right in the end, all is fetched once
 * more from the beginning. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/log.h"
#include "remote/remote_impl.h"

enum { ATTEMPTS_WITHOUT_PROGRESS = 6, IDLE_TEXT = 512 };

typedef struct download {
    td__remote *r;
    const td__url *at;
    int fd;
    uint64_t have; /* bytes */
    int error;     /* errno of writing */
    char etag[TD__ETAG_BYTES];
    td__http_response *answer;
    bool first; /* nothing of this answer has come yet */
} download;

static bool on_bytes(void *user, const void *data, size_t nbytes)
{
    download *d = user;

    if (d->first) { /* the whole comes where a rest was asked for, if the object has changed */
        uint64_t begin = d->answer->ranged ? d->answer->range_begin : 0;
        if (begin > d->have)
            return false;
        d->have = begin;
        d->first = false;
        if (ftruncate(d->fd, (off_t)begin) != 0) {
            d->error = errno;
            return false;
        }
    }
    for (size_t done = 0; done < nbytes;) {
        ssize_t n =
            pwrite(d->fd, (const char *)data + done, nbytes - done, (off_t)(d->have + done));
        if (n < 0) {
            d->error = errno;
            return false;
        }
        done += (size_t)n;
    }
    d->have += nbytes;
    return true;
}

static td_status request(download *d, td__deadline until, td__http_response *a)
{
    char range[64], condition[TD__ETAG_BYTES + 16];
    const char *headers[3];
    int n = 0;
    td__http_request q = {
        .url = d->at->path, .sink = on_bytes, .sink_user = d, .until = until, .follow = true};

    if (d->have) {
        snprintf(range, sizeof range, "Range: bytes=%llu-", (unsigned long long)d->have);
        headers[n++] = range;
        if (d->etag[0] == '"') {
            snprintf(condition, sizeof condition, "If-Range: %s", d->etag);
            headers[n++] = condition;
        }
    }
    d->answer = a;
    d->first = true;
    if (d->at->kind == TD_URL_S3) {
        td__s3_request s = {.at = d->at, .http = q, .n_headers = n};
        memcpy(s.header, headers, (size_t)n * sizeof *headers);
        return td__s3_call(d->r, &s, false, a);
    }
    const char *bearer = td__remote_bearer(d->r, d->at->path);
    if (bearer)
        headers[n++] = bearer;
    q.headers = headers;
    q.n_headers = n;
    td_status st = td__http_perform(d->r->http, &q, a);
    d->r->status = a->status;
    if (!st && (a->status < 200 || a->status > 299) && !td__http_worth_repeating(TD_OK, a->status))
        st = td__http_refused(&q, a);
    return st;
}

/* All bytes, in as many requests as it takes; each that brings something starts the count anew. */
static td_status fetch(download *d, td__deadline until)
{
    char shown[IDLE_TEXT];

    td__url_shown(d->at->path, shown, sizeof shown);
    for (int attempt = 1;; attempt++) {
        uint64_t before = d->have;
        td__http_response a;
        td_status st = request(d, until, &a), paused;
        int status = a.status;
        uint64_t wait = a.retry_after_ms;
        bool whole = !st && status >= 200 && status < 300;
        bool again = td__http_worth_repeating(st, status);

        if (whole && d->first && !a.ranged && ftruncate(d->fd, 0) == 0)
            d->have = 0; /* an empty object */
        if (a.etag[0])
            memcpy(d->etag, a.etag, sizeof d->etag);
        td__http_response_fini(&a);
        if (whole)
            return TD_OK;
        if (d->error)
            return TD_FAIL(TD_EIO, "%s: cannot write what is downloaded: %s", shown,
                           strerror(d->error));
        if (status == 416 && d->have) { /* what is there is not the beginning of the object */
            d->have = 0;
            d->etag[0] = '\0';
            continue;
        }
        if (!st)
            st = TD_FAIL(TD_EPEER, "GET %s: status %d", shown, status);
        attempt = d->have > before ? 0 : attempt;
        if (!again || attempt >= ATTEMPTS_WITHOUT_PROGRESS || td__deadline_passed(until))
            return st;
        TD_LOG(INFO, NET, "the download goes on at byte %llu: %s", (unsigned long long)d->have,
               td_last_error());
        paused = td__http_pause(d->r->http, attempt ? attempt : 1, wait, until);
        if (paused)
            return paused == TD_ETIMEDOUT ? st : paused;
    }
}

td_status td__remote_download(td__remote *r, const td__url *at, const char *path,
                              const char *sha256, td__deadline until)
{
    char part[TD__URL_BYTES + 8], shown[IDLE_TEXT], hex[TD_SHA256_HEX];
    download d = {.r = r, .at = at};
    struct stat s;
    td_status st;

    td__url_shown(at->path, shown, sizeof shown);
    snprintf(part, sizeof part, "%s.part", path);
    d.fd = open(part, O_RDWR | O_CREAT | O_CLOEXEC | (sha256 ? 0 : O_TRUNC), 0666);
    if (d.fd < 0)
        return TD_FAIL(TD_EIO, "%s: cannot create it: %s", part, strerror(errno));
    if (fstat(d.fd, &s) == 0)
        d.have = (uint64_t)s.st_size;
    bool resumed = d.have > 0;
    for (;;) {
        TD_TRY_OR(st, done, fetch(&d, until));
        if (!sha256)
            break;
        TD_TRY_OR(st, done, td__sha256_fd(d.fd, 0, d.have, part, hex));
        if (strcmp(hex, sha256) == 0)
            break;
        d.have = 0;
        d.etag[0] = '\0';
        (void)!ftruncate(d.fd, 0);
        if (!resumed) {
            st = TD_FAIL(TD_EPROTO, "%s: its sha256 is %.12s..., and should be %.12s...", shown,
                         hex, sha256);
            goto done;
        }
        resumed = false; /* the part of the earlier process was of something else */
    }
    if (fsync(d.fd) != 0 || rename(part, path) != 0)
        st = TD_FAIL(TD_EIO, "%s: cannot be put into place: %s", path, strerror(errno));
done:
    close(d.fd);
    if (st && (st == TD_EINVAL || st == TD_EPROTO || !sha256))
        unlink(part); /* nobody can go on with it */
    return st;
}
