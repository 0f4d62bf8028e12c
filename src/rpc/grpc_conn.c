/* grpc_conn.c -- one connection: bytes between its socket and its HTTP/2 session, through TLS or
 * plain, and the times within which it must show life. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/log.h"
#include "net/socket.h"
#include "rpc/grpc_impl.h"

enum {
    READS_PER_TURN = 4,  /* buffers taken from one connection before others get their turn */
    WRITES_PER_TURN = 16 /* likewise written */
};

static void timer_due(void *arg);
static void socket_ready(void *arg, uint32_t events);

static uint64_t now_of(const td__grpc_conn *conn)
{
    return td__loop_now(conn->server->loop);
}

static td__deadline after_ms(const td__grpc_conn *conn, unsigned ms)
{
    return now_of(conn) + ms * 1000000ull;
}

td_status td__grpc_conn_create(td__grpc *g, int fd, const td__grpc_tls_context *tls)
{
    td__grpc_conn *conn = td__calloc(1, sizeof *conn);
    td_status st;

    if (!conn) {
        close(fd);
        return TD_FAIL(TD_ENOMEM, "grpc: out of memory");
    }
    conn->server = g;
    conn->watch = (td__watch){.fd = fd, .ready = socket_ready, .arg = conn};
    conn->timer = (td__timer){.due = timer_due, .arg = conn};
    conn->stall_at = TD_DEADLINE_NEVER;
    conn->heard = conn->idle_since = td__loop_now(g->loop);
    td__socket_source(fd, conn->peer);
    socklen_t room = sizeof conn->address;
    if (getpeername(fd, (struct sockaddr *)&conn->address, &room))
        conn->address.ss_family = AF_UNSPEC;
    td__clients_enter(g->clients, (const struct sockaddr *)&conn->address);
    conn->next = g->conns;
    conn->link = &g->conns;
    if (conn->next)
        conn->next->link = &conn->next;
    g->conns = conn;
    g->stats.open_connections++;
    TD_TRY_OR(st, fail, td__loop_watch(g->loop, &conn->watch, EPOLLIN));
    if (tls)
        TD_TRY_OR(st, fail, td__grpc_tls_create(tls, &conn->tls));
    TD_TRY_OR(st, fail, td__grpc_session_create(conn));
    td__timer_start(g->loop, &conn->timer, after_ms(conn, g->opts.limits.handshake_ms));
    td__grpc_conn_touch(conn); /* our settings */
    return TD_OK;
fail:
    td__grpc_conn_destroy(conn);
    return st;
}

void td__grpc_conn_destroy(td__grpc_conn *conn)
{
    td__grpc *g = conn->server;

    while (conn->calls)
        td__call_destroy(conn->calls);
    if (conn->dirty) {
        td__grpc_conn **link = &g->dirty;

        while (*link != conn)
            link = &(*link)->next_dirty;
        *link = conn->next_dirty;
    }
    td__timer_stop(g->loop, &conn->timer);
    td__loop_unwatch(g->loop, &conn->watch);
    close(conn->watch.fd);
    nghttp2_session_del(conn->session);
    td__grpc_tls_destroy(conn->tls);
    *conn->link = conn->next;
    if (conn->next)
        conn->next->link = conn->link;
    g->stats.open_connections--;
    td__clients_leave(g->clients, (const struct sockaddr *)&conn->address);
    td__text_fini(&conn->path);
    td__text_fini(&conn->metadata);
    td__free(conn->out);
    td__free(conn);
    td__grpc_conn_gone(g);
}

void td__grpc_conn_touch(td__grpc_conn *conn)
{
    td__grpc *g = conn->server;

    if (conn->dirty)
        return;
    if (!g->dirty)
        td__loop_again(g->loop);
    conn->dirty = true;
    conn->next_dirty = g->dirty;
    g->dirty = conn;
}

void td__grpc_conn_goodbye(td__grpc_conn *conn)
{
    if (conn->closing)
        return;
    conn->closing = true;
    nghttp2_submit_goaway(conn->session, NGHTTP2_FLAG_NONE,
                          nghttp2_session_get_last_proc_stream_id(conn->session), NGHTTP2_NO_ERROR,
                          NULL, 0);
    td__grpc_conn_touch(conn);
}

