/* remote.h -- objects in a bucket of S3, on an HTTP server or in a folder: one client for all.
 *
 * An address is s3://BUCKET/KEY, http(s)://HOST/PATH, file:PATH or a path; another scheme is
 * TD_EINVAL. An object is written whole or not at all, and read whole or not at all: a file is
 * downloaded beside its place and renamed when its size and, where known, its sha256 are right. A
 * download that was cut is taken up where it ended; an upload in parts likewise, also by a later
 * process.
 *
 * S3 is configured by the usual variables: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
 * AWS_SESSION_TOKEN, AWS_REGION or AWS_DEFAULT_REGION, AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL (a
 * store of one's own, which is then addressed by path).
 *
 * Requests to what lies below TANDEM_SERVER, a training service, bring TANDEM_TOKEN, as they do for
 * the service's own jobs.
 *
 * Threads   A client is used by one thread at a time; td__remote_stop alone may be called by any.
 * Failure   As in http.h: TD_EINVAL is the answer of a server that refuses, TD_EPEER and
 *           TD_ETIMEDOUT have been repeated before they are reported. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_REMOTE_REMOTE_H
#define TD_REMOTE_REMOTE_H

#include "base/sha256.h"
#include "remote/http.h"

typedef struct td__remote td__remote;

typedef struct td__s3_opts {
    const char *access_key, *secret_key, *session_token; /* no access key: requests are unsigned */
    const char *region;                                  /* NULL: us-east-1 */
    const char *endpoint;                                /* NULL: AWS's own */
} td__s3_opts;

typedef struct td__remote_opts {
    const td__s3_opts *s3; /* NULL: from the environment */
    td__http_opts http;
    size_t part_nbytes; /* of uploads in parts; 0: 16 MiB */
} td__remote_opts;

TD_NODISCARD td_status td__remote_create(const td__remote_opts *o, td__remote **out);
void td__remote_destroy(td__remote *r); /* NULL is allowed */
/* The call under way ends with TD_EABORTED, and so do all later ones. */
void td__remote_stop(td__remote *r);

/* A whole object of at most max_nbytes, to the end of `out`. */
TD_NODISCARD td_status td__remote_get(td__remote *r, const char *url, size_t max_nbytes,
                                      td__text *out, td__deadline until);
/* To a file. sha256: what it must have; NULL: not known. */
TD_NODISCARD td_status td__remote_get_file(td__remote *r, const char *url, const char *path,
                                           const char *sha256, td__deadline until);
TD_NODISCARD td_status td__remote_put(td__remote *r, const char *url, const void *data,
                                      size_t nbytes, td__deadline until);
/* sha256: set to the file's; NULL: not wanted. */
TD_NODISCARD td_status td__remote_put_file(td__remote *r, const char *url, const char *path,
                                           char sha256[TD_SHA256_HEX], td__deadline until);
/* One that is not there is no error. */
TD_NODISCARD td_status td__remote_delete(td__remote *r, const char *url, td__deadline until);
/* Every object below the address, by its name relative to it ("a/b.txt"); false ends the list.
 * TD_ENOTSUP for HTTP, which has no lists. */
typedef bool (*td__remote_each)(void *user, const char *name, uint64_t nbytes);
TD_NODISCARD td_status td__remote_list(td__remote *r, const char *url, td__remote_each each,
                                       void *user, td__deadline until);
/* Did the last call fail because there is no such object? */
bool td__remote_absent(const td__remote *r);

#endif
