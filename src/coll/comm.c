/* comm.c -- communicators: made from ready meshes, taken apart, and asked about themselves; and
 * memory that the ranks of a host share. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/config.h"
#include "base/fail.h"
#include "base/log.h"
#include "coll/comm_impl.h"
#include "coll/comm_setup.h"

enum { TIMEOUT_MS = 300000, STALL_MS = 3000, COST_TAG = 0x636f7374, PAGE = 4096 };

/* The numbers of the cost model, the same on all ranks: rank 0 leads its host, so it knows all. */
static td_status agree_costs(td__coll_ctx *x, td__deadline until)
{
    double v[] = {x->gamma,      x->mesh->alpha, x->mesh->beta, x->local_alpha,
                  x->local_beta, x->hosts_alpha, x->hosts_beta};
    td__xfer t, *const p = &t;

    if (x->mesh->rank > 0) {
        TD_TRY(td__mesh_recv(x->mesh, &t, 0, COST_TAG, v, sizeof v));
        TD_TRY(td__mesh_wait(x->mesh, &p, 1, until));
    } else {
        for (int r = 1; r < x->mesh->size; r++) {
            TD_TRY(td__mesh_send(x->mesh, &t, r, COST_TAG, v, sizeof v));
            TD_TRY(td__mesh_wait(x->mesh, &p, 1, until));
        }
    }
    x->gamma = v[0];
    x->mesh->alpha = v[1];
    x->mesh->beta = v[2];
    x->local_alpha = v[3];
    x->local_beta = v[4];
    x->hosts_alpha = v[5];
    x->hosts_beta = v[6];
    return TD_OK;
}

static void free_memory(td_comm *c)
{
    td__free_block(c->ctx.scratch, c->ctx.scratch_nbytes);
    td__free(c->host_of);
    td__free((void *)c->blame_s);
    td__free(c->xfers);
    td__free(c->parts);
    td__free(c->p2p);
    pthread_cond_destroy(&c->poisoned);
    pthread_mutex_destroy(&c->lock);
    td__free(c);
}

static td_status set_options(td_comm *c, const td_comm_opts *o)
{
    const char *algo = o->algo ? o->algo : td__env_get(TD_ENV_ALGO);
    const char *engine = o->engine ? o->engine : td__env_get(TD_ENV_ENGINE);

    snprintf(c->engine, sizeof c->engine, "%s", engine ? engine : "");
    snprintf(c->name, sizeof c->name, "%s", o->name ? o->name : "world");
    c->timeout_ms = o->timeout_ms ? o->timeout_ms : TIMEOUT_MS;
    c->stall_ms = o->stall_ms ? o->stall_ms : STALL_MS;
    if (algo) {
        TD_TRY(td__algo_check(algo));
        if (strlen(algo) >= sizeof c->algo)
            return TD_FAIL(TD_EINVAL, "algo: %zu characters; at most %zu", strlen(algo),
                           sizeof c->algo - 1);
        memcpy(c->algo, algo, strlen(algo) + 1);
    }
    return TD_OK;
}

static void set_context(td_comm *c, const td__comm_parts *p)
{
    td__coll_ctx *x = &c->ctx;

    *x = (td__coll_ctx){
        .mesh = p->mesh,
        .local = p->local,
        .hosts = p->hosts,
        .host_of = c->host_of,
        .n_hosts = 1,
        .gamma = p->gamma,
        .xfers = c->xfers,
        .parts = c->parts,
        .comm = c,
    };
    for (int r = 0; c->host_of && r < c->size; r++) {
        c->host_of[r] = p->host_of[r];
        if (p->host_of[r] >= x->n_hosts)
            x->n_hosts = p->host_of[r] + 1;
    }
    if (x->local)
        x->local_alpha = x->local->alpha, x->local_beta = x->local->beta;
    if (x->hosts)
        x->hosts_alpha = x->hosts->alpha, x->hosts_beta = x->hosts->beta;
}

