/* distribute_scatter.c -- a rank gets the rows that it works on, when it works on them: nobody but
 * rank 0 holds more than a few batches, and what a step needs travels once, to the rank that needs
 * it. Who needs what follows from the order of the epoch and changes with every step, so rows are
 * asked for by number:
 *
 *     request  {part, n, draw}, then n sample numbers             a rank -> rank 0
 *     answer   {status, text} and rows, packed field by field     rank 0 -> that rank
 *
 * with an answer for every `block` bytes of rows, so that buffers stay small. A request for -1 rows
 * is the last one. The prefetching threads of a loader (loader.h) ask batches ahead, so training
 * does not wait for the way there and back; on rank 0 a thread for each other rank answers, reads,
 * maps and draws: all of it is keyed by sample, epoch and seed, never by who does it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/deadline.h"
#include "base/fail.h"
#include "base/log.h"
#include "parallel/distribute.h"
#include "parallel/links.h"

enum { CLOSE_MS = 5000 };

typedef struct request {
    int32_t part, draws;
    int64_t n;
    td__draw draw;
} request;

/* In front of the rows. */
typedef struct answer {
    int32_t status;
    char text[252];
} answer;

typedef struct server server;

/* Rank 0's end of a link, and the thread that answers there. */
typedef struct desk {
    server *owner;
    td_comm *link;
    pthread_t thread;
    bool started;
    int64_t *index; /* of a request */
    int64_t room;   /* of them */
    char *data;     /* an answer */
    size_t nbytes;
} desk;

struct server {
    td_comm *comm;
    td__data *data; /* rank 0 */
    size_t block;
    int size;
    desk *desks;    /* (size): on rank 0 by rank; elsewhere the first is this rank's */
    td_comm **link; /* (size) */

    pthread_mutex_t lock; /* rank 0: of `open`; elsewhere: of the link, for a whole request */
    pthread_cond_t closed;
    int open; /* desks that still answer */
};

static int64_t rows_in(const server *v, const td__dataset *d)
{
    size_t each = 0;
    for (int f = 0; f < d->n_fields; f++)
        each += td__field_nbytes(&d->fields[f]);
    return each && each < v->block ? (int64_t)(v->block / each) : 1;
}

static size_t nbytes_of(const td__dataset *d, int64_t n)
{
    size_t each = 0;
    for (int f = 0; f < d->n_fields; f++)
        each += td__field_nbytes(&d->fields[f]);
    return sizeof(answer) + each * (size_t)n;
}

static td_status want_room(desk *k, int64_t n, size_t nbytes)
{
    if (n > k->room) {
        int64_t *more = td__realloc(k->index, (size_t)n * sizeof *more);
        if (!more)
            return TD_FAIL(TD_ENOMEM, "no memory for the numbers of %" PRId64 " samples", n);
        k->index = more;
        k->room = n;
    }
    if (nbytes > k->nbytes) {
        td__free_block(k->data, k->nbytes);
        k->nbytes = 0;
        k->data = td__alloc_block(nbytes);
        if (!k->data)
            return TD_FAIL(TD_ENOMEM, "no memory for %zu bytes of samples", nbytes);
        k->nbytes = nbytes;
    }
    return TD_OK;
}

/* ---- Rank 0 ---------------------------------------------------------------------------------- */

static td_status read_rows(const desk *k, td__dataset *d, const request *q, const int64_t *index,
                           int64_t n)
{
    void *at[TD__MAX_FIELDS];

    for (int64_t i = 0; i < n; i++)
        if (index[i] < 0 || index[i] >= d->count)
            return TD_FAIL(TD_EPROTO, "a rank asks for sample %" PRId64 " of %" PRId64, index[i],
                           d->count);
    td__rows_at(d, n, k->data + sizeof(answer), at);
    return td__dataset_read(d, index, n, q->draws ? &q->draw : NULL, at);
}

