/* grpc_call.c -- one call: finding its method, collecting its request, queueing its answers, its
 * end. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "rpc/grpc_impl.h"
#include "rpc/grpc_wire.h"

enum {
    HIGH_WATER = 256 << 10, /* bytes: streams stop producing above this */
    /* Decoded messages may take this many bytes per byte on the wire, and SPARE_BYTES: a client
     * cannot make a small request use much memory. */
    MAX_GROWTH = 16,
    SPARE_BYTES = 64 << 10,
    KEEP_BYTES = 1024,     /* of headers, kept for the next call of a connection */
    STREAM_BYTES_S = 16384 /* slowest stream of a client */
};

static td__grpc *server_of(const td__call *c)
{
    return c->conn->server;
}

static bool takes_several(const td__grpc_method *m)
{
    return m->kind == TD_GRPC_BIDI_STREAM || m->kind == TD_GRPC_CLIENT_STREAM;
}

/* Room for nbytes. A server has thousands of calls with a few bytes each: buffers begin as large as
 * they need to be. */
static bool reserve(uint8_t **buf, size_t *room, size_t nbytes)
{
    size_t bigger = *room ? 2 * *room : nbytes;
    uint8_t *p;

    if (nbytes <= *room)
        return true;
    if (bigger < nbytes)
        bigger = nbytes;
    p = td__realloc(*buf, bigger);
    if (!p)
        return false;
    *buf = p;
    *room = bigger;
    return true;
}

/* ---- life ---- */

static void out_of_time(void *arg)
{
    td__call *c = arg;

    if (c->deadline <= td__loop_now(server_of(c)->loop))
        td__call_end(c, TD_GRPC_DEADLINE_EXCEEDED, "Deadline Exceeded");
    else
        td__call_end(c, TD_GRPC_CANCELLED, "the request did not arrive within %u ms",
                     server_of(c)->opts.limits.request_ms);
}

td__call *td__call_create(td__grpc_conn *conn, int32_t stream)
{
    td__call *c = td__calloc(1, sizeof *c);
    td__grpc *g = conn->server;

    if (!c)
        return NULL;
    c->conn = conn;
    c->stream = stream;
    c->began = td__loop_now(g->loop);
    c->deadline = TD_DEADLINE_NEVER;
    c->timer = (td__timer){.due = out_of_time, .arg = c};
    td__timer_start(g->loop, &c->timer, c->began + g->opts.limits.request_ms * 1000000ull);
    c->next = conn->calls;
    c->link = &conn->calls;
    if (c->next)
        c->next->link = &c->next;
    conn->calls = c;
    conn->n_calls++;
    g->stats.calls++;
    g->stats.open_calls++;
    return c;
}

static void observe(td__call *c, td__grpc_code code)
{
    td__grpc *g = server_of(c);

    if (g->opts.observe && c->method)
        g->opts.observe(g->opts.arg, c, code, td__clock_ns() - c->began);
}

static void notify_ended(td__call *c)
{
    const td__call_events *e = c->events;

    c->events = NULL;
    if (e)
        e->ended(c->data, c);
}

static void drop_request(td__call *c)
{
    c->conn->pending -= c->n_in;
    c->n_in = c->in_room = 0;
    td__free(c->in);
    c->in = NULL;
}

void td__call_destroy(td__call *c)
{
    if (c->state != CALL_FINISHED) {
        c->state = CALL_FINISHED;
        notify_ended(c);
        observe(c, TD_GRPC_CANCELLED);
    }
    td__timer_stop(server_of(c)->loop, &c->timer);
    drop_request(c);
    *c->link = c->next;
    if (c->next)
        c->next->link = c->link;
    if (!--c->conn->n_calls)
        td__grpc_conn_idle(c->conn);
    server_of(c)->stats.open_calls--;
    td__free(c->why);
    if (c->conn->beginning == c)
        c->conn->beginning = NULL;
    td__free(c->out);
    td__free(c);
}

