/* loader.c -- batches of a dataset, read ahead by threads.
 *
 * Batches are numbered from the last seek: ticket t is batch `index + t` after (epoch, index).
 * Ticket t lives in slot t % n_slots. Threads take tickets in turn, as long as the slot is free,
 * fill it without the lock, and mark it ready; next() gives out slots in the order of tickets.
 * As what a ticket holds is a pure function of its number, it does not matter who fills it.
 *
 * A seek starts a new generation: tickets count from 0 again, and a slot that is being filled for
 * an older generation is thrown away when its thread comes back. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "data/loader.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/deadline.h"
#include "base/fail.h"
#include "data/partition.h"

enum { DEFAULT_PREFETCH = 2, MAX_PREFETCH = 1024, MAX_THREADS = 256, WAIT_MS = 600 * 1000 };

typedef enum slot_state { SLOT_FREE, SLOT_FILLING, SLOT_READY } slot_state;

typedef struct slot {
    slot_state state;
    td__batch batch;
    int64_t *index; /* (batch) samples of the batch */
    bool *absent;   /* (batch) with a keeper: those that are to be read */
    void *whole;    /* the field that is cut (TD_PARTITION_FEATURES), before the cut */
    td_status status;
    char error[512]; /* texts are kept per thread; this one travels to the reader */
} slot;

struct td__loader {
    td__dataset *data; /* borrowed */
    int64_t batch, batches;
    int64_t room; /* the most rows of a batch that are read; at least 1 */
    td__loader_rows *rows;
    td__loader_pick *pick;
    const void *rows_user;
    const td__sample_keeper *keeper;
    bool augment;
    uint64_t epochs; /* 0: without end */
    td__share share;
    td__share *shares; /* (workers) with others */
    td__loader_others *others;
    bool in_step;
    int64_t samples, every; /* that batches are cut from; rows that a full batch has here */
    td__field fields[TD__MAX_FIELDS];
    int cut_field; /* -1: none */
    int64_t cut_begin, cut_end;
    int n_slots, want_threads, n_threads;
    slot *slots;
    pthread_t *threads;

    /* The lock protects what follows, and the slots' states. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stop;
    uint64_t generation;
    uint64_t epoch; /* of ticket 0 */
    int64_t index;
    int64_t stride;            /* batches from one ticket to the next */
    int64_t claimed, consumed; /* tickets taken by threads; given out by next() */
    slot *lent;                /* what the caller looks at */
};

const td__field *td__loader_field(const td__loader *l, int f)
{
    return &l->fields[f];
}

int64_t td__loader_batches(const td__loader *l)
{
    return l->batches;
}

static int64_t rows_of(const td__loader *l, int64_t index)
{
    int64_t left = l->samples - index * l->batch;
    return left < l->batch ? left : l->batch;
}

/* Position in the share of a worker of its row i of batch `index`, of which every full batch has
 * so many. */
static int64_t position_of(const td__share *s, int64_t index, int64_t every, int64_t i)
{
    return (index * every + i) % s->count;
}

/* Do workers go round samples of their own? */
static bool goes_round(const td__loader *l)
{
    return l->in_step && l->share.count < l->samples;
}

static int64_t sample_of_worker(const td__loader *l, uint64_t epoch, int64_t index, int64_t row)
{
    for (int w = 0; w < l->share.workers; w++) {
        td__row_range has = l->others(l->rows_user, w, index, rows_of(l, index));
        td__row_range full = l->others(l->rows_user, w, 0, rows_of(l, 0));
        const td__share *s = &l->shares[w];
        td__order order;
        if (row < has.begin || row >= has.end)
            continue;
        td__order_init(&order, s, epoch);
        return td__order_at(&order, s,
                            position_of(s, index, full.end - full.begin, row - has.begin));
    }
    TD_ASSERT(false, "row %" PRId64 " of batch %" PRId64 " is nobody's", row, index);
    return -1;
}

int64_t td__loader_sample(const td__loader *l, uint64_t epoch, int64_t position)
{
    td__order order;

    if (l->shares)
        return sample_of_worker(l, epoch, position / l->batch, position % l->batch);
    td__order_init(&order, &l->share, epoch);
    return td__order_at(&order, &l->share, goes_round(l) ? position % l->share.count : position);
}