td_status td__comm_assemble(const td__comm_parts *parts, const td_comm_opts *opts, td_comm **out)
{
    static const td_comm_opts NONE = {0};
    const td_comm_opts *o = opts ? opts : &NONE;
    size_t n = (size_t)parts->size;
    pthread_condattr_t attr;
    td_status st;

    *out = NULL;
    td_comm *c = td__calloc(1, sizeof *c);
    if (!c)
        return TD_FAIL(TD_ENOMEM, "a communicator of %d ranks", parts->size);
    c->rank = parts->rank;
    c->size = parts->size;
    c->tls = parts->tls;
    pthread_mutex_init(&c->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&c->poisoned, &attr);
    pthread_condattr_destroy(&attr);
    TD_TRY_OR(st, fail, set_options(c, o));
    snprintf(c->transport, sizeof c->transport, "%s",
             parts->transport ? parts->transport
             : parts->mesh    ? parts->mesh->ops->name
                              : "none");
    c->blame_s = td__calloc(n, sizeof *c->blame_s);
    c->xfers = td__calloc((size_t)TD_COLL_XFERS(parts->size), sizeof *c->xfers);
    c->parts = td__calloc(n, sizeof *c->parts);
    c->p2p = td__calloc(n, 2 * sizeof *c->p2p);
    c->host_of = parts->host_of ? td__calloc(n, sizeof *c->host_of) : NULL;
    if (!c->blame_s || !c->xfers || !c->parts || !c->p2p || (parts->host_of && !c->host_of)) {
        st = TD_FAIL(TD_ENOMEM, "a communicator of %d ranks", parts->size);
        goto fail;
    }
    set_context(c, parts);
    if (parts->mesh && c->ctx.gamma <= 0) {
        c->ctx.gamma = td__reduce_measure();
        uint32_t ms = o->setup_ms ? o->setup_ms : TD_COMM_SETUP_MS;
        if (c->size > 1)
            TD_TRY_OR(st, fail, agree_costs(&c->ctx, td__deadline_in_ms(ms)));
        TD_LOG(DEBUG, COLL,
               "%s: rank %d of %d over %s: alpha %.2g s, beta %.2g s/B, gamma %.2g s/B", c->name,
               c->rank, c->size, c->transport, c->ctx.mesh->alpha, c->ctx.mesh->beta, c->ctx.gamma);
    }
    TD_TRY_OR(st, fail, td__crossed_begin(c));
    c->hooks = parts->hooks;
    if (c->hooks.attach)
        c->hooks.attach(c->hooks.user, c);
    *out = c;
    return TD_OK;
fail:
    free_memory(c);
    return st;
}

static void release_region(td__region *g)
{
    if (g->mesh)
        g->mesh->ops->unshare(g->mesh, g->id);
    else
        td__free_block(g->base[0], g->nbytes + PAGE);
    td__free(g->base);
    td__free(g);
}

void td_comm_destroy(td_comm *c)
{
    if (!c)
        return;
    td__queue_destroy(c->queue);
    if (c->hooks.detach)
        c->hooks.detach(c->hooks.user);
    td__crossed_end(c);
    while (c->regions) {
        td__region *g = c->regions;
        c->regions = g->next;
        release_region(g);
    }
    td__mesh_destroy(c->ctx.hosts);
    td__mesh_destroy(c->ctx.local);
    td__mesh_destroy(c->ctx.mesh);
    free_memory(c);
}

void td_comm_abort(td_comm *c, const char *why)
{
    char text[300];

    if (!c)
        return;
    snprintf(text, sizeof text, "rank %d aborted%s%s", c->rank, why ? ": " : "", why ? why : "");
    td__comm_poison_all(c, TD_EABORTED, text);
}

int td_comm_rank(const td_comm *c)
{
    return c->rank;
}

int td_comm_size(const td_comm *c)
{
    return c->size;
}

const char *td_comm_transport(const td_comm *c)
{
    return c->transport;
}

void td_comm_blame(const td_comm *c, double *out)
{
    for (int r = 0; r < c->size; r++)
        out[r] = atomic_load_explicit(&c->blame_s[r], memory_order_relaxed);
}

void td__comm_points(td_comm *c, td__points *p)
{
    c->points = p;
}

void td__comm_set_guard(td_comm *c, td__comm_guard *g)
{
    c->guard = g;
}

td__points *td__comm_points_of(const td_comm *c)
{
    return c->points;
}

void *td__coll_scratch(td__coll_ctx *x, size_t nbytes)
{
    if (nbytes > x->scratch_nbytes || !x->scratch) { /* NULL means out of memory, also for none */
        size_t more = td__align_up(nbytes ? nbytes : 1, 1 << 16);
        void *p = td__alloc_block(more);
        if (!p)
            return NULL;
        td__free_block(x->scratch, x->scratch_nbytes);
        x->scratch = p;
        x->scratch_nbytes = more;
    }
    return x->scratch;
}

const td__region *td__comm_region(const td_comm *c, const void *p, size_t nbytes)
{
    for (const td__region *g = c->regions; g; g = g->next) {
        uintptr_t begin = (uintptr_t)g->mine, at = (uintptr_t)p;
        if (g->mesh && at >= begin && at - begin <= g->nbytes && g->nbytes - (at - begin) >= nbytes)
            return g;
    }
    return NULL;
}

