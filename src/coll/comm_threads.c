/* comm_threads.c -- worlds of threads in one process.
 *
 * The comms of one world share a hub: their side channel, and the place where the members of a
 * sub-group find its meshes, made for all by the first who asks.
 *
 * Locks     hub.lock protects the members and the groups in the making; it is recursive, because a
 *           line that one comm is told can make it tell another; taken before a comm's own. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "coll/comm_impl.h"
#include "net/mesh_inproc.h"

typedef struct hub hub;

typedef struct member {
    hub *hub;
    int rank;
    td_comm *comm; /* NULL: not made yet, or gone */
} member;

typedef struct group {
    char key[96];
    int n, taken;
    td__mesh **meshes; /* (n) taken ones are NULL */
    hub *hub;
    struct group *next;
} group;

struct hub {
    pthread_mutex_t lock;
    int size, refs; /* refs: members not yet detached */
    member *members;
    group *groups;
};

static void tell_members(hub *h, int from, const char *line)
{
    pthread_mutex_lock(&h->lock);
    for (int r = 0; r < h->size; r++)
        if (r != from && h->members[r].comm)
            (void)td__comm_told(h->members[r].comm, from, line);
    pthread_mutex_unlock(&h->lock);
}

/* All ranks of a comm take part in splitting it: a group of which some have not come to their part
 * fails with it. */
static void hub_tell(void *user, const char *line)
{
    const member *from = user;
    hub *h = from->hub;
    tell_members(h, from->rank, line);
    pthread_mutex_lock(&h->lock);
    for (group *g = h->groups; g && strncmp(line, "poison ", 7) == 0; g = g->next)
        tell_members(g->hub, -1, line);
    pthread_mutex_unlock(&h->lock);
}

static void hub_attach(void *user, td_comm *c)
{
    member *m = user;

    pthread_mutex_lock(&m->hub->lock);
    m->comm = c;
    pthread_mutex_unlock(&m->hub->lock);
}

static void hub_unref(hub *h, int refs);

static void group_destroy(group *g)
{
    for (int i = 0; i < g->n; i++)
        td__mesh_destroy(g->meshes[i]);
    hub_unref(g->hub, g->n - g->taken);
    td__free(g->meshes);
    td__free(g);
}

static void hub_unref(hub *h, int refs)
{
    pthread_mutex_lock(&h->lock);
    h->refs -= refs;
    bool last = h->refs == 0;
    pthread_mutex_unlock(&h->lock);
    if (!last)
        return;
    while (h->groups) {
        group *g = h->groups;
        h->groups = g->next;
        group_destroy(g);
    }
    pthread_mutex_destroy(&h->lock);
    td__free(h->members);
    td__free(h);
}

static void hub_detach(void *user)
{
    member *m = user;
    hub *h = m->hub;

    pthread_mutex_lock(&h->lock);
    m->comm = NULL;
    pthread_mutex_unlock(&h->lock);
    hub_unref(h, 1);
}

static td_status hub_split(void *user, td_comm *parent, const int *ranks, int n, int me,
                           const char *key, td__deadline until, td__comm_parts *out);

static void fill_parts(hub *h, int rank, td__mesh *mesh, double gamma, td__comm_parts *out)
{
    *out = (td__comm_parts){
        .rank = rank,
        .size = h->size,
        .mesh = mesh,
        .gamma = gamma,
        .hooks = {.user = &h->members[rank],
                  .tell = hub_tell,
                  .attach = hub_attach,
                  .detach = hub_detach,
                  .split = hub_split},
    };
}

static td_status hub_create(int size, hub **out)
{
    hub *h = td__calloc(1, sizeof *h);
    member *members = td__calloc((size_t)size, sizeof *members);
    pthread_mutexattr_t attr;

    if (!h || !members) {
        td__free(h);
        td__free(members);
        return TD_FAIL(TD_ENOMEM, "a world of %d threads", size);
    }
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&h->lock, &attr);
    pthread_mutexattr_destroy(&attr);
    h->size = h->refs = size;
    h->members = members;
    for (int r = 0; r < size; r++)
        members[r] = (member){.hub = h, .rank = r};
    *out = h;
    return TD_OK;
}

static td_status group_create(const char *key, int n, group **out)
{
    td_status st;
    group *g = td__calloc(1, sizeof *g);
    td__mesh **meshes = td__calloc((size_t)n, sizeof(td__mesh *));

    if (!g || !meshes) {
        st = TD_FAIL(TD_ENOMEM, "a group of %d threads", n);
        goto fail;
    }
    snprintf(g->key, sizeof g->key, "%s", key);
    g->n = n;
    g->meshes = meshes;
    TD_TRY_OR(st, fail, hub_create(n, &g->hub));
    st = td__mesh_inproc_create(n, meshes);
    if (st) {
        hub_unref(g->hub, n);
        goto fail;
    }
    *out = g;
    return TD_OK;
fail:
    td__free(meshes);
    td__free(g);
    return st;
}

static td_status hub_split(void *user, td_comm *parent, const int *ranks, int n, int me,
                           const char *key, td__deadline until, td__comm_parts *out)
{
    hub *h = ((member *)user)->hub;
    td_status st = TD_OK;

    (void)ranks;
    (void)until;
    pthread_mutex_lock(&h->lock);
    group **at = &h->groups;
    while (*at && strcmp((*at)->key, key) != 0)
        at = &(*at)->next;
    if (!*at)
        st = group_create(key, n, at);
    group *g = *at, *done = NULL;
    if (!st) {
        fill_parts(g->hub, me, g->meshes[me], parent->ctx.gamma, out);
        g->meshes[me] = NULL;
        if (++g->taken == n) {
            *at = g->next;
            done = g;
        }
    }
    pthread_mutex_unlock(&h->lock);
    if (done) {
        td__free(done->meshes);
        td__free(done);
    }
    return st;
}

td_status td_comm_threads(int size, const td_comm_opts *opts, td_comm **out)
{
    group *g = NULL;
    td_status st = TD_OK;

    if (size < 1 || size > 4096)
        return TD_FAIL(TD_EINVAL, "a world of %d threads: 1 to 4096", size);
    if (!out)
        return TD_FAIL(TD_EINVAL, "a world of %d threads: out is NULL", size);
    for (int r = 0; r < size; r++)
        out[r] = NULL;
    TD_TRY(group_create("", size, &g));
    double gamma = td__reduce_measure();
    int made = 0;
    while (made < size && !st) {
        td__comm_parts parts;
        fill_parts(g->hub, made, g->meshes[made], gamma, &parts);
        st = td__comm_assemble(&parts, opts, &out[made]);
        if (!st) {
            g->meshes[made++] = NULL;
            g->taken++;
        }
    }
    if (st) { /* the hub goes with its last reference: destroy it after the comms */
        for (int r = 0; r < made; r++) {
            td_comm_destroy(out[r]);
            out[r] = NULL;
        }
        group_destroy(g);
        return st;
    }
    td__free(g->meshes);
    td__free(g);
    return TD_OK;
}
