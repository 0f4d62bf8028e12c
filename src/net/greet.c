/* greet.c -- connect, TLS, handshake, without blocking. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "net/greet.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <string.h>

#include "base/fail.h"
#include "net/socket.h"

static td_status begin_proving(td__greet *g)
{
    uint8_t binding[TD_BINDING_BYTES];

    if (g->tls)
        TD_TRY(td__tls_binding(&g->conn, binding));
    TD_TRY(td__handshake_init(&g->hs, g->secret, g->role, g->service, g->tls ? binding : NULL));
    g->state = TD_GREET_PROVING;
    return TD_OK;
}

static td_status begin_channel(td__greet *g)
{
    if (!g->tls)
        return begin_proving(g);
    TD_TRY(td__tls_push(g->tls, &g->conn, g->role));
    g->state = TD_GREET_TLS;
    return TD_OK;
}

td_status td__greet_init_take(td__greet *g, int fd, td__hs_role role, td__hs_service service,
                              const td__secret *secret, const td__tls *tls, const char *peer)
{
    memset(g, 0, sizeof *g);
    g->conn = td__conn_of(fd);
    g->role = role;
    g->service = service;
    g->secret = secret;
    g->tls = tls;
    g->peer = peer;
    g->write = role == TD_HS_CLIENT;
    g->state = TD_GREET_CONNECTING;
    td_status st = role == TD_HS_SERVER ? begin_channel(g) : TD_OK;
    if (st)
        td__greet_fini(g);
    return st;
}

/* Send what is to be sent, then read exactly what is wanted: what comes after the handshake stays
 * in the socket for whoever uses the connection. */
static td_status prove_step(td__greet *g)
{
    td__handshake *h = &g->hs;

    for (;;) {
        bool write = h->out_sent < h->out_used;
        if (!write && h->done) {
            OPENSSL_cleanse(h, sizeof *h);
            g->state = TD_GREET_DONE;
            return TD_OK;
        }
        struct iovec one = {.iov_base = write ? h->out + h->out_sent : h->in + h->in_used,
                            .iov_len = write ? h->out_used - h->out_sent : h->in_want - h->in_used};
        ssize_t n = write ? td__conn_send(&g->conn, &one, 1) : td__conn_recv(&g->conn, &one, 1);
        g->write = write;
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return TD_OK;
        if (n <= 0)
            return TD_FAIL(TD_EPEER, "%s ended the connection %s: %s", g->peer,
                           h->answered || h->in_used ? "during the handshake" : "without a hello",
                           n < 0 ? strerror(errno) : "closed");
        if (write) {
            h->out_sent += (size_t)n;
        } else {
            h->in_used += (size_t)n;
            TD_TRY(td__handshake_advance(h));
        }
    }
}

td_status td__greet_step(td__greet *g)
{
    if (g->state == TD_GREET_CONNECTING) {
        TD_TRY(td__socket_connected(g->conn.fd, g->peer));
        TD_TRY(begin_channel(g));
    }
    if (g->state == TD_GREET_TLS) {
        bool done;
        TD_TRY(td__tls_step(&g->conn, &done, &g->write));
        if (!done)
            return TD_OK;
        TD_TRY(begin_proving(g));
    }
    return g->state == TD_GREET_PROVING ? prove_step(g) : TD_OK;
}

void td__greet_fini(td__greet *g)
{
    OPENSSL_cleanse(&g->hs, sizeof g->hs);
    td__conn_close(&g->conn);
}

td_status td__greet_connect(const char *address, td__hs_service service, const td__secret *secret,
                            const td__tls *tls, td__deadline until, td__conn *out)
{
    td__greet g;
    int fd;
    td_status st = TD_OK;

    TD_TRY(td__socket_connect(address, until, &fd));
    TD_TRY(td__greet_init_take(&g, fd, TD_HS_CLIENT, service, secret, tls, address));
    while (!st && g.state != TD_GREET_DONE) {
        if (td__deadline_passed(until)) {
            st = TD_FAIL(TD_ETIMEDOUT, "%s does not answer the handshake", address);
            break;
        }
        td__socket_poll(fd, g.write, until);
        st = td__greet_step(&g);
        if (st == TD_EPROTO)
            st = TD_FAIL(TD_EPROTO, "%s is not part of this job: %s", address, td_last_error());
    }
    if (st) {
        td__greet_fini(&g);
        return st;
    }
    *out = g.conn;
    return TD_OK;
}
