/* mesh_inproc.c -- ranks as threads of one process.
 *
 * Every rank has a port: for each peer a queue of transfers that wait for their other half, either
 * sends to this rank or receives of this rank, never both. Who comes second takes the waiting half
 * out, copies from buffer to buffer, and puts the other's half on the list of its completed
 * transfers, which its own thread marks done: `done` belongs to one thread.
 *
 *     sender s                port of d                    receiver d
 *     send -> lock, queue[s] is empty or holds sends: append
 *                             ... later ...                recv -> lock, takes the send, unlocks,
 *     completed <- push  <---------------------------------  copies; own half is done at once
 *     bell rings
 *
 * A message of at most TOKEN bytes does not wait for its receiver, as between processes: a copy of
 * it does (`token`), which the port has again when it was taken. While a port has none to spare,
 * short messages wait like others.
 *
 * A rank that fails gives its buffers back to its caller, so it first takes its own halves out of
 * all queues and waits for copies that others have begun (`busy`).
 *
 * Locks     port.lock protects the queues of the port; one is held at a time. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "net/mesh_inproc.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/cpu.h"
#include "base/fail.h"
#include "net/backoff.h"
#include "net/poison.h"

enum { PAGE = 4096, TOKEN = 8, TOKENS = 256 }; /* bytes of one; of a port */

typedef struct queue {
    td__xfer *head, **tail;
} queue;

typedef struct token {
    td__xfer x; /* its data are the bytes, moved is SIZE_MAX */
    char bytes[TOKEN];
} token;

typedef struct port {
    pthread_mutex_t lock;
    queue *from;      /* (size) by the other rank */
    td__xfer *idle;   /* tokens to be used (again): steps allocate nothing */
    atomic_bool left; /* destroyed while healthy */
    _Atomic(td__xfer *) completed;
    atomic_int busy; /* copies by others that touch this rank's buffers */
    _Atomic uint32_t bell, sleepers;
    td__poison poison;
} port;

typedef struct region {
    void *memory;
    size_t nbytes, each;
    uint64_t id;
    int users;
    struct region *next;
} region;

typedef struct world {
    int size;
    bool crowded;
    atomic_int refs;
    port *ports;
    queue *queues;
    token *tokens;                    /* (size, TOKENS) */
    _Atomic uint32_t met, generation; /* the barrier: ranks that came, how often it opened */
    pthread_mutex_t lock;             /* protects regions */
    region *regions;
    size_t *want; /* (size) bytes asked for in the share() under way */
    uint64_t last_id;
} world;

typedef struct inproc {
    td__mesh base;
    world *w;
    port *port;
} inproc;

static void queue_init(queue *q)
{
    q->head = NULL;
    q->tail = &q->head;
}

static void queue_push(queue *q, td__xfer *x)
{
    x->next = NULL;
    *q->tail = x;
    q->tail = &x->next;
}

static td__xfer *queue_pop(queue *q)
{
    td__xfer *x = q->head;
    q->head = x->next;
    if (!q->head)
        q->tail = &q->head;
    return x;
}

static void ring(port *p)
{
    atomic_fetch_add(&p->bell, 1);
    if (atomic_load(&p->sleepers))
        td__futex_wake(&p->bell, false);
}

static void fail_rank(world *w, int rank, td_status st, const char *text)
{
    if (td__poison_set(&w->ports[rank].poison, st, text))
        ring(&w->ports[rank]);
}

/* The failed rank itself, with its own status, and then all others, for whom it is a lost peer. */
static void fail_world(world *w, int rank, td_status st, const char *text)
{
    char lost[300];

    fail_rank(w, rank, st, text);
    snprintf(lost, sizeof lost, "inproc: rank %d failed: %s", rank, text);
    for (int r = 0; r < w->size; r++)
        if (r != rank)
            fail_rank(w, r, TD_EPEER, lost);
}

static bool is_token(const td__xfer *x)
{
    return x->moved == SIZE_MAX;
}

/* Take the transfers of `rank` out of one of its own queues, or out of the queue of sends to a
 * peer, where what was sent stays. */
static void queue_clear(port *p, queue *q, bool sends)
{
    pthread_mutex_lock(&p->lock);
    td__xfer *x = q->head, *next;
    bool ours = x && x->is_send == sends;
    if (ours)
        queue_init(q);
    for (; ours && x; x = next) {
        next = x->next;
        if (is_token(x))
            queue_push(q, x);
    }
    pthread_mutex_unlock(&p->lock);
}

/* Does a sender wait for this rank? With the port's lock. */
static bool has_sender(const queue *q)
{
    const td__xfer *x = q->head;
    while (x && is_token(x))
        x = x->next;
    return x && x->is_send;
}

