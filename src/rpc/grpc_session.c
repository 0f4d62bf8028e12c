/* grpc_session.c -- HTTP/2: how nghttp2's callbacks become calls. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/fail.h"
#include "rpc/grpc_impl.h"
#include "rpc/grpc_wire.h"

enum {
    STREAM_WINDOW = 256 << 10, /* bytes that a client may send ahead, per call */
    CONN_WINDOW = 1 << 20      /* and per connection */
};

static bool is(const uint8_t *p, size_t n, const char *text)
{
    return n == strlen(text) && !memcmp(p, text, n);
}

static int begin_headers(nghttp2_session *s, const nghttp2_frame *f, void *user)
{
    td__grpc_conn *conn = user;
    td__call *c;

    if (f->hd.type != NGHTTP2_HEADERS || f->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    c = td__call_create(conn, f->hd.stream_id);
    if (!c)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE; /* resets the stream */
    conn->beginning = c;
    td__text_clear(&conn->path);
    td__text_clear(&conn->metadata);
    conn->path.failed = conn->metadata.failed = false;
    nghttp2_session_set_stream_user_data(s, f->hd.stream_id, c);
    return 0;
}

static int header(nghttp2_session *s, const nghttp2_frame *f, const uint8_t *name, size_t n_name,
                  const uint8_t *value, size_t n_value, uint8_t flags, void *user)
{
    td__grpc_conn *conn = user;
    td__call *c = nghttp2_session_get_stream_user_data(s, f->hd.stream_id);

    (void)flags;
    if (!c || c != conn->beginning)
        return 0; /* trailers of a request */
    if (is(name, n_name, ":path")) {
        td__text_append(&conn->path, (const char *)value, n_value);
    } else if (is(name, n_name, ":method")) {
        c->posted = is(value, n_value, "POST");
    } else if (is(name, n_name, "content-type")) {
        c->has_type = n_value >= 16 && !memcmp(value, "application/grpc", 16) &&
                      (n_value == 16 || value[16] == '+' || value[16] == ';');
    } else if (is(name, n_name, "grpc-timeout")) {
        c->bad_timeout = !td__grpc_timeout((const char *)value, n_value, &c->timeout_ns);
        if (!c->timeout_ns)
            c->timeout_ns = 1; /* 0 stands for none */
    } else if (n_name && name[0] != ':' && !is(name, n_name, "te")) {
        if (conn->metadata.used + n_name + n_value + 2 > conn->server->opts.limits.max_metadata) {
            conn->metadata.failed = true; /* the call is refused when its headers are complete */
            return 0;
        }
        td__text_append(&conn->metadata, (const char *)name, n_name);
        td__text_append(&conn->metadata, "", 1);
        td__text_append(&conn->metadata, (const char *)value, n_value); /* nghttp2 refuses zeros */
        td__text_append(&conn->metadata, "", 1);
    }
    return 0;
}

static int frame_received(nghttp2_session *s, const nghttp2_frame *f, void *user)
{
    td__grpc_conn *conn = user;
    td__call *c = NULL;

    conn->heard = td__loop_now(conn->server->loop);
    conn->pinged = false;
    if (f->hd.type == NGHTTP2_SETTINGS)
        conn->greeted = true;
    if (f->hd.type == NGHTTP2_HEADERS || f->hd.type == NGHTTP2_DATA)
        c = nghttp2_session_get_stream_user_data(s, f->hd.stream_id);
    if (!c)
        return 0;
    if (f->hd.type == NGHTTP2_HEADERS)
        td__call_begin(c);
    if (f->hd.flags & NGHTTP2_FLAG_END_STREAM)
        td__call_half_close(c);
    return 0;
}

static int data_received(nghttp2_session *s, uint8_t flags, int32_t stream, const uint8_t *data,
                         size_t nbytes, void *user)
{
    td__call *c = nghttp2_session_get_stream_user_data(s, stream);

    (void)flags;
    (void)user;
    if (c)
        td__call_receive(c, data, nbytes);
    return 0;
}

/* An answer that ended before its request did: the client need not send the rest. */
static int frame_sent(nghttp2_session *s, const nghttp2_frame *f, void *user)
{
    (void)user;
    if (f->hd.type == NGHTTP2_HEADERS && f->hd.flags & NGHTTP2_FLAG_END_STREAM) {
        td__call *c = nghttp2_session_get_stream_user_data(s, f->hd.stream_id);

        if (c && !c->half_closed)
            nghttp2_submit_rst_stream(s, NGHTTP2_FLAG_NONE, f->hd.stream_id, NGHTTP2_NO_ERROR);
    }
    return 0;
}

static int stream_closed(nghttp2_session *s, int32_t stream, uint32_t error, void *user)
{
    td__call *c = nghttp2_session_get_stream_user_data(s, stream);

    (void)error;
    (void)user;
    if (c)
        td__call_destroy(c);
    return 0;
}

td_status td__grpc_session_setup(td__grpc *g)
{
    nghttp2_session_callbacks *cb;

    if (nghttp2_session_callbacks_new(&g->callbacks) || nghttp2_option_new(&g->option))
        return TD_FAIL(TD_ENOMEM, "grpc: out of memory");
    cb = g->callbacks;
    nghttp2_session_callbacks_set_on_begin_headers_callback(cb, begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(cb, header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(cb, frame_received);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, data_received);
    nghttp2_session_callbacks_set_on_frame_send_callback(cb, frame_sent);
    nghttp2_session_callbacks_set_on_stream_close_callback(cb, stream_closed);
    nghttp2_option_set_no_closed_streams(g->option,
                                         1); /* priorities are not used: no memory of them */
    nghttp2_option_set_max_send_header_block_length(g->option, 64 << 10);
    return TD_OK;
}

td_status td__grpc_session_create(td__grpc_conn *conn)
{
    td__grpc *g = conn->server;
    const td__grpc_limits *l = &g->opts.limits;
    nghttp2_settings_entry set[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, l->max_streams},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, STREAM_WINDOW},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, (uint32_t)l->max_metadata},
    };

    if (nghttp2_session_server_new2(&conn->session, g->callbacks, conn, g->option) ||
        nghttp2_submit_settings(conn->session, NGHTTP2_FLAG_NONE, set, 3) ||
        nghttp2_session_set_local_window_size(conn->session, NGHTTP2_FLAG_NONE, 0, CONN_WINDOW))
        return TD_FAIL(TD_ENOMEM, "grpc: out of memory");
    return TD_OK;
}