void *const *td__comm_shared(const td_comm *c, const void *p)
{
    const td__region *g = td__comm_region(c, p, 0);
    return g && g->mine == p && g->mesh->size == c->size ? g->base : NULL;
}

/* All ranks of m take part and are waited for: the stall report says who is late. */
static td_status share(td_comm *c, td__mesh *m, size_t nbytes, td__deadline until, void **base,
                       uint64_t *id)
{
    td__comm_reenter(c, td__clock_coarse_ns());
    td__comm_waiting_all(c, m);
    td_status st = m->ops->share(m, nbytes, until, base, id);
    td__comm_leave(c, td__clock_coarse_ns());
    return st;
}

td_status td_comm_alloc(td_comm *c, size_t nbytes, void **out)
{
    if (!c || !out)
        return TD_FAIL(TD_EINVAL, "registered memory: the communicator or out is NULL");
    td__mesh *m = c->ctx.mesh && c->ctx.mesh->ops->share     ? c->ctx.mesh
                  : c->ctx.local && c->ctx.local->ops->share ? c->ctx.local
                                                             : NULL;
    td__coll_call agree = {
        .kind = TD_COLL_BARRIER,
        .count = nbytes,
        .dtype = TD_U8,
        .deadline = td__deadline_in_ms(c->timeout_ms),
        .sequence = ++c->sequence,
    };
    td_status st;

    *out = NULL;
    td__comm_drain(c);
    TD_TRY(td__comm_run(c, &agree)); /* the same size on all ranks */
    td__region *g = td__calloc(1, sizeof *g);
    void **base = td__calloc(m ? (size_t)m->size : 1, sizeof *base);
    if (!g || !base) {
        st = TD_FAIL(TD_ENOMEM, "registered memory of %zu bytes", nbytes);
        goto fail;
    }
    *g = (td__region){.next = c->regions, .mesh = m, .base = base, .nbytes = nbytes};
    if (m) {
        TD_TRY_OR(st, fail, share(c, m, nbytes, agree.deadline, base, &g->id));
        g->mine = base[m->rank];
    } else {
        base[0] = nbytes <= SIZE_MAX - PAGE ? td__alloc_block(nbytes + PAGE) : NULL;
        if (!base[0]) {
            st = TD_FAIL(TD_ENOMEM, "registered memory of %zu bytes", nbytes);
            goto fail;
        }
        g->mine = (char *)base[0] + (PAGE - (uintptr_t)base[0] % PAGE) % PAGE;
    }
    c->regions = g;
    *out = g->mine;
    return TD_OK;
fail:
    td__free(base);
    td__free(g);
    return td__comm_failed(c, st); /* the others may have theirs */
}

void td_comm_free(td_comm *c, void *p)
{
    if (!c)
        return;
    td__comm_drain(c);
    for (td__region **at = &c->regions; p && *at; at = &(*at)->next) {
        td__region *g = *at;
        if (g->mine == p) {
            *at = g->next;
            release_region(g);
            return;
        }
    }
}

/* ---- Asked by the layers above --------------------------------------------------------------- */

const int *td__comm_host_of(const td_comm *c)
{
    return c->host_of;
}

uint32_t td__comm_timeout_ms(const td_comm *c)
{
    return c->timeout_ms;
}

void td__comm_keep_vigil(td_comm *c)
{
    atomic_store(&c->vigil, TD_VIGIL_CALLS);
}

void td__comm_await(td_comm *c, bool begins)
{
    atomic_store(&c->vigil, begins ? td__clock_ns() : TD_VIGIL_NONE);
}

bool td__comm_unanswered(td_comm *c)
{
    return atomic_load(&c->unanswered);
}

const char *td__comm_engine(const td_comm *c)
{
    return c->engine;
}

bool td__comm_tls(const td_comm *c)
{
    return c->tls;
}

bool td__comm_names_algo(const td_comm *c)
{
    return c->algo[0] != '\0';
}

bool td__comm_shares(const td_comm *c)
{
    return c->ctx.mesh && c->ctx.mesh->ops->share;
}

void td__comm_set_patient(td_comm *c, bool patient)
{
    td__mesh *const meshes[] = {c->ctx.mesh, c->ctx.local, c->ctx.hosts};
    for (int i = 0; i < TD_LEN(meshes); i++)
        if (meshes[i])
            atomic_store_explicit(&meshes[i]->patient, patient, memory_order_relaxed);
}

bool td__comm_can(const td_comm *c, const td__algo *algo, const td__coll_call *call)
{
    return algo->kind == call->kind && algo->can(&c->ctx, call);
}
