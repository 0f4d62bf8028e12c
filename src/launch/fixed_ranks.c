/* fixed_ranks.c -- the one generation of a job whose ranks are fixed: a store in which they meet,
 * below that of another agent or as the root of the tree, and what each finds in its environment.
 *
 * The launcher decides it: READY tells it the store's address and a free port for each rank, GO
 * brings back where all ranks of the job live. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/deadline.h"
#include "base/fail.h"
#include "launch/decider.h"
#include "launch/foreign/foreign.h"
#include "launch/rank_env.h"
#include "net/store.h"

enum { LOOK_MS = 1000 /* at a store that may be cut off, and for `tandem status` */ };

typedef struct fixed_ranks {
    td__decider base;
    const td__agent_spec *s;
    td__workers *workers;
    td__store_server *store;
    int n_ports, *port; /* one per rank of this host, then, of the first agent, the master's */
    char *go;           /* a copy of what GO says, which the plan points into */
    const char **worker;
    td__rank_plan plan;
} fixed_ranks;

/* Free ports of this host: held all at once so that none comes twice. */
static td_status pick_ports(fixed_ranks *f)
{
    int n = f->n_ports, *fd = td__calloc((size_t)n, sizeof *fd);
    f->port = td__calloc((size_t)n, sizeof *f->port);
    if (!fd || !f->port) {
        td__free(fd);
        return TD_FAIL(TD_ENOMEM, "no memory for %d ports", n);
    }
    td_status st = TD_OK;
    int i = 0;
    for (; i < n && !st; i++) {
        struct sockaddr_in where = {.sin_family = AF_INET};
        socklen_t length = sizeof where;
        fd[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd[i] < 0 || inet_pton(AF_INET, f->s->address, &where.sin_addr) != 1 ||
            bind(fd[i], (struct sockaddr *)&where, sizeof where) ||
            getsockname(fd[i], (struct sockaddr *)&where, &length))
            st = TD_FAIL(TD_EIO, "cannot pick a port at %s: %s", f->s->address, strerror(errno));
        f->port[i] = ntohs(where.sin_port);
    }
    while (i-- > 0)
        if (fd[i] >= 0)
            close(fd[i]);
    td__free(fd);
    return st;
}

static void destroy(td__decider *d)
{
    fixed_ranks *f = (fixed_ranks *)d;
    td__foreign_destroy(f->plan.foreign);
    td__store_server_destroy(f->store);
    td__free(f->port);
    td__free(f->worker);
    td__free(f->go);
    td__free(f);
}

static td_status begin(td__decider *d, const td__msg *m)
{
    fixed_ranks *f = (fixed_ranks *)d;
    const td__agent_spec *s = f->s;
    int size = s->hosts.size;
    size_t at = 0;
    f->worker = td__calloc((size_t)size + 1, sizeof *f->worker);
    f->go = td__malloc(m->nbytes + 1);
    if (!f->worker || !f->go)
        return TD_FAIL(TD_ENOMEM, "no memory for the addresses of %d ranks", size);
    memcpy(f->go, m->data, m->nbytes);
    for (int r = 0; r <= size; r++)
        if (!(f->worker[r] = td__texts_next(f->go, m->nbytes, &at)))
            return TD_FAIL(TD_EPROTO, "the launcher's list of ranks is incomplete");
    f->plan = (td__rank_plan){.hosts = &s->hosts,
                              .host = s->index,
                              .store = td__store_server_address(f->store),
                              .worker = f->worker,
                              .master = f->worker[size],
                              .roles = &s->roles,
                              .job = s->job,
                              .generation = s->generation,
                              .restarts = s->restarts,
                              .failures = s->failures};
    TD_TRY(td__foreign_create(s, &f->plan, &f->plan.foreign));
    td__workers_fix(f->workers, &f->plan);
    return TD_OK;
}

/* The store above is lost: nobody else ends the ranks of a host that was cut off. */
static td_status tick(td__decider *d, uint64_t now, bool lead)
{
    const fixed_ranks *f = (fixed_ranks *)d;
    (void)lead;
    if (td__store_server_lost(f->store))
        td__workers_stop(f->workers, now);
    return TD_OK;
}

static uint64_t deadline(const td__decider *d)
{
    (void)d;
    return td__deadline_in_ms(LOOK_MS);
}

static bool leads(const td__decider *d)
{
    return ((const fixed_ranks *)d)->s->index == 0;
}

/* Ranks may need the stores of other hosts until they end: until then, or it hears nothing more. */
static bool needed(const td__decider *d, bool ordered, bool drained)
{
    (void)ordered, (void)drained;
    return !td__store_server_lost(((const fixed_ranks *)d)->store);
}

static const td__decider_ops OPS = {.begin = begin,
                                    .tick = tick,
                                    .deadline = deadline,
                                    .leads = leads,
                                    .needed = needed,
                                    .destroy = destroy};

td_status td__fixed_ranks_create(td__agent_spec *s, td__workers *w, bool *lost, const char *parent,
                                 td__texts *ready, td__decider **out)
{
    (void)lost;
    char listen[80];
    fixed_ranks *f = td__calloc(1, sizeof *f);
    if (!f)
        return TD_FAIL(TD_ENOMEM, "no memory for the ranks of this host");
    *out = &f->base;
    f->base.ops = &OPS;
    f->s = s;
    f->workers = w;
    f->n_ports = td__agent_spec_host(s)->count + (s->index == 0);
    snprintf(listen, sizeof listen, "%s:0", s->address);
    TD_TRY(td__store_server_create(&s->secret,
                                   &(td__store_opts){.listen = listen,
                                                     .parent = parent[0] ? parent : NULL,
                                                     .tls_dir = td__agent_spec_tls(s)},
                                   &f->store));
    TD_TRY(pick_ports(f));
    td__texts_add(ready, "%s", td__store_server_address(f->store));
    for (int i = 0; i < f->n_ports; i++)
        td__texts_add(ready, "%s:%d", s->address, f->port[i]);
    return TD_OK;
}
