/* agent_http.c -- see agent_http.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "agent_http.h"

#include <stddef.h>

#ifdef TD_HAVE_SERVICE

#include <stdio.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "rpc/httpd_thread.h"

typedef struct server {
    td__httpd_thread *http;
    td__foreign_answer *answer;
    void *user;
} server;

static void answer(server *s, td__httpd_request *r, const char *method)
{
    size_t nbytes;
    const char *body = td__httpd_body(r, &nbytes);
    td__text out = {0};
    unsigned status = s->answer(s->user, method, td__httpd_param(r, "scope"),
                                td__httpd_param(r, "key"), body, nbytes, &out);
    td__httpd_reply(r, status, "application/octet-stream", &out);
}

static void on_get(void *arg, td__httpd_request *r)
{
    answer(arg, r, "GET");
}

static void on_put(void *arg, td__httpd_request *r)
{
    answer(arg, r, "PUT");
}

static void on_delete(void *arg, td__httpd_request *r)
{
    answer(arg, r, "DELETE");
}

static const td__httpd_route ROUTES[] = {
    {"GET", "/{scope}/{key}", TD_SCOPE_NONE, TD_HTTPD_NO_BODY, on_get, "the value of a key"},
    {"PUT", "/{scope}/{key}", TD_SCOPE_NONE, TD_HTTPD_BYTES, on_put, "set a key"},
    {"DELETE", "/{scope}/{key}", TD_SCOPE_NONE, TD_HTTPD_BYTES, on_delete, "done with a key"},
    {0},
};

static void stop(void *arg)
{
    server *s = arg;
    td__httpd_thread_stop(s->http);
    td__free(s);
}

static td_status start(const char *listen, td__foreign_answer *to, void *user, void **out,
                       char address[TD_FOREIGN_HTTP_ADDRESS])
{
    server *s = td__calloc(1, sizeof *s);
    if (!s)
        return TD_FAIL(TD_ENOMEM, "no memory for an HTTP server");
    *s = (server){.answer = to, .user = user};
    /* Ranks of one host ask a hundred times a second each. */
    td__httpd_opts o = {
        .listen = listen,
        .routes = ROUTES,
        .arg = s,
        .limits = {.connections = 8192, .per_address = 8192, .requests_per_s = 10000000}};
    td_status st = td__httpd_thread_start(&o, &s->http);
    if (st) {
        td__free(s);
        return st;
    }
    snprintf(address, TD_FOREIGN_HTTP_ADDRESS, "%s", td__httpd_thread_address(s->http));
    *out = s;
    return TD_OK;
}

const td__foreign_http *td__agent_http(void)
{
    static const td__foreign_http HTTP = {start, stop};
    return &HTTP;
}

#else

const td__foreign_http *td__agent_http(void)
{
    return NULL;
}

#endif
