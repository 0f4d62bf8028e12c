/* mesh_tcp_setup.c -- how the ranks of a tcp mesh find each other.
 *
 *     1. listen on a port of our own, and publish "streams checksum address" in the store
 *     2. wait for the words of all ranks
 *     3. connect to all lower ranks, accept all higher ones, everything at once in one loop; each
 *        connection is greeted (greet.h, gate.h), then the one who connected says which rank and
 *        stream it is
 *     4. measure what a message costs
 *
 * The listener is closed when all have come. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/cpu.h"
#include "base/crc32c.h"
#include "base/fail.h"
#include "base/log.h"
#include "net/backoff.h"
#include "net/gate.h"
#include "net/greet.h"
#include "net/mesh_tcp_impl.h"
#include "net/socket.h"

/* A connection that is not yet a stream: one that we make, or one that came in. */
typedef struct caller {
    td__greet greet;
    bool outgoing, open;
    bool writes; /* what epoll waits for */
    int rank, stream;
    char address[TD_ADDRESS_BYTES];
    uint8_t hello[TD_FRAME_BYTES];
    size_t got;
} caller;

typedef struct setup {
    td__mesh_tcp *m;
    td__store *store;
    const td__secret *secret;
    uint32_t group; /* crc32c of the prefix: strangers from another group of the same job */
    td__gate *gate;
    caller *callers; /* (n_out + n_in): ours, then theirs */
    int n_out, n_in, n_arrived, n_missing;
    int epoll;
    td_status st; /* of what happened in enter() */
} setup;

enum { GATE = -1, STEP_MS = 50 };

static bool watch(const setup *u, caller *c, int op, bool write)
{
    struct epoll_event e = {.events = write ? EPOLLOUT : EPOLLIN,
                            .data.u64 = (uint64_t)(c - u->callers)};

    c->writes = write;
    return epoll_ctl(u->epoll, op, c->greet.conn.fd, &e) == 0;
}

/* Sockets that hold a megabyte let both ends run for longer before one waits for the other; more
 * of it leaves the cache on its way (allreduce of 64 MB on 4 ranks: 80 ms, with 4 MB 86).
 * Asking for more than the system allows would give less than the kernel's own tuning does. */
static void widen(int fd)
{
    enum { ROOM = 1 << 20 };
    static const struct {
        const char *limit;
        int option;
    } WAYS[] = {{"/proc/sys/net/core/rmem_max", SO_RCVBUF},
                {"/proc/sys/net/core/wmem_max", SO_SNDBUF}};

    for (int i = 0; i < TD_LEN(WAYS); i++) {
        FILE *f = fopen(WAYS[i].limit, "re");
        int most = 0, room = ROOM;
        if (f && fscanf(f, "%d", &most) == 1 && most >= room)
            setsockopt(fd, SOL_SOCKET, WAYS[i].option, &room, sizeof room);
        if (f)
            fclose(f);
    }
}

/* The connection becomes stream `stream` to `rank`. */
static td_status adopt(setup *u, caller *c)
{
    td__mesh_tcp *m = u->m;
    int i = c->rank * m->streams + c->stream;
    td__tcp_stream *s = &m->stream[i];
    struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                            .data.u64 = (uint64_t)i};

    if (s->conn.fd >= 0)
        return TD_FAIL(TD_EPROTO, "tcp: rank %d connected twice", c->rank);
    epoll_ctl(u->epoll, EPOLL_CTL_DEL, c->greet.conn.fd, NULL);
    s->conn = c->greet.conn;
    widen(s->conn.fd);
    td__socket_keep(s->conn.fd);
    c->greet.conn = td__conn_of(-1);
    c->open = false;
    if (epoll_ctl(m->epoll, EPOLL_CTL_ADD, s->conn.fd, &e))
        return TD_FAIL(TD_EIO, "tcp: epoll: %s", strerror(errno));
    s->readable = s->writable = true;
    u->n_missing--;
    return TD_OK;
}

static td_status say_who(setup *u, caller *c)
{
    td__frame f = {.kind = TD_TCP_HELLO,
                   .tag = (uint32_t)u->m->base.rank,
                   .sequence = (uint32_t)c->stream,
                   .total = u->group};
    struct iovec one = {.iov_base = &f, .iov_len = sizeof f};

    td__frame_seal(&f);
    /* A fresh socket takes a few bytes at once. */
    if (td__conn_send(&c->greet.conn, &one, 1) != (ssize_t)sizeof f)
        return TD_FAIL(TD_EPEER, "tcp: rank %d lost rank %d while connecting", u->m->base.rank,
                       c->rank);
    return adopt(u, c);
}

