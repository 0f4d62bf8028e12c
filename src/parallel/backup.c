/* backup.c -- orders and shares between rank 0 and the others. See backup.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/backup.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/deadline.h"
#include "base/fail.h"
#include "coll/comm.h"
#include "parallel/links.h"

static const td_coll_opts IDLE = {.timeout_ms = TD__LINK_IDLE_MS};

/* In front of a share. */
typedef struct share_head {
    uint64_t step;
    int64_t rows;
    double weight, loss;
    int32_t stop, here;             /* here: gradients follow */
    int64_t n_rows[TD__MAX_SPARSE]; /* and lists of so many rows */
    double notes[TD__BACKUP_NOTES];
} share_head;

/* What there is for one other rank. */
typedef struct seat {
    td__backup *owner;
    int rank;
    td_comm *link;
    pthread_t thread;
    bool started;
    uint64_t step; /* the last that it was told to work on */
    bool counted;  /* in the step that is open, or was last */
    double notes[TD__BACKUP_NOTES];
    td__grad_share share;
    float *block;   /* weights on their way there, then gradients that came back */
    int32_t *words; /* rows and values of the lists that came back */
    size_t n_words;
    td_sparse_grad lists[TD__MAX_SPARSE];
} seat;

typedef enum phase { CLOSED, OPEN, ENDED } phase;

struct td__backup {
    td__backup_opts o;
    int64_t widths[TD__MAX_SPARSE];
    int rank, size;
    size_t room;    /* floats of a block */
    td_comm **link; /* (size) */
    seat *seats;    /* (size) on rank 0 by rank; elsewhere the first is this rank's */
    uint64_t *dropped;

    /* The lock protects what follows, and seats' step, counted, notes, share and dropped. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    phase phase;
    td__backup_order order;
    const float *params;
    const bool *only;
    int needed, counted;
    int last; /* rank of the newest share that counted */
    uint64_t orders;
    int copying; /* threads that read params */
    int running; /* threads */
    bool stop;
    td_status failed; /* the first failure */
    char text[512];
};

/* ---- Messages -------------------------------------------------------------------------------- */

static size_t words_of(const td__backup *b, const int64_t *n_rows)
{
    size_t n = 0;
    for (int k = 0; k < b->o.lists; k++)
        n += (size_t)n_rows[k] * (size_t)(1 + b->widths[k]);
    return n;
}

static td_status want_words(seat *s, size_t n)
{
    if (n <= s->n_words)
        return TD_OK;
    int32_t *more = td__realloc(s->words, n * sizeof *more);
    if (!more)
        return TD_FAIL(TD_ENOMEM, "no memory for row-sparse gradients of %zu bytes",
                       n * sizeof *more);
    s->words = more;
    s->n_words = n;
    return TD_OK;
}

static td_status send_order(seat *s, const td__backup_order *order)
{
    TD_TRY(td_send(s->link, order, sizeof *order, TD_U8, 1, NULL));
    return td_send(s->link, s->block, s->owner->o.params, TD_F32, 1, NULL);
}

static td_status receive_share(seat *s, share_head *h)
{
    const td__backup *b = s->owner;
    TD_TRY(td_recv(s->link, h, sizeof *h, TD_U8, 1, &IDLE));
    if (!h->here)
        return TD_OK;
    TD_TRY(td_recv(s->link, s->block, b->o.grads, TD_F32, 1, NULL));
    for (int k = 0; k < b->o.lists; k++)
        if (h->n_rows[k] < 0 || h->n_rows[k] > INT32_MAX)
            return TD_FAIL(TD_EPROTO, "rank %d hands in %" PRId64 " rows", s->rank, h->n_rows[k]);
    size_t n = words_of(b, h->n_rows);
    TD_TRY(want_words(s, n));
    if (n)
        TD_TRY(td_recv(s->link, s->words, n, TD_I32, 1, NULL));
    const int32_t *at = s->words;
    for (int k = 0; k < b->o.lists; k++) {
        s->lists[k] = (td_sparse_grad){.n_rows = h->n_rows[k],
                                       .width = b->widths[k],
                                       .rows = at,
                                       .values = (const float *)(at + h->n_rows[k])};
        at += h->n_rows[k] * (1 + b->widths[k]);
    }
    return TD_OK;
}