/* Which batch a ticket is; false: there is none. */
static bool locate(const td__loader *l, int64_t ticket, uint64_t *epoch, int64_t *index)
{
    if (l->batches == 0)
        return false;
    int64_t at = l->index + ticket * l->stride;
    *epoch = l->epoch + (uint64_t)(at / l->batches);
    *index = at % l->batches;
    return !l->epochs || *epoch - l->epoch < l->epochs;
}

/* Keep columns [cut_begin, cut_begin + width) of the last axis. */
static void cut_columns(const td__loader *l, slot *s)
{
    const td__field *from = &l->data->fields[l->cut_field], *to = &l->fields[l->cut_field];
    size_t size = td_dtype_size(from->dtype);
    size_t wide = (size_t)from->shape.dim[from->shape.ndim - 1] * size;
    size_t narrow = (size_t)to->shape.dim[to->shape.ndim - 1] * size;
    int64_t here = s->batch.here.end - s->batch.here.begin;
    size_t lines = narrow ? td__field_nbytes(to) / narrow * (size_t)here : 0;
    const char *x = (const char *)s->whole + (size_t)l->cut_begin * size;
    char *y = s->batch.field[l->cut_field];

    for (size_t i = 0; i < lines; i++)
        memcpy(y + i * narrow, x + i * wide, narrow);
}

/* Zeros outside of columns [cut_begin, cut_end). */
static void mask_columns(const td__loader *l, slot *s)
{
    const td__field *f = &l->fields[l->cut_field];
    size_t size = td_dtype_size(f->dtype), wide = (size_t)f->shape.dim[f->shape.ndim - 1] * size;
    size_t begin = (size_t)l->cut_begin * size, end = (size_t)l->cut_end * size;
    int64_t here = s->batch.here.end - s->batch.here.begin;
    size_t lines = wide ? td__field_nbytes(f) / wide * (size_t)here : 0;
    char *x = s->batch.field[l->cut_field];

    for (size_t i = 0; i < lines; i++) {
        memset(x + i * wide, 0, begin);
        memset(x + i * wide + end, 0, wide - end);
    }
}

static td__row_range range_of(const td__loader *l, int64_t index)
{
    int64_t rows = rows_of(l, index);
    if (l->pick)
        return (td__row_range){0, l->pick(l->rows_user, index, rows, NULL)};
    return l->rows ? l->rows(l->rows_user, index, rows) : (td__row_range){0, rows};
}

/* The rows that the keeper does not have. */
static td_status read_absent(const td__loader *l, slot *s, int64_t rows, const td__draw *draw)
{
    td__kept_rows *k = s->batch.kept;
    void *out[TD__MAX_FIELDS];

    TD_TRY(l->keeper->find(k, s->index, rows, s->absent));
    for (int64_t i = 0, n; i < rows; i += n) {
        for (n = 1; i + n < rows && s->absent[i + n] == s->absent[i];)
            n++;
        if (!s->absent[i])
            continue;
        for (int f = 0; f < l->data->n_fields; f++)
            out[f] = (char *)s->batch.field[f] + (size_t)i * td__field_nbytes(&l->fields[f]);
        TD_TRY(td__dataset_read(l->data, s->index + i, n, draw, out));
    }
    return l->keeper->keep(k, s->batch.field);
}

static void fill(const td__loader *l, slot *s, uint64_t epoch, int64_t index)
{
    td__draw draw = {.seed = l->share.seed, .epoch = epoch};
    td__row_range here = range_of(l, index);
    int64_t begin = index * l->batch, rows = here.end - here.begin;
    TD_ASSERT(rows <= l->room, "%" PRId64 " rows in the room of %" PRId64, rows, l->room);
    void *out[TD__MAX_FIELDS];
    td__order order;

    s->batch.rows = rows_of(l, index);
    s->batch.here = here;
    s->batch.epoch = epoch;
    s->batch.index = index;
    td__order_init(&order, &l->share, epoch);
    if (l->pick)
        l->pick(l->rows_user, index, rows_of(l, index), s->index);
    for (int64_t i = 0; i < rows; i++) {
        int64_t at = begin + (l->pick ? s->index[i] : here.begin + i);
        if (goes_round(l))
            at = position_of(&l->share, index, l->every, i);
        s->index[i] = td__order_at(&order, &l->share, at);
    }
    memcpy(out, s->batch.field, sizeof out);
    if (l->cut_field >= 0 && !l->in_step)
        out[l->cut_field] = s->whole;
    s->status = TD_OK;
    if (l->keeper)
        s->status = read_absent(l, s, rows, l->augment ? &draw : NULL);
    else if (rows)
        s->status = td__dataset_read(l->data, s->index, rows, l->augment ? &draw : NULL, out);
    if (s->status)
        snprintf(s->error, sizeof s->error, "%s", td_last_error());
    else if (l->cut_field >= 0)
        (l->in_step ? mask_columns : cut_columns)(l, s);
}

