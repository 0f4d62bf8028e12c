/* foreign_openmpi.c -- PMIx for the ranks of one host, by the module that has libpmix
 * (pmix/module.h): how Open MPI, and what else asks PMIx, finds its world. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/config.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/module.h"
#include "launch/foreign/foreign_impl.h"
#include "launch/foreign/pmix/module.h"

typedef struct server {
    td__foreign *f;
    const td__pmix_api *api;
    td__pmix_world world;
    td__pmix_host *hosts; /* (n_hosts) */
    bool running;
    char name[128], dir[256]; /* dir "": none yet */
} server;

enum { TRIES = 5 }; /* to remove a folder in which ranks still make and remove files */

static td_status load(const td__pmix_api **out)
{
    td__pmix_entry *entry;
    void *found;
    if (td__module_open("libtandem_pmix.so", TD_PMIX_ENTRY, &found))
        return TD_FAIL(TD_ENOTSUP,
                       "there is no module libtandem_pmix.so, which is built where libpmix is");
    *(void **)&entry = found;
    *out = entry();
    if ((*out)->abi != TD_PMIX_ABI)
        return TD_FAIL(TD_ENOTSUP, "libtandem_pmix.so was built for another version of Tandem");
    return TD_OK;
}

static td_status check(const td__foreign_http *http)
{
    const td__pmix_api *api;
    (void)http;
    return load(&api);
}

/* ---- what the module asks for ---- */

static int gather(void *user, const char *name, const int *hosts, int n, const void *data,
                  size_t nbytes, void **out, size_t *out_nbytes)
{
    td__foreign *f = user;
    td_status st = td__exchange_all(&f->exchange, name, hosts, n, data, nbytes, out, out_nbytes);
    if (st && st != TD_EABORTED)
        TD_LOG(WARN, LAUNCH, "PMIx: %s", td_last_error());
    return st ? -1 : 0;
}

static void release(void *data)
{
    td__free(data);
}

static void aborted(void *user, int rank, int status)
{
    td__foreign *f = user;
    td__foreign_abort(f, rank - td__agent_spec_host(f->s)->first, status);
}

/* ---- the server ---- */

static td_status create(td__foreign *f)
{
    server *s = f->server = td__calloc(1, sizeof *s);
    const td__hosts *h = &f->s->hosts;
    const char *tmp = td__env_get(TD_ENV_TMPDIR);
    char text[TD_PMIX_TEXT] = "";
    if (!s)
        return TD_FAIL(TD_ENOMEM, "no memory for a PMIx server");
    s->f = f;
    TD_TRY(load(&s->api));
    s->hosts = td__calloc((size_t)h->n, sizeof *s->hosts);
    if (!s->hosts)
        return TD_FAIL(TD_ENOMEM, "no memory for a PMIx server of %d hosts", h->n);
    for (int i = 0; i < h->n; i++)
        s->hosts[i] = (td__pmix_host){h->host[i].name, h->host[i].first, h->host[i].count};
    snprintf(s->name, sizeof s->name, "tandem-%.80s-%u", f->s->job, f->plan->generation);
    if (snprintf(s->dir, sizeof s->dir, "%s/tandem-pmix-XXXXXX", tmp ? tmp : "/tmp") >=
        (int)sizeof s->dir) {
        s->dir[0] = 0;
        return TD_FAIL(TD_EINVAL, "TMPDIR=%.60s... is too long for PMIx: at most %zu bytes", tmp,
                       sizeof s->dir - sizeof "/tandem-pmix-XXXXXX");
    }
    if (!mkdtemp(s->dir)) {
        td_status st = TD_FAIL(TD_EIO, "cannot make %s: %s", s->dir, strerror(errno));
        s->dir[0] = 0;
        return st;
    }
    s->world = (td__pmix_world){.name = s->name,
                                .dir = s->dir,
                                .hosts = s->hosts,
                                .n_hosts = h->n,
                                .host = f->s->index,
                                .size = h->size,
                                .user = f,
                                .gather = gather,
                                .release = release,
                                .aborted = aborted};
    s->running = true;
    return s->api->start(&s->world, text) ? TD_FAIL(TD_EIO, "%s", text) : TD_OK;
}

static void add(void *user, const char *variable)
{
    td__texts_add(user, "%s", variable);
}

static td_status rank_env(td__foreign *f, int rank, td__texts *env, int *fd)
{
    server *s = f->server;
    char text[TD_PMIX_TEXT] = "";
    (void)fd;
    /* Open MPI 4 asks PMIx only under launchers that it knows, by their variables; this one's means
     * "started directly, by a PMIx server", and nothing else. Open MPI 5 asks anyway. */
    td__texts_add(env, "JSM_JSRUN_PORT=0");
    return s->api->rank(rank, add, env, text) ? TD_FAIL(TD_EIO, "%s", text) : TD_OK;
}

/* Ranks that end remove files of theirs at the same time: what is gone is gone. */
static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    (void)remove(path);
    return 0;
}

static void destroy(td__foreign *f)
{
    server *s = f->server;
    if (s->running)
        s->api->stop();
    for (int i = 0; i < TRIES && s->dir[0] && access(s->dir, F_OK) == 0; i++)
        (void)nftw(s->dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    td__free(s->hosts);
    td__free(s);
}

const td__foreign_ops td__foreign_openmpi = {
    .check = check, .create = create, .rank = rank_env, .destroy = destroy};
