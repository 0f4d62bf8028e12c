/* grpc_server.c -- the server: services by name, listeners, shutting down. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/log.h"
#include "rpc/grpc_impl.h"

enum {
    ACCEPTS_PER_TURN = 64,
    ACCEPT_RETRY_MS = 200 /* after the process ran out of descriptors */
};

const char *td__grpc_code_name(td__grpc_code code)
{
    switch (code) {
#define X(name, value) \
    case TD_GRPC_##name: return #name;
        TD_GRPC_CODE_MAP(X)
#undef X
    }
    return "UNKNOWN";
}

static void fill_limits(td__grpc_limits *l)
{
#define DEFAULT(member, value) l->member = l->member ? l->member : (value)
    DEFAULT(max_message, 4u << 20);
    DEFAULT(max_metadata, 16u << 10);
    DEFAULT(max_pending, 4 * l->max_message);
    DEFAULT(max_queued, 8u << 20);
    DEFAULT(max_streams, 1024);
    DEFAULT(max_connections, 4096);
    DEFAULT(per_address, 256);
    DEFAULT(request_ms, 60000);
    DEFAULT(handshake_ms, 10000);
    DEFAULT(stall_ms, 30000);
    DEFAULT(keepalive_ms, 60000);
    DEFAULT(keepalive_answer_ms, 20000);
    DEFAULT(idle_ms, 300000);
#undef DEFAULT
}

/* Connections that become dirty while others are flushed have their turn in the next one. */
static void send_phase(void *arg)
{
    td__grpc *g = arg;
    td__grpc_conn *all = g->dirty, *conn;

    g->dirty = NULL;
    while ((conn = all) != NULL) {
        all = conn->next_dirty;
        conn->dirty = false;
        td__grpc_conn_flush(conn);
    }
}

static void leave_now(void *arg)
{
    td__grpc *g = arg;

    while (g->conns)
        td__grpc_conn_destroy(g->conns);
    td__timer_stop(g->loop, &g->leave);
    g->leaving = false;
    g->done(g->done_arg); /* may destroy the server */
}

td_status td__grpc_create(td__loop *l, const td__grpc_opts *opts, td__grpc **out)
{
    td__grpc *g = td__calloc(1, sizeof *g);
    td_status st;

    *out = NULL;
    if (!g)
        return TD_FAIL(TD_ENOMEM, "grpc: out of memory");
    g->loop = l;
    if (opts)
        g->opts = *opts;
    fill_limits(&g->opts.limits);
    g->last_service = &g->services;
    g->send = (td__turn_hook){.run = send_phase, .arg = g};
    g->leave = (td__timer){.due = leave_now, .arg = g};
    td__loop_hook(l, TD_TURN_SEND, &g->send);
    st = td__clients_create(g->opts.limits.per_address, &g->clients);
    if (!st)
        st = td__grpc_session_setup(g);
    if (st) {
        td__grpc_destroy(g);
        return st;
    }
    *out = g;
    return TD_OK;
}

static void stop_listening(td__grpc *g)
{
    grpc_listener *next;

    for (grpc_listener *n = g->listeners; n; n = next) {
        next = n->next;
        td__timer_stop(g->loop, &n->retry);
        td__loop_unwatch(g->loop, &n->watch);
        close(n->watch.fd);
        td__grpc_tls_context_destroy(n->tls);
        td__free(n);
    }
    g->listeners = NULL;
}

void td__grpc_destroy(td__grpc *g)
{
    grpc_entry *next;

    if (!g)
        return;
    g->leaving = false;
    stop_listening(g);
    while (g->conns)
        td__grpc_conn_destroy(g->conns);
    td__timer_stop(g->loop, &g->leave);
    td__loop_unhook(g->loop, TD_TURN_SEND, &g->send);
    for (grpc_entry *e = g->services; e; e = next) {
        next = e->next;
        td__free(e);
    }
    nghttp2_session_callbacks_del(g->callbacks);
    nghttp2_option_del(g->option);
    td__clients_destroy(g->clients);
    td__free(g->out);
    td__free(g);
}

/* ---- services ---- */

td_status td__grpc_add(td__grpc *g, const td__grpc_service *s, void *arg)
{
    grpc_entry *e = td__calloc(1, sizeof *e);

    if (!e)
        return TD_FAIL(TD_ENOMEM, "grpc: out of memory");
    e->service = s;
    e->arg = arg;
    *g->last_service = e;
    g->last_service = &e->next;
    return TD_OK;
}

const td__grpc_service *td__grpc_service_at(const td__grpc *g, int i)
{
    const grpc_entry *e = g->services;

    while (e && i--)
        e = e->next;
    return e ? e->service : NULL;
}