/* A copy of a short message waits in its place. With the port's lock. */
static bool leave_token(port *at, queue *q, td__xfer *x)
{
    token *t = (token *)at->idle;
    if (x->nbytes > TOKEN || !t)
        return false;
    at->idle = t->x.next;
    t->x = (td__xfer){.data = t->bytes,
                      .nbytes = x->nbytes,
                      .tag = x->tag,
                      .peer = x->peer,
                      .is_send = true,
                      .moved = SIZE_MAX};
    if (x->nbytes)
        memcpy(t->bytes, x->data, x->nbytes);
    queue_push(q, &t->x);
    x->done = true;
    return true;
}

static void give_token(port *at, td__xfer *x)
{
    pthread_mutex_lock(&at->lock);
    x->next = at->idle;
    at->idle = x;
    pthread_mutex_unlock(&at->lock);
}

static void withdraw(inproc *m)
{
    world *w = m->w;

    for (int r = 0; r < w->size; r++) {
        queue_clear(m->port, &m->port->from[r], false);
        queue_clear(&w->ports[r], &w->ports[r].from[m->base.rank], true);
    }
    while (atomic_load(&m->port->busy))
        sched_yield();
    atomic_store(&m->port->completed, NULL);
}

static td_status check_alive(inproc *m)
{
    if (!td__poison_is_set(&m->port->poison))
        return TD_OK;
    withdraw(m);
    return td__poison_check(&m->port->poison);
}

/* The second half of a transfer meets the first: copy, or fail both ranks. */
static bool meet_halves(world *w, int sender, const td__xfer *send, int receiver,
                        const td__xfer *recv)
{
    if (send->nbytes == recv->nbytes && send->tag == recv->tag) {
        if (send->nbytes)
            memcpy(recv->data, send->data, send->nbytes);
        return true;
    }
    char text[200];
    snprintf(text, sizeof text,
             "inproc: rank %d sends %zu bytes with tag %u, rank %d receives %zu bytes with tag %u",
             sender, send->nbytes, send->tag, receiver, recv->nbytes, recv->tag);
    fail_rank(w, sender, TD_EMISMATCH, text);
    fail_world(w, receiver, TD_EMISMATCH, text);
    return false;
}

static void complete(port *p, td__xfer *x)
{
    td__xfer *head = atomic_load_explicit(&p->completed, memory_order_relaxed);
    do
        x->next = head;
    while (!atomic_compare_exchange_weak_explicit(&p->completed, &head, x, memory_order_release,
                                                  memory_order_relaxed));
    ring(p);
}

/* Both directions: `at` is the port of the receiver, where halves wait. */
static td_status post(inproc *m, td__xfer *x, port *at, queue *q)
{
    world *w = m->w;
    port *theirs = &w->ports[x->peer];
    td__xfer *other = NULL;

    TD_TRY(check_alive(m));
    x->moved = 0;
    pthread_mutex_lock(&at->lock);
    bool left = atomic_load(&theirs->left);
    if (q->head && q->head->is_send != x->is_send) {
        other = queue_pop(q);
        atomic_fetch_add(&theirs->busy, 1);
    } else if (!left && !(x->is_send && leave_token(at, q, x))) {
        queue_push(q, x);
    }
    pthread_mutex_unlock(&at->lock);
    if (other) {
        bool short_one = is_token(other); /* a completed half may be gone at once */
        if (x->is_send ? meet_halves(w, m->base.rank, x, x->peer, other)
                       : meet_halves(w, x->peer, other, m->base.rank, x)) {
            x->done = true;
            if (!short_one)
                complete(theirs, other);
        }
        if (short_one)
            give_token(at, other);
        atomic_fetch_sub(&theirs->busy, 1);
        return x->done ? TD_OK : check_alive(m);
    }
    if (left) {
        char text[100];
        snprintf(text, sizeof text, "inproc: rank %d has left", x->peer);
        fail_world(w, m->base.rank, TD_EPEER, text);
        return check_alive(m);
    }
    return TD_OK;
}

static td_status inproc_send(td__mesh *mesh, td__xfer *x)
{
    inproc *m = (inproc *)mesh;
    port *at = &m->w->ports[x->peer];
    return post(m, x, at, &at->from[mesh->rank]);
}

static td_status inproc_recv(td__mesh *mesh, td__xfer *x)
{
    inproc *m = (inproc *)mesh;
    return post(m, x, m->port, &m->port->from[x->peer]);
}

static bool drain(inproc *m)
{
    td__xfer *x = atomic_exchange_explicit(&m->port->completed, NULL, memory_order_acquire);
    bool any = x != NULL;

    while (x) {
        td__xfer *next = x->next; /* the owner may reuse x as soon as it is done */
        x->done = true;
        x = next;
    }
    return any;
}

