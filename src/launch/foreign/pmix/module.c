/* module.c -- a PMIx server by libpmix, for the ranks of one host. See module.h.
 *
 * libpmix speaks with the ranks and keeps what they publish; it asks its host, us, for what is
 * beyond this one:
 *
 *     fence   all ranks of this host that take part are in it, with `data` of theirs: an all-gather
 *             over the hosts of the others (gather), whose result goes back to the ranks. A thread
 *             for each, since two fences of different ranks may overlap in any order.
 *     abort   a rank wants all to end.
 *
 * The rest (spawning, publishing names, fetching single values from other hosts) is not offered:
 * Open MPI fetches all values in the fence of MPI_Init. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "launch/foreign/pmix/module.h"

#include <pmix.h>
#include <pmix_server.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* libpmix is one per process, and so is what is known of it. */
static const td__pmix_world *world;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* what follows */
static pthread_cond_t idle = PTHREAD_COND_INITIALIZER;
static int n_fences;  /* under way */
static bool stopping; /* none begins any more */
static struct set {
    struct set *next;
    uint64_t hash; /* of the ranks */
    unsigned n;    /* fences so far */
} * sets;

typedef struct fence {
    char name[64];
    int n_hosts, *hosts;
    char *data;
    size_t nbytes;
    pmix_modex_cbfunc_t done;
    void *arg;
} fence;

static int fail(char *text, const char *what, pmix_status_t rc)
{
    snprintf(text, TD_PMIX_TEXT, "PMIx: %s: %.180s", what, PMIx_Error_string(rc));
    return -1;
}

static bool is_good(pmix_status_t rc)
{
    return rc == PMIX_SUCCESS || rc == PMIX_OPERATION_SUCCEEDED;
}

/* ---- fences ---- */

/* A fence uses the world until it leaves; false: the world ends. */
static bool enter(void)
{
    pthread_mutex_lock(&lock);
    bool good = !stopping;
    n_fences += good;
    pthread_mutex_unlock(&lock);
    return good;
}

static void leave(void)
{
    pthread_mutex_lock(&lock);
    if (!--n_fences)
        pthread_cond_broadcast(&idle);
    pthread_mutex_unlock(&lock);
}

static void *run_fence(void *arg)
{
    fence *f = arg;
    void *all = NULL;
    size_t nbytes = 0;
    bool good = !world->gather(world->user, f->name, f->hosts, f->n_hosts, f->data, f->nbytes, &all,
                               &nbytes);
    f->done(good ? PMIX_SUCCESS : PMIX_ERROR, all, nbytes, f->arg, world->release, all);
    free(f->data);
    free(f->hosts);
    free(f);
    leave();
    return NULL;
}

/* Does rank r take part? */
static bool is_in(const pmix_proc_t *procs, size_t n, int r)
{
    for (size_t i = 0; i < n; i++)
        if (procs[i].rank == PMIX_RANK_WILDCARD || procs[i].rank == (pmix_rank_t)r)
            return true;
    return false;
}

/* Which fence of these ranks it is: the same on all hosts. */
static unsigned count_fence(uint64_t hash)
{
    struct set *s = sets;
    while (s && s->hash != hash)
        s = s->next;
    if (!s && (s = calloc(1, sizeof *s))) {
        s->hash = hash;
        s->next = sets;
        sets = s;
    }
    return s ? ++s->n : 0;
}

static pmix_status_t fence_nb(const pmix_proc_t procs[], size_t n, const pmix_info_t info[],
                              size_t n_info, char *data, size_t nbytes, pmix_modex_cbfunc_t done,
                              void *arg)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a over the ranks */
    pthread_t thread;
    (void)info;
    (void)n_info;
    if (!enter())
        return PMIX_ERR_NOT_AVAILABLE;
    fence *f = calloc(1, sizeof *f);
    if (f)
        f->hosts = calloc((size_t)world->n_hosts, sizeof *f->hosts);
    if (!f || !f->hosts) {
        free(f);
        leave();
        return PMIX_ERR_NOMEM;
    }
    for (int h = 0; h < world->n_hosts; h++) {
        bool here = false;
        for (int r = world->hosts[h].first; r < world->hosts[h].first + world->hosts[h].count; r++)
            if (is_in(procs, n, r)) {
                here = true;
                hash = (hash ^ (uint64_t)r) * 1099511628211u;
            }
        if (here)
            f->hosts[f->n_hosts++] = h;
    }
    f->data = data;
    f->nbytes = nbytes;
    f->done = done;
    f->arg = arg;
    pthread_mutex_lock(&lock);
    unsigned number = count_fence(hash);
    snprintf(f->name, sizeof f->name, "pmix-%016llx-%u", (unsigned long long)hash, number);
    pthread_mutex_unlock(&lock);
    if (number && !pthread_create(&thread, NULL, run_fence, f)) {
        pthread_detach(thread);
        return PMIX_SUCCESS;
    }
    free(f->hosts);
    free(f);
    leave();
    return PMIX_ERR_NOMEM;
}

