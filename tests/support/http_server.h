/* http_server.h -- a small HTTP server for tests, on a thread of its own, that keeps what is PUT
 * and can misbehave: refuse, cut, stall, lie about lengths. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TESTS_SUPPORT_HTTP_SERVER_H
#define TD_TESTS_SUPPORT_HTTP_SERVER_H

#include <stdbool.h>
#include <stddef.h>

typedef struct http_server http_server;

/* What it does with the next requests; zeros: behaves. Each count is used up by one request. */
typedef struct http_faults {
    int refuse;       /* this many are answered with `status` */
    int status;       /* 0: 503 */
    const char *said; /* body of these answers */
    int cut;          /* this many bodies end after cut_after bytes, before their length */
    size_t cut_after;
    int stall;      /* this many get headers and half of the body, then nothing */
    int drop;       /* this many connections are closed without an answer */
    bool no_ranges; /* Range is not understood */
    bool chunked;   /* bodies without a length, in chunks of 7 bytes */
} http_faults;

/* On 127.0.0.1, or on a unix socket if a path is given. */
http_server *http_server_start(const char *unix_path);
void http_server_stop(http_server *s);
/* "http://127.0.0.1:PORT/name", in one of a few buffers used in turn. */
const char *http_server_url(http_server *s, const char *name);
void http_server_misbehave(http_server *s, const http_faults *f);
int http_server_requests(http_server *s); /* so far */
/* The request line and headers of the last one; valid until the next call. */
const char *http_server_last(http_server *s);
/* An object as if it had been PUT. */
void http_server_set(http_server *s, const char *name, const void *data, size_t nbytes);

/* Answers instead of the store: the text after the status line, from the request; NULL: the store
 * answers. Runs on the server's thread. */
typedef const char *(*http_answer)(void *user, const char *request, const char *body);
void http_server_answer(http_server *s, http_answer answer, void *user);

#endif
