/* mpi_mesh.c -- messages of a mesh, carried by MPI.
 *
 * Sends go out at once, in pieces of at most 1 GB. A receive is matched here, not by MPI: progress
 * probes each peer for the next message, compares its size and tag with the receive at the head of
 * that peer's queue, and only then lets MPI move the bytes into the buffer. So a mismatch is found
 * before any byte is written, and both sides can be named. MPI keeps messages between two ranks in
 * order, which is all that a mesh promises.
 *
 * MPI cannot tell that a peer died (its launcher ends the job instead), and has no deadline: every
 * wait is a loop of MPI_Test with ours. After a failure MPI is not finalised but aborted at exit,
 * since requests in flight may still touch memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/mpi_mesh.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/config.h"
#include "base/cpu.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/module.h"
#include "net/backoff.h"
#include "net/poison.h"

#define PIECE ((size_t)1 << 30)

/* A piece under way. */
typedef struct flight {
    struct flight *next;
    td__xfer *x;
    void *request;
    size_t nbytes;
} flight;

typedef struct queue {
    td__xfer *head, **tail;
} queue;

typedef struct mpi_mesh {
    td__mesh base;
    const td__mpi_api *api;
    void *comm;
    uint32_t mask;
    queue *from;  /* (size) receives without a message yet, by peer */
    int waiting;  /* receives in all queues */
    flight *fly;  /* pieces that MPI is moving */
    flight *idle; /* to be used again: steps allocate nothing */
    td__poison poison;
} mpi_mesh;

static const td__mesh_ops OPS;

/* ---- The module ----------------------------------------------------------------------------- */

static td_status load_module(const td__mpi_api **out)
{
    const char *file =
        td__env_get(TD_ENV_OMPI_RANK) ? "libtandem_openmpi.so" : "libtandem_mpich.so";
    td__mpi_entry *entry;
    void *found;

    if (td__module_open(file, TD_MPI_ENTRY, &found)) {
        char why[1400];
        snprintf(why, sizeof why, "%s", td_last_error());
        return TD_FAIL(TD_ENOTSUP,
                       "mpi: %s; build it with that MPI's development package, or set "
                       "TANDEM_MODULES or TANDEM_ENGINE=native",
                       why);
    }
    *(void **)&entry = found;
    const td__mpi_api *api = entry();
    if (!api || api->abi != TD_MPI_ABI)
        return TD_FAIL(TD_ENOTSUP, "mpi: %s was built for another version of Tandem", file);
    TD_LOG(DEBUG, COLL, "mpi: %s, %s", file, api->name);
    *out = api;
    return TD_OK;
}

/* ---- Failing -------------------------------------------------------------------------------- */

static td_status fail(mpi_mesh *m, td_status st, const char *text)
{
    if (td__poison_set(&m->poison, st, text))
        m->api->failed();
    return td__poison_check(&m->poison);
}

static td_status mpi_failed(mpi_mesh *m, const char *text)
{
    char line[TD_MPI_TEXT + 64];
    snprintf(line, sizeof line, "mpi: rank %d: %s", m->base.rank, text);
    return fail(m, TD_EPEER, line);
}

/* ---- Messages ------------------------------------------------------------------------------- */

static td_status take_flight(mpi_mesh *m, td__xfer *x, void *request, size_t nbytes)
{
    flight *f = m->idle;
    if (f)
        m->idle = f->next;
    else
        f = td__malloc(sizeof *f);
    if (!f) {
        m->api->forget(request);
        return fail(m, TD_ENOMEM, "mpi: no memory for a transfer");
    }
    *f = (flight){.next = m->fly, .x = x, .request = request, .nbytes = nbytes};
    m->fly = f;
    return TD_OK;
}

static size_t piece_of(const td__xfer *x, size_t begun)
{
    return x->nbytes - begun < PIECE ? x->nbytes - begun : PIECE;
}