/* Spin, yield, then sleep until the bell has rung since `seen`. */
static void pause_until_rung(port *p, td__backoff *b, uint32_t seen, td__deadline until)
{
    if (td__backoff_pause(b))
        return;
    atomic_fetch_add(&p->sleepers, 1);
    td__futex_wait(&p->bell, seen, until, false);
    atomic_fetch_sub(&p->sleepers, 1);
}

static td_status inproc_progress(td__mesh *mesh, td__deadline until)
{
    inproc *m = (inproc *)mesh;
    td__backoff b = td__backoff_start(m->w->crowded);

    for (;;) {
        uint32_t seen = atomic_load(&m->port->bell);
        TD_TRY(check_alive(m));
        if (drain(m) || td__deadline_passed(until))
            return TD_OK;
        pause_until_rung(m->port, &b, seen, until);
    }
}

static void inproc_interrupt(td__mesh *mesh, td_status st, const char *text)
{
    inproc *m = (inproc *)mesh;
    fail_world(m->w, mesh->rank, st, text);
}

static td_status inproc_meet(td__mesh *mesh, td__deadline until)
{
    inproc *m = (inproc *)mesh;
    world *w = m->w;
    td__backoff b = td__backoff_start(w->crowded);
    uint32_t generation = atomic_load(&w->generation);

    TD_TRY(check_alive(m));
    if (atomic_fetch_add(&w->met, 1) + 1 == (uint32_t)w->size) {
        atomic_store(&w->met, 0);
        atomic_fetch_add(&w->generation, 1);
        for (int r = 0; r < w->size; r++)
            if (r != mesh->rank)
                ring(&w->ports[r]);
        return TD_OK;
    }
    for (;;) {
        uint32_t seen = atomic_load(&m->port->bell);
        if (atomic_load(&w->generation) != generation)
            return TD_OK;
        TD_TRY(check_alive(m));
        if (td__deadline_passed(until)) {
            char text[100];
            snprintf(text, sizeof text, "inproc: rank %d timed out waiting for all ranks to meet",
                     mesh->rank);
            fail_world(w, mesh->rank, TD_ETIMEDOUT, text);
            return check_alive(m);
        }
        pause_until_rung(m->port, &b, seen, until);
    }
}

/* Rank 0 makes the memory for all, between two meetings. */
static td_status make_region(world *w, size_t nbytes)
{
    size_t each = td__align_up(nbytes ? nbytes : 1, PAGE), all;

    for (int r = 0; r < w->size; r++)
        if (w->want[r] != nbytes)
            return TD_FAIL(TD_EMISMATCH,
                           "inproc: rank 0 shares %zu bytes, rank %d %zu; all ranks must agree",
                           nbytes, r, w->want[r]);
    region *g = td__calloc(1, sizeof *g);
    if (!g || each < nbytes || !td__size_mul(each, (size_t)w->size, &all) ||
        !td__size_add(all, PAGE, &all) || !(g->memory = td__alloc_block(all))) {
        td__free(g);
        return TD_FAIL(TD_ENOMEM, "inproc: sharing %zu bytes on each of %d ranks", nbytes, w->size);
    }
    g->nbytes = all;
    g->each = each;
    g->users = w->size;
    pthread_mutex_lock(&w->lock);
    g->id = ++w->last_id;
    g->next = w->regions;
    w->regions = g;
    pthread_mutex_unlock(&w->lock);
    return TD_OK;
}

static td_status inproc_share(td__mesh *mesh, size_t nbytes, td__deadline until, void **base,
                              uint64_t *id)
{
    inproc *m = (inproc *)mesh;
    world *w = m->w;

    w->want[mesh->rank] = nbytes;
    TD_TRY(inproc_meet(mesh, until));
    if (mesh->rank == 0) {
        td_status st = make_region(w, nbytes);
        if (st) {
            fail_world(w, 0, st, td_last_error());
            return check_alive(m);
        }
    }
    TD_TRY(inproc_meet(mesh, until));
    pthread_mutex_lock(&w->lock);
    const region *g = w->regions;
    *id = g->id;
    char *first = (char *)g->memory + (PAGE - (uintptr_t)g->memory % PAGE) % PAGE;
    for (int r = 0; r < w->size; r++)
        base[r] = first + g->each * (size_t)r;
    pthread_mutex_unlock(&w->lock);
    return inproc_meet(mesh, until); /* the next share() must not overtake a reader */
}

static void inproc_unshare(td__mesh *mesh, uint64_t id)
{
    world *w = ((inproc *)mesh)->w;
    region *gone = NULL;

    pthread_mutex_lock(&w->lock);
    for (region **at = &w->regions; *at; at = &(*at)->next) {
        if ((*at)->id == id) {
            if (--(*at)->users == 0) {
                gone = *at;
                *at = gone->next;
            }
            break;
        }
    }
    pthread_mutex_unlock(&w->lock);
    if (gone) {
        td__free_block(gone->memory, gone->nbytes);
        td__free(gone);
    }
}