const td__grpc_method *td__grpc_find(const td__grpc *g, const char *path, const grpc_entry **entry)
{
    const char *slash = path[0] == '/' ? strchr(path + 1, '/') : NULL;

    if (!slash)
        return NULL;
    for (const grpc_entry *e = g->services; e; e = e->next) {
        const td__grpc_service *s = e->service;
        size_t n = (size_t)(slash - path - 1);

        if (strncmp(s->name, path + 1, n) != 0 || s->name[n])
            continue;
        for (int i = 0; i < s->n_methods; i++)
            if (!strcmp(s->methods[i].name, slash + 1)) {
                *entry = e;
                return &s->methods[i];
            }
    }
    return NULL;
}

/* ---- connections ---- */

static void accept_again(void *arg)
{
    grpc_listener *n = arg;

    if (td__loop_rewatch(n->server->loop, &n->watch, EPOLLIN))
        TD_LOG(WARN, SERVICE, "grpc: %s", td_last_error());
}

/* Not more than there may be, in all and of one client. */
static bool has_room(const td__grpc *g, int fd)
{
    struct sockaddr_storage from = {.ss_family = AF_UNSPEC};
    socklen_t room = sizeof from;

    return g->stats.open_connections < g->opts.limits.max_connections &&
           (getpeername(fd, (struct sockaddr *)&from, &room) ||
            td__clients_room(g->clients, (const struct sockaddr *)&from));
}

static void accept_ready(void *arg, uint32_t events)
{
    grpc_listener *n = arg;
    td__grpc *g = n->server;

    (void)events;
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        int fd = td__socket_accept(n->watch.fd);

        if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM)) {
            TD_LOG(WARN, SERVICE, "grpc: cannot accept a client: %s", strerror(errno));
            if (td__loop_rewatch(g->loop, &n->watch, 0) == TD_OK)
                td__timer_start(g->loop, &n->retry, td__deadline_in_ms(ACCEPT_RETRY_MS));
        }
        if (fd < 0)
            return;
        if (!has_room(g, fd)) {
            g->stats.refused_connections++;
            close(fd);
        } else if (td__grpc_conn_create(g, fd, n->tls)) {
            TD_LOG(WARN, SERVICE, "grpc: %s", td_last_error());
        }
    }
}

td_status td__grpc_listen(td__grpc *g, const td__grpc_listener *at, char actual[TD_ADDRESS_BYTES])
{
    grpc_listener *n = td__calloc(1, sizeof *n);
    char address[TD_ADDRESS_BYTES];
    td_status st;

    if (!n)
        return TD_FAIL(TD_ENOMEM, "grpc: out of memory");
    n->server = g;
    n->watch = (td__watch){.fd = -1, .ready = accept_ready, .arg = n};
    n->retry = (td__timer){.due = accept_again, .arg = n};
    if (!at->cert_file != !at->key_file)
        TD_TRY_OR(st, fail,
                  TD_FAIL(TD_EINVAL, "grpc: %s: TLS needs a certificate and its key", at->address));
    if (at->cert_file)
        TD_TRY_OR(st, fail, td__grpc_tls_context_create(at->cert_file, at->key_file, &n->tls));
    TD_TRY_OR(st, fail, td__socket_listen(at->address, &n->watch.fd, address));
    TD_TRY_OR(st, fail, td__loop_watch(g->loop, &n->watch, EPOLLIN));
    n->next = g->listeners;
    g->listeners = n;
    if (actual)
        snprintf(actual, TD_ADDRESS_BYTES, "%s", address);
    return TD_OK;
fail:
    if (n->watch.fd >= 0)
        close(n->watch.fd);
    td__grpc_tls_context_destroy(n->tls);
    td__free(n);
    return st;
}

td_status td__grpc_attach(td__grpc *g, int fd)
{
    return td__grpc_conn_create(g, fd, NULL);
}

/* ---- the end ---- */

void td__grpc_conn_gone(td__grpc *g)
{
    if (g->leaving && !g->conns) /* not from here: the caller may be in the middle of the server */
        td__timer_start(g->loop, &g->leave, td__loop_now(g->loop));
}

void td__grpc_shutdown(td__grpc *g, td__deadline until, void (*done)(void *arg), void *arg)
{
    g->leaving = true;
    g->done = done;
    g->done_arg = arg;
    stop_listening(g);
    for (td__grpc_conn *conn = g->conns; conn; conn = conn->next)
        td__grpc_conn_goodbye(conn);
    td__timer_start(g->loop, &g->leave, until);
    td__grpc_conn_gone(g);
}

void td__grpc_stats_get(const td__grpc *g, td__grpc_stats *s)
{
    *s = g->stats;
}
