/* inbox.c -- see inbox.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "ps/inbox.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fail.h"

typedef enum phase { IDLE, EXPECTED, THERE, LOST, GONE } phase;

typedef struct slot {
    td__ps_inbox *owner;
    int worker;
    pthread_t thread;
    bool started;
    phase phase;
    uint64_t number; /* of arrival */
    uint64_t came_ns;
    td__ps_push push;
    double *numbers;
} slot;

struct td__ps_inbox {
    td__ps_lane *lanes;
    int n;
    size_t floats, max_numbers;
    td__ps_held own;
    slot *slots; /* (n) */
    /* The lock protects what follows, and phase, number and push of slots. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t arrived;
    bool closing;
    td_status failed; /* the first failure */
    char text[512];
};

/* ---- Threads --------------------------------------------------------------------------------- */

static bool await_order(slot *s)
{
    td__ps_inbox *b = s->owner;
    pthread_mutex_lock(&b->lock);
    while (!b->closing && s->phase != EXPECTED)
        pthread_cond_wait(&b->changed, &b->lock);
    bool go = !b->closing;
    pthread_mutex_unlock(&b->lock);
    return go;
}

static td_status receive(slot *s)
{
    td__ps_inbox *b = s->owner;
    td__ps_lane *l = &b->lanes[s->worker];
    td__ps_push p;
    l->within_ms = TD__LINK_IDLE_MS; /* the trainer's thread says how long that is */
    TD_TRY(td__ps_hear(l, &p, sizeof p, true));
    if (p.n_numbers < 0 || (size_t)p.n_numbers > b->max_numbers || p.slots < 0 ||
        (size_t)p.slots * b->floats > l->push_count)
        return TD_FAIL(TD_EPROTO, "rank %d pushes %d slots and %d numbers", l->rank, p.slots,
                       p.n_numbers);
    if (p.n_numbers)
        TD_TRY(td__ps_hear(l, s->numbers, (size_t)p.n_numbers * sizeof *s->numbers, false));
    for (int i = 0; i < p.slots * b->own.n; i++) {
        td__param_range at = b->own.at[i % b->own.n];
        TD_TRY(td__ps_take_range(l, l->push + (size_t)(i / b->own.n) * b->floats + at.begin, at));
    }
    pthread_mutex_lock(&b->lock);
    s->push = p;
    s->number = ++b->arrived;
    s->came_ns = td__clock_ns();
    s->phase = THERE;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
    return TD_OK;
}

static void *attend(void *arg)
{
    slot *s = arg;
    td__ps_inbox *b = s->owner;
    td_status st = TD_OK;
    while (!st && await_order(s))
        st = receive(s);
    if (!st)
        return NULL;
    pthread_mutex_lock(&b->lock);
    if (st == TD_EPEER)
        s->phase = LOST;
    if (st == TD_EPEER ? !b->failed : !b->failed && !b->closing) {
        b->failed = st == TD_EPEER ? TD_OK : st;
        snprintf(b->text, sizeof b->text, "%s", td_last_error());
    }
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
    return NULL;
}

/* ---- The trainer's thread -------------------------------------------------------------------- */

void td__ps_inbox_expect(td__ps_inbox *b, int worker)
{
    pthread_mutex_lock(&b->lock);
    b->slots[worker].phase = EXPECTED;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
}

uint64_t td__ps_inbox_came_ns(td__ps_inbox *b, int worker)
{
    pthread_mutex_lock(&b->lock);
    uint64_t ns = b->slots[worker].came_ns;
    pthread_mutex_unlock(&b->lock);
    return ns;
}

bool td__ps_inbox_busy(td__ps_inbox *b, int worker)
{
    pthread_mutex_lock(&b->lock);
    bool busy = b->slots[worker].phase != IDLE;
    pthread_mutex_unlock(&b->lock);
    return busy;
}

void td__ps_inbox_taken(td__ps_inbox *b, int worker)
{
    pthread_mutex_lock(&b->lock);
    if (b->slots[worker].phase == THERE)
        b->slots[worker].phase = IDLE;
    pthread_mutex_unlock(&b->lock);
}

/* With the lock. */
static slot *find(const td__ps_inbox *b, int only)
{
    slot *first = NULL;
    for (int w = 0; w < b->n; w++) {
        slot *s = &b->slots[w];
        if (s->phase == LOST)
            return s;
        if (s->phase == THERE && (only < 0 || w == only) && (!first || s->number < first->number))
            first = s;
    }
    return first;
}

