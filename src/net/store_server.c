/* store_server.c -- the thread of a store: one epoll loop over the gate, the clients and the store
 * above. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/log.h"
#include "net/greet.h"
#include "net/socket.h"
#include "net/store_server_impl.h"

enum {
    MOST_CLIENTS = 16384,
    MOST_QUEUED = 256 << 20, /* bytes that a client may leave unread */
    EVENTS = 128,
    PARENT_MS = 30000,
};

static bool watch(td__store_server *s, int fd, void *mark, int op, uint32_t events)
{
    struct epoll_event e = {.events = events, .data.ptr = mark};
    return epoll_ctl(s->epoll, op, fd, &e) == 0;
}

static void drop(td__ss_client *c)
{
    c->gone = true;
}

/* ---- sending ---- */

static void flush(td__store_server *s, td__ss_client *c)
{
    while (!c->gone && c->out_sent < c->out_used) {
        struct iovec one = {.iov_base = c->out + c->out_sent, .iov_len = c->out_used - c->out_sent};
        ssize_t n = td__conn_send(&c->conn, &one, 1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0)
            drop(c);
        else
            c->out_sent += (size_t)n;
    }
    if (c->out_sent == c->out_used)
        c->out_sent = c->out_used = 0;
    bool wants = c->out_used > 0 && !c->gone;
    if (wants != c->watches_write) {
        c->watches_write = wants;
        watch(s, c->conn.fd, c, EPOLL_CTL_MOD, wants ? EPOLLIN | EPOLLOUT : EPOLLIN);
    }
}

static void append(td__ss_client *c, const void *data, size_t nbytes)
{
    if (nbytes)
        memcpy(c->out + c->out_used, data, nbytes);
    c->out_used += nbytes;
}

/* Queue a frame; a client that does not read is dropped. */
static void send_frame(td__store_server *s, td__ss_client *c, td__store_op op, uint32_t id,
                       const void *head, const struct iovec *rest, int n_rest)
{
    td__frame f = {.kind = (uint8_t)op, .tag = id, .length = sizeof(td__store_request)};

    for (int i = 0; i < n_rest; i++)
        f.length += rest[i].iov_len;
    f.total = f.length;
    size_t need = c->out_used + sizeof f + (size_t)f.length;
    if (c->gone || need > MOST_QUEUED || !td__reserve(&c->out, &c->out_cap, need)) {
        drop(c);
        return;
    }
    td__frame_seal(&f);
    append(c, &f, sizeof f);
    append(c, head, sizeof(td__store_request));
    for (int i = 0; i < n_rest; i++)
        append(c, rest[i].iov_base, rest[i].iov_len);
    if (!c->watches_write)
        flush(s, c);
}

void td__ss_reply(td__store_server *s, td__ss_client *c, uint32_t id, const td__store_reply *reply,
                  const void *value, size_t nbytes)
{
    struct iovec rest = {.iov_base = (void *)(uintptr_t)value, .iov_len = nbytes};
    send_frame(s, c, TD_STORE_REPLY, id, reply, &rest, 1);
}

void td__ss_reply_error(td__store_server *s, td__ss_client *c, uint32_t id, td_status st)
{
    td__store_reply r = {.status = st};
    td__ss_reply(s, c, id, &r, td_last_error(), strlen(td_last_error()));
}

void td__ss_request(td__store_server *s, td__ss_client *c, const td__store_parts *p, uint32_t id)
{
    td__store_request head = {.key_nbytes = (uint16_t)strlen(p->key),
                              .flags = p->expect ? TD_STORE_HAS_EXPECT : 0,
                              .expect_nbytes = (uint32_t)p->expect_nbytes,
                              .number = p->number};
    struct iovec rest[] = {
        {.iov_base = (void *)(uintptr_t)p->key, .iov_len = head.key_nbytes},
        {.iov_base = (void *)(uintptr_t)p->expect, .iov_len = p->expect ? p->expect_nbytes : 0},
        {.iov_base = (void *)(uintptr_t)p->value, .iov_len = p->nbytes}};
    send_frame(s, c, p->op, id, &head, rest, 3);
}

/* ---- receiving ---- */

static td_status handle(td__store_server *s, td__ss_client *c, const td__frame *f,
                        const void *payload)
{
    td__store_parts p;

    if (c == s->up && f->kind == TD_STORE_REPLY) {
        td__ss_up_answer(s, f, payload);
        return TD_OK;
    }
    TD_TRY(td__store_parse(f, payload, &p));
    bool from_above = p.op == TD_STORE_EVENT || p.op == TD_STORE_FORGET;
    if (from_above != (c == s->up) || p.op == TD_STORE_REPLY)
        return TD_FAIL(TD_EPROTO, "store: unexpected message of kind %d", p.op);
    switch (p.op) {
    case TD_STORE_BYE: c->bye = true; break;
    case TD_STORE_BELOW: c->is_store = true; break;
    case TD_STORE_FORGET: td__ss_forget(s, p.key); break;
    case TD_STORE_CANCEL:
        td__ss_keys_cancel(s, c, &p.id);
        td__ss_up_cancel(s, c, &p.id);
        break;
    case TD_STORE_JOIN:
    case TD_STORE_TELL:
    case TD_STORE_LEAVE:
    case TD_STORE_DEAD:
    case TD_STORE_EVENT: td__ss_groups_handle(s, c, &p); break;
    default:
        if (s->up)
            td__ss_up_handle(s, c, &p);
        else
            td__ss_keys_handle(s, c, &p);
    }
    return TD_OK;
}