static td_status reply(desk *k, const request *q)
{
    server *v = k->owner;
    td__dataset *d =
        q->part >= 0 && q->part < TD_PART_COUNT ? td__data_part(v->data, (td__part)q->part) : NULL;
    if (!d || q->n < 0 || q->n > INT32_MAX)
        return TD_FAIL(TD_EPROTO, "a rank asks for %" PRId64 " rows of part %d", q->n, q->part);
    int64_t most = rows_in(v, d);
    TD_TRY(want_room(k, q->n, nbytes_of(d, most < q->n ? most : q->n)));
    TD_TRY(td_recv(k->link, k->index, (size_t)q->n, TD_I64, 1, NULL));
    for (int64_t begin = 0; begin < q->n; begin += most) {
        int64_t n = q->n - begin < most ? q->n - begin : most;
        answer a = {.status = read_rows(k, d, q, k->index + begin, n)};
        if (a.status)
            snprintf(a.text, sizeof a.text, "%.250s", td_last_error());
        memcpy(k->data, &a, sizeof a);
        TD_TRY(td_send(k->link, k->data, nbytes_of(d, n), TD_U8, 1, NULL));
        if (a.status)
            return TD_OK; /* the other side says what is wrong */
    }
    return TD_OK;
}

static void *answer_all(void *arg)
{
    desk *k = arg;
    const td_coll_opts idle = {.timeout_ms = TD__LINK_IDLE_MS};
    td_status st;
    request q;

    do {
        st = td_recv(k->link, &q, sizeof q, TD_U8, 1, &idle);
        if (!st && q.n >= 0)
            st = reply(k, &q);
    } while (!st && q.n >= 0);
    if (st) {
        TD_LOG(DEBUG, TRAIN, "no more samples for a rank: %s", td_last_error());
        td_comm_abort(k->link, td_last_error());
    }
    pthread_mutex_lock(&k->owner->lock);
    k->owner->open--;
    pthread_cond_broadcast(&k->owner->closed);
    pthread_mutex_unlock(&k->owner->lock);
    return NULL;
}

static td_status start_desks(server *v)
{
    for (int r = 1; r < v->size; r++) {
        desk *k = &v->desks[r];
        *k = (desk){.owner = v, .link = v->link[r]};
        pthread_mutex_lock(&v->lock);
        v->open++;
        pthread_mutex_unlock(&v->lock);
        int error = pthread_create(&k->thread, NULL, answer_all, k);
        if (error) {
            pthread_mutex_lock(&v->lock);
            v->open--;
            pthread_mutex_unlock(&v->lock);
            return TD_FAIL(TD_ENOMEM, "cannot start a thread that sends samples: %s",
                           strerror(error));
        }
        k->started = true;
    }
    return TD_OK;
}

/* The others say when they are done; those that do not are not waited for. */
static void stop_desks(server *v)
{
    td__deadline until = td__deadline_in_ms(CLOSE_MS);
    struct timespec at = {.tv_sec = (time_t)(until / 1000000000u),
                          .tv_nsec = (long)(until % 1000000000u)};

    pthread_mutex_lock(&v->lock);
    while (v->open && !td__deadline_passed(until))
        pthread_cond_timedwait(&v->closed, &v->lock, &at);
    bool late = v->open > 0;
    pthread_mutex_unlock(&v->lock);
    for (int r = 1; r < v->size; r++) {
        if (late && v->link[r])
            td_comm_abort(v->link[r], "rank 0 has closed its data");
        if (v->desks[r].started)
            pthread_join(v->desks[r].thread, NULL);
    }
}

/* ---- The others ------------------------------------------------------------------------------ */

typedef struct remote {
    td__dataset head;
    server *v;
    td__part part;
    td__arena *names; /* of classes */
} remote;

static void remote_destroy(td__dataset *d)
{
    remote *m = (remote *)d;

    td__arena_destroy(m->names);
    td__free(m);
}

static td_status take_answer(const remote *m, const desk *k, int64_t begin, int64_t n,
                             void *const *out)
{
    const td__dataset *d = &m->head;
    void *at[TD__MAX_FIELDS];
    answer a;

    TD_TRY(td_recv(k->link, k->data, nbytes_of(d, n), TD_U8, 0, NULL));
    memcpy(&a, k->data, sizeof a);
    if (a.status)
        return TD_FAIL((td_status)a.status, "%.250s", a.text);
    td__rows_at(d, n, k->data + sizeof a, at);
    for (int f = 0; f < d->n_fields; f++) {
        size_t nbytes = td__field_nbytes(&d->fields[f]);
        memcpy((char *)out[f] + (size_t)begin * nbytes, at[f], (size_t)n * nbytes);
    }
    return TD_OK;
}

