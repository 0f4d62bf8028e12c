/* peers.c -- see peers.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "launch/peers.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/log.h"
#include "launch/membership.h"
#include "net/gate.h"
#include "net/greet.h"
#include "net/link.h"
#include "net/socket.h"

enum { STRANGERS = 16, HELLO = 255, AGAIN_MS = 200 };

typedef struct peer {
    bool dial, greeting; /* dial: is ours to make, and not made yet */
    char address[TD_ADDRESS_BYTES];
    td__greet greet;
    td__deadline again; /* after a failed attempt */
    td__link link;
    bool over; /* had one, which is gone */
} peer;

struct td__peers {
    const td__agent_spec *s;
    const td__peers_ops *ops;
    void *user;
    td__tls *tls;
    td__gate *gate;
    char address[TD_ADDRESS_BYTES];
    peer all[TD_MS_AGENTS];
    td__link strangers[STRANGERS];
    int next_stranger;
};

td_status td__peers_create(const td__agent_spec *s, const td__peers_ops *ops, void *user,
                           td__peers **out)
{
    char listen[80];
    int fd;
    td_status st = TD_OK;
    td__peers *p = td__calloc(1, sizeof *p);
    *out = NULL;
    if (!p)
        return TD_FAIL(TD_ENOMEM, "no memory for the connections of an agent");
    p->s = s, p->ops = ops, p->user = user;
    for (int a = 0; a < TD_MS_AGENTS; a++)
        p->all[a].link.conn.fd = -1;
    for (int i = 0; i < STRANGERS; i++)
        p->strangers[i].conn.fd = -1;
    if (td__agent_spec_tls(s))
        TD_TRY_OR(st, fail, td__tls_create(s->tls_file, &p->tls));
    snprintf(listen, sizeof listen, "%s:0", s->address);
    TD_TRY_OR(st, fail, td__socket_listen(listen, &fd, p->address));
    TD_TRY_OR(st, fail, td__gate_create_take(fd, TD_HS_AGENT, &s->secret, p->tls, &p->gate));
    *out = p;
    return TD_OK;
fail:
    td__peers_destroy(p);
    return st;
}

void td__peers_destroy(td__peers *p)
{
    if (!p)
        return;
    for (int a = 0; a < TD_MS_AGENTS; a++) {
        if (p->all[a].greeting)
            td__greet_fini(&p->all[a].greet);
        td__link_fini(&p->all[a].link);
    }
    for (int i = 0; i < STRANGERS; i++)
        td__link_fini(&p->strangers[i]);
    td__gate_destroy(p->gate);
    td__tls_destroy(p->tls);
    td__free(p);
}

const char *td__peers_address(const td__peers *p)
{
    return p->address;
}

void td__peers_dial(td__peers *p, int agent, const char *address)
{
    if (agent < 0 || agent >= TD_MS_AGENTS || agent == p->s->index)
        return;
    p->all[agent].dial = true;
    snprintf(p->all[agent].address, sizeof p->all[agent].address, "%s", address);
}

void td__peers_send(td__peers *p, int agent, uint8_t kind, const void *data, size_t nbytes)
{
    if (td__link_up(&p->all[agent].link))
        td__link_send(&p->all[agent].link, kind, data, nbytes);
}

/* ---- making connections ---- */

static void step(td__peers *p, int agent)
{
    peer *e = &p->all[agent];
    if (!e->greeting) {
        int fd;
        if (!td__deadline_passed(e->again))
            return;
        e->again = td__deadline_in_ms(AGAIN_MS);
        if (td__socket_connect_start(e->address, &fd) ||
            td__greet_init_take(&e->greet, fd, TD_HS_CLIENT, TD_HS_AGENT, &p->s->secret, p->tls,
                                e->address))
            return;
        e->greeting = true;
    }
    if (td__greet_step(&e->greet)) {
        TD_LOG(INFO, LAUNCH, "agent %d: %s", agent, td_last_error());
        td__greet_fini(&e->greet);
        e->greeting = false;
        e->again = td__deadline_in_ms(AGAIN_MS);
        return;
    }
    if (e->greet.state != TD_GREET_DONE)
        return;
    uint32_t self = (uint32_t)p->s->index;
    td__link_init_take(&e->link, e->greet.conn);
    e->greet.conn = (td__conn){.fd = -1};
    td__greet_fini(&e->greet);
    e->greeting = e->dial = false;
    td__link_send(&e->link, HELLO, &self, sizeof self);
    p->ops->met(p->user, agent);
}

static void enter(void *user, td__conn conn)
{
    td__peers *p = user;
    td__link *l = &p->strangers[p->next_stranger++ % STRANGERS];
    td__link_fini(l);
    td__link_init_take(l, conn);
}

static void hear_all(td__peers *p, int agent)
{
    peer *e = &p->all[agent];
    td__link_msg m;
    td__link_flush(&e->link);
    td__link_fill(&e->link);
    while (td__link_next(&e->link, &m))
        p->ops->heard(p->user, agent, m.kind, m.data, m.nbytes);
    if (td__link_up(&e->link) || e->over)
        return;
    e->over = true;
    if (e->link.ended)
        p->ops->ended(p->user, agent, e->link.reset);
}

static void welcome(td__peers *p, td__link *l)
{
    td__link_msg m;
    uint32_t who;
    td__link_fill(l);
    if (!td__link_next(l, &m)) {
        if (!td__link_up(l))
            td__link_fini(l);
        return;
    }
    if (m.kind != HELLO || m.nbytes != sizeof who)
        who = TD_MS_AGENTS;
    else
        memcpy(&who, m.data, sizeof who);
    if (who >= TD_MS_AGENTS || p->all[who].link.conn.fd >= 0 || p->all[who].over) {
        td__link_fini(l);
        return;
    }
    p->all[who].link = *l;
    *l = (td__link){.conn = {.fd = -1}};
    p->ops->met(p->user, (int)who);
    hear_all(p, (int)who);
}

/* ---- waiting ---- */

int td__peers_most_fds(const td__peers *p)
{
    (void)p;
    return 1 + STRANGERS + TD_MS_AGENTS;
}

int td__peers_poll(td__peers *p, struct pollfd *fds)
{
    int n = 0;
    fds[n++] = (struct pollfd){td__gate_fd(p->gate), POLLIN, 0};
    for (int i = 0; i < STRANGERS; i++)
        fds[n++] = (struct pollfd){p->strangers[i].conn.fd, POLLIN, 0};
    for (int a = 0; a < TD_MS_AGENTS; a++) {
        const peer *e = &p->all[a];
        if (e->greeting)
            fds[n++] = (struct pollfd){e->greet.conn.fd, e->greet.write ? POLLOUT : POLLIN, 0};
        else
            fds[n++] = (struct pollfd){td__link_up(&e->link) ? e->link.conn.fd : -1,
                                       td__link_events(&e->link), 0};
    }
    return n;
}

void td__peers_serve(td__peers *p, const struct pollfd *fds)
{
    for (int a = 0; a < TD_MS_AGENTS; a++) {
        bool ready = fds[1 + STRANGERS + a].revents != 0;
        if (p->all[a].dial && (ready || !p->all[a].greeting))
            step(p, a);
        else if (ready && p->all[a].link.conn.fd >= 0)
            hear_all(p, a);
    }
    if (fds[0].revents)
        td__gate_serve(p->gate, enter, p);
    for (int i = 0; i < STRANGERS; i++)
        if (p->strangers[i].conn.fd >= 0)
            welcome(p, &p->strangers[i]);
}