/* Handle the whole frames in c->in; what is left moves to the front. */
static td_status handle_all(td__store_server *s, td__ss_client *c)
{
    size_t at = 0;
    td__frame f;

    while (!c->gone && c->in_used - at >= sizeof f) {
        uint64_t most = c == s->up ? TD_STORE_REPLY_BYTES : TD_STORE_REQUEST_BYTES;
        TD_TRY(td__frame_open(c->in + at, most, &f));
        size_t whole = sizeof f + (size_t)f.length;
        if (c->in_used - at < whole) {
            if (!td__reserve(&c->in, &c->in_cap, at + whole))
                return TD_FAIL(TD_ENOMEM, "store: a message of %zu bytes", whole);
            break;
        }
        TD_TRY(handle(s, c, &f, c->in + at + sizeof f));
        at += whole;
    }
    memmove(c->in, c->in + at, c->in_used - at);
    c->in_used -= at;
    return TD_OK;
}

/* All that has come is read before any of it is answered (td__store_settle counts on that: who asks
 * again when it has its answer is heard in a later round); a full buffer is emptied at once. */
static void receive(td__store_server *s, td__ss_client *c)
{
    bool ended = false;

    for (bool more = true; more && !c->gone;) {
        if (c->in_used == c->in_cap && !td__reserve(&c->in, &c->in_cap, c->in_cap + 1)) {
            drop(c);
            return;
        }
        struct iovec one = {.iov_base = c->in + c->in_used, .iov_len = c->in_cap - c->in_used};
        ssize_t n = td__conn_recv(&c->conn, &one, 1);
        if (n < 0 && errno == EINTR)
            continue;
        ended = n == 0 || (n < 0 && errno != EAGAIN);
        more = n > 0;
        c->in_used += n > 0 ? (size_t)n : 0;
        if (more && c->in_used < c->in_cap)
            continue;
        if (handle_all(s, c)) {
            TD_LOG(WARN, NET, "store: closing a connection: %s", td_last_error());
            drop(c);
        }
    }
    if (ended)
        drop(c);
}

/* ---- coming and going ---- */

static td_status client_create(td__store_server *s, td__conn conn, td__ss_client **out)
{
    td__ss_client *c = s->n_clients < MOST_CLIENTS ? td__calloc(1, sizeof *c) : NULL;

    *out = NULL;
    if (!c || !watch(s, conn.fd, c, EPOLL_CTL_ADD, EPOLLIN)) {
        td__free(c);
        td__conn_close(&conn);
        return TD_FAIL(TD_ENOMEM, "store: client %d; at most %d", s->n_clients + 1, MOST_CLIENTS);
    }
    c->conn = conn;
    td__socket_keep(conn.fd);
    *out = c;
    return TD_OK;
}

static void client_destroy(td__ss_client *c)
{
    if (!c)
        return;
    td__conn_close(&c->conn);
    td__free(c->in);
    td__free(c->out);
    td__free(c);
}

static void enter(void *user, td__conn conn)
{
    td__store_server *s = user;
    td__ss_client *c;

    if (client_create(s, conn, &c)) {
        TD_LOG(WARN, NET, "%s", td_last_error());
        return;
    }
    c->next = s->clients;
    s->clients = c;
    s->n_clients++;
    receive(s, c); /* what came right behind the handshake */
}

/* Whoever is gone is taken out; that may cost others their connection, hence the loop. */
static void sweep(td__store_server *s)
{
    td__ss_client **at = &s->clients;

    while (*at) {
        td__ss_client *c = *at;
        if (!c->gone) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        s->n_clients--;
        td__ss_keys_cancel(s, c, NULL);
        td__ss_up_cancel(s, c, NULL);
        td__ss_groups_lost(s, c);
        /* Closing alone would not do: a child between fork and exec still has the descriptor. */
        watch(s, c->conn.fd, NULL, EPOLL_CTL_DEL, 0);
        client_destroy(c);
        at = &s->clients;
    }
}

/* Without the store above nothing can be answered: all clients are let go, and see it. */
static void lose_parent(td__store_server *s)
{
    TD_LOG(WARN, NET, "store: the parent store %s is gone", s->parent);
    for (td__ss_client *c = s->clients; c; c = c->next)
        drop(c);
    atomic_store(&s->lost, true);
}

static void look_at(td__ss_client *c)
{
    if (!c->gone && td__socket_silence_ms(c->conn.fd) >= TD_SOCKET_SILENCE_MS)
        drop(c);
}