/* ---- the end ---- */

#define NV(n, v, nv)                                                               \
    {                                                                              \
        (uint8_t *)(uintptr_t)(n), (uint8_t *)(uintptr_t)(v), sizeof(n) - 1, (nv), \
            NGHTTP2_NV_FLAG_NO_COPY_NAME                                           \
    }
#define NV_LITERAL(n, v) NV(n, v, sizeof(v) - 1)

static int trailers(const td__call *c, nghttp2_nv *nv, char code[4])
{
    int n = 0;

    snprintf(code, 4, "%d", (int)c->code);
    nv[n++] = (nghttp2_nv)NV("grpc-status", code, strlen(code));
    if (c->why && *c->why)
        nv[n++] = (nghttp2_nv)NV("grpc-message", c->why, strlen(c->why));
    return n;
}

/* Errors of nghttp2_submit_* are out of memory, or a stream that is already being reset: the stream
 * is reset, and the client sees that. */
static void submitted(td__call *c, int rv)
{
    if (rv)
        nghttp2_submit_rst_stream(c->conn->session, NGHTTP2_FLAG_NONE, c->stream,
                                  NGHTTP2_INTERNAL_ERROR);
    td__grpc_conn_touch(c->conn);
}

static void begin_response(td__call *c)
{
    static const nghttp2_nv head[] = {NV_LITERAL(":status", "200"),
                                      NV_LITERAL("content-type", "application/grpc")};
    nghttp2_data_provider provider = {.source.ptr = c, .read_callback = td__call_read};

    c->response_begun = true;
    submitted(c, nghttp2_submit_response(c->conn->session, c->stream, head, 2, &provider));
}

/* Headers and end in one frame, for a call that has no answer. */
static void end_at_once(td__call *c)
{
    char code[4];
    nghttp2_nv nv[5] = {NV_LITERAL(":status", "200"),
                        NV_LITERAL("content-type", "application/grpc"),
                        NV_LITERAL("grpc-accept-encoding", "identity")};
    int n = 3 + trailers(c, nv + 3, code);

    c->response_begun = true;
    submitted(c, nghttp2_submit_response(c->conn->session, c->stream, nv, (size_t)n, NULL));
}

/* Is there anything for nghttp2 to send? */
static void resume(td__call *c)
{
    if (!c->response_begun) {
        begin_response(c);
    } else if (c->deferred) {
        c->deferred = false;
        submitted(c, nghttp2_session_resume_data(c->conn->session, c->stream));
    }
}

ssize_t td__call_read(nghttp2_session *s, int32_t stream, uint8_t *buf, size_t nbytes,
                      uint32_t *flags, nghttp2_data_source *source, void *user)
{
    td__call *c = source->ptr;
    size_t n = c->n_out - c->out_at;

    (void)user;
    if (n > nbytes)
        n = nbytes;
    if (n)
        memcpy(buf, c->out + c->out_at, n);
    c->out_at += n;
    if (c->out_at < c->n_out)
        return (ssize_t)n;
    c->out_at = c->n_out = c->out_room = 0;
    td__free(c->out); /* streams wait long between messages */
    c->out = NULL;
    if (c->state == CALL_FINISHED) {
        char code[4];
        nghttp2_nv nv[2];
        int n_nv = trailers(c, nv, code);

        *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
        if (nghttp2_submit_trailer(s, stream, nv, (size_t)n_nv))
            return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE; /* resets the stream */
        return (ssize_t)n;
    }
    if (n)
        return (ssize_t)n;
    c->deferred = true;
    return NGHTTP2_ERR_DEFERRED;
}