static td_status hear_who(setup *u, caller *c)
{
    td__mesh_tcp *m = u->m;
    td__frame f;

    while (c->got < sizeof c->hello) {
        struct iovec one = {.iov_base = c->hello + c->got, .iov_len = sizeof c->hello - c->got};
        ssize_t n = td__conn_recv(&c->greet.conn, &one, 1);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return TD_OK;
        if (n <= 0)
            return TD_FAIL(TD_EPEER, "tcp: a rank above %d left while connecting", m->base.rank);
        c->got += (size_t)n;
    }
    TD_TRY(td__frame_open(c->hello, 0, &f));
    if (f.kind != TD_TCP_HELLO || f.total != u->group || f.tag <= (uint32_t)m->base.rank ||
        f.tag >= (uint32_t)m->base.size || f.sequence >= (uint32_t)m->streams)
        return TD_FAIL(TD_EPROTO, "tcp: rank %d of %d was greeted by rank %u, stream %u",
                       m->base.rank, m->base.size, f.tag, f.sequence);
    c->rank = (int)f.tag;
    c->stream = (int)f.sequence;
    return adopt(u, c);
}

static void enter(void *user, td__conn conn)
{
    setup *u = user;

    if (u->n_arrived == u->n_in) {
        u->st = TD_FAIL(TD_EPROTO, "tcp: rank %d: more connections than ranks", u->m->base.rank);
        td__conn_close(&conn);
        return;
    }
    caller *c = &u->callers[u->n_out + u->n_arrived++];
    c->greet.conn = conn;
    c->greet.state = TD_GREET_DONE;
    c->open = true;
    if (!watch(u, c, EPOLL_CTL_ADD, false))
        u->st = TD_FAIL(TD_EIO, "tcp: epoll: %s", strerror(errno));
    else
        u->st = hear_who(u, c);
}

static td_status call_step(setup *u, caller *c)
{
    if (!c->outgoing)
        return hear_who(u, c);
    TD_TRY(td__greet_step(&c->greet));
    if (c->greet.state == TD_GREET_DONE)
        return say_who(u, c);
    if (c->greet.write != c->writes && !watch(u, c, EPOLL_CTL_MOD, c->greet.write))
        return TD_FAIL(TD_EIO, "tcp: epoll: %s", strerror(errno));
    return TD_OK;
}

static td_status call_all(setup *u, char (*address)[TD_ADDRESS_BYTES])
{
    for (int i = 0; i < u->n_out; i++) {
        caller *c = &u->callers[i];
        int fd;
        c->rank = i / u->m->streams;
        c->stream = i % u->m->streams;
        c->outgoing = true;
        snprintf(c->address, sizeof c->address, "%s", address[c->rank]);
        TD_TRY(td__socket_connect_start(c->address, &fd));
        TD_TRY(td__greet_init_take(&c->greet, fd, TD_HS_CLIENT, TD_HS_MESH, u->secret, u->m->tls,
                                   c->address));
        c->open = true;
        if (!watch(u, c, EPOLL_CTL_ADD, true))
            return TD_FAIL(TD_EIO, "tcp: epoll: %s", strerror(errno));
    }
    return TD_OK;
}

static td_status missing(const setup *u)
{
    const td__mesh_tcp *m = u->m;
    char who[200];
    int used = 0;

    who[0] = 0;
    for (int r = 0; r < m->base.size && used < (int)sizeof who - 16; r++)
        for (int k = 0; k < m->streams; k++)
            if (r != m->base.rank && m->stream[r * m->streams + k].conn.fd < 0) {
                used += snprintf(who + used, sizeof who - (size_t)used, " %d", r);
                break;
            }
    return TD_FAIL(TD_ETIMEDOUT, "tcp: rank %d timed out connecting to rank%s", m->base.rank, who);
}

static td_status meet_all(setup *u, char (*address)[TD_ADDRESS_BYTES], td__deadline until)
{
    struct epoll_event e[64], gate = {.events = EPOLLIN, .data.u64 = (uint64_t)GATE};

    if (epoll_ctl(u->epoll, EPOLL_CTL_ADD, td__gate_fd(u->gate), &gate))
        return TD_FAIL(TD_EIO, "tcp: epoll: %s", strerror(errno));
    TD_TRY(call_all(u, address));
    while (u->n_missing > 0) {
        if (td__deadline_passed(until))
            return missing(u);
        TD_TRY(td__store_may_wait(u->store));
        int n = epoll_wait(u->epoll, e, 64, td__deadline_left_ms(until, STEP_MS));
        for (int i = 0; i < n; i++)
            if (e[i].data.u64 != (uint64_t)GATE && u->callers[e[i].data.u64].open)
                TD_TRY(call_step(u, &u->callers[e[i].data.u64]));
        td__gate_serve(u->gate, enter, u);
        TD_TRY(u->st);
    }
    return TD_OK;
}