/* For hosts that are cut off. */
static void look(td__store_server *s)
{
    uint64_t now = td__clock_ns();

    if (now - s->looked_ns < TD_SOCKET_LOOK_MS * 1000000ull)
        return;
    s->looked_ns = now;
    for (td__ss_client *c = s->clients; c; c = c->next)
        look_at(c);
    if (s->up)
        look_at(s->up);
}

static bool round_of(td__store_server *s)
{
    struct epoll_event e[EVENTS];
    td__deadline next = td__gate_deadline(s->gate);
    int n = epoll_wait(s->epoll, e, EVENTS, td__deadline_left_ms(next, TD_SOCKET_LOOK_MS));
    bool stop = false;

    look(s);

    for (int i = 0; i < n; i++) {
        if (e[i].data.ptr == s) {
            stop = true;
        } else if (e[i].data.ptr != s->gate) {
            td__ss_client *c = e[i].data.ptr;
            if (e[i].events & EPOLLOUT)
                flush(s, c);
            if (e[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
                receive(s, c);
        }
    }
    td__gate_serve(s->gate, enter, s);
    sweep(s);
    if (s->up && s->up->gone) {
        lose_parent(s);
        sweep(s);
        return false;
    }
    return !stop;
}

static void *serve(void *p)
{
    td__store_server *s = p;

    while (round_of(s)) {
    }
    return NULL;
}

static td_status connect_up(td__store_server *s, const char *parent)
{
    td__conn conn;

    snprintf(s->parent, sizeof s->parent, "%s", parent);
    TD_TRY(td__greet_connect(parent, TD_HS_STORE, &s->secret, s->tls, td__deadline_in_ms(PARENT_MS),
                             &conn));
    TD_TRY(client_create(s, conn, &s->up));
    td__ss_request(s, s->up, &(td__store_parts){.op = TD_STORE_BELOW}, 0);
    return TD_OK;
}

static td_status start(td__store_server *s, const td__store_opts *o)
{
    int listener;

    s->epoll = epoll_create1(EPOLL_CLOEXEC);
    s->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->epoll < 0 || s->wake < 0 || !watch(s, s->wake, s, EPOLL_CTL_ADD, EPOLLIN))
        return TD_FAIL(TD_EIO, "store: %s", strerror(errno));
    if (o && o->tls_dir)
        TD_TRY(td__tls_create(o->tls_dir, &s->tls));
    if (o && o->parent)
        TD_TRY(connect_up(s, o->parent));
    TD_TRY(td__socket_listen(o && o->listen ? o->listen : "127.0.0.1:0", &listener, s->address));
    TD_TRY(td__gate_create_take(listener, TD_HS_STORE, &s->secret, s->tls, &s->gate));
    if (!watch(s, td__gate_fd(s->gate), s->gate, EPOLL_CTL_ADD, EPOLLIN))
        return TD_FAIL(TD_EIO, "store: %s", strerror(errno));
    int rc = pthread_create(&s->thread, NULL, serve, s);
    if (rc)
        return TD_FAIL(TD_ENOMEM, "store: no thread: %s", strerror(rc));
    s->running = true;
    return TD_OK;
}

td_status td__store_server_create(const td__secret *secret, const td__store_opts *o,
                                  td__store_server **out)
{
    td__store_server *s = td__calloc(1, sizeof *s);

    *out = NULL;
    if (!s)
        return TD_FAIL(TD_ENOMEM, "store: a server");
    s->epoll = s->wake = -1;
    s->secret = *secret;
    td_status st = start(s, o);
    if (st) {
        td__store_server_destroy(s);
        return st;
    }
    *out = s;
    return TD_OK;
}

static void say_goodbye(td__store_server *s)
{
    td__store_parts bye = {.op = TD_STORE_BYE};

    if (s->up && !s->up->gone && !td__ss_groups_alive(s))
        td__ss_request(s, s->up, &bye, 0);
}

void td__store_server_destroy(td__store_server *s)
{
    if (!s)
        return;
    if (s->running) {
        uint64_t one = 1;
        ssize_t n = write(s->wake, &one, sizeof one);
        TD_ASSERT(n == (ssize_t)sizeof one, "eventfd: %zd", n);
        pthread_join(s->thread, NULL);
    }
    say_goodbye(s);
    td__ss_keys_fini(s);
    td__ss_up_fini(s);
    td__ss_groups_fini(s);
    while (s->clients) {
        td__ss_client *c = s->clients;
        s->clients = c->next;
        client_destroy(c);
    }
    client_destroy(s->up);
    td__gate_destroy(s->gate);
    td__tls_destroy(s->tls);
    if (s->epoll >= 0)
        close(s->epoll);
    if (s->wake >= 0)
        close(s->wake);
    td__free(s);
}

bool td__store_server_lost(const td__store_server *s)
{
    return atomic_load(&s->lost);
}

const char *td__store_server_address(const td__store_server *s)
{
    return s->address;
}
