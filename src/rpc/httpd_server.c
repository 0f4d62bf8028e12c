/* httpd_server.c -- the server: libmicrohttpd's epoll descriptor in the event loop, connections and
 * the time that each may take.
 *
 * Without TLS, libmicrohttpd is started by the first connection: a service that is asked over gRPC
 * alone has neither it nor the TLS libraries behind it in memory. With TLS it is started at once,
 * since certificates that do not fit are an error of whoever starts the service. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/log.h"
#include "rpc/httpd_impl.h"

enum {
    SWEEP_MS = 1000,
    BURST_S = 10,         /* of requests, in seconds of the permitted rate */
    BODY_BYTES_S = 16384, /* slowest upload */
    MOST_WAIT_MS = 60000,
};

void td__httpd_wake(td__httpd *h)
{
    if (!h->mhd) /* nobody has come yet to whom anything could be sent */
        return;
    /* While the server runs, whoever runs it looks again afterwards. */
    if (!h->running)
        td__timer_start(h->loop, &h->timer, 0);
    h->pending = true;
}

/* Let libmicrohttpd do what is due, and come back when it wants to. */
static void drive(td__httpd *h)
{
    MHD_UNSIGNED_LONG_LONG ms = 0;
    h->running = true;
    MHD_run(h->mhd);
    h->running = false;
    if (h->pending)
        td__timer_start(h->loop, &h->timer, 0);
    else if (MHD_get_timeout(h->mhd, &ms) == MHD_YES)
        td__timer_start(h->loop, &h->timer,
                        td__deadline_in_ms(ms < MOST_WAIT_MS ? ms : MOST_WAIT_MS));
    else
        td__timer_stop(h->loop, &h->timer);
}

static void on_timer(void *arg)
{
    td__httpd *h = arg;
    if (!h->pending) /* else it is the SEND phase's turn */
        drive(h);
}

/* The turn's changes are durable: answers may leave. */
static void on_send(void *arg)
{
    td__httpd *h = arg;
    if (!h->pending)
        return;
    h->pending = false;
    for (td__httpd_request *r = h->ready, *next; r; r = next) {
        next = r->next;
        r->next = NULL;
        MHD_resume_connection(r->conn->mhd);
    }
    h->ready = NULL;
    td__httpd_streams_wake(h);
    drive(h);
}

/* ---- connections ---- */

td__httpd_conn *td__httpd_conn_of(struct MHD_Connection *c)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

uint64_t td__httpd_heard(const td__httpd_conn *c)
{
    struct tcp_info info = {0};
    socklen_t n = sizeof info;

    if (getsockopt(c->fd, IPPROTO_TCP, TCP_INFO, &info, &n) ||
        n < offsetof(struct tcp_info, tcpi_bytes_received) + sizeof info.tcpi_bytes_received)
        return 0;
    return info.tcpi_bytes_received;
}

static const struct sockaddr *address_of(struct MHD_Connection *c)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    return info ? info->client_addr : NULL;
}

static enum MHD_Result on_accept(void *arg, const struct sockaddr *client, socklen_t nbytes)
{
    const td__httpd *h = arg;

    (void)nbytes;
    return td__clients_room(h->clients, client) ? MHD_YES : MHD_NO;
}

static void on_connection(void *arg, struct MHD_Connection *c, void **state,
                          enum MHD_ConnectionNotificationCode what)
{
    td__httpd *h = arg;
    td__httpd_conn *conn = *state;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
        conn = td__calloc(1, sizeof *conn);
        *state = conn;
        if (!conn)
            return; /* its requests are refused */
        *conn = (td__httpd_conn){.mhd = c,
                                 .fd = info ? info->connect_fd : -1,
                                 .since = td__clock_ns(),
                                 .next = h->conns};
        if (h->conns)
            h->conns->prev = conn;
        else
            td__timer_start(h->loop, &h->sweep, td__deadline_in_ms(SWEEP_MS));
        h->conns = conn;
        h->counters.connections++;
        td__clients_enter(h->clients, address_of(c));
    } else if (conn) {
        *(conn->prev ? &conn->prev->next : &h->conns) = conn->next;
        if (conn->next)
            conn->next->prev = conn->prev;
        h->counters.connections--;
        td__clients_leave(h->clients, address_of(c));
        td__free(conn);
        *state = NULL;
    }
}

