/* rpc_client.c -- the tests' gRPC client; see rpc_client.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "support/rpc_client.h"

#include <errno.h>
#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/socket.h"
#include "rpc/grpc_wire.h"
#include "support/check.h"

enum { MOST_CALLS = 4096, WAIT_MS = 10000 };

typedef struct call {
    rpc_reply reply;
    uint8_t *out; /* of the request: [out_at, n_out) is to be sent */
    size_t out_at, n_out;
    bool end, deferred;
} call;

struct rpc_client {
    td__loop *loop;
    nghttp2_session *session;
    int fd;
    bool gone, goaway, deaf;
    uint8_t *out;
    size_t n_out;
    call *calls[MOST_CALLS]; /* by (stream - 1) / 2 */
};

static call *call_of(const rpc_client *c, int32_t stream)
{
    int i = (stream - 1) / 2;

    return stream > 0 && i < MOST_CALLS ? c->calls[i] : NULL;
}

static int on_header(nghttp2_session *s, const nghttp2_frame *f, const uint8_t *name, size_t n_name,
                     const uint8_t *value, size_t n_value, uint8_t flags, void *user)
{
    call *k = call_of(user, f->hd.stream_id);
    char text[256];

    (void)s;
    (void)flags;
    (void)n_name;
    snprintf(text, sizeof text, "%.*s", (int)n_value, (const char *)value);
    if (!strcmp((const char *)name, ":status"))
        k->reply.http = (int)strtol(text, NULL, 10);
    else if (!strcmp((const char *)name, "grpc-status"))
        k->reply.status = (int)strtol(text, NULL, 10);
    else if (!strcmp((const char *)name, "grpc-message"))
        snprintf(k->reply.message, sizeof k->reply.message, "%s", text);
    return 0;
}

static int on_data(nghttp2_session *s, uint8_t flags, int32_t stream, const uint8_t *data, size_t n,
                   void *user)
{
    call *k = call_of(user, stream);

    (void)s;
    (void)flags;
    k->reply.body = realloc(k->reply.body, k->reply.n_body + n);
    memcpy(k->reply.body + k->reply.n_body, data, n);
    k->reply.n_body += n;
    return 0;
}

static int on_close(nghttp2_session *s, int32_t stream, uint32_t error, void *user)
{
    call *k = call_of(user, stream);

    (void)s;
    if (k) {
        k->reply.closed = true;
        k->reply.error = error;
    }
    return 0;
}

static int on_frame(nghttp2_session *s, const nghttp2_frame *f, void *user)
{
    rpc_client *c = user;

    (void)s;
    if (f->hd.type == NGHTTP2_GOAWAY)
        c->goaway = true;
    return 0;
}

static rpc_client *client_on(td__loop *l, int fd)
{
    rpc_client *c = calloc(1, sizeof *c);
    nghttp2_session_callbacks *cb;

    c->loop = l;
    c->fd = fd;
    nghttp2_session_callbacks_new(&cb);
    nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_close);
    nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame);
    CHECK_EQ_INT(nghttp2_session_client_new(&c->session, cb, c), 0);
    nghttp2_session_callbacks_del(cb);
    nghttp2_submit_settings(c->session, NGHTTP2_FLAG_NONE, NULL, 0);
    return c;
}

rpc_client *rpc_client_attach(td__loop *l, td__grpc *g)
{
    int fd[2];

    CHECK_EQ_INT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd), 0);
    CHECK_OK(td__grpc_attach(g, fd[1]));
    return client_on(l, fd[0]);
}

rpc_client *rpc_client_connect(td__loop *l, const char *address)
{
    int fd;

    CHECK_OK(td__socket_connect(address, td__deadline_in_ms(WAIT_MS), &fd));
    return client_on(l, fd);
}

void rpc_client_close(rpc_client *c)
{
    for (int i = 0; i < MOST_CALLS; i++)
        if (c->calls[i]) {
            free(c->calls[i]->reply.body);
            free(c->calls[i]->out);
            free(c->calls[i]);
        }
    nghttp2_session_del(c->session);
    if (c->fd >= 0)
        close(c->fd);
    free(c->out);
    free(c);
}

int rpc_client_fd(const rpc_client *c)
{
    return c->fd;
}

bool rpc_client_gone(const rpc_client *c)
{
    return c->gone;
}

bool rpc_client_goaway(const rpc_client *c)
{
    return c->goaway;
}

void rpc_client_stop_reading(rpc_client *c)
{
    c->deaf = true;
}