/* ---- the words in the store ---- */

static td_status read_words(const td__mesh_tcp *m, const uint8_t *all, size_t nbytes,
                            char (*address)[TD_ADDRESS_BYTES])
{
    size_t at = 0;

    for (int r = 0; r < m->base.size; r++) {
        uint32_t len;
        char text[TD_ADDRESS_BYTES + 32];
        int streams, checksum;
        if (nbytes - at < sizeof len)
            return TD_FAIL(TD_EPROTO, "tcp: the store's answer is truncated at rank %d", r);
        memcpy(&len, all + at, sizeof len);
        at += sizeof len;
        if (len > nbytes - at || len >= sizeof text)
            return TD_FAIL(TD_EPROTO, "tcp: the record of rank %d has %u bytes", r, len);
        memcpy(text, all + at, len);
        text[len] = 0;
        at += len;
        if (sscanf(text, "%d %d %255s", &streams, &checksum, address[r]) != 3)
            return TD_FAIL(TD_EPROTO, "tcp: malformed record of rank %d: \"%s\"", r, text);
        if (streams != m->streams || checksum != m->checksum)
            return TD_FAIL(TD_EMISMATCH,
                           "tcp: rank %d has %d streams and checksum %d, rank %d %d and %d",
                           m->base.rank, m->streams, m->checksum, r, streams, checksum);
    }
    return TD_OK;
}

static td_status publish(td__store *store, const char *prefix, const td__mesh_tcp *m,
                         const char *address, td__deadline until)
{
    char key[256], word[TD_ADDRESS_BYTES + 32];
    int n = snprintf(word, sizeof word, "%d %d %s", m->streams, m->checksum, address);

    snprintf(key, sizeof key, "%s/tcp/%d", prefix, m->base.rank);
    return td__store_set(store, key, word, (size_t)n, until);
}

static td_status find_all(td__store *store, const char *prefix, const td__mesh_tcp *m,
                          const char *own, td__deadline until, char (*address)[TD_ADDRESS_BYTES])
{
    char key[256];
    void *all = NULL;
    size_t nbytes = 0;

    TD_TRY(publish(store, prefix, m, own, until));
    snprintf(key, sizeof key, "%s/tcp/", prefix);
    TD_TRY(td__store_wait_all(store, key, m->base.size, until, &all, &nbytes));
    td_status st = read_words(m, all, nbytes, address);
    td__free(all);
    return st;
}

/* ---- */

static td_status open_gate(setup *u, td__store *store, const td__mesh_tcp_opts *o,
                           char actual[TD_ADDRESS_BYTES])
{
    char host[TD_ADDRESS_BYTES], address[TD_ADDRESS_BYTES];
    int listener;

    if (o->host)
        snprintf(host, sizeof host, "%s", o->host);
    else
        TD_TRY(td__socket_route(td__store_address(store), host));
    TD_TRY(td__socket_join(host, "0", address));
    TD_TRY(td__socket_listen(address, &listener, actual));
    return td__gate_create_take(listener, TD_HS_MESH, u->secret, u->m->tls, &u->gate);
}

static td_status connect_all(td__mesh_tcp *m, td__store *store, const char *prefix,
                             const td__secret *secret, const td__mesh_tcp_opts *o,
                             td__deadline until)
{
    int rank = m->base.rank, size = m->base.size;
    setup u = {.m = m, .store = store, .secret = secret, .epoll = -1};
    char own[TD_ADDRESS_BYTES];
    char(*address)[TD_ADDRESS_BYTES] = td__calloc((size_t)size, sizeof *address);
    td_status st = TD_OK;

    u.group = td__crc32c(0, prefix, strlen(prefix));
    u.n_out = rank * m->streams;
    u.n_in = (size - 1 - rank) * m->streams;
    u.n_missing = u.n_out + u.n_in;
    u.callers = td__calloc((size_t)u.n_missing + 1, sizeof *u.callers);
    u.epoll = epoll_create1(EPOLL_CLOEXEC);
    if (!address || !u.callers || u.epoll < 0)
        st = TD_FAIL(TD_ENOMEM, "tcp: connecting %d ranks", size);
    st = st ? st : open_gate(&u, store, o, own);
    st = st ? st : find_all(store, prefix, m, own, until, address);
    st = st ? st : meet_all(&u, address, until);
    for (int i = 0; u.callers && i < u.n_out + u.n_in; i++)
        if (u.callers[i].open)
            td__greet_fini(&u.callers[i].greet);
    td__gate_destroy(u.gate);
    if (u.epoll >= 0)
        close(u.epoll);
    td__free(u.callers);
    td__free(address);
    return st;
}

