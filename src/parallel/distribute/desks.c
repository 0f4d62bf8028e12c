/* desks.c -- see desks.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/distribute/desks.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/deadline.h"
#include "base/fail.h"
#include "base/log.h"
#include "parallel/links.h"

enum { CLOSE_MS = 5000 };

/* In front of the bytes of a piece. */
typedef struct answer {
    int32_t status;
    char text[252];
} answer;

/* An end of a link; on rank 0 with the thread that answers there. */
struct td__desk {
    td__desks *owner;
    td_comm *link;
    pthread_t thread;
    bool started;
    int64_t *numbers; /* of a question */
    int64_t room;     /* of them */
    char *data;       /* a piece, behind its answer */
    size_t nbytes;
};

struct td__desks {
    td_comm *comm;
    td__desk_fn answer;
    void *user;
    int size;
    td__desk *desks; /* (size): on rank 0 by rank; elsewhere the first is this rank's */
    td_comm **link;  /* (size) */

    pthread_mutex_t lock; /* rank 0: of `open`; elsewhere: of the desk, for a whole question */
    pthread_cond_t closed;
    int open; /* desks that still answer */
};

void *td__desk_room(td__desk *k, size_t nbytes)
{
    nbytes += sizeof(answer);
    if (nbytes > k->nbytes) {
        td__free_block(k->data, k->nbytes);
        k->nbytes = 0;
        k->data = td__alloc_block(nbytes);
        k->nbytes = k->data ? nbytes : 0;
    }
    return k->data ? k->data + sizeof(answer) : NULL;
}

static td_status want_numbers(td__desk *k, int64_t n)
{
    if (n > k->room) {
        int64_t *more = td__realloc(k->numbers, (size_t)n * sizeof *more);
        if (!more)
            return TD_FAIL(TD_ENOMEM, "no memory for the numbers of %" PRId64 " samples", n);
        k->numbers = more;
        k->room = n;
    }
    return TD_OK;
}

/* ---- Rank 0 ---------------------------------------------------------------------------------- */

td_status td__desk_give(td__desk *k, td_status status, size_t nbytes)
{
    answer a = {.status = status};

    if (status)
        snprintf(a.text, sizeof a.text, "%.250s", td_last_error());
    if (!td__desk_room(k, nbytes))
        return TD_FAIL(TD_ENOMEM, "no memory for %zu bytes of samples", nbytes);
    memcpy(k->data, &a, sizeof a);
    return td_send(k->link, k->data, sizeof a + nbytes, TD_U8, 1, NULL);
}

static td_status reply(td__desk *k, const td__question *q)
{
    if (q->n > INT32_MAX || q->part < 0)
        return TD_FAIL(TD_EPROTO, "a rank asks for %" PRId64 " rows of part %d", q->n, q->part);
    TD_TRY(want_numbers(k, q->n));
    TD_TRY(td_recv(k->link, k->numbers, (size_t)q->n, TD_I64, 1, NULL));
    return k->owner->answer(k->owner->user, k, q, k->numbers);
}

static void *answer_all(void *arg)
{
    td__desk *k = arg;
    const td_coll_opts idle = {.timeout_ms = TD__LINK_IDLE_MS};
    td_status st;
    td__question q;

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

static td_status start_desks(td__desks *v)
{
    for (int r = 1; r < v->size; r++) {
        td__desk *k = &v->desks[r];
        *k = (td__desk){.owner = v, .link = v->link[r]};
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
static void stop_desks(td__desks *v)
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

void td__desk_hold(td__desks *v)
{
    pthread_mutex_lock(&v->lock);
}

td_status td__desk_ask(td__desks *v, const td__question *q, const int64_t *numbers)
{
    td_comm *link = v->desks[0].link;

    TD_TRY(td_send(link, q, sizeof *q, TD_U8, 0, NULL));
    return td_send(link, numbers, (size_t)q->n, TD_I64, 0, NULL);
}

td_status td__desk_take(td__desks *v, size_t nbytes, void **piece)
{
    td__desk *k = &v->desks[0];
    answer a;

    *piece = td__desk_room(k, nbytes);
    if (!*piece)
        return TD_FAIL(TD_ENOMEM, "no memory for %zu bytes of samples", nbytes);
    TD_TRY(td_recv(k->link, k->data, sizeof a + nbytes, TD_U8, 0, NULL));
    memcpy(&a, k->data, sizeof a);
    a.text[sizeof a.text - 1] = 0;
    return a.status ? TD_FAIL((td_status)a.status, "%.250s", a.text) : TD_OK;
}

void td__desk_let_go(td__desks *v)
{
    pthread_mutex_unlock(&v->lock);
}

/* ---- Both ------------------------------------------------------------------------------------ */

void td__desks_close(td__desks *v)
{
    const td__question last = {.n = -1};

    if (!v)
        return;
    bool first = td_comm_rank(v->comm) == 0;
    if (first && v->desks)
        stop_desks(v);
    if (!first && v->link && v->link[0] && td_send(v->link[0], &last, sizeof last, TD_U8, 0, NULL))
        TD_LOG(DEBUG, TRAIN, "lost the connection to rank 0 before the end: %s", td_last_error());
    for (int r = 0; v->link && r < v->size; r++)
        td_comm_destroy(v->link[r]);
    for (int r = 0; v->desks && r < v->size; r++) {
        td__free(v->desks[r].numbers);
        td__free_block(v->desks[r].data, v->desks[r].nbytes);
    }
    pthread_cond_destroy(&v->closed);
    pthread_mutex_destroy(&v->lock);
    td__free(v->desks);
    td__free(v->link);
    td__free(v);
}

td_status td__desks_open(td_comm *comm, td__desk_fn fn, void *user, td__desks **out)
{
    pthread_condattr_t attr;
    td_status st = TD_OK;

    *out = NULL;
    td__desks *v = td__calloc(1, sizeof *v);
    if (!v)
        return TD_FAIL(TD_ENOMEM, "no memory to distribute data");
    *v = (td__desks){.comm = comm, .answer = fn, .user = user, .size = td_comm_size(comm)};
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
        v->desks[0] = (td__desk){.owner = v, .link = v->link[0]};
    *out = v;
    return TD_OK;
fail:
    td__desks_close(v);
    return st;
}