/* A client that sends its request byte by byte keeps a connection that others may want. Runs while
 * there are connections, so that a server without any sleeps. */
static void on_sweep(void *arg)
{
    td__httpd *h = arg;
    uint64_t now = td__clock_ns();
    for (td__httpd_conn *c = h->conns; c; c = c->next) {
        uint64_t most =
            h->limits.request_s * 1000000000ull + c->received / BODY_BYTES_S * 1000000000ull;
        if (c->idle && td__httpd_heard(c) != c->heard) { /* another request has begun */
            c->idle = false;
            c->since = now;
        }
        if (c->idle)
            most = h->limits.idle_s * 1000000000ull;
        if (!c->busy && now - c->since > most)
            shutdown(c->fd, SHUT_RDWR);
    }
    td__httpd_streams_sweep(h);
    if (h->conns)
        td__timer_start(h->loop, &h->sweep, td__deadline_in_ms(SWEEP_MS));
}

/* ---- life ---- */

#define DEFAULT(field, value) \
    if (!h->limits.field)     \
    h->limits.field = (value)

static void set_limits(td__httpd *h)
{
    h->limits = h->o.limits;
    DEFAULT(connections, 1024);
    DEFAULT(per_address, 256);
    DEFAULT(requests_per_s, 200);
    DEFAULT(request_s, 20);
    DEFAULT(idle_s, 60);
    DEFAULT(header, 32768);
    DEFAULT(body, 1u << 20);
    DEFAULT(upload, 1ull << 34);
    DEFAULT(stream_backlog, 4u << 20);
}

static void on_ready(void *arg, uint32_t events)
{
    (void)events;
    drive(arg);
}

/* libmicrohttpd on the listening socket, its epoll descriptor in the loop. */
static td_status start(td__httpd *h)
{
    unsigned flags = MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_TURBO;
    struct MHD_OptionItem tls[] = {{MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)(uintptr_t)h->o.cert},
                                   {MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)(uintptr_t)h->o.key},
                                   {MHD_OPTION_END, 0, NULL}};
    h->mhd = MHD_start_daemon(
        flags | (h->o.cert ? MHD_USE_TLS : 0u), 0, on_accept, h, td__httpd_access, h,
        MHD_OPTION_LISTEN_SOCKET, h->listener, MHD_OPTION_NOTIFY_COMPLETED, td__httpd_completed, h,
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, h, MHD_OPTION_CONNECTION_LIMIT,
        h->limits.connections, MHD_OPTION_CONNECTION_TIMEOUT, h->limits.idle_s,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, h->limits.header, MHD_OPTION_STRICT_FOR_CLIENT, 1,
        MHD_OPTION_ARRAY, h->o.cert ? tls : &tls[2], MHD_OPTION_END);
    if (!h->mhd)
        return TD_FAIL(TD_EIO, "http: cannot start a server on %s%s", h->o.listen,
                       h->o.cert ? " (are certificate and key PEM files that belong together?)"
                                 : "");
    h->listener = -1; /* libmicrohttpd's now */
    h->watch = (td__watch){.fd = MHD_get_daemon_info(h->mhd, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd,
                           .ready = on_ready,
                           .arg = h};
    TD_TRY(td__loop_watch(h->loop, &h->watch, EPOLLIN));
    h->watched = true;
    return TD_OK;
}

static void ignore_first(td__httpd *h)
{
    td__loop_unwatch(h->loop, &h->first);
    h->first.fd = -1;
}

/* The first connection: start the server for it. A connection for which there is no memory is
 * closed, and the next one tries again; where not even that is possible, as the process has no
 * descriptor left, it waits, and nobody looks at it all the time. */