static void finish(td__call *c, td__grpc_code code, const char *fmt, va_list ap)
{
    td__text text = {0};
    char line[1024];

    if (c->state == CALL_FINISHED)
        return;
    if (!c->failed) {
        vsnprintf(line, sizeof line, fmt, ap);
        c->code = code;
        td__grpc_percent(&text, line);
        td__free(c->why);
        c->why = text.data; /* out of memory leaves a shorter text */
    }
    c->state = CALL_FINISHED;
    c->events = NULL;
    td__timer_stop(server_of(c)->loop, &c->timer);
    drop_request(c);
    observe(c, c->code);
    if (c->n_out || c->response_begun)
        resume(c);
    else
        end_at_once(c);
}

void td__call_finish(td__call *c, td__grpc_code code, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    finish(c, code, fmt, ap);
    va_end(ap);
}

void td__call_end(td__call *c, td__grpc_code code, const char *fmt, ...)
{
    va_list ap;

    notify_ended(c);
    va_start(ap, fmt);
    finish(c, code, fmt, ap);
    va_end(ap);
}

/* ---- answers ---- */

static void fail(td__call *c, const char *why)
{
    if (c->failed)
        return;
    c->failed = true;
    c->code = TD_GRPC_RESOURCE_EXHAUSTED;
    td__free(c->why);
    c->why = td__strdup(why); /* a text without escapes */
    c->conn->failing = true;
    td__grpc_conn_touch(c->conn);
}

void td__call_send(td__call *c, const ProtobufCMessage *m)
{
    size_t size = protobuf_c_message_get_packed_size(m);
    size_t queued = c->n_out - c->out_at;

    TD_ASSERT(c->state == CALL_OPEN, "%s: a message after the end", c->method->name);
    if (c->failed)
        return;
    if (queued && queued + size > server_of(c)->opts.limits.max_queued) {
        fail(c, "the client reads too slowly");
        return;
    }
    if (c->out_at) {
        memmove(c->out, c->out + c->out_at, queued);
        c->out_at = 0;
        c->n_out = queued;
    }
    if (size > UINT32_MAX || !reserve(&c->out, &c->out_room, queued + TD_GRPC_FRAME_BYTES + size)) {
        fail(c, "out of memory");
        return;
    }
    td__grpc_frame_head(c->out + queued, (uint32_t)size);
    protobuf_c_message_pack(m, c->out + queued + TD_GRPC_FRAME_BYTES);
    c->n_out = queued + TD_GRPC_FRAME_BYTES + size;
    if (c->method->kind != TD_GRPC_UNARY)
        resume(c); /* a unary answer leaves together with its end */
}

void td__call_reply(td__call *c, const ProtobufCMessage *m)
{
    td__call_send(c, m);
    td__call_finish(c, TD_GRPC_OK, "%s", "");
}

size_t td__call_room(td__call *c)
{
    size_t queued = c->n_out - c->out_at;

    c->wants_drained = queued >= HIGH_WATER;
    return c->wants_drained ? 0 : HIGH_WATER - queued;
}

/* ---- requests ---- */

/* protobuf-c's allocator with a budget. */
static void *budget_alloc(void *arg, size_t nbytes)
{
    size_t *left = arg;

    if (nbytes > *left)
        return NULL;
    *left -= nbytes;
    return td__malloc(nbytes);
}

static void budget_free(void *arg, void *p)
{
    (void)arg;
    td__free(p);
}

static void dispatch(td__call *c, const uint8_t *message, size_t nbytes)
{
    size_t budget = nbytes * MAX_GROWTH + SPARE_BYTES;
    ProtobufCAllocator a = {budget_alloc, budget_free, &budget};
    ProtobufCMessage *m = protobuf_c_message_unpack(c->method->request, &a, nbytes, message);

    if (!m) {
        td__call_end(c, TD_GRPC_INTERNAL, "%s: malformed request", c->method->request->name);
        return;
    }
    c->method->handle(c, c->entry->arg, m);
    protobuf_c_message_free_unpacked(m, &a);
    TD_ASSERT(c->state == CALL_FINISHED || c->events || takes_several(c->method),
              "%s neither finished nor followed its call", c->method->name);
}