/* ---- the other requests ---- */

static pmix_status_t came(const pmix_proc_t *proc, void *object, pmix_info_t info[], size_t n,
                          pmix_op_cbfunc_t done, void *arg)
{
    (void)proc, (void)object, (void)info, (void)n, (void)done, (void)arg;
    return PMIX_OPERATION_SUCCEEDED;
}

static pmix_status_t left(const pmix_proc_t *proc, void *object, pmix_op_cbfunc_t done, void *arg)
{
    (void)proc, (void)object, (void)done, (void)arg;
    return PMIX_OPERATION_SUCCEEDED;
}

static pmix_status_t abort_ranks(const pmix_proc_t *proc, void *object, int status,
                                 const char text[], pmix_proc_t procs[], size_t n,
                                 pmix_op_cbfunc_t done, void *arg)
{
    (void)object, (void)text, (void)procs, (void)n, (void)done, (void)arg;
    world->aborted(world->user, (int)proc->rank, status);
    return PMIX_OPERATION_SUCCEEDED;
}

/* Nobody is told of events; ranks may ask all the same. */
static pmix_status_t register_events(pmix_status_t *codes, size_t n, const pmix_info_t info[],
                                     size_t n_info, pmix_op_cbfunc_t done, void *arg)
{
    (void)codes, (void)n, (void)info, (void)n_info, (void)done, (void)arg;
    return PMIX_OPERATION_SUCCEEDED;
}

static pmix_status_t deregister_events(pmix_status_t *codes, size_t n, pmix_op_cbfunc_t done,
                                       void *arg)
{
    (void)codes, (void)n, (void)done, (void)arg;
    return PMIX_OPERATION_SUCCEEDED;
}

static pmix_server_module_t requests = {
    .client_connected2 = came,
    .client_finalized = left,
    .abort = abort_ranks,
    .fence_nb = fence_nb,
    .register_events = register_events,
    .deregister_events = deregister_events,
};

/* ---- what is told of the job ---- */

static void load_u32(pmix_info_t *info, const char *key, int value)
{
    uint32_t number = (uint32_t)value;
    PMIX_INFO_LOAD(info, key, &number, PMIX_UINT32);
}

static void load_u16(pmix_info_t *info, const char *key, int value)
{
    uint16_t number = (uint16_t)value;
    PMIX_INFO_LOAD(info, key, &number, PMIX_UINT16);
}

static void load_rank(pmix_info_t *info, const char *key, int value)
{
    pmix_rank_t number = (pmix_rank_t)value;
    PMIX_INFO_LOAD(info, key, &number, PMIX_PROC_RANK);
}

/* Names of hosts, "a,b", and ranks of each, "0,1;2,3", as libpmix packs them. */
static pmix_status_t load_maps(pmix_info_t info[2])
{
    size_t names = 1, ranks = 1, at = 0, to = 0;
    char *packed = NULL;
    for (int h = 0; h < world->n_hosts; h++) {
        names += strlen(world->hosts[h].name) + 1;
        ranks += 12 * (size_t)world->hosts[h].count + 1;
    }
    char *name = malloc(names), *rank = malloc(ranks);
    pmix_status_t rc = name && rank ? PMIX_SUCCESS : PMIX_ERR_NOMEM;
    for (int h = 0; h < world->n_hosts && rc == PMIX_SUCCESS; h++) {
        const td__pmix_host *host = &world->hosts[h];
        at += (size_t)snprintf(name + at, names - at, "%s%s", h ? "," : "", host->name);
        for (int k = 0; k < host->count; k++)
            to += (size_t)snprintf(rank + to, ranks - to, "%s%d", k ? "," : (h ? ";" : ""),
                                   host->first + k);
    }
    if (rc == PMIX_SUCCESS && is_good(rc = PMIx_generate_regex(name, &packed))) {
        PMIX_INFO_LOAD(&info[0], PMIX_NODE_MAP, packed, PMIX_REGEX);
        free(packed);
        packed = NULL;
        if (is_good(rc = PMIx_generate_ppn(rank, &packed))) {
            PMIX_INFO_LOAD(&info[1], PMIX_PROC_MAP, packed, PMIX_REGEX);
            free(packed);
        }
    }
    free(name);
    free(rank);
    return rc;
}

static void load_rank_data(pmix_info_t *info, int h, int local)
{
    enum { N = 8 };
    const td__pmix_host *host = &world->hosts[h];
    pmix_data_array_t *array;
    PMIX_DATA_ARRAY_CREATE(array, N, PMIX_INFO);
    pmix_info_t *p = array->array;
    load_rank(&p[0], PMIX_RANK, host->first + local);
    load_u32(&p[1], PMIX_APPNUM, 0);
    load_rank(&p[2], PMIX_GLOBAL_RANK, host->first + local);
    load_rank(&p[3], PMIX_APP_RANK, host->first + local);
    load_u16(&p[4], PMIX_LOCAL_RANK, local);
    load_u16(&p[5], PMIX_NODE_RANK, local);
    load_u32(&p[6], PMIX_NODEID, h);
    PMIX_INFO_LOAD(&p[7], PMIX_HOSTNAME, host->name, PMIX_STRING);
    PMIX_INFO_LOAD(info, PMIX_PROC_DATA, array, PMIX_DATA_ARRAY);
    PMIX_DATA_ARRAY_FREE(array);
}

