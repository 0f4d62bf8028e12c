/* remote.c -- one client for objects in S3, on HTTP servers and in folders: which of them an
 * address means, and the calls that S3 and HTTP share. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "remote/remote.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/config.h"
#include "base/fail.h"
#include "remote/remote_impl.h"

enum { PART_NBYTES = 16 << 20 };

static td_status read_server(td__remote *r)
{
    const char *server = td__env_get(TD_ENV_SERVER), *token = td__env_get(TD_ENV_TOKEN);

    if (!server || !token)
        return TD_OK;
    r->server = td__arena_strdup(r->texts, server);
    r->bearer = td__arena_printf(r->texts, "Authorization: Bearer %s", token);
    return r->server && r->bearer ? TD_OK
                                  : TD_FAIL(TD_ENOMEM, "out of memory for a client of remote "
                                                       "storage");
}

const char *td__remote_bearer(const td__remote *r, const char *url)
{
    size_t n = r->server ? strlen(r->server) : 0;

    while (n > 0 && r->server[n - 1] == '/')
        n--;
    return n > 0 && strncmp(url, r->server, n) == 0 && url[n] == '/' ? r->bearer : NULL;
}

td_status td__remote_create(const td__remote_opts *o, td__remote **out)
{
    td__remote *r = td__calloc(1, sizeof *r);
    td_status st;

    *out = NULL;
    if (!r)
        return TD_FAIL(TD_ENOMEM, "out of memory for a client of remote storage");
    r->part_nbytes = o && o->part_nbytes ? o->part_nbytes : PART_NBYTES;
    TD_TRY_OR(st, fail, td__arena_create(&r->texts));
    TD_TRY_OR(st, fail, td__s3_configure(r, o ? o->s3 : NULL));
    TD_TRY_OR(st, fail, read_server(r));
    TD_TRY_OR(st, fail, td__http_create(o ? &o->http : NULL, &r->http));
    *out = r;
    return TD_OK;
fail:
    td__remote_destroy(r);
    return st;
}

void td__remote_destroy(td__remote *r)
{
    if (!r)
        return;
    td__http_destroy(r->http);
    td__arena_destroy(r->texts);
    td__free(r);
}

void td__remote_stop(td__remote *r)
{
    td__http_stop(r->http);
}

bool td__remote_absent(const td__remote *r)
{
    return r->status == 404;
}

/* A request without a sink, to S3 or HTTP. */
static td_status call(td__remote *r, const char *method, const td__url *at, td__http_request *q,
                      const char *payload, td__http_response *a)
{
    if (at->kind == TD_URL_S3) {
        td__s3_request s = {.method = method, .at = at, .http = *q, .payload = payload};
        return td__s3_call(r, &s, true, a);
    }
    const char *bearer = td__remote_bearer(r, at->path);
    q->method = method;
    q->url = at->path;
    q->headers = &bearer;
    q->n_headers = bearer != NULL;
    td_status st = td__http_call(r->http, q, a);
    r->status = a->status;
    return st;
}

td_status td__remote_get(td__remote *r, const char *url, size_t max_nbytes, td__text *out,
                         td__deadline until)
{
    td__url at;
    td__http_response a;
    td__http_request q = {.max_body = max_nbytes, .until = until, .follow = true};

    r->status = 0;
    TD_TRY(td__url_parse(url, &at));
    if (at.kind == TD_URL_FILE)
        return td__file_get(r, at.path, max_nbytes, out);
    td_status st = call(r, NULL, &at, &q, NULL, &a);
    if (!st) {
        td__text_append(out, a.body.data ? a.body.data : "", a.body.used);
        st = td__text_status(out);
    }
    td__http_response_fini(&a);
    return st;
}

td_status td__remote_get_file(td__remote *r, const char *url, const char *path, const char *sha256,
                              td__deadline until)
{
    td__url at;

    r->status = 0;
    TD_TRY(td__url_parse(url, &at));
    if (at.kind != TD_URL_FILE)
        return td__remote_download(r, &at, path, sha256, until);
    return td__file_fetch(r, at.path, path, sha256);
}

td_status td__remote_put(td__remote *r, const char *url, const void *data, size_t nbytes,
                         td__deadline until)
{
    td__url at;
    td__http_response a;
    td__http_request q = {.body = data, .body_nbytes = nbytes, .until = until};

    r->status = 0;
    TD_TRY(td__url_parse(url, &at));
    if (at.kind == TD_URL_FILE)
        return td__file_put(at.path, data, nbytes);
    td_status st = call(r, "PUT", &at, &q, NULL, &a);
    td__http_response_fini(&a);
    return st;
}

static td_status put_open_file(td__remote *r, const td__url *at, int fd, uint64_t nbytes,
                               const char *hash, td__deadline until)
{
    td__http_response a;
    td__http_request q = {.body_fd = fd, .body_nbytes = (size_t)nbytes, .until = until};

    if (at->kind == TD_URL_S3 && nbytes > r->part_nbytes)
        return td__s3_put_parts(r, at, fd, nbytes, until);
    td_status st = call(r, "PUT", at, &q, hash, &a);
    td__http_response_fini(&a);
    return st;
}

td_status td__remote_put_file(td__remote *r, const char *url, const char *path,
                              char sha256[TD_SHA256_HEX], td__deadline until)
{
    char hex[TD_SHA256_HEX];
    struct stat s;
    td__url at;
    td_status st;

    r->status = 0;
    TD_TRY(td__url_parse(url, &at));
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &s) != 0 || !S_ISREG(s.st_mode)) {
        if (fd >= 0)
            close(fd);
        return TD_FAIL(TD_EIO, "%s: cannot read it: %s", path,
                       fd < 0 ? strerror(errno) : "not a regular file");
    }
    if (at.kind == TD_URL_FILE) {
        st = td__file_copy(fd, path, at.path, hex);
    } else {
        TD_TRY_OR(st, done, td__sha256_fd(fd, 0, (uint64_t)s.st_size, path, hex));
        st = put_open_file(r, &at, fd, (uint64_t)s.st_size, hex, until);
    }
    if (!st && sha256)
        memcpy(sha256, hex, sizeof hex);
done:
    close(fd);
    return st;
}

td_status td__remote_delete(td__remote *r, const char *url, td__deadline until)
{
    td__url at;
    td__http_response a;
    td__http_request q = {.until = until};

    r->status = 0;
    TD_TRY(td__url_parse(url, &at));
    if (at.kind == TD_URL_FILE)
        return td__file_delete(at.path);
    td_status st = call(r, "DELETE", &at, &q, NULL, &a);
    td__http_response_fini(&a);
    return st && r->status == 404 ? TD_OK : st;
}

td_status td__remote_list(td__remote *r, const char *url, td__remote_each each, void *user,
                          td__deadline until)
{
    td__url at;

    r->status = 0;
    TD_TRY(td__url_parse(url, &at));
    switch (at.kind) {
    case TD_URL_FILE: return td__file_list(r, at.path, each, user);
    case TD_URL_S3: return td__s3_list(r, &at, each, user, until);
    case TD_URL_HTTP: break;
    }
    char shown[512];
    td__url_shown(url, shown, sizeof shown);
    return TD_FAIL(TD_ENOTSUP, "%s: HTTP servers give no lists; use s3:// or a folder", shown);
}