static void on_first(void *arg, uint32_t events)
{
    td__httpd *h = arg;

    (void)events;
    if (start(h)) {
        int fd = h->mhd ? -1 : accept4(h->listener, NULL, NULL, SOCK_CLOEXEC);
        bool waits = !h->mhd && fd < 0;

        if (!h->waited)
            TD_LOG(ERROR, SERVICE, "%s%s", td_last_error(),
                   waits ? "; trying again every second (are there too few descriptors?)" : "");
        h->waited = waits;
        if (waits) {
            ignore_first(h);
            td__timer_start(h->loop, &h->again, td__deadline_in_ms(SWEEP_MS));
        } else if (fd >= 0) {
            close(fd);
        }
        if (!h->mhd)
            return;
    }
    ignore_first(h);
    drive(h);
}

static void on_again(void *arg)
{
    td__httpd *h = arg;

    h->first.fd = h->listener;
    if (!td__loop_watch(h->loop, &h->first, EPOLLIN))
        return;
    h->first.fd = -1;
    td__timer_start(h->loop, &h->again, td__deadline_in_ms(SWEEP_MS));
}

td_status td__httpd_create(td__loop *loop, const td__httpd_opts *o, td__httpd **out)
{
    td_status st;
    td__httpd *h = td__calloc(1, sizeof *h);
    *out = NULL;
    if (!h)
        return TD_FAIL(TD_ENOMEM, "out of memory");
    h->loop = loop;
    h->o = *o;
    h->watch.fd = h->first.fd = h->listener = -1;
    set_limits(h);
    TD_TRY_OR(
        st, failed,
        td__rates_create(h->limits.requests_per_s, h->limits.requests_per_s * BURST_S, &h->rates));
    TD_TRY_OR(st, failed, td__clients_create(h->limits.per_address, &h->clients));
    TD_TRY_OR(st, failed, td__socket_listen(o->listen, &h->listener, h->address));
    if (o->cert) {
        TD_TRY_OR(st, failed, start(h));
    } else {
        h->first = (td__watch){.fd = h->listener, .ready = on_first, .arg = h};
        TD_TRY_OR(st, failed, td__loop_watch(loop, &h->first, EPOLLIN));
    }
    h->begun = true;
    h->send = (td__turn_hook){.run = on_send, .arg = h};
    td__loop_hook(loop, TD_TURN_SEND, &h->send);
    h->timer = (td__timer){.due = on_timer, .arg = h};
    h->sweep = (td__timer){.due = on_sweep, .arg = h};
    h->again = (td__timer){.due = on_again, .arg = h};
    *out = h;
    return TD_OK;
failed:
    td__httpd_destroy(h);
    return st;
}

void td__httpd_destroy(td__httpd *h)
{
    if (!h)
        return;
    if (h->first.fd >= 0)
        td__loop_unwatch(h->loop, &h->first);
    if (h->watched)
        td__loop_unwatch(h->loop, &h->watch);
    if (h->begun) {
        td__loop_unhook(h->loop, TD_TURN_SEND, &h->send);
        td__timer_stop(h->loop, &h->timer);
        td__timer_stop(h->loop, &h->sweep);
        td__timer_stop(h->loop, &h->again);
    }
    if (h->mhd) {
        /* Suspended connections must be resumed before the end: those that a handler still has
         * are answered, streams are broken off. */
        h->running = true;
        for (td__httpd_conn *c = h->conns; c; c = c->next)
            shutdown(c->fd, SHUT_RDWR);
        while (h->waiting)
            td__httpd_fail(h->waiting, 503, "the server is going down");
        for (td__httpd_request *r = h->ready; r; r = r->next)
            MHD_resume_connection(r->conn->mhd);
        h->ready = NULL;
        for (td__httpd_stream *s = h->streams; s; s = s->next)
            s->broken = true;
        td__httpd_streams_wake(h);
        MHD_run(h->mhd);
        MHD_stop_daemon(h->mhd);
    }
    if (h->listener >= 0)
        close(h->listener);
    td__rates_destroy(h->rates);
    td__clients_destroy(h->clients);
    td__free(h);
}

const char *td__httpd_address(const td__httpd *h)
{
    return h->address;
}

td__httpd_counters td__httpd_counters_of(const td__httpd *h)
{
    return h->counters;
}