/* ---- time ---- */

/* When it is told to go for want of calls. */
static td__deadline idle_at(const td__grpc_conn *conn)
{
    if (conn->n_calls || conn->closing)
        return TD_DEADLINE_NEVER;
    return conn->idle_since + conn->server->opts.limits.idle_ms * 1000000ull;
}

static void timer_due(void *arg)
{
    td__grpc_conn *conn = arg;
    td__grpc *g = conn->server;
    const td__grpc_limits *l = &g->opts.limits;
    uint64_t now = now_of(conn);
    td__deadline next = conn->heard + l->keepalive_ms * 1000000ull;

    if (!conn->greeted || conn->stall_at <= now ||
        (conn->pinged && next + l->keepalive_answer_ms * 1000000ull <= now)) {
        TD_LOG(DEBUG, SERVICE, "grpc: closing the connection of %s: %s", conn->peer,
               !conn->greeted          ? "no settings"
               : conn->stall_at <= now ? "it reads nothing"
                                       : "no answer to a ping");
        td__grpc_conn_destroy(conn);
        return;
    }
    td__deadline idle = idle_at(conn);
    if (idle <= now) {
        TD_LOG(DEBUG, SERVICE, "grpc: %s has had no call for long: it is told to go", conn->peer);
        td__grpc_conn_goodbye(conn);
        idle = TD_DEADLINE_NEVER;
    }
    if (next <= now) {
        if (!conn->pinged)
            nghttp2_submit_ping(conn->session, NGHTTP2_FLAG_NONE, NULL);
        conn->pinged = true;
        next += l->keepalive_answer_ms * 1000000ull;
        td__grpc_conn_touch(conn);
    }
    next = next < conn->stall_at ? next : conn->stall_at;
    td__timer_start(g->loop, &conn->timer, next < idle ? next : idle);
}

void td__grpc_conn_idle(td__grpc_conn *conn)
{
    conn->idle_since = now_of(conn);
    if (conn->greeted && idle_at(conn) < conn->timer.at)
        td__timer_start(conn->server->loop, &conn->timer, idle_at(conn));
}

/* ---- in ---- */

/* false: the connection cannot go on. What nghttp2 has to say about it is still sent. */
static bool receive(td__grpc_conn *conn, size_t nbytes)
{
    td__grpc *g = conn->server;

    if (!conn->tls)
        return nghttp2_session_mem_recv(conn->session, g->read, nbytes) >= 0;
    if (td__grpc_tls_feed(conn->tls, g->read, nbytes))
        return false;
    for (;;) {
        size_t got;

        if (td__grpc_tls_read(conn->tls, g->read, sizeof g->read, &got))
            return false;
        if (!got)
            return true;
        if (nghttp2_session_mem_recv(conn->session, g->read, got) < 0)
            return false;
    }
}

static void socket_ready(void *arg, uint32_t events)
{
    td__grpc_conn *conn = arg;
    td__grpc *g = conn->server;

    (void)events; /* errors show when the socket is read */
    for (int i = 0; i < READS_PER_TURN && !conn->broken; i++) {
        ssize_t n = recv(conn->watch.fd, g->read, sizeof g->read, 0);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            break;
        if (n <= 0) {
            td__grpc_conn_destroy(conn);
            return;
        }
        conn->broken = !receive(conn, (size_t)n);
        if ((size_t)n < sizeof g->read)
            break;
    }
    td__grpc_conn_touch(conn);
}

/* ---- out ---- */

