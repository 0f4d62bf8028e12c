/* httpd.h -- an HTTP/1.1 server: one more server on the event loop (rpc/loop.h).
 *
 * Routes come from a table. A handler runs on the loop's thread when the request is complete, and
 * answers at once, later, or as a stream:
 *
 *     td__httpd_reply_json(r, 200, &text);            at once, or in any later turn of the loop
 *     td__httpd_fail(r, 404, "no job %d", id);        the one shape of errors, as JSON
 *     s = td__httpd_stream_open(r, type, &ops, arg);  then td__httpd_stream_write(s, ...)
 *
 * A request stays valid until it is answered, also after its client has gone. Exactly one of these
 * three is called for each request.
 *
 * Before a handler runs, the server has checked Host and Origin (guard.h), the rate of the client,
 * the caller's token against the route's scope, the size and type of the body, and that no segment
 * of the path is "." or "..". A client that is slower with a request than the limits allow is
 * disconnected.
 *
 * Threads   Loop thread only. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_RPC_HTTPD_H
#define TD_RPC_HTTPD_H

#include "base/text.h"
#include "rpc/loop.h"
#include "rpc/tokens.h"

typedef struct td__httpd td__httpd;
typedef struct td__httpd_request td__httpd_request;
typedef struct td__httpd_stream td__httpd_stream;

/* What may stand in a request's body. */
typedef enum td__httpd_body_kind {
    TD_HTTPD_NO_BODY,
    TD_HTTPD_JSON,  /* in memory, at most limits.body bytes */
    TD_HTTPD_BYTES, /* the same, of any type */
    TD_HTTPD_FILE,  /* any bytes, at most limits.upload; written to a file in opts.spool */
} td__httpd_body_kind;

enum { TD_HTTPD_USER = 256 };

typedef struct td__httpd_route {
    const char *method; /* "GET" also answers HEAD */
    const char *path;   /* "/v1/jobs/{id}": one segment; "/files/{path...}": all that follow */
    td__scope scope;    /* what the caller needs; NONE: open to everybody */
    td__httpd_body_kind body;
    void (*handle)(void *arg, td__httpd_request *r);
    const char *summary; /* one line, for the API's description */
} td__httpd_route;

/* Zero means the default. */
typedef struct td__httpd_limits {
    unsigned connections;    /* 1024 in all */
    unsigned per_address;    /* 256 of one address */
    unsigned requests_per_s; /* 200 of one address, with bursts of ten times as many */
    unsigned request_s;      /* 20 s until a request's header is complete; also for the first one */
    unsigned idle_s; /* 60 s of silence between two requests, or of a client that does not read */
    size_t header;   /* 32 KiB */
    size_t body;     /* 1 MiB of JSON */
    uint64_t upload; /* 16 GiB of a file */
    size_t stream_backlog; /* 4 MiB that a slow reader of a stream may lag behind */
} td__httpd_limits;

typedef struct td__httpd_opts {
    const char *listen;            /* as of td__socket_listen: "127.0.0.1:8080" */
    const td__httpd_route *routes; /* ends with a method of NULL; the first that matches */
    void *arg;                     /* of the handlers */
    const td__tokens *tokens;      /* borrowed; NULL: no tokens */
    /* Asked who a caller is whose token the table does not have; may be NULL. User and scope, of
     * this route with these parameters; false: it does not know the token. */
    bool (*identify)(void *arg, const td__httpd_request *r, const td__httpd_route *route,
                     const char *token, char user[TD_HTTPD_USER], td__scope *scope);
    const char *const *hosts;   /* names this server is called by, beside loopback ones and the
                                     address it listens on; NULL-terminated; "*": any */
    const char *const *origins; /* pages of other servers that may call it; NULL-terminated */
    const char *cert, *key;     /* PEM texts: TLS; NULL: none */
    const char *spool;          /* folder for uploads under way */
    td__httpd_limits limits;
} td__httpd_opts;

TD_NODISCARD td_status td__httpd_create(td__loop *loop, const td__httpd_opts *o, td__httpd **out);
void td__httpd_destroy(td__httpd *h); /* NULL is allowed; ends all connections and streams */
const char *td__httpd_address(const td__httpd *h); /* "127.0.0.1:41233" */

/* Counters since the start, for metrics. */
typedef struct td__httpd_counters {
    uint64_t requests, refused, errors, bytes_out;
    unsigned connections, streams;
} td__httpd_counters;
td__httpd_counters td__httpd_counters_of(const td__httpd *h);

/* The request. Texts live as long as it does. */
const char *td__httpd_param(const td__httpd_request *r, const char *name); /* "" if there is none */
const char *td__httpd_query(const td__httpd_request *r, const char *name); /* NULL: not given */
const char *td__httpd_header(const td__httpd_request *r, const char *name); /* NULL: not sent */
td__identity td__httpd_identity(const td__httpd_request *r);
const char *td__httpd_body(const td__httpd_request *r, size_t *nbytes); /* ends with a 0 */
/* Of a TD_HTTPD_FILE: the file's path, with its size and sha256. The server removes the file after
 * the answer unless the handler has renamed it. */
const char *td__httpd_upload(const td__httpd_request *r, uint64_t *nbytes, const char **sha256);

/* Further headers of the answer; before it. */
void td__httpd_set(td__httpd_request *r, const char *name, const char *value);

/* Answers. `body` is taken: it is empty afterwards. */
void td__httpd_reply(td__httpd_request *r, unsigned status, const char *type, td__text *body);
void td__httpd_reply_json(td__httpd_request *r, unsigned status, td__text *body);
/* Bytes that live as long as the server. */
void td__httpd_reply_static(td__httpd_request *r, const char *type, const void *data,
                            size_t nbytes);
/* [from, from + nbytes) of a file; `fd` is taken. */
void td__httpd_reply_file(td__httpd_request *r, const char *type, int fd, uint64_t nbytes);
/* {"error": {"code": "not_found", "message": "..."}} */
void td__httpd_fail(td__httpd_request *r, unsigned status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* A stream: an answer whose end is not known yet. */
typedef struct td__httpd_stream_ops {
    void (*drained)(void *arg); /* all that was written is on its way; may be NULL */
    void (*closed)(void *arg);  /* called once, by either side's end: the stream is gone */
} td__httpd_stream_ops;
/* NULL: out of memory, and the request is answered. */
td__httpd_stream *td__httpd_stream_open(td__httpd_request *r, const char *type,
                                        const td__httpd_stream_ops *ops, void *arg);
/* Queued and sent as the client reads; one that lags too far behind is disconnected. */
void td__httpd_stream_write(td__httpd_stream *s, const void *data, size_t nbytes);
/* One server-sent event; `id` and `event` may be NULL, `data` has no line ends. */
void td__httpd_stream_event(td__httpd_stream *s, const char *id, const char *event,
                            const char *data);
void td__httpd_stream_end(td__httpd_stream *s); /* after what is queued; then `closed` */

#define TD_HTTPD_SSE "text/event-stream"

#endif