static void *prefetch(void *arg)
{
    td__loader *l = arg;

    pthread_mutex_lock(&l->lock);
    while (!l->stop) {
        slot *s = &l->slots[l->claimed % l->n_slots];
        uint64_t epoch, generation = l->generation;
        int64_t index;
        if (s->state != SLOT_FREE || l->claimed >= l->consumed + l->n_slots ||
            !locate(l, l->claimed, &epoch, &index)) {
            pthread_cond_wait(&l->changed, &l->lock);
            continue;
        }
        l->claimed++;
        s->state = SLOT_FILLING;
        pthread_mutex_unlock(&l->lock);
        fill(l, s, epoch, index);
        pthread_mutex_lock(&l->lock);
        s->state = generation == l->generation ? SLOT_READY : SLOT_FREE;
        pthread_cond_broadcast(&l->changed);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

static td_status init_slot(td__loader *l, slot *s)
{
    size_t nbytes;

    s->index = td__calloc((size_t)l->room, sizeof *s->index);
    if (!s->index)
        return TD_FAIL(TD_ENOMEM, "no memory for batches of %" PRId64, l->room);
    if (l->keeper) {
        s->absent = td__calloc((size_t)l->room, sizeof *s->absent);
        if (!s->absent)
            return TD_FAIL(TD_ENOMEM, "no memory for batches of %" PRId64, l->room);
        TD_TRY(l->keeper->open(l->keeper->user, l->room, &s->batch.kept));
    }
    for (int f = 0; f < l->data->n_fields; f++) {
        if (!td__size_mul(td__field_nbytes(&l->fields[f]), (size_t)l->room, &nbytes))
            return TD_FAIL(TD_EINVAL, "a batch of %" PRId64 " samples is too large", l->room);
        s->batch.field[f] = td__alloc_block(nbytes);
        if (!s->batch.field[f])
            return TD_FAIL(TD_ENOMEM, "no memory for a batch: %zu bytes of field %s", nbytes,
                           l->fields[f].name);
    }
    if (l->cut_field >= 0 && !l->in_step) {
        nbytes = td__field_nbytes(&l->data->fields[l->cut_field]) * (size_t)l->room;
        s->whole = td__alloc_block(nbytes);
        if (!s->whole)
            return TD_FAIL(TD_ENOMEM, "no memory for a batch of %zu bytes", nbytes);
    }
    return TD_OK;
}

static void fini_slot(td__loader *l, slot *s)
{
    for (int f = 0; f < l->data->n_fields; f++)
        td__free_block(s->batch.field[f], td__field_nbytes(&l->fields[f]) * (size_t)l->room);
    if (s->whole)
        td__free_block(s->whole,
                       td__field_nbytes(&l->data->fields[l->cut_field]) * (size_t)l->room);
    if (l->keeper)
        l->keeper->close(s->batch.kept);
    td__free(s->absent);
    td__free(s->index);
}

/* The field that TD_PARTITION_FEATURES narrows. */
static td_status init_cut(td__loader *l, const td__partition *p)
{
    l->cut_field = -1;
    if (l->share.whole || p->mode != TD_PARTITION_FEATURES)
        return TD_OK;
    if (p->field < 0 || p->field >= l->data->n_fields || l->fields[p->field].shape.ndim < 1)
        return TD_FAIL(TD_EINVAL, "partition by features: field %d has no axis to cut", p->field);
    td_shape *shape = &l->fields[p->field].shape;
    int64_t *last = &shape->dim[shape->ndim - 1];
    if (*last < p->workers)
        return TD_FAIL(TD_EINVAL,
                       "partition by features: %" PRId64 " features of %s for %d workers", *last,
                       l->fields[p->field].name, p->workers);
    td__even_range(*last, p->worker, p->workers, &l->cut_begin, &l->cut_end);
    if (!l->in_step)
        *last = l->cut_end - l->cut_begin;
    l->cut_field = p->field;
    return TD_OK;
}

static td_status check_opts(const td__loader_opts *o)
{
    if (o->batch < 1 || o->batch > INT32_MAX)
        return TD_FAIL(TD_EINVAL, "a batch of %" PRId64 " samples: must be at least 1", o->batch);
    if (o->prefetch < -1 || o->prefetch > MAX_PREFETCH)
        return TD_FAIL(TD_EINVAL, "prefetch of %d batches: allowed are -1 (none) to %d",
                       o->prefetch, MAX_PREFETCH);
    if (o->threads < 0 || o->threads > MAX_THREADS)
        return TD_FAIL(TD_EINVAL, "%d threads that prefetch: allowed are up to %d", o->threads,
                       MAX_THREADS);
    return TD_OK;
}

/* Those of all workers. */
static td_status make_shares(td__loader *l, const td__loader_opts *opts)
{
    td__partition p = opts->partition;

    l->shares = td__calloc((size_t)p.workers, sizeof *l->shares);
    if (!l->shares)
        return TD_FAIL(TD_ENOMEM, "no memory for the samples of %d ranks", p.workers);
    for (p.worker = 0; p.worker < p.workers; p.worker++) {
        td__share *s = &l->shares[p.worker];
        TD_TRY(td__share_init(s, &p, l->data->count, opts->shuffle, opts->seed));
        s->uniform = opts->uniform;
        if (!s->count)
            return TD_FAIL(TD_EINVAL, "data.partition: no samples for rank %d", p.worker);
    }
    return TD_OK;
}

td_status td__loader_create(td__dataset *d, const td__loader_opts *opts, td__loader **out)
{
    td_status st = TD_OK;
    pthread_condattr_t attr;

    *out = NULL;
    TD_TRY(check_opts(opts));
    td__loader *l = td__calloc(1, sizeof *l);
    if (!l)
        return TD_FAIL(TD_ENOMEM, "no memory for a loader");
    l->data = d;
    l->epochs = opts->epochs;
    l->keeper = opts->keeper;
    l->augment = opts->augment;
    l->batch = opts->batch;
    l->rows = opts->rows;
    l->pick = opts->pick;
    l->rows_user = opts->rows_user;
    l->in_step = opts->in_step;
    l->cut_field = -1;
    l->stride = 1;
    memcpy(l->fields, d->fields, sizeof l->fields);
    pthread_mutex_init(&l->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&l->changed, &attr);
    pthread_condattr_destroy(&attr);

    TD_TRY_OR(st, fail,
              td__share_init(&l->share, &opts->partition, d->count, opts->shuffle, opts->seed));
    l->share.uniform = opts->uniform;
    l->others = opts->others;
    TD_TRY_OR(st, fail, init_cut(l, &opts->partition));
    l->samples = l->in_step ? d->count : l->share.count;
    if (l->in_step && !l->share.count) {
        st = TD_FAIL(TD_EINVAL, "data.partition: no samples for rank %d", l->share.worker);
        goto fail;
    }
    if (goes_round(l) && l->others)
        TD_TRY_OR(st, fail, make_shares(l, opts));
    if (l->batch > l->samples && l->samples > 0 && !opts->drop_last)
        l->batch = l->samples; /* no memory for rows that never come */
    l->batches = opts->drop_last ? l->samples / l->batch
                                 : l->samples / l->batch + (l->samples % l->batch != 0);
    if (l->batches == 0 && !opts->epochs) {
        st = TD_FAIL(TD_EINVAL, "%" PRId64 " samples are too few for a batch of %" PRId64,
                     l->samples, l->batch);
        goto fail;
    }
    l->room = 1;
    for (int64_t k = 0; k < l->batches; k++) {
        td__row_range here = range_of(l, k);
        TD_ASSERT(0 <= here.begin && here.begin <= here.end && here.end <= rows_of(l, k),
                  "rows %" PRId64 " to %" PRId64 " of batch %" PRId64, here.begin, here.end, k);
        l->every = k == 0 ? here.end - here.begin : l->every;
        l->room = here.end - here.begin > l->room ? here.end - here.begin : l->room;
    }
    if (opts->prefetch >= 0)
        l->want_threads = opts->threads ? opts->threads : 1;
    l->n_slots = opts->prefetch < 0    ? 1
                 : opts->prefetch == 0 ? DEFAULT_PREFETCH + 1
                                       : opts->prefetch + 1;
    l->slots = td__calloc((size_t)l->n_slots, sizeof *l->slots);
    l->threads = td__calloc((size_t)l->want_threads + 1, sizeof *l->threads);
    if (!l->slots || !l->threads) {
        st = TD_FAIL(TD_ENOMEM, "no memory for a loader of %d batches", l->n_slots);
        goto fail;
    }
    for (int i = 0; i < l->n_slots; i++)
        TD_TRY_OR(st, fail, init_slot(l, &l->slots[i]));
    *out = l;
    return TD_OK;
fail:
    td__loader_destroy(l);
    return st;
}

void td__loader_destroy(td__loader *l)
{
    if (!l)
        return;
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
    for (int i = 0; i < l->n_threads; i++)
        pthread_join(l->threads[i], NULL);
    for (int i = 0; l->slots && i < l->n_slots; i++)
        fini_slot(l, &l->slots[i]);
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->lock);
    td__free(l->threads);
    td__free(l->slots);
    td__free(l->shares);
    td__free(l);
}

void td__loader_seek(td__loader *l, uint64_t epoch, int64_t index)
{
    td__loader_seek_by(l, epoch, index, 1);
}

bool td__loader_is_at(td__loader *l, uint64_t epoch, int64_t index)
{
    uint64_t of = 0;
    int64_t at = 0;
    pthread_mutex_lock(&l->lock);
    bool any = locate(l, l->consumed + (l->lent != NULL), &of, &at);
    pthread_mutex_unlock(&l->lock);
    return any && of == epoch && at == index;
}

void td__loader_seek_by(td__loader *l, uint64_t epoch, int64_t index, int64_t by)
{
    pthread_mutex_lock(&l->lock);
    l->stride = by;
    l->generation++;
    l->epoch = epoch;
    l->index = index;
    l->claimed = l->consumed = 0;
    l->lent = NULL;
    for (int i = 0; i < l->n_slots; i++)
        if (l->slots[i].state == SLOT_READY)
            l->slots[i].state = SLOT_FREE;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
}

/* Threads start with the first batch that is asked for, so that a seek before costs nothing. */
static td_status start_threads(td__loader *l)
{
    for (; l->n_threads < l->want_threads; l->n_threads++) {
        int error = pthread_create(&l->threads[l->n_threads], NULL, prefetch, l);
        if (error && l->n_threads == 0)
            return TD_FAIL(TD_ENOMEM, "cannot start a data loading thread: %s", strerror(error));
        if (error)
            l->want_threads = l->n_threads; /* fewer do as well */
    }
    return TD_OK;
}

/* Wait for the slot of the next ticket; called with the lock. */
static td_status await(td__loader *l, slot *s)
{
    td__deadline deadline = td__deadline_in_ms(WAIT_MS);
    struct timespec at = {.tv_sec = (time_t)(deadline / 1000000000u),
                          .tv_nsec = (long)(deadline % 1000000000u)};

    while (s->state != SLOT_READY) {
        pthread_cond_timedwait(&l->changed, &l->lock, &at);
        if (s->state != SLOT_READY && td__deadline_passed(deadline))
            return TD_FAIL(TD_EIO, "timed out after %d seconds waiting for a batch of data",
                           WAIT_MS / 1000);
    }
    return TD_OK;
}

td_status td__loader_next(td__loader *l, const td__batch **out)
{
    td_status st = TD_OK;
    uint64_t epoch;
    int64_t index;

    *out = NULL;
    TD_TRY(start_threads(l));
    pthread_mutex_lock(&l->lock);
    if (l->lent) {
        l->lent->state = SLOT_FREE;
        l->lent = NULL;
        l->consumed++;
        pthread_cond_broadcast(&l->changed);
    }
    if (!locate(l, l->consumed, &epoch, &index)) {
        pthread_mutex_unlock(&l->lock);
        return TD_OK;
    }
    slot *s = &l->slots[l->consumed % l->n_slots];
    if (l->n_threads == 0) {
        fill(l, s, epoch, index);
        s->state = SLOT_READY;
    } else {
        st = await(l, s);
    }
    if (!st)
        l->lent = s;
    pthread_mutex_unlock(&l->lock);
    TD_TRY(st);
    if (s->status) /* TD_ETIMEDOUT is for peers: data that do not come are this host's trouble */
        return TD_FAIL(s->status == TD_ETIMEDOUT ? TD_EIO : s->status, "%s", s->error);
    *out = &s->batch;
    return TD_OK;
}