/* ---- Rank 0's threads ------------------------------------------------------------------------ */

static void fail(td__backup *b, td_status st)
{
    pthread_mutex_lock(&b->lock);
    if (!b->failed) {
        b->failed = st;
        snprintf(b->text, sizeof b->text, "%s", td_last_error());
    }
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
}

/* The next order, with its weights in the seat's block; false: there will be none. */
static bool await_order(seat *s, td__backup_order *order)
{
    td__backup *b = s->owner;
    pthread_mutex_lock(&b->lock);
    while (!b->failed && b->phase != ENDED && (b->phase != OPEN || b->order.step <= s->step))
        pthread_cond_wait(&b->changed, &b->lock);
    bool ok = !b->failed;
    if (ok) {
        *order = b->order;
        s->step = order->step;
        b->orders++;
        b->copying++;
    }
    const float *params = b->params;
    pthread_mutex_unlock(&b->lock);
    if (!ok)
        return false;
    memcpy(s->block, params, b->o.params * sizeof *s->block);
    pthread_mutex_lock(&b->lock);
    b->copying--;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
    return true;
}

static void arrive(seat *s, const share_head *h)
{
    td__backup *b = s->owner;
    pthread_mutex_lock(&b->lock);
    bool counts = h->here && b->phase == OPEN && h->step == b->order.step &&
                  b->counted < b->needed && (!b->only || b->only[s->rank]);
    s->counted = counts;
    b->counted += counts;
    b->last = counts ? s->rank : b->last;
    memcpy(s->notes, h->notes, sizeof s->notes);
    b->dropped[s->rank] += h->here && !counts;
    b->stop = b->stop || h->stop;
    s->share = (td__grad_share){h->rows, h->weight, h->loss, s->block, s->lists};
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
}

static void *attend(void *arg)
{
    seat *s = arg;
    td__backup *b = s->owner;
    td__backup_order order;
    share_head h;
    td_status st = TD_OK;

    while (!st && await_order(s, &order)) {
        st = send_order(s, &order);
        if (st || order.end)
            break;
        st = receive_share(s, &h);
        if (!st)
            arrive(s, &h);
    }
    if (st)
        fail(b, st);
    pthread_mutex_lock(&b->lock);
    b->running--;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
    return NULL;
}

static td_status start(td__backup *b, int rank)
{
    seat *s = &b->seats[rank];
    *s = (seat){.owner = b, .rank = rank, .link = b->link[rank]};
    s->block = td__alloc_block(b->room * sizeof *s->block);
    if (!s->block)
        return TD_FAIL(TD_ENOMEM, "no memory for the shares of %d ranks", b->size);
    pthread_mutex_lock(&b->lock);
    b->running++;
    pthread_mutex_unlock(&b->lock);
    int error = pthread_create(&s->thread, NULL, attend, s);
    s->started = !error;
    if (!error)
        return TD_OK;
    pthread_mutex_lock(&b->lock);
    b->running--;
    pthread_mutex_unlock(&b->lock);
    return TD_FAIL(TD_EIO, "cannot start a thread that waits for rank %d: %s", rank,
                   strerror(error));
}

/* ---- Rank 0 ---------------------------------------------------------------------------------- */

/* With the lock: wait a little; false: time is up. */
static bool wait_changed(td__backup *b, td__deadline until)
{
    struct timespec at = {.tv_sec = (time_t)(until / 1000000000u),
                          .tv_nsec = (long)(until % 1000000000u)};
    if (td__deadline_passed(until))
        return false;
    pthread_cond_timedwait(&b->changed, &b->lock, &at);
    return true;
}

