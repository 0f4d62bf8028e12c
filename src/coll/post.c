/* post.c -- see post.h. The thread takes what is queued, and moves the mesh on for a millisecond at
 * most before it looks at the queue again: no call of a mesh wakes its progress. Of every other
 * rank it awaits a head, then the bytes that the head announces. A rank that closes sends a last
 * message, after which nothing is awaited from it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/post.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/deadline.h"
#include "base/fail.h"
#include "coll/comm_impl.h"

enum { TAG_HEAD = 0x70057001, TAG_BYTES, LAST = TD__POST_KINDS, LOOK_MS = 1 };

struct td__post_bytes {
    atomic_int refs;
    size_t nbytes;
    _Alignas(64) unsigned char data[];
};

typedef struct letter {
    struct letter *next;
    int to;
    bool started;
    td__post_head head;
    td__post_bytes *bytes;
    td__xfer xfer[2];
} letter;

/* What comes from one rank. */
typedef struct box {
    td__post_head head;
    td__post_bytes *bytes; /* NULL: the head is awaited */
    td__xfer xfer;
    bool open;
} box;

struct td__post {
    td_comm *comm; /* owned */
    int rank, size;
    td__post_fn *fn;
    void *user;
    box *boxes; /* (size) the thread's */
    int open;   /* boxes; the thread's */
    pthread_t thread;
    bool started;

    pthread_mutex_t queue_lock; /* protects what follows; taken last */
    letter *first, *last;
    bool closing;

    pthread_mutex_t lock; /* protects failed, text, done and what is the owner's */
    pthread_cond_t changed;
    td_status failed;
    char text[512];
    bool done; /* all that was sent has gone, and all others have closed */
    atomic_bool abort;
};

/* ---- Bytes ----------------------------------------------------------------------------------- */

td__post_bytes *td__post_bytes_create(size_t nbytes)
{
    td__post_bytes *b = td__alloc_block(sizeof *b + nbytes);
    if (b) {
        atomic_init(&b->refs, 1);
        b->nbytes = nbytes;
    }
    return b;
}

void td__post_bytes_retain(td__post_bytes *b)
{
    atomic_fetch_add(&b->refs, 1);
}

void td__post_bytes_release(td__post_bytes *b)
{
    if (b && atomic_fetch_sub(&b->refs, 1) == 1)
        td__free_block(b, sizeof *b + b->nbytes);
}

void *td__post_bytes_data(td__post_bytes *b)
{
    return b->data;
}

size_t td__post_bytes_size(const td__post_bytes *b)
{
    return b->nbytes;
}

/* ---- The thread ------------------------------------------------------------------------------ */

static void free_letter(letter *l)
{
    td__post_bytes_release(l->bytes);
    td__free(l);
}

static td_status await_head(td__post *p, int from)
{
    box *b = &p->boxes[from];
    td__post_bytes_release(b->bytes);
    b->bytes = NULL;
    return td__mesh_recv(p->comm->ctx.mesh, &b->xfer, from, TAG_HEAD, &b->head, sizeof b->head);
}

/* Letters that are queued are begun, in order; those that have gone are forgotten. */
static td_status move_letters(td__post *p)
{
    td__mesh *m = p->comm->ctx.mesh;
    pthread_mutex_lock(&p->queue_lock);
    letter *l = p->first;
    pthread_mutex_unlock(&p->queue_lock);
    while (l) { /* only this thread takes letters away, and others add at the end alone */
        if (!l->started) {
            TD_TRY(td__mesh_send(m, &l->xfer[0], l->to, TAG_HEAD, &l->head, sizeof l->head));
            if (l->bytes)
                TD_TRY(td__mesh_send(m, &l->xfer[1], l->to, TAG_BYTES, l->bytes->data,
                                     l->bytes->nbytes));
            else
                l->xfer[1].done = true;
            l->started = true;
        }
        pthread_mutex_lock(&p->queue_lock);
        letter *next = l->next;
        pthread_mutex_unlock(&p->queue_lock);
        l = next;
    }
    pthread_mutex_lock(&p->queue_lock);
    while (p->first && p->first->started && p->first->xfer[0].done && p->first->xfer[1].done) {
        letter *gone = p->first;
        p->first = gone->next;
        p->last = p->first ? p->last : NULL;
        free_letter(gone);
    }
    pthread_mutex_unlock(&p->queue_lock);
    return TD_OK;
}

