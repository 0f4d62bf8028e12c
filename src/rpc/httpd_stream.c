/* httpd_stream.c -- answers whose end is not known yet: events, logs that are followed. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "rpc/httpd_impl.h"

enum { BLOCK = 16384 };
static const uint64_t KEEP_ALIVE_NS = 15000000000u; /* proxies end connections that are silent */

static bool has_data(const td__httpd_stream *s)
{
    return s->sent < s->queue.used;
}

/* libmicrohttpd can send up to `room` bytes now. */
static ssize_t next_block(void *arg, uint64_t at, char *to, size_t room)
{
    td__httpd_stream *s = arg;
    (void)at;
    if (s->broken)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    if (!has_data(s)) {
        if (s->ended)
            return MHD_CONTENT_READER_END_OF_STREAM;
        s->waiting = true;
        MHD_suspend_connection(s->conn->mhd);
        return 0;
    }
    size_t n = s->queue.used - s->sent < room ? s->queue.used - s->sent : room;
    memcpy(to, s->queue.data + s->sent, n);
    s->sent += n;
    s->h->counters.bytes_out += n;
    if (!has_data(s)) {
        td__text_clear(&s->queue);
        s->sent = 0;
        if (s->ops->drained && !s->ended)
            s->ops->drained(s->arg);
    }
    return (ssize_t)n;
}

static void closed(void *arg)
{
    td__httpd_stream *s = arg;
    *(s->prev ? &s->prev->next : &s->h->streams) = s->next;
    if (s->next)
        s->next->prev = s->prev;
    s->h->counters.streams--;
    s->ops->closed(s->arg);
    td__text_fini(&s->queue);
    td__free(s);
}

td__httpd_stream *td__httpd_stream_open(td__httpd_request *r, const char *type,
                                        const td__httpd_stream_ops *ops, void *arg)
{
    td__httpd *h = r->h;
    td__httpd_stream *s = td__calloc(1, sizeof *s);
    struct MHD_Response *response =
        s ? MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK, next_block, s, closed)
          : NULL;
    if (!response) {
        td__free(s);
        td__httpd_fail(r, 503, "out of memory");
        return NULL;
    }
    *s = (td__httpd_stream){.h = h,
                            .conn = r->conn,
                            .ops = ops,
                            .arg = arg,
                            .sse = strcmp(type, TD_HTTPD_SSE) == 0,
                            .wrote_at = td__clock_ns(),
                            .next = h->streams};
    if (h->streams)
        h->streams->prev = s;
    h->streams = s;
    h->counters.streams++;
    td__httpd_set(r, "X-Accel-Buffering", "no"); /* a proxy passes events on at once */
    td__httpd_answer(r, 200, type, response);
    return s;
}

void td__httpd_stream_write(td__httpd_stream *s, const void *data, size_t nbytes)
{
    if (s->ended || s->broken)
        return;
    td__text_append(&s->queue, data, nbytes);
    s->wrote_at = td__clock_ns();
    if (s->queue.failed || s->queue.used - s->sent > s->h->limits.stream_backlog)
        s->broken = true;
    td__httpd_wake(s->h);
}

void td__httpd_stream_event(td__httpd_stream *s, const char *id, const char *event,
                            const char *data)
{
    td__text t = {0};
    if (id)
        td__text_printf(&t, "id: %s\n", id);
    if (event)
        td__text_printf(&t, "event: %s\n", event);
    td__text_add(&t, "data: ");
    td__text_add(&t, data);
    td__text_add(&t, "\n\n");
    if (t.failed)
        s->broken = true;
    else
        td__httpd_stream_write(s, t.data, t.used);
    td__text_fini(&t);
    td__httpd_wake(s->h);
}

void td__httpd_stream_end(td__httpd_stream *s)
{
    s->ended = true;
    td__httpd_wake(s->h);
}

void td__httpd_streams_wake(td__httpd *h)
{
    for (td__httpd_stream *s = h->streams; s; s = s->next)
        if (s->waiting && (has_data(s) || s->ended || s->broken)) {
            s->waiting = false;
            MHD_resume_connection(s->conn->mhd);
        }
}

void td__httpd_streams_sweep(td__httpd *h)
{
    uint64_t now = td__clock_ns();
    for (td__httpd_stream *s = h->streams; s; s = s->next) {
        /* The server does not look at the socket of a suspended connection. */
        struct pollfd p = {.fd = s->conn->fd, .events = POLLRDHUP};
        if (s->waiting && poll(&p, 1, 0) == 1 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR)))
            s->broken = true;
        else if (s->broken) /* libmicrohttpd waits for a client that does not read */
            shutdown(s->conn->fd, SHUT_RDWR);
        else if (s->waiting && s->sse && now - s->wrote_at > KEEP_ALIVE_NS)
            td__httpd_stream_write(s, ":\n\n", 3);
    }
    td__httpd_wake(h);
}