static td_status late(const td__backup *b)
{
    char who[128] = "";
    int used = 0;
    for (int r = 1; r < b->size && used < (int)sizeof who - 8; r++)
        if (!b->seats[r].counted)
            used += snprintf(who + used, sizeof who - (size_t)used, " %d", r);
    return TD_FAIL(TD_ETIMEDOUT,
                   "step %" PRIu64 " has %d of the %d shares that it needs after %u s; not yet "
                   "there: rank%s",
                   b->order.step, b->counted, b->needed, td__comm_timeout_ms(b->o.comm) / 1000,
                   who);
}

void td__backup_open(td__backup *b, const td__backup_order *order, const float *params, int needed,
                     const bool *only)
{
    pthread_mutex_lock(&b->lock);
    b->phase = OPEN;
    b->order = *order;
    b->order.end = false;
    b->params = params;
    b->needed = needed;
    b->only = only;
    b->counted = b->last = 0;
    for (int r = 1; r < b->size; r++)
        b->seats[r].counted = false;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
}

td_status td__backup_close(td__backup *b, int *rank, td__grad_share *share, int *n, bool *stop)
{
    td__deadline until = td__deadline_in_ms(td__comm_timeout_ms(b->o.comm));
    td_status st = TD_OK;

    *n = 0;
    pthread_mutex_lock(&b->lock);
    while (!b->failed && !st && b->counted < b->needed)
        if (!wait_changed(b, until))
            st = late(b);
    if (!st && b->failed)
        st = TD_FAIL(b->failed, "%s", b->text);
    b->phase = CLOSED;
    b->only = NULL;
    while (b->copying) /* a copy in memory, which always ends */
        pthread_cond_wait(&b->changed, &b->lock);
    for (int r = 1; r < b->size && !st; r++)
        if (b->seats[r].counted) {
            rank[*n] = r;
            share[(*n)++] = b->seats[r].share;
        }
    *stop = b->stop;
    pthread_mutex_unlock(&b->lock);
    return st;
}

int td__backup_last(td__backup *b)
{
    pthread_mutex_lock(&b->lock);
    int last = b->last;
    pthread_mutex_unlock(&b->lock);
    return last;
}

void td__backup_notes(td__backup *b, int rank, double *out)
{
    pthread_mutex_lock(&b->lock);
    memcpy(out, b->seats[rank].notes, sizeof b->seats[rank].notes);
    pthread_mutex_unlock(&b->lock);
}

uint64_t td__backup_sent(td__backup *b)
{
    pthread_mutex_lock(&b->lock);
    uint64_t orders = b->orders;
    pthread_mutex_unlock(&b->lock);
    return orders * b->o.params * sizeof(float);
}

td_status td__backup_end(td__backup *b, const float *params)
{
    td__deadline until = td__deadline_in_ms(td__comm_timeout_ms(b->o.comm));
    td_status st = TD_OK;

    pthread_mutex_lock(&b->lock);
    b->phase = ENDED;
    b->order.end = true;
    b->params = params;
    pthread_cond_broadcast(&b->changed);
    while (!b->failed && !st && b->running)
        if (!wait_changed(b, until))
            st = TD_FAIL(TD_ETIMEDOUT, "%d ranks did not come to the end of training", b->running);
    if (!st && b->failed)
        st = TD_FAIL(b->failed, "%s", b->text);
    pthread_mutex_unlock(&b->lock);
    return st;
}

void td__backup_dropped(td__backup *b, uint64_t *out)
{
    pthread_mutex_lock(&b->lock);
    memcpy(out, b->dropped, (size_t)b->size * sizeof *out);
    pthread_mutex_unlock(&b->lock);
}

/* ---- The others ------------------------------------------------------------------------------ */

td_status td__backup_next(td__backup *b, float *params, td__backup_order *order)
{
    TD_TRY(td_recv(b->link[0], order, sizeof *order, TD_U8, 0, &IDLE));
    return td_recv(b->link[0], params, b->o.params, TD_F32, 0, NULL);
}