static td_status mpi_send(td__mesh *mesh, td__xfer *x)
{
    mpi_mesh *m = (mpi_mesh *)mesh;
    char text[TD_MPI_TEXT];
    size_t begun = 0;

    TD_TRY(td__poison_check(&m->poison));
    do { /* an empty message is sent too */
        size_t n = piece_of(x, begun);
        void *request;
        if (m->api->send(m->comm, (const char *)x->data + begun, n, x->peer, x->tag & m->mask,
                         &request, text))
            return mpi_failed(m, text);
        TD_TRY(take_flight(m, x, request, n));
        begun += n;
    } while (begun < x->nbytes);
    return TD_OK;
}

static td_status mpi_recv(td__mesh *mesh, td__xfer *x)
{
    mpi_mesh *m = (mpi_mesh *)mesh;
    queue *q = &m->from[x->peer];

    TD_TRY(td__poison_check(&m->poison));
    x->next = NULL;
    x->moved = 0;
    *q->tail = x;
    q->tail = &x->next;
    m->waiting++;
    return TD_OK;
}

/* The pieces of one message follow each other, so a queue's head is received whole before the next
 * one is matched. `next_piece` counts the bytes that MPI was told to receive. */
static td_status match(mpi_mesh *m, int peer, bool *any)
{
    queue *q = &m->from[peer];
    char text[TD_MPI_TEXT];

    while (q->head) {
        td__xfer *x = q->head;
        bool found;
        size_t nbytes;
        uint32_t tag;
        void *message, *request;

        if (m->api->probe(m->comm, peer, &found, &nbytes, &tag, &message, text))
            return mpi_failed(m, text);
        if (!found)
            return TD_OK;
        size_t want = piece_of(x, x->moved);
        if (nbytes != want || tag != (x->tag & m->mask)) {
            char line[200];
            snprintf(line, sizeof line,
                     "mpi: rank %d sends %zu bytes with tag %u, rank %d receives %zu bytes with "
                     "tag %u",
                     peer, nbytes, tag, m->base.rank, want, x->tag & m->mask);
            return fail(m, TD_EMISMATCH, line);
        }
        if (m->api->recv(message, (char *)x->data + x->moved, nbytes, &request, text))
            return mpi_failed(m, text);
        x->moved += nbytes;
        if (x->moved == x->nbytes) { /* all pieces are on their way */
            q->head = x->next;
            if (!q->head)
                q->tail = &q->head;
            m->waiting--;
            x->moved = 0;
        }
        TD_TRY(take_flight(m, x, request, nbytes));
        *any = true;
    }
    return TD_OK;
}

/* A transfer is done when no piece of it flies and, for a receive, none is still to come. */
static bool flies(const mpi_mesh *m, const td__xfer *x)
{
    for (const flight *f = m->fly; f; f = f->next)
        if (f->x == x)
            return true;
    return !x->is_send && m->from[x->peer].head == x;
}

static td_status land(mpi_mesh *m, bool *any)
{
    char text[TD_MPI_TEXT];

    for (flight **at = &m->fly; *at;) {
        flight *f = *at;
        bool done;
        if (m->api->test(f->request, &done, text))
            return mpi_failed(m, text);
        if (!done) {
            at = &f->next;
            continue;
        }
        *at = f->next;
        f->next = m->idle;
        m->idle = f;
        *any = true;
        if (f->nbytes == f->x->nbytes || !flies(m, f->x))
            f->x->done = true;
    }
    return TD_OK;
}

static td_status mpi_progress(td__mesh *mesh, td__deadline until)
{
    mpi_mesh *m = (mpi_mesh *)mesh;
    /* MPI has no way to sleep until something happens: yielding is all there is. */
    td__backoff b = td__backoff_start(mesh->size > td__processors());

    for (;;) {
        bool any = false;
        TD_TRY(td__poison_check(&m->poison));
        TD_TRY(land(m, &any));
        for (int r = 0; m->waiting && r < mesh->size; r++)
            TD_TRY(match(m, r, &any));
        if (any || td__deadline_passed(until))
            return TD_OK;
        if (!td__backoff_pause(&b))
            b = td__backoff_start(true);
    }
}

static void mpi_interrupt(td__mesh *mesh, td_status st, const char *text)
{
    mpi_mesh *m = (mpi_mesh *)mesh;
    if (td__poison_set(&m->poison, st, text))
        m->api->failed();
}