static td_status hand_over(td__post *p, int from)
{
    box *b = &p->boxes[from];
    pthread_mutex_lock(&p->lock);
    td_status st = p->fn(p->user, from, &b->head, b->bytes);
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    TD_TRY(st);
    return await_head(p, from);
}

static td_status look_in(td__post *p, int from)
{
    box *b = &p->boxes[from];
    if (b->bytes)
        return hand_over(p, from);
    if (b->head.kind == LAST) {
        b->open = false;
        p->open--;
        return TD_OK;
    }
    if (b->head.kind > LAST || b->head.nbytes > PTRDIFF_MAX / 2)
        return TD_FAIL(TD_EPROTO, "a message of kind %u and %llu bytes from rank %d", b->head.kind,
                       (unsigned long long)b->head.nbytes, from);
    if (!b->head.nbytes)
        return hand_over(p, from);
    b->bytes = td__post_bytes_create((size_t)b->head.nbytes);
    if (!b->bytes)
        return TD_FAIL(TD_ENOMEM, "no memory for a message of %llu bytes from rank %d",
                       (unsigned long long)b->head.nbytes, from);
    return td__mesh_recv(p->comm->ctx.mesh, &b->xfer, from, TAG_BYTES, b->bytes->data,
                         b->bytes->nbytes);
}

static bool all_gone(td__post *p)
{
    pthread_mutex_lock(&p->queue_lock);
    bool gone = p->closing && !p->first;
    pthread_mutex_unlock(&p->queue_lock);
    return gone && !p->open;
}

static td_status drive(td__post *p)
{
    td__mesh *m = p->comm->ctx.mesh;
    for (int r = 0; r < p->size; r++)
        if (r != p->rank)
            TD_TRY(await_head(p, r));
    while (!all_gone(p)) {
        if (atomic_load(&p->abort))
            return TD_FAIL(TD_EABORTED, "aborted");
        TD_TRY(td__comm_cause(p->comm));
        TD_TRY(move_letters(p));
        TD_TRY(m->ops->progress(m, td__deadline_in_ms(LOOK_MS)));
        for (int r = 0; r < p->size; r++)
            while (p->boxes[r].open && p->boxes[r].xfer.done)
                TD_TRY(look_in(p, r));
    }
    return TD_OK;
}

