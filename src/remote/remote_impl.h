/* remote_impl.h -- the inside of the client: what its kinds of places share. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_REMOTE_REMOTE_IMPL_H
#define TD_REMOTE_REMOTE_IMPL_H

#include "base/alloc.h"
#include "remote/remote.h"
#include "remote/sigv4.h"
#include "remote/url.h"

struct td__remote {
    td__http *http;
    td__s3_opts s3;
    td__arena *texts; /* of s3 */
    size_t part_nbytes;
    const char *server; /* a training service; NULL: none */
    const char *bearer; /* "Authorization: Bearer ..." for it */
    int status;         /* of the last answer; 404 also for a file that is not there */
};

/* The header that says who asks, for addresses of HTTP that want it; NULL: none does. */
const char *td__remote_bearer(const td__remote *r, const char *url);

/* s3.c: one request to a bucket. */
typedef struct td__s3_request {
    const char *method; /* NULL: GET */
    const td__url *at;
    td__sigv4_pair query[8];
    int n_query;
    td__http_request http; /* body, sink, until, ...; url and headers are made here */
    const char *header[4]; /* further ones, unsigned: "Range: bytes=0-9" */
    int n_headers;
    const char *payload; /* sha256 of the body; NULL: computed (of memory) */
} td__s3_request;
/* As td__http_call; without `repeat` as td__http_perform. */
TD_NODISCARD td_status td__s3_call(td__remote *r, const td__s3_request *q, bool repeat,
                                   td__http_response *a);
/* Options from the environment where o is NULL. */
TD_NODISCARD td_status td__s3_configure(td__remote *r, const td__s3_opts *o);
TD_NODISCARD td_status td__s3_list(td__remote *r, const td__url *at, td__remote_each each,
                                   void *user, td__deadline until);

/* s3_multipart.c */
TD_NODISCARD td_status td__s3_put_parts(td__remote *r, const td__url *at, int fd, uint64_t nbytes,
                                        td__deadline until);

/* remote_file.c: the same calls for paths. */
TD_NODISCARD td_status td__file_get(td__remote *r, const char *path, size_t max_nbytes,
                                    td__text *out);
/* What is open as fd to a path that is then whole, or as it was; hex: the sha256 of the copy. */
TD_NODISCARD td_status td__file_copy(int fd, const char *from, const char *to,
                                     char hex[TD_SHA256_HEX]);
/* A file with this sha256 (NULL: any) to a path. */
TD_NODISCARD td_status td__file_fetch(td__remote *r, const char *from, const char *to,
                                      const char *sha256);
TD_NODISCARD td_status td__file_put(const char *path, const void *data, size_t nbytes);
TD_NODISCARD td_status td__file_delete(const char *path);
TD_NODISCARD td_status td__file_list(td__remote *r, const char *path, td__remote_each each,
                                     void *user);

/* remote_get.c: downloads to files, taken up where they were cut. */
TD_NODISCARD td_status td__remote_download(td__remote *r, const td__url *at, const char *path,
                                           const char *sha256, td__deadline until);

#endif