/* Faults begin when all is set up: what they hit is then a transfer of the mesh's owner. */
static td_status add_faults(td__mesh_tcp *m)
{
    for (int i = 0; m->has_faults && i < m->base.size * m->streams; i++) {
        td__tcp_stream *s = &m->stream[i];
        if (s->conn.fd >= 0)
            TD_TRY(td__fault_push(&s->conn, &m->faults, m->base.rank, s->peer));
    }
    return TD_OK;
}

static td_status allocate(td__mesh_tcp *m)
{
    size_t n = (size_t)m->base.size * (size_t)m->streams;
    struct epoll_event e = {.events = EPOLLIN, .data.u64 = UINT64_MAX};

    m->peer = td__calloc((size_t)m->base.size, sizeof *m->peer);
    m->stream = td__calloc(n, sizeof *m->stream);
    m->stage = td__malloc(n * TD_TCP_STAGE_BYTES);
    for (size_t i = 0; m->stream && i < n; i++) {
        m->stream[i].conn = td__conn_of(-1);
        m->stream[i].peer = (int)i / m->streams;
        m->stream[i].index = (int)i % m->streams;
        m->stream[i].stage = m->stage + i * TD_TCP_STAGE_BYTES;
    }
    for (int r = 0; m->peer && r < m->base.size; r++)
        m->peer[r].stream = m->stream + r * m->streams;
    m->epoll = epoll_create1(EPOLL_CLOEXEC);
    m->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (!m->peer || !m->stream || !m->stage || m->epoll < 0 || m->wake < 0 ||
        epoll_ctl(m->epoll, EPOLL_CTL_ADD, m->wake, &e))
        return TD_FAIL(TD_ENOMEM, "tcp: a mesh of %d ranks", m->base.size);
    return TD_OK;
}

td_status td__mesh_tcp_create(td__store *store, const char *prefix, int rank, int size,
                              const td__secret *secret, const td__mesh_tcp_opts *o,
                              td__deadline until, td__mesh **out)
{
    static const td__mesh_tcp_opts DEFAULTS = {0};
    enum { MOST_RANKS = 4096, DEFAULT_STREAMS = 2, MOST_PREFIX = 200 };

    *out = NULL;
    o = o ? o : &DEFAULTS;
    if (size < 1 || size > MOST_RANKS || rank < 0 || rank >= size || o->streams < 0 ||
        o->streams > TD_TCP_MOST_STREAMS || strlen(prefix) > MOST_PREFIX)
        return TD_FAIL(TD_EINVAL, "tcp: rank %d of %d with %d streams", rank, size, o->streams);
    td__mesh_tcp *m = td__calloc(1, sizeof *m);
    if (!m)
        return TD_FAIL(TD_ENOMEM, "tcp: a mesh");
    m->base = (td__mesh){.ops = &td__mesh_tcp_ops, .rank = rank, .size = size};
    m->base.alpha = 20e-6;
    m->base.beta = 4e-10;
    m->streams = o->streams ? o->streams : DEFAULT_STREAMS;
    m->epoll = m->wake = -1;
    m->crowded = (o->local_size ? o->local_size : size) > td__processors();
    m->has_faults = o->faults != NULL;
    if (o->faults)
        m->faults = *o->faults;
    m->checksum = o->checksum || m->faults.flip > 0;
    td_status st = allocate(m);
    if (!st && o->tls_dir)
        st = td__tls_create(o->tls_dir, &m->tls);
    st = st ? st : connect_all(m, store, prefix, secret, o, until);
    st = st ? st : td__mesh_measure(&m->base, until);
    st = st ? st : add_faults(m);
    if (st) {
        td__poison_set(&m->poison, st, td_last_error()); /* no goodbye to those who are there */
        td__mesh_destroy(&m->base);
        return st;
    }
    TD_LOG(DEBUG, NET, "tcp: rank %d of %d, %d streams, alpha %.1f us, %.2f GB/s", rank, size,
           m->streams, 1e6 * m->base.alpha, 1e-9 / m->base.beta);
    *out = &m->base;
    return TD_OK;
}