td_status td__backup_hand_in(td__backup *b, uint64_t step, const td__grad_share *share,
                             const double *notes, bool stop)
{
    share_head h = {.step = step,
                    .rows = share->rows,
                    .weight = share->weight,
                    .loss = share->loss,
                    .stop = stop,
                    .here = share->grads != NULL};
    seat *s = &b->seats[0];
    memcpy(h.notes, notes, sizeof h.notes);
    for (int k = 0; h.here && k < b->o.lists; k++)
        h.n_rows[k] = share->lists[k].n_rows;
    TD_TRY(td_send(b->link[0], &h, sizeof h, TD_U8, 0, NULL));
    if (!h.here)
        return TD_OK;
    TD_TRY(td_send(b->link[0], share->grads, b->o.grads, TD_F32, 0, NULL));
    size_t n = words_of(b, h.n_rows);
    TD_TRY(want_words(s, n));
    int32_t *to = s->words;
    for (int k = 0; k < b->o.lists; k++) {
        const td_sparse_grad *g = &share->lists[k];
        memcpy(to, g->rows, (size_t)g->n_rows * sizeof *to);
        to += g->n_rows;
        memcpy(to, g->values, (size_t)(g->n_rows * g->width) * sizeof *to);
        to += g->n_rows * g->width;
    }
    return n ? td_send(b->link[0], s->words, n, TD_I32, 0, NULL) : TD_OK;
}

/* ---- Both ------------------------------------------------------------------------------------ */

void td__backup_abort(td__backup *b, const char *why)
{
    for (int r = 0; b->link && r < b->size; r++)
        if (b->link[r])
            td_comm_abort(b->link[r], why);
}

void td__backup_destroy(td__backup *b)
{
    if (!b)
        return;
    pthread_mutex_lock(&b->lock);
    bool ended = b->phase == ENDED && !b->running;
    if (!b->failed) {
        b->failed = TD_EABORTED; /* wakes threads that wait for an order */
        snprintf(b->text, sizeof b->text, "training has ended");
    }
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
    if (b->rank == 0 && !ended)
        td__backup_abort(b, "rank 0 has stopped training");
    for (int r = 0; b->seats && r < b->size; r++) {
        if (b->seats[r].started)
            pthread_join(b->seats[r].thread, NULL);
        td__free_block(b->seats[r].block, b->room * sizeof *b->seats[r].block);
        td__free(b->seats[r].words);
    }
    for (int r = 0; b->link && r < b->size; r++)
        td_comm_destroy(b->link[r]);
    pthread_cond_destroy(&b->changed);
    pthread_mutex_destroy(&b->lock);
    td__free(b->dropped);
    td__free(b->seats);
    td__free(b->link);
    td__free(b);
}

td_status td__backup_create(const td__backup_opts *o, td__backup **out)
{
    pthread_condattr_t attr;
    td_status st = TD_OK;

    *out = NULL;
    TD_ASSERT(o->lists <= TD__MAX_SPARSE, "%d lists", o->lists);
    td__backup *b = td__calloc(1, sizeof *b);
    if (!b)
        return TD_FAIL(TD_ENOMEM, "no memory for backup workers");
    *b = (td__backup){.o = *o, .rank = td_comm_rank(o->comm), .size = td_comm_size(o->comm)};
    b->room = o->grads > o->params ? o->grads : o->params;
    for (int k = 0; k < o->lists; k++)
        b->widths[k] = o->widths[k];
    pthread_mutex_init(&b->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&b->changed, &attr);
    pthread_condattr_destroy(&attr);
    b->link = td__calloc((size_t)b->size, sizeof(td_comm *));
    b->seats = td__calloc((size_t)b->size, sizeof *b->seats);
    b->dropped = td__calloc((size_t)b->size, sizeof *b->dropped);
    if (!b->link || !b->seats || !b->dropped) {
        st = TD_FAIL(TD_ENOMEM, "no memory for backup workers");
        goto fail;
    }
    TD_TRY_OR(st, fail, td__links_star(o->comm, b->link));
    for (int r = 1; b->rank == 0 && r < b->size; r++)
        TD_TRY_OR(st, fail, start(b, r));
    *out = b;
    return TD_OK;
fail:
    td__backup_destroy(b);
    return st;
}
