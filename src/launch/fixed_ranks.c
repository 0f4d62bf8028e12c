/* fixed_ranks.c -- see fixed_ranks.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "launch/fixed_ranks.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "launch/foreign/foreign.h"

/* Free ports of this host: held all at once so that none comes twice. */
static td_status pick_ports(td__fixed_ranks *f)
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

td_status td__fixed_ranks_init(td__fixed_ranks *f, const td__agent_spec *s, const char *parent)
{
    char listen[80];
    f->s = s;
    f->n_ports = td__agent_spec_host(s)->count + (s->index == 0);
    snprintf(listen, sizeof listen, "%s:0", s->address);
    TD_TRY(td__store_server_create(&s->secret,
                                   &(td__store_opts){.listen = listen,
                                                     .parent = parent[0] ? parent : NULL,
                                                     .tls_dir = td__agent_spec_tls(s)},
                                   &f->store));
    return pick_ports(f);
}

void td__fixed_ranks_fini(td__fixed_ranks *f)
{
    td__foreign_destroy(f->plan.foreign);
    td__store_server_destroy(f->store);
    td__free(f->port);
    td__free(f->worker);
    td__free(f->go);
}

void td__fixed_ranks_ready(const td__fixed_ranks *f, td__texts *out)
{
    td__texts_add(out, "%s", td__store_server_address(f->store));
    for (int i = 0; i < f->n_ports; i++)
        td__texts_add(out, "%s:%d", f->s->address, f->port[i]);
}

td_status td__fixed_ranks_begin(td__fixed_ranks *f, const td__msg *m)
{
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
    return td__foreign_create(s, &f->plan, &f->plan.foreign);
}

bool td__fixed_ranks_cut_off(const td__fixed_ranks *f)
{
    return td__store_server_lost(f->store);
}