/* The first frame of `in` is complete: its whole size. 0: not yet, or the call has ended. */
static size_t complete_frame(td__call *c)
{
    size_t max = server_of(c)->opts.limits.max_message, size;

    if (c->n_in < TD_GRPC_FRAME_BYTES)
        return 0;
    size = td__grpc_frame_size(c->in);
    if (c->in[0])
        td__call_end(c, TD_GRPC_UNIMPLEMENTED, "compressed messages are not supported");
    else if (size > max)
        td__call_end(c, TD_GRPC_RESOURCE_EXHAUSTED,
                     "the message has %zu bytes, at most %zu are allowed", size, max);
    else if (c->n_in >= TD_GRPC_FRAME_BYTES + size)
        return TD_GRPC_FRAME_BYTES + size;
    return 0;
}

/* The client has as long as if it sent a few bytes a second. */
static void expect_more(td__call *c)
{
    td__grpc *g = server_of(c);
    td__deadline until = c->began + g->opts.limits.request_ms * 1000000ull +
                         c->received * (1000000000ull / STREAM_BYTES_S);

    td__timer_start(g->loop, &c->timer, until < c->deadline ? until : c->deadline);
}

void td__call_receive(td__call *c, const uint8_t *data, size_t nbytes)
{
    td__grpc_limits *limits = &server_of(c)->opts.limits;
    size_t frame;

    if (c->state != CALL_OPEN)
        return; /* what a refused client still sends */
    if (c->conn->pending + nbytes > limits->max_pending ||
        !reserve(&c->in, &c->in_room, c->n_in + nbytes)) {
        td__call_end(c, TD_GRPC_RESOURCE_EXHAUSTED, "too many bytes of unfinished requests");
        return;
    }
    memcpy(c->in + c->n_in, data, nbytes);
    c->n_in += nbytes;
    c->conn->pending += nbytes;
    c->received += nbytes;
    if (c->method->kind == TD_GRPC_CLIENT_STREAM)
        expect_more(c);
    frame = complete_frame(c);
    if (!takes_several(c->method)) {
        if (frame && c->n_in > frame) /* the one frame is dispatched when the client has ended */
            td__call_end(c, TD_GRPC_INTERNAL, "Too many requests");
        return;
    }
    for (; frame; frame = complete_frame(c)) {
        dispatch(c, c->in + TD_GRPC_FRAME_BYTES, frame - TD_GRPC_FRAME_BYTES);
        if (c->state != CALL_OPEN)
            return;
        memmove(c->in, c->in + frame, c->n_in - frame);
        c->n_in -= frame;
        c->conn->pending -= frame;
    }
}

/* The whole request is there: what is left is the client's own deadline. */
static void await_the_deadline(td__call *c)
{
    if (c->deadline == TD_DEADLINE_NEVER)
        td__timer_stop(server_of(c)->loop, &c->timer);
    else
        td__timer_start(server_of(c)->loop, &c->timer, c->deadline);
}

void td__call_half_close(td__call *c)
{
    size_t frame;

    c->half_closed = true;
    if (c->state != CALL_OPEN)
        return;
    if (c->method->kind == TD_GRPC_CLIENT_STREAM)
        await_the_deadline(c);
    if (takes_several(c->method)) {
        if (c->n_in)
            td__call_end(c, TD_GRPC_INTERNAL, "the last message is incomplete");
        else if (c->method->half_closed)
            c->method->half_closed(c, c->entry->arg);
        else
            td__call_finish(c, TD_GRPC_OK, "%s", "");
        return;
    }
    frame = complete_frame(c);
    if (!frame) {
        td__call_end(c, TD_GRPC_INTERNAL, "Half-closed without a request");
        return;
    }
    await_the_deadline(c);
    dispatch(c, c->in + TD_GRPC_FRAME_BYTES, frame - TD_GRPC_FRAME_BYTES);
    drop_request(c); /* streams live on without it */
}

