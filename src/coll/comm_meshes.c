/* comm_meshes.c -- the meshes between the ranks of a comm.
 *
 * From what the ranks published every rank sees alike who shares memory with whom, which decides:
 *
 *     all on one host    shm
 *     several hosts      tcp between all; beside it shm inside each host and tcp between the first
 *                        ranks of the hosts, for the hierarchical algorithms */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "coll/world_link.h"
#include "net/mesh_inproc.h"
#include "net/mesh_shm.h"
#include "net/mesh_tcp.h"

/* By rank: number of its host, in order of first ranks. Returns how many there are. */
static int number_hosts(const td__world_link *l, const int *ranks, int n, int *host_of)
{
    int n_hosts = 0;
    for (int i = 0; i < n; i++) {
        int k = 0;
        while (k < i && strcmp(l->members[ranks[k]].host, l->members[ranks[i]].host) != 0)
            k++;
        host_of[i] = k < i ? host_of[k] : n_hosts++;
    }
    return n_hosts;
}

static td_status tcp_mesh(td__world_link *l, const char *prefix, int rank, int size,
                          td__deadline until, td__mesh **out)
{
    int local_size = 0;
    for (int r = 0; r < l->w.size; r++)
        local_size += !strcmp(l->members[r].host, l->w.host);
    td__mesh_tcp_opts o = {.streams = l->streams,
                           .checksum = l->checksum,
                           .host = l->w.address,
                           .tls_dir = l->w.tls ? l->w.tls_dir : NULL,
                           .faults = l->has_faults ? &l->faults : NULL,
                           .local_size = local_size};
    return td__mesh_tcp_create(l->store, prefix, rank, size, &l->w.secret, &o, until, out);
}

/* Beside a mesh over several hosts: one inside this host, one between the hosts' first ranks. */
static td_status inner_meshes(td__world_link *l, const char *key, const int *host_of, int n, int me,
                              td__deadline until, td__comm_parts *out)
{
    char prefix[96];
    int local_rank = 0, local_size = 0, n_hosts = 0;
    for (int i = 0; i < n; i++) {
        local_size += host_of[i] == host_of[me];
        local_rank += host_of[i] == host_of[me] && i < me;
        n_hosts = host_of[i] >= n_hosts ? host_of[i] + 1 : n_hosts;
    }
    if (n_hosts == n)
        return TD_OK;
    if (local_size > 1) {
        snprintf(prefix, sizeof prefix, "%s/local%d/", key, host_of[me]);
        TD_TRY(td__mesh_shm_create(l->store, prefix, local_rank, local_size, until, &out->local));
    } else {
        TD_TRY(td__mesh_inproc_create(1, &out->local));
    }
    if (local_rank)
        return TD_OK;
    snprintf(prefix, sizeof prefix, "%s/hosts/", key);
    return tcp_mesh(l, prefix, host_of[me], n_hosts, until, &out->hosts);
}

td_status td__world_meshes(td__world_link *l, const int *ranks, int n, int me, const char *key,
                           int *host_of, td__deadline until, td__comm_parts *out)
{
    char prefix[96];
    int n_hosts = number_hosts(l, ranks, n, host_of);
    bool want_tcp = !strcmp(l->transport, "tcp");
    snprintf(prefix, sizeof prefix, "%s/all/", key);
    if (n_hosts == 1 && !want_tcp)
        return td__mesh_shm_create(l->store, prefix, me, n, until, &out->mesh);
    if (!strcmp(l->transport, "shm")) {
        int other = 1;
        while (!host_of[other])
            other++;
        return TD_FAIL(TD_EINVAL,
                       "transport shm: rank 0 on host %s and rank %d on host %s share no memory; "
                       "leave transport unset, or use tcp",
                       l->members[ranks[0]].hostname, other, l->members[ranks[other]].hostname);
    }
    TD_TRY(tcp_mesh(l, prefix, me, n, until, &out->mesh));
    if (n_hosts == 1)
        return TD_OK;
    out->host_of = host_of;
    TD_TRY(inner_meshes(l, key, host_of, n, me, until, out));
    if (out->hosts) { /* measured between hosts, where ranks 0 and 1 of all may share one */
        out->mesh->alpha = out->hosts->alpha;
        out->mesh->beta = out->hosts->beta;
    }
    return TD_OK;
}