/* Collect what the session has to say in the server's buffer: up to about one buffer of bytes. */
static bool gather(td__grpc_conn *conn, size_t *n_out)
{
    td__grpc *g = conn->server;
    size_t n = 0, taken = 0;

    while (taken < TD_GRPC_READ_BYTES && (!conn->tls || td__grpc_tls_ready(conn->tls))) {
        const uint8_t *data;
        ssize_t part = nghttp2_session_mem_send(conn->session, &data);

        if (part <= 0) {
            if (part < 0)
                return false;
            break;
        }
        taken += (size_t)part;
        if (conn->tls) {
            if (td__grpc_tls_write(conn->tls, data, (size_t)part))
                return false;
            continue;
        }
        if (!td__reserve(&g->out, &g->out_room, n + (size_t)part))
            return false;
        memcpy(g->out + n, data, (size_t)part);
        n += (size_t)part;
    }
    if (conn->tls) {
        size_t pending = td__grpc_tls_pending(conn->tls);

        if (!td__reserve(&g->out, &g->out_room, pending))
            return false;
        n = td__grpc_tls_take(conn->tls, g->out, pending);
    }
    *n_out = n;
    return true;
}

/* What the socket takes now; 0 when it takes nothing, -1 when it is gone. */
static ssize_t write_some(td__grpc_conn *conn, const uint8_t *data, size_t nbytes)
{
    ssize_t n = send(conn->watch.fd, data, nbytes, MSG_NOSIGNAL);

    if (n > 0)
        conn->stall_at = TD_DEADLINE_NEVER;
    return n < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : n;
}

/* Bytes that the socket did not take before. false: the connection is gone. */
static bool write_rest(td__grpc_conn *conn)
{
    ssize_t n = write_some(conn, conn->out + conn->out_at, conn->n_out - conn->out_at);

    if (n < 0)
        return false;
    conn->out_at += (size_t)n;
    if (conn->out_at < conn->n_out)
        return true;
    td__free(conn->out);
    conn->out = NULL;
    conn->out_at = conn->n_out = conn->out_room = 0;
    return true;
}

static bool write_all(td__grpc_conn *conn)
{
    for (int i = 0; i < WRITES_PER_TURN; i++) {
        td__grpc *g = conn->server;
        size_t nbytes;
        ssize_t n;

        if (conn->n_out && !write_rest(conn))
            return false;
        if (conn->n_out)
            return true;
        if (!gather(conn, &nbytes))
            return false;
        if (!nbytes)
            return true;
        n = write_some(conn, g->out, nbytes);
        if (n < 0)
            return false;
        if ((size_t)n < nbytes) {
            conn->n_out = nbytes - (size_t)n;
            if (!td__reserve(&conn->out, &conn->out_room, conn->n_out))
                return false;
            memcpy(conn->out, g->out + n, conn->n_out);
        }
    }
    return true;
}

/* Calls whose answers could not be queued end here. */
static void end_failed_calls(td__grpc_conn *conn)
{
    conn->failing = false;
    for (td__call *c = conn->calls; c; c = c->next)
        if (c->failed)
            td__call_end(c, c->code, "%s", "");
}

static void notify_drained(td__grpc_conn *conn)
{
    for (td__call *c = conn->calls; c; c = c->next)
        if (c->wants_drained && td__call_room(c) && c->events && c->events->drained)
            c->events->drained(c->data, c);
}

void td__grpc_conn_flush(td__grpc_conn *conn)
{
    td__grpc *g = conn->server;
    bool more;

    if (conn->failing)
        end_failed_calls(conn);
    if (!write_all(conn) || conn->broken) {
        td__grpc_conn_destroy(conn);
        return;
    }
    notify_drained(conn);
    more = conn->n_out || nghttp2_session_want_write(conn->session);
    if (!more && ((conn->closing && !conn->n_calls) || !nghttp2_session_want_read(conn->session))) {
        td__grpc_conn_destroy(conn);
        return;
    }
    if (conn->n_out && conn->stall_at == TD_DEADLINE_NEVER) {
        conn->stall_at = after_ms(conn, g->opts.limits.stall_ms);
        if (conn->stall_at < conn->timer.at)
            td__timer_start(g->loop, &conn->timer, conn->stall_at);
    }
    if (td__loop_rewatch(g->loop, &conn->watch, more ? EPOLLIN | EPOLLOUT : EPOLLIN))
        td__grpc_conn_destroy(conn);
}