/* ---- headers ---- */

static void refuse_http(td__call *c, const char *status)
{
    nghttp2_nv nv[] = {NV(":status", status, strlen(status))};

    c->state = CALL_FINISHED;
    c->response_begun = true;
    td__timer_stop(server_of(c)->loop, &c->timer);
    submitted(c, nghttp2_submit_response(c->conn->session, c->stream, nv, 1, NULL));
}

static void begin(td__call *c)
{
    td__grpc *g = server_of(c);
    const td__text *metadata = &c->conn->metadata;
    const char *path = c->conn->path.data ? c->conn->path.data : "";
    const grpc_entry *entry = NULL;
    char why[256] = "";
    td__grpc_code code;

    if (!c->posted || !c->has_type) {
        refuse_http(c, c->posted ? "415" : "405");
        return;
    }
    c->method = td__grpc_find(g, path, &entry);
    if (!c->method) {
        td__call_finish(c, TD_GRPC_UNIMPLEMENTED, "Method not found: %s",
                        path[0] == '/' ? path + 1 : path);
        return;
    }
    c->entry = entry;
    c->state = CALL_OPEN;
    if (c->bad_timeout) {
        td__call_finish(c, TD_GRPC_INTERNAL, "malformed grpc-timeout");
        return;
    }
    if (metadata->failed || metadata->used > g->opts.limits.max_metadata) {
        td__call_finish(c, TD_GRPC_RESOURCE_EXHAUSTED, "more than %zu bytes of metadata",
                        g->opts.limits.max_metadata);
        return;
    }
    if (c->timeout_ns) {
        c->deadline = c->timeout_ns < UINT64_MAX / 2 ? c->began + c->timeout_ns : UINT64_MAX - 1;
        if (c->deadline < c->timer.at || c->method->kind == TD_GRPC_BIDI_STREAM)
            td__timer_start(g->loop, &c->timer, c->deadline);
    } else if (c->method->kind == TD_GRPC_BIDI_STREAM) {
        td__timer_stop(g->loop, &c->timer);
    }
    code = g->opts.authorize ? g->opts.authorize(g->opts.arg, c, why, sizeof why) : TD_GRPC_OK;
    if (code != TD_GRPC_OK)
        td__call_finish(c, code, "%s", why);
}

void td__call_begin(td__call *c)
{
    td__grpc_conn *conn = c->conn;

    if (c->state == CALL_HEADERS)
        begin(c);
    conn->beginning = NULL;
    if (conn->metadata.room > KEEP_BYTES)
        td__text_fini(&conn->metadata);
    if (conn->path.room > KEEP_BYTES)
        td__text_fini(&conn->path);
}

/* ---- what handlers ask ---- */

void td__call_follow(td__call *c, const td__call_events *e, void *data)
{
    c->events = e;
    c->data = data;
}

void *td__call_data(const td__call *c)
{
    return c->data;
}

const char *td__call_metadata(const td__call *c, const char *name)
{
    const td__text *metadata = &c->conn->metadata;
    const char *p = metadata->data, *end = p + metadata->used;

    if (c->conn->beginning != c)
        return NULL;
    while (p && p < end) {
        const char *value = p + strlen(p) + 1;

        if (!strcmp(p, name))
            return value;
        p = value + strlen(value) + 1;
    }
    return NULL;
}

const td__grpc_method *td__call_method(const td__call *c)
{
    return c->method;
}

bool td__call_address(const td__call *c, struct sockaddr_storage *out)
{
    socklen_t n = sizeof *out;

    return getpeername(c->conn->watch.fd, (struct sockaddr *)out, &n) == 0;
}

void td__call_set_user(td__call *c, const char *user, unsigned rights)
{
    c->user = user;
    c->rights = rights;
}

const char *td__call_user(const td__call *c)
{
    return c->user ? c->user : "";
}

unsigned td__call_rights(const td__call *c)
{
    return c->rights;
}