static void mpi_destroy(td__mesh *mesh)
{
    mpi_mesh *m = (mpi_mesh *)mesh;

    for (flight *f = m->fly, *next; f; f = next) {
        next = f->next;
        m->api->forget(f->request);
        td__free(f);
    }
    for (flight *f = m->idle, *next; f; f = next) {
        next = f->next;
        td__free(f);
    }
    if (m->comm)
        m->api->comm_free(m->comm);
    td__free(m->from);
    td__free(m);
}

static const td__mesh_ops OPS = {
    .name = "mpi",
    .destroy = mpi_destroy,
    .send = mpi_send,
    .recv = mpi_recv,
    .progress = mpi_progress,
    .interrupt = mpi_interrupt,
};

/* ---- Making one ----------------------------------------------------------------------------- */

static td_status make(const td__mpi_api *api, void *parent, const int *ranks, int n, int tag,
                      int rank, td__mesh **out)
{
    char text[TD_MPI_TEXT];
    mpi_mesh *m = td__calloc(1, sizeof *m);

    if (!m)
        return TD_FAIL(TD_ENOMEM, "mpi: no memory for a mesh");
    m->base = (td__mesh){.ops = &OPS, .rank = rank, .size = n};
    m->api = api;
    m->from = td__calloc((size_t)n, sizeof *m->from);
    if (!m->from) {
        mpi_destroy(&m->base);
        return TD_FAIL(TD_ENOMEM, "mpi: no memory for %d peers", n);
    }
    for (int r = 0; r < n; r++)
        m->from[r].tail = &m->from[r].head;
    if (api->comm_create(parent, ranks, n, tag, &m->comm, text)) {
        mpi_destroy(&m->base);
        return TD_FAIL(TD_EPEER, "mpi: rank %d: %s", rank, text);
    }
    m->mask = api->tag_mask(m->comm);
    *out = &m->base;
    return TD_OK;
}

td_status td__mesh_mpi_world(td__mesh **out)
{
    const td__mpi_api *api;
    char text[TD_MPI_TEXT];
    int rank, size;

    *out = NULL;
    TD_TRY(load_module(&api));
    if (api->init(&rank, &size, text))
        return TD_FAIL(TD_EPEER, "mpi: %s", text);
    return make(api, NULL, NULL, size, 0, rank, out);
}

td_status td__mesh_mpi_split(td__mesh *parent, const int *ranks, int n, const char *key,
                             td__mesh **out)
{
    mpi_mesh *m = (mpi_mesh *)parent;
    uint32_t tag = 2166136261u; /* FNV-1a of the key */
    int me = -1;

    *out = NULL;
    for (const char *c = key; *c; c++)
        tag = (tag ^ (uint8_t)*c) * 16777619u;
    for (int i = 0; i < n; i++)
        if (ranks[i] == parent->rank)
            me = i;
    TD_ASSERT(me >= 0, "rank %d is not in its own group", parent->rank);
    TD_TRY(td__poison_check(&m->poison));
    return make(m->api, m->comm, ranks, n, (int)(tag & m->mask), me, out);
}

/* ---- Collectives of MPI's own ---------------------------------------------------------------- */

bool td__mesh_is_mpi(const td__mesh *m)
{
    return m && m->ops == &OPS;
}

td_status td__mesh_mpi_collective(td__mesh *mesh, const td__mpi_call *call, td__deadline until)
{
    mpi_mesh *m = (mpi_mesh *)mesh;
    td__backoff b = td__backoff_start(mesh->size > td__processors());
    char text[TD_MPI_TEXT];
    void *request;
    bool done = false;

    TD_TRY(td__poison_check(&m->poison));
    if (m->api->start(m->comm, call, &request, text))
        return mpi_failed(m, text);
    for (;;) {
        if (m->api->test(request, &done, text))
            return mpi_failed(m, text);
        if (done)
            return TD_OK;
        if (td__deadline_passed(until))
            mpi_interrupt(mesh, TD_ETIMEDOUT, "mpi: the deadline of a collective of MPI passed");
        if (td__poison_is_set(&m->poison)) {
            m->api->forget(request);
            return td__poison_check(&m->poison);
        }
        if (!td__backoff_pause(&b))
            b = td__backoff_start(true);
    }
}