static void load_peers(pmix_info_t *info)
{
    const td__pmix_host *host = &world->hosts[world->host];
    size_t max = 12 * (size_t)host->count + 1, at = 0;
    char *text = calloc(1, max);
    for (int k = 0; text && k < host->count; k++)
        at += (size_t)snprintf(text + at, max - at, "%s%d", k ? "," : "", host->first + k);
    PMIX_INFO_LOAD(info, PMIX_LOCAL_PEERS, text ? text : "", PMIX_STRING);
    free(text);
}

static pmix_status_t register_job(void)
{
    enum { FIXED = 13 };
    const td__pmix_host *host = &world->hosts[world->host];
    size_t n = FIXED + (size_t)world->size, at = FIXED;
    pmix_info_t *info;
    PMIX_INFO_CREATE(info, n);
    if (!info)
        return PMIX_ERR_NOMEM;
    pmix_status_t rc = load_maps(info);
    load_u32(&info[2], PMIX_UNIV_SIZE, world->size);
    load_u32(&info[3], PMIX_JOB_SIZE, world->size);
    load_u32(&info[4], PMIX_MAX_PROCS, world->size);
    load_u32(&info[5], PMIX_LOCAL_SIZE, host->count);
    load_u32(&info[6], PMIX_NODE_SIZE, host->count);
    load_u32(&info[7], PMIX_NUM_NODES, world->n_hosts);
    load_u32(&info[8], PMIX_JOB_NUM_APPS, 1);
    load_rank(&info[9], PMIX_LOCALLDR, host->first);
    load_peers(&info[10]);
    PMIX_INFO_LOAD(&info[11], PMIX_TMPDIR, world->dir, PMIX_STRING);
    PMIX_INFO_LOAD(&info[12], PMIX_NSDIR, world->dir, PMIX_STRING);
    for (int h = 0; h < world->n_hosts; h++)
        for (int k = 0; k < world->hosts[h].count; k++)
            load_rank_data(&info[at++], h, k);
    if (is_good(rc))
        rc = PMIx_server_register_nspace(world->name, host->count, info, n, NULL, NULL);
    PMIX_INFO_FREE(info, n);
    return rc;
}

/* ---- the api ---- */

static int start(const td__pmix_world *w, char *text)
{
    pmix_info_t info[2];
    pmix_proc_t proc;
    const td__pmix_host *host = &w->hosts[w->host];
    world = w;
    pthread_mutex_lock(&lock);
    stopping = false; /* of the generation before */
    pthread_mutex_unlock(&lock);
    PMIX_INFO_LOAD(&info[0], PMIX_SERVER_TMPDIR, w->dir, PMIX_STRING);
    PMIX_INFO_LOAD(&info[1], PMIX_HOSTNAME, host->name, PMIX_STRING);
    pmix_status_t rc = PMIx_server_init(&requests, info, 2);
    PMIX_INFO_DESTRUCT(&info[0]);
    PMIX_INFO_DESTRUCT(&info[1]);
    if (!is_good(rc)) {
        world = NULL;
        return fail(text, "cannot start a server", rc);
    }
    rc = register_job();
    for (int k = 0; k < host->count && is_good(rc); k++) {
        PMIX_LOAD_PROCID(&proc, w->name, (pmix_rank_t)(host->first + k));
        rc = PMIx_server_register_client(&proc, getuid(), getgid(), NULL, NULL, NULL);
    }
    return is_good(rc) ? 0 : fail(text, "cannot describe the ranks", rc);
}

static int rank_variables(int rank, void (*add)(void *user, const char *variable), void *user,
                          char *text)
{
    char **env = NULL;
    pmix_proc_t proc;
    PMIX_LOAD_PROCID(&proc, world->name, (pmix_rank_t)rank);
    pmix_status_t rc = PMIx_server_setup_fork(&proc, &env);
    for (int i = 0; env && env[i]; i++) {
        add(user, env[i]);
        free(env[i]);
    }
    free(env);
    return is_good(rc) ? 0 : fail(text, "cannot make the variables of a rank", rc);
}

static void stop(void)
{
    if (!world)
        return;
    pthread_mutex_lock(&lock);
    stopping = true;
    while (n_fences)
        pthread_cond_wait(&idle, &lock);
    pthread_mutex_unlock(&lock);
    PMIx_server_finalize();
    for (struct set *s; (s = sets);) {
        sets = s->next;
        free(s);
    }
    world = NULL;
}

static const td__pmix_api API = {TD_PMIX_ABI, start, rank_variables, stop};

__attribute__((visibility("default"))) td__pmix_entry td__pmix_module;

const td__pmix_api *td__pmix_module(void)
{
    return &API;
}