static td_status ask(const remote *m, desk *k, const int64_t *index, const request *q,
                     void *const *out)
{
    int64_t most = rows_in(m->v, &m->head);

    TD_TRY(want_room(k, 0, nbytes_of(&m->head, most < q->n ? most : q->n)));
    TD_TRY(td_send(k->link, q, sizeof *q, TD_U8, 0, NULL));
    TD_TRY(td_send(k->link, index, (size_t)q->n, TD_I64, 0, NULL));
    for (int64_t begin = 0; begin < q->n; begin += most)
        TD_TRY(take_answer(m, k, begin, q->n - begin < most ? q->n - begin : most, out));
    return TD_OK;
}

static td_status remote_read(td__dataset *d, const int64_t *index, int64_t n, const td__draw *draw,
                             void *const *out)
{
    remote *m = (remote *)d;
    request q = {.part = (int32_t)m->part, .draws = draw != NULL, .n = n};

    if (draw)
        q.draw = *draw;
    if (!n)
        return TD_OK;
    pthread_mutex_lock(&m->v->lock);
    td_status st = ask(m, &m->v->desks[0], index, &q, out);
    pthread_mutex_unlock(&m->v->lock);
    return st;
}

static const td__dataset_ops REMOTE = {.destroy = remote_destroy, .read = remote_read};

static td_status make_remote(void *state, td__part part, const td__dataset *head, td__arena *names,
                             td__dataset **out)
{
    remote *m = td__calloc(1, sizeof *m);
    if (!m) {
        td__arena_destroy(names);
        return TD_FAIL(TD_ENOMEM, "no memory for a dataset");
    }
    *m = (remote){.head = *head, .v = state, .part = part, .names = names};
    m->head.ops = &REMOTE;
    *out = &m->head;
    return TD_OK;
}

/* ---- Both ------------------------------------------------------------------------------------ */

static void end(void *state)
{
    server *v = state;
    bool first = td_comm_rank(v->comm) == 0;
    const request last = {.n = -1};

    if (first && v->desks)
        stop_desks(v);
    if (!first && v->link && v->link[0] && td_send(v->link[0], &last, sizeof last, TD_U8, 0, NULL))
        TD_LOG(DEBUG, TRAIN, "rank 0 is gone before the end: %s", td_last_error());
    for (int r = 0; v->link && r < v->size; r++)
        td_comm_destroy(v->link[r]);
    for (int r = 0; v->desks && r < v->size; r++) {
        td__free(v->desks[r].index);
        td__free_block(v->desks[r].data, v->desks[r].nbytes);
    }
    pthread_cond_destroy(&v->closed);
    pthread_mutex_destroy(&v->lock);
    td__free(v->desks);
    td__free(v->link);
    td__free(v);
}

static td_status serve(td_comm *comm, td__data *data, size_t block, void **state)
{
    pthread_condattr_t attr;
    td_status st = TD_OK;

    server *v = td__calloc(1, sizeof *v);
    if (!v)
        return TD_FAIL(TD_ENOMEM, "no memory to distribute data");
    *v = (server){.comm = comm, .data = data, .block = block, .size = td_comm_size(comm)};
    pthread_mutex_init(&v->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&v->closed, &attr);
    pthread_condattr_destroy(&attr);
    v->desks = td__calloc((size_t)v->size, sizeof *v->desks);
    v->link = td__calloc((size_t)v->size, sizeof(td_comm *));
    if (!v->desks || !v->link) {
        st = TD_FAIL(TD_ENOMEM, "no memory to distribute data to %d ranks", v->size);
        goto fail;
    }
    TD_TRY_OR(st, fail, td__links_star(comm, v->link));
    if (td_comm_rank(comm) == 0)
        TD_TRY_OR(st, fail, start_desks(v));
    else
        v->desks[0].link = v->link[0];
    *state = v;
    return TD_OK;
fail:
    end(v);
    return st;
}

const td__distribute_def td__distribute_scatter = {
    .name = "scatter",
    .help =
        "each rank gets the rows of its micro-batches from rank 0, batches ahead; little memory",
    .serve = serve,
    .remote = make_remote,
    .end = end,
};
