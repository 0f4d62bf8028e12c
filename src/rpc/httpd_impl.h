/* httpd_impl.h -- the parts of the HTTP server: connections (httpd_server.c), requests and answers
 * (httpd_request.c), streams (httpd_stream.c), the match of a path (httpd_route.c).
 *
 * libmicrohttpd calls back while it runs, in the EVENTS phase of a turn. It must not send an answer
 * then: the turn's changes are not durable yet. So a connection is suspended as soon as its request
 * is complete, and resumed in the SEND phase after its answer was given. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_RPC_HTTPD_IMPL_H
#define TD_RPC_HTTPD_IMPL_H

#include <microhttpd.h>

#include "base/sha256.h"
#include "net/socket.h"
#include "rpc/guard.h"
#include "rpc/httpd.h"

enum { TD__HTTPD_PARAMS = 4, TD__HTTPD_HEADERS = 8 };

typedef struct td__httpd_param_value {
    const char *name; /* in the route, up to '}' or '.' */
    const char *value;
} td__httpd_param_value;

/* Does `path` match the route's? The segments of `path` that are params are cut out of it (ended
 * with a 0) only if it does. */
bool td__httpd_match(const char *pattern, char *path, td__httpd_param_value *params, int *n_params);
/* No segment of the path leads upwards or hides, and no byte is a control character. */
bool td__httpd_path_ok(const char *path);

/* One connection. */
typedef struct td__httpd_conn {
    struct td__httpd_conn *prev, *next;
    struct MHD_Connection *mhd;
    int fd;
    bool idle;         /* has had its answer, and nothing of another request has come */
    uint64_t heard;    /* bytes that had come when it became idle */
    bool busy;         /* a handler has the request, or an answer is being sent */
    uint64_t since;    /* when this request, or the wait for it, began */
    uint64_t received; /* bytes of its body */
} td__httpd_conn;

typedef struct td__httpd_upload {
    char *path;
    int fd;
    uint64_t nbytes;
    td__sha256 hash;
    char hex[TD_SHA256_HEX];
} td__httpd_upload_file;

struct td__httpd_request {
    td__httpd *h;
    td__httpd_conn *conn;
    td__httpd_request *prev, *next; /* in h->waiting or h->ready */
    const td__httpd_route *route;
    char *path;
    td__httpd_param_value params[TD__HTTPD_PARAMS];
    int n_params;
    td__identity caller;
    char user[TD_HTTPD_USER]; /* of a caller that opts.identify knows */
    td__text body;
    td__httpd_upload_file upload;
    unsigned refuse; /* status to answer instead of calling the handler; 0: none */
    bool handled, answered;
    struct {
        char *name, *value;
    } headers[TD__HTTPD_HEADERS];
    int n_headers;
    unsigned status;
    struct MHD_Response *answer;
};

struct td__httpd_stream {
    td__httpd *h;
    td__httpd_stream *prev, *next;
    td__httpd_conn *conn;
    const td__httpd_stream_ops *ops;
    void *arg;
    td__text queue;
    size_t sent; /* bytes of the queue that are on their way */
    bool sse, ended, broken;
    bool waiting; /* nothing to send: suspended */
    uint64_t wrote_at;
};

struct td__httpd {
    td__loop *loop;
    td__httpd_opts o;
    td__httpd_limits limits;
    struct MHD_Daemon *mhd; /* NULL until the first connection */
    int listener;           /* until libmicrohttpd has it; then -1 */
    char address[TD_ADDRESS_BYTES];
    td__watch first; /* of the listener, until the server is started */
    td__watch watch;
    td__timer timer, sweep, again;
    td__turn_hook send;
    td__rates *rates;
    td__clients *clients; /* their connections */
    td__httpd_conn *conns;
    td__httpd_stream *streams;
    td__httpd_request *waiting; /* a handler has them; suspended */
    td__httpd_request *ready;   /* answered, to be resumed */
    bool begun;                 /* hook and timers are the loop's */
    bool watched;               /* by the loop */
    bool waited;                /* for descriptors, when the first connection last came */
    bool running;               /* inside libmicrohttpd */
    bool pending;               /* something to send in the next SEND phase */
    uint64_t uploads;           /* for names of spool files */
    td__httpd_counters counters;
};

enum MHD_Result td__httpd_access(void *arg, struct MHD_Connection *c, const char *url,
                                 const char *method, const char *version, const char *data,
                                 size_t *nbytes, void **state);
void td__httpd_completed(void *arg, struct MHD_Connection *c, void **state,
                         enum MHD_RequestTerminationCode how);
td__httpd_conn *td__httpd_conn_of(struct MHD_Connection *c);
uint64_t td__httpd_heard(const td__httpd_conn *c); /* bytes that came; 0: the system cannot say */

void td__httpd_answer(td__httpd_request *r, unsigned status, const char *type,
                      struct MHD_Response *response);

/* A queued answer or stream data: run the server in the SEND phase of this turn, or of the next. */
void td__httpd_wake(td__httpd *h);
void td__httpd_streams_wake(td__httpd *h); /* resume those that have something to send */
void td__httpd_streams_sweep(
    td__httpd *h); /* end those whose clients have gone; keep others alive */

#endif