static void *run(void *arg)
{
    td__post *p = arg;
    td_status st = drive(p);
    if (st && !atomic_load(&p->abort)) {
        td_status cause = td__comm_cause(p->comm); /* the first one, which may be elsewhere */
        st = cause ? cause : st;
        td__comm_poison_all(p->comm, st, td_last_error());
    }
    pthread_mutex_lock(&p->lock);
    p->done = true;
    p->failed = st;
    if (st)
        snprintf(p->text, sizeof p->text, "%s", td_last_error());
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* ---- Open and close -------------------------------------------------------------------------- */

static void destroy(td__post *p)
{
    if (!p)
        return;
    if (p->started)
        pthread_join(p->thread, NULL);
    td_comm_destroy(p->comm); /* after which no transfer touches what follows */
    for (letter *l = p->first, *next; l; l = next) {
        next = l->next;
        free_letter(l);
    }
    for (int r = 0; p->boxes && r < p->size; r++)
        td__post_bytes_release(p->boxes[r].bytes);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    pthread_mutex_destroy(&p->queue_lock);
    td__free(p->boxes);
    td__free(p);
}

td_status td__post_open(td_comm *comm, td__post_fn *fn, void *user, td__post **out)
{
    static const td_comm_opts PATIENT = {.stall_ms = UINT32_MAX};
    pthread_condattr_t attr;
    td_status st;
    *out = NULL;
    td__post *p = td__calloc(1, sizeof *p);
    if (!p)
        return TD_FAIL(TD_ENOMEM, "no memory for messages between ranks");
    p->rank = td_comm_rank(comm);
    p->size = td_comm_size(comm);
    p->fn = fn;
    p->user = user;
    p->open = p->size - 1;
    pthread_mutex_init(&p->lock, NULL);
    pthread_mutex_init(&p->queue_lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&p->changed, &attr);
    pthread_condattr_destroy(&attr);
    p->boxes = td__calloc((size_t)p->size, sizeof *p->boxes);
    if (!p->boxes) {
        st = TD_FAIL(TD_ENOMEM, "no memory for messages of %d ranks", p->size);
        goto fail;
    }
    for (int r = 0; r < p->size; r++)
        p->boxes[r].open = r != p->rank;
    TD_TRY_OR(st, fail, td__comm_split_with(comm, 0, p->rank, &PATIENT, &p->comm));
    if (!p->comm->ctx.mesh) {
        st = TD_FAIL(TD_ENOTSUP, "%s: messages at any time need the native engine",
                     td_comm_transport(p->comm));
        goto fail;
    }
    td__comm_set_patient(p->comm, true);
    int error = pthread_create(&p->thread, NULL, run, p);
    if (error) {
        st = TD_FAIL(TD_ENOMEM, "cannot start a thread for messages: %s", strerror(error));
        goto fail;
    }
    p->started = true;
    *out = p;
    return TD_OK;
fail:
    destroy(p);
    return st;
}

static bool is_done(void *user)
{
    return ((td__post *)user)->done;
}

td_status td__post_close(td__post *p)
{
    td_status st = TD_OK;
    for (int r = 0; !st && r < p->size; r++)
        if (r != p->rank)
            st = td__post_send(p, r, &(td__post_head){.kind = LAST}, NULL);
    pthread_mutex_lock(&p->queue_lock);
    p->closing = true;
    pthread_mutex_unlock(&p->queue_lock);
    pthread_mutex_lock(&p->lock);
    if (!st)
        st = td__post_wait(p, is_done, p, "the others' last messages");
    pthread_mutex_unlock(&p->lock);
    if (st)
        td__post_abort(p, td_last_error());
    else
        destroy(p);
    return st;
}

void td__post_abort(td__post *p, const char *why)
{
    if (!p)
        return;
    atomic_store(&p->abort, true);
    td_comm_abort(p->comm, why);
    destroy(p);
}

/* ---- For the owner --------------------------------------------------------------------------- */

static td_status status_of(td__post *p)
{
    return p->failed ? TD_FAIL(p->failed, "%s", p->text) : TD_OK;
}

td_status td__post_send(td__post *p, int to, const td__post_head *h, td__post_bytes *b)
{
    letter *l = td__calloc(1, sizeof *l);
    if (!l)
        return TD_FAIL(TD_ENOMEM, "no memory for a message to rank %d", to);
    l->to = to;
    l->head = *h;
    l->head.nbytes = b ? b->nbytes : 0;
    if (b && b->nbytes) {
        td__post_bytes_retain(b);
        l->bytes = b;
    }
    pthread_mutex_lock(&p->queue_lock);
    if (p->last)
        p->last->next = l;
    else
        p->first = l;
    p->last = l;
    pthread_mutex_unlock(&p->queue_lock);
    return TD_OK;
}

void td__post_lock(td__post *p)
{
    pthread_mutex_lock(&p->lock);
}

void td__post_unlock(td__post *p)
{
    pthread_mutex_unlock(&p->lock);
}

td_status td__post_wait(td__post *p, bool (*ready)(void *user), void *user, const char *what)
{
    td__deadline until = td__deadline_in_ms(td__comm_timeout_ms(p->comm));
    struct timespec at = {.tv_sec = (time_t)(until / 1000000000u),
                          .tv_nsec = (long)(until % 1000000000u)};
    while (!ready(user)) {
        TD_TRY(status_of(p));
        if (td__deadline_passed(until))
            return TD_FAIL(TD_ETIMEDOUT, "rank %d waited %u ms for %s", p->rank,
                           td__comm_timeout_ms(p->comm), what);
        pthread_cond_timedwait(&p->changed, &p->lock, &at);
    }
    return TD_OK;
}