static void world_release(world *w)
{
    if (atomic_fetch_sub(&w->refs, 1) != 1)
        return;
    while (w->regions) {
        region *g = w->regions;
        w->regions = g->next;
        td__free_block(g->memory, g->nbytes);
        td__free(g);
    }
    for (int r = 0; w->ports && r < w->size; r++)
        pthread_mutex_destroy(&w->ports[r].lock);
    pthread_mutex_destroy(&w->lock);
    td__free(w->ports);
    td__free(w->queues);
    td__free(w->tokens);
    td__free(w->want);
    td__free(w);
}

/* Transfers that still wait for a rank that leaves fail. */
static void leave(inproc *m)
{
    world *w = m->w;
    char text[100];

    snprintf(text, sizeof text, "inproc: rank %d has left", m->base.rank);
    atomic_store(&m->port->left, true); /* before looking: later halves are refused */
    for (int r = 0; r < w->size; r++) {
        port *theirs = &w->ports[r];
        pthread_mutex_lock(&theirs->lock);
        const td__xfer *waits = theirs->from[m->base.rank].head;
        bool stranded = waits && !waits->is_send;
        pthread_mutex_unlock(&theirs->lock);
        pthread_mutex_lock(&m->port->lock);
        stranded = stranded || has_sender(&m->port->from[r]);
        pthread_mutex_unlock(&m->port->lock);
        if (stranded)
            fail_world(w, r, TD_EPEER, text);
    }
}

static void inproc_destroy(td__mesh *mesh)
{
    inproc *m = (inproc *)mesh;

    withdraw(m);
    leave(m);
    world_release(m->w);
    td__free(m);
}

static const td__mesh_ops OPS = {
    .name = "inproc",
    .destroy = inproc_destroy,
    .send = inproc_send,
    .recv = inproc_recv,
    .progress = inproc_progress,
    .interrupt = inproc_interrupt,
    .share = inproc_share,
    .unshare = inproc_unshare,
    .meet = inproc_meet,
};

static td_status world_create(int size, world **out)
{
    size_t n = (size_t)size;
    world *w = td__calloc(1, sizeof *w);

    if (!w)
        return TD_FAIL(TD_ENOMEM, "inproc: a world of %d ranks", size);
    w->size = size;
    w->crowded = size > td__processors();
    atomic_init(&w->refs, 1);
    pthread_mutex_init(&w->lock, NULL);
    w->ports = td__calloc(n, sizeof *w->ports);
    w->queues = td__calloc(n * n, sizeof *w->queues);
    w->tokens = td__calloc(n * TOKENS, sizeof *w->tokens);
    w->want = td__calloc(n, sizeof *w->want);
    for (int r = 0; w->ports && r < size; r++) {
        pthread_mutex_init(&w->ports[r].lock, NULL);
        w->ports[r].from = w->queues ? w->queues + (size_t)r * n : NULL;
        for (int s = 0; w->queues && s < size; s++)
            queue_init(&w->ports[r].from[s]);
        for (int i = 0; w->tokens && i < TOKENS; i++)
            give_token(&w->ports[r], &w->tokens[r * TOKENS + i].x);
    }
    if (!w->ports || !w->queues || !w->tokens || !w->want) {
        world_release(w);
        return TD_FAIL(TD_ENOMEM, "inproc: a world of %d ranks", size);
    }
    *out = w;
    return TD_OK;
}

td_status td__mesh_inproc_create(int size, td__mesh **out)
{
    enum { MOST = 4096 };
    world *w = NULL;

    if (size < 1 || size > MOST)
        return TD_FAIL(TD_EINVAL, "inproc: %d ranks; expected 1 to %d", size, MOST);
    for (int r = 0; r < size; r++)
        out[r] = NULL;
    TD_TRY(world_create(size, &w));
    for (int r = 0; r < size; r++) {
        inproc *m = td__calloc(1, sizeof *m);
        if (!m) {
            for (int i = 0; i < r; i++) {
                td__mesh_destroy(out[i]);
                out[i] = NULL;
            }
            world_release(w);
            return TD_FAIL(TD_ENOMEM, "inproc: rank %d of %d", r, size);
        }
        m->base = (td__mesh){.ops = &OPS, .rank = r, .size = size, .alpha = 1e-6, .beta = 1e-10};
        m->w = w;
        m->port = &w->ports[r];
        atomic_fetch_add(&w->refs, 1);
        out[r] = &m->base;
    }
    world_release(w);
    return TD_OK;
}