static td_status late(const td__ps_inbox *b, int only)
{
    char who[128] = "";
    int used = 0;
    for (int w = 0; w < b->n && used < (int)sizeof who - 8; w++)
        if (b->slots[w].phase == EXPECTED && (only < 0 || w == only))
            used += snprintf(who + used, sizeof who - (size_t)used, " %d", b->lanes[w].rank);
    return TD_FAIL(TD_ETIMEDOUT, "no push has come in time; not yet there: rank%s", who);
}

td_status td__ps_inbox_next(td__ps_inbox *b, int only, td__deadline until, int *worker,
                            td__ps_push *out, const double **numbers)
{
    struct timespec at = {.tv_sec = (time_t)(until / 1000000000u),
                          .tv_nsec = (long)(until % 1000000000u)};
    td_status st = TD_OK;
    slot *s;

    *worker = -1;
    pthread_mutex_lock(&b->lock);
    while (!(s = find(b, only)) && !b->failed && !st) {
        if (td__deadline_passed(until))
            st = late(b, only);
        else
            pthread_cond_timedwait(&b->changed, &b->lock, &at);
    }
    if (!st && b->failed)
        st = TD_FAIL(b->failed, "%s", b->text);
    if (!st && s->phase == LOST) {
        *worker = s->worker;
        s->phase = GONE;
        st = TD_FAIL(TD_EPEER, "%s", b->text);
    } else if (!st) {
        *worker = s->worker;
        *out = s->push;
        *numbers = s->numbers;
    }
    pthread_mutex_unlock(&b->lock);
    return st;
}

/* ---- Both ------------------------------------------------------------------------------------ */

void td__ps_inbox_destroy(td__ps_inbox *b)
{
    if (!b)
        return;
    pthread_mutex_lock(&b->lock);
    b->closing = true;
    pthread_cond_broadcast(&b->changed);
    for (int w = 0; b->slots && w < b->n; w++)
        if (b->slots[w].started && b->slots[w].phase == EXPECTED)
            td_comm_abort(b->lanes[w].link, "the server has stopped training");
    pthread_mutex_unlock(&b->lock);
    for (int w = 0; b->slots && w < b->n; w++) {
        if (b->slots[w].started)
            pthread_join(b->slots[w].thread, NULL);
        td__free(b->slots[w].numbers);
    }
    pthread_cond_destroy(&b->changed);
    pthread_mutex_destroy(&b->lock);
    td__free(b->slots);
    td__free(b);
}

static td_status start(td__ps_inbox *b, int worker)
{
    slot *s = &b->slots[worker];
    s->owner = b;
    s->worker = worker;
    s->numbers = td__calloc(b->max_numbers + 1, sizeof *s->numbers);
    if (!s->numbers)
        return TD_FAIL(TD_ENOMEM, "no memory for the pushes of %d workers", b->n);
    int error = pthread_create(&s->thread, NULL, attend, s);
    s->started = !error;
    return error ? TD_FAIL(TD_EIO, "cannot start a thread that waits for rank %d: %s",
                           b->lanes[worker].rank, strerror(error))
                 : TD_OK;
}

td_status td__ps_inbox_create(td__ps_lane *lanes, int n, size_t floats, td__ps_held own,
                              size_t numbers, td__ps_inbox **out)
{
    pthread_condattr_t attr;
    td_status st = TD_OK;

    *out = NULL;
    td__ps_inbox *b = td__calloc(1, sizeof *b);
    if (!b)
        return TD_FAIL(TD_ENOMEM, "no memory for the pushes of %d workers", n);
    *b = (td__ps_inbox){
        .lanes = lanes, .n = n, .floats = floats, .own = own, .max_numbers = numbers};
    pthread_mutex_init(&b->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&b->changed, &attr);
    pthread_condattr_destroy(&attr);
    b->slots = td__calloc((size_t)n, sizeof *b->slots);
    if (!b->slots)
        st = TD_FAIL(TD_ENOMEM, "no memory for the pushes of %d workers", n);
    for (int w = 0; !st && w < n; w++)
        st = start(b, w);
    if (st) {
        td__ps_inbox_destroy(b);
        return st;
    }
    *out = b;
    return TD_OK;
}
