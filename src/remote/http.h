/* http.h -- HTTP requests over libcurl, over TCP, TLS or a unix socket.
 *
 * Threads   A client is used by one thread at a time; td__http_stop alone may be called by any.
 * Time      Every request has a deadline; a request whose answer does not move for `idle_ms` ends
 *           before that.
 * Failure   td__http_perform is TD_OK for every whole answer, whatever its status. TD_EPEER: no
 *           connection, or it was cut; TD_ETIMEDOUT; TD_EPROTO: not HTTP, a bad certificate;
 *           TD_EABORTED: stopped, or the sink refused. td__http_call repeats what is worth
 *           repeating, and makes an error of a status that is not 2xx. Errors name method, address
 *           (without user, password and query), status and what the server said. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_REMOTE_HTTP_H
#define TD_REMOTE_HTTP_H

#include "base/deadline.h"
#include "base/text.h"

typedef struct td__http td__http;

/* PEM texts or files; a text wins. NULL: those of the system, or none. */
typedef struct td__http_tls {
    const char *ca_file, *ca_pem;
    const char *cert_file, *cert_pem;
    const char *key_file, *key_pem;
    bool insecure; /* any certificate will do */
} td__http_tls;

typedef struct td__http_opts {
    const char *unix_socket; /* NULL: TCP */
    td__http_tls tls;
    uint64_t connect_ms; /* 0: 10,000 */
    uint64_t idle_ms;    /* 0: 30,000 */
    uint64_t attempt_ms; /* of one attempt of td__http_call; 0: 300,000 */
    int attempts;        /* of td__http_call; 0: 6 */
} td__http_opts;

/* A piece of the answer's body; false ends the request with TD_EABORTED. */
typedef bool (*td__http_sink)(void *user, const void *data, size_t nbytes);

typedef struct td__http_request {
    const char *method; /* NULL: GET */
    const char *url;
    const char *const *headers; /* "Name: value" */
    int n_headers;
    /* What is sent: memory, or bytes [body_offset, body_offset + body_nbytes) of a file. */
    const void *body;
    int body_fd; /* used where body is NULL and body_nbytes is not 0 */
    uint64_t body_offset;
    size_t body_nbytes;
    td__http_sink sink; /* for the body of 2xx answers; NULL: it is kept in the response */
    void *sink_user;
    size_t max_body; /* of what is kept; 0: 16 MiB. More is TD_EPROTO. */
    td__deadline until;
    uint64_t idle_ms; /* 0: the client's */
    bool follow;      /* redirects, to HTTP and HTTPS */
    bool repeatable;  /* td__http_call may repeat it though it is a POST */
    bool grpc;        /* HTTP/2 without negotiation; the status comes in trailers */
} td__http_request;

enum { TD__ETAG_BYTES = 256 };

typedef struct td__http_response {
    int status;    /* 0: no answer came */
    td__text body; /* of 2xx without a sink, and of all others */
    char etag[TD__ETAG_BYTES];
    bool ranged;             /* Content-Range was sent: */
    uint64_t range_begin;    /* first byte */
    uint64_t retry_after_ms; /* 0: not said */
    int64_t content_nbytes;  /* Content-Length; -1: not said */
    int grpc_status;         /* of gRPC; -1: not said */
    char grpc_message[TD__ETAG_BYTES];
} td__http_response;

TD_NODISCARD td_status td__http_create(const td__http_opts *o, td__http **out);
void td__http_destroy(td__http *h); /* NULL is allowed */
/* The request under way ends with TD_EABORTED, and so do all later ones. */
void td__http_stop(td__http *h);

/* r is initialised here; release it with td__http_response_fini, also after a failure. */
TD_NODISCARD td_status td__http_perform(td__http *h, const td__http_request *q,
                                        td__http_response *r);
void td__http_response_fini(td__http_response *r);

/* Repeats after transport errors, 408, 429, 500, 502, 503 and 504, with doubling pauses (or as long
 * as Retry-After says), until q->until or `attempts`. Not for requests with a sink, which may have
 * seen half of an answer. TD_EINVAL: 4xx; TD_EPEER: 5xx. */
TD_NODISCARD td_status td__http_call(td__http *h, const td__http_request *q, td__http_response *r);

/* The parts of it, for who repeats in another way. */
bool td__http_worth_repeating(td_status st, int status);
/* Pause before attempt `next` (1, 2, ...): TD_ETIMEDOUT when `until` would be passed, TD_EABORTED
 * when stopped. */
TD_NODISCARD td_status td__http_pause(td__http *h, int next, uint64_t retry_after_ms,
                                      td__deadline until);
/* The error of an answer that is not 2xx. */
td_status td__http_refused(const td__http_request *q, const td__http_response *r);

#endif