static ssize_t read_request(nghttp2_session *s, int32_t stream, uint8_t *buf, size_t room,
                            uint32_t *flags, nghttp2_data_source *source, void *user)
{
    call *k = source->ptr;
    size_t n = k->n_out - k->out_at < room ? k->n_out - k->out_at : room;

    (void)s;
    (void)stream;
    (void)user;
    if (n)
        memcpy(buf, k->out + k->out_at, n);
    k->out_at += n;
    if (k->out_at == k->n_out && k->end)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    else if (!n) {
        k->deferred = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    return (ssize_t)n;
}

enum { MOST_HEADERS = 32 };

static void put_header(nghttp2_nv *nv, size_t *n, const char *name, const char *value)
{
    size_t i = 0;

    while (i < *n && strcmp((const char *)nv[i].name, name) != 0)
        i++;
    CHECK(i < MOST_HEADERS, "too many headers");
    nv[i] = (nghttp2_nv){(uint8_t *)(uintptr_t)name, (uint8_t *)(uintptr_t)value, strlen(name),
                         strlen(value), NGHTTP2_NV_FLAG_NONE};
    *n += i == *n;
}

int32_t rpc_call(rpc_client *c, const char *path, const char *const *headers, const void *body,
                 size_t n_body, bool end)
{
    nghttp2_nv nv[MOST_HEADERS];
    size_t n = 0;
    call *k = calloc(1, sizeof *k);
    nghttp2_data_provider provider = {.source.ptr = k, .read_callback = read_request};
    int32_t stream;

    put_header(nv, &n, ":method", "POST");
    put_header(nv, &n, ":scheme", "http");
    put_header(nv, &n, ":path", path);
    put_header(nv, &n, ":authority", "test");
    put_header(nv, &n, "te", "trailers");
    put_header(nv, &n, "content-type", "application/grpc");
    for (; headers && headers[0]; headers += 2)
        put_header(nv, &n, headers[0], headers[1]);
    k->reply.status = -1;
    stream = nghttp2_submit_request(c->session, NULL, nv, n, &provider, NULL);
    CHECK(stream > 0 && (stream - 1) / 2 < MOST_CALLS, "cannot submit a request: %d", stream);
    c->calls[(stream - 1) / 2] = k;
    rpc_call_data(c, stream, body, n_body, end);
    return stream;
}

void rpc_call_data(rpc_client *c, int32_t stream, const void *body, size_t n_body, bool end)
{
    call *k = call_of(c, stream);

    k->out = realloc(k->out, k->n_out + n_body + 1);
    if (n_body)
        memcpy(k->out + k->n_out, body, n_body);
    k->n_out += n_body;
    k->end = end;
    if (k->deferred)
        nghttp2_session_resume_data(c->session, stream);
    k->deferred = false;
}

void rpc_call_cancel(rpc_client *c, int32_t stream)
{
    nghttp2_submit_rst_stream(c->session, NGHTTP2_FLAG_NONE, stream, NGHTTP2_CANCEL);
}

const rpc_reply *rpc_reply_of(const rpc_client *c, int32_t stream)
{
    return &call_of(c, stream)->reply;
}

static void client_out(rpc_client *c)
{
    const uint8_t *data;
    ssize_t n;

    while (!c->gone && (n = nghttp2_session_mem_send(c->session, &data)) > 0) {
        c->out = realloc(c->out, c->n_out + (size_t)n);
        memcpy(c->out + c->n_out, data, (size_t)n);
        c->n_out += (size_t)n;
    }
    if (c->n_out && (n = send(c->fd, c->out, c->n_out, MSG_NOSIGNAL)) > 0) {
        memmove(c->out, c->out + n, c->n_out - (size_t)n);
        c->n_out -= (size_t)n;
    }
}

static void client_in(rpc_client *c)
{
    uint8_t buf[65536];
    ssize_t n;

    while (!c->deaf && (n = recv(c->fd, buf, sizeof buf, 0)) != -1) {
        if (n == 0) {
            c->gone = true;
            return;
        }
        CHECK(nghttp2_session_mem_recv(c->session, buf, (size_t)n) >= 0, "not HTTP/2");
    }
    if (!c->deaf && errno != EAGAIN)
        c->gone = true;
}

void rpc_turn(rpc_client *c)
{
    client_out(c);
    CHECK_OK(td__loop_turn(c->loop, 5));
    client_in(c);
}

static const rpc_reply *wait_for(rpc_client *c, int32_t stream, size_t nbytes)
{
    td__deadline until = td__deadline_in_ms(WAIT_MS);
    call *k = call_of(c, stream);

    while (!k->reply.closed && k->reply.n_body < nbytes && !c->gone) {
        CHECK(!td__deadline_passed(until), "no answer within %d ms", WAIT_MS);
        rpc_turn(c);
    }
    return &k->reply;
}

const rpc_reply *rpc_wait(rpc_client *c, int32_t stream)
{
    return wait_for(c, stream, SIZE_MAX);
}

const rpc_reply *rpc_wait_body(rpc_client *c, int32_t stream, size_t nbytes)
{
    return wait_for(c, stream, nbytes);
}

size_t rpc_frame(uint8_t *buf, size_t room, const ProtobufCMessage *m)
{
    size_t n = protobuf_c_message_get_packed_size(m);

    CHECK(n + TD_GRPC_FRAME_BYTES <= room, "the message does not fit");
    td__grpc_frame_head(buf, (uint32_t)n);
    protobuf_c_message_pack(m, buf + TD_GRPC_FRAME_BYTES);
    return n + TD_GRPC_FRAME_BYTES;
}

const rpc_reply *rpc_unary(rpc_client *c, const char *path, const ProtobufCMessage *request,
                           const ProtobufCMessageDescriptor *type, ProtobufCMessage **out)
{
    uint8_t buf[65536];
    size_t n = rpc_frame(buf, sizeof buf, request);
    const rpc_reply *r = rpc_wait(c, rpc_call(c, path, NULL, buf, n, true));

    if (out)
        *out = r->n_body >= TD_GRPC_FRAME_BYTES
                   ? protobuf_c_message_unpack(type, NULL, r->n_body - TD_GRPC_FRAME_BYTES,
                                               r->body + TD_GRPC_FRAME_BYTES)
                   : NULL;
    return r;
}
