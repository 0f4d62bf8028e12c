/* table_ahead.c -- rows of the batch that is probably the next are pulled while this one computes
 * (XDL's pipelining). A worker whose batches are dealt out in turn gets the batch that is as many
 * after its last as there are workers; if it gets another one, what was pulled is not used.
 *
 * One thread, which uses the lanes while the worker computes: whoever needs them waits for it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/log.h"
#include "ps/tables_impl.h"

typedef enum phase { IDLE, ASKED, CLOSING } phase;

struct td__rows_ahead {
    td__ps_tables *t;
    pthread_t thread;
    bool started;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    phase phase;
    uint64_t epoch;
    int64_t index, rows; /* the batch that is guessed */
    bool there;          /* its rows are */
    td_status failed;    /* in an exchange with servers, which is then not at its end; TD_OK: no */
    char error[256];
    int64_t *samples; /* (rows of a batch) */
    void *field[TD__MAX_FIELDS];
    td__ps_table *at; /* (tables) its ids and rows */
    uint64_t used, all;
};

/* ---- The thread ------------------------------------------------------------------------------ */

/* What the batch reads, which is this rank's alone. */
static td_status number(td__rows_ahead *a)
{
    td__ps_tables *t = a->t;
    const td__sync_ctx *x = t->x;
    td__batch b = {.rows = a->rows, .here = {0, a->rows}};
    for (int64_t i = 0; i < a->rows; i++)
        a->samples[i] = x->host.sample(x->host.user, a->epoch, a->index * x->batch + i);
    TD_TRY(
        td__dataset_read((td__dataset *)(uintptr_t)x->data, a->samples, a->rows, NULL, a->field));
    memcpy(b.field, a->field, sizeof b.field);
    for (int k = 0; k < t->n; k++)
        TD_TRY(td__rows_number(t, &a->at[k], &b));
    return TD_OK;
}

/* Answers of the servers after one that failed are still to come: whoever asked again would take
 * them for its own. So a failure is the worker's too. */
static bool fetch(td__rows_ahead *a)
{
    td_status st = number(a);
    if (st) { /* the worker will see the same, if the batch is its next */
        TD_LOG(DEBUG, TRAIN, "rows ahead: %s", td_last_error());
        return false;
    }
    for (int k = 0; !st && k < a->t->n; k++)
        st = td__rows_fetch(a->t, k, &a->at[k], true);
    if (st)
        snprintf(a->error, sizeof a->error, "%s", td_last_error());
    a->failed = st;
    return !st;
}

static void *run(void *arg)
{
    td__rows_ahead *a = arg;
    pthread_mutex_lock(&a->lock);
    for (;;) {
        while (a->phase == IDLE)
            pthread_cond_wait(&a->changed, &a->lock);
        if (a->phase == CLOSING)
            break;
        pthread_mutex_unlock(&a->lock);
        bool there = fetch(a);
        pthread_mutex_lock(&a->lock);
        a->there = there;
        if (a->phase == ASKED)
            a->phase = IDLE;
        pthread_cond_broadcast(&a->changed);
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

/* ---- The worker ------------------------------------------------------------------------------ */

td_status td__rows_ahead_wait(td__rows_ahead *a)
{
    if (!a)
        return TD_OK;
    pthread_mutex_lock(&a->lock);
    while (a->phase == ASKED)
        pthread_cond_wait(&a->changed, &a->lock);
    pthread_mutex_unlock(&a->lock);
    return a->failed ? TD_FAIL(a->failed, "rows of the next batch: %s", a->error) : TD_OK;
}

void td__rows_ahead_ask(td__rows_ahead *a, const td__batch *now)
{
    const td__sync_ctx *x = a ? a->t->x : NULL;
    if (!a)
        return;
    a->there = false;
    a->epoch = now->epoch;
    a->index = now->index + (a->t->ranks - a->t->servers);
    a->rows = x->samples - a->index * x->batch;
    a->rows = a->rows < x->batch ? a->rows : x->batch;
    if (a->rows <= 0) /* of the next epoch nobody knows */
        return;
    pthread_mutex_lock(&a->lock);
    a->phase = ASKED;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
}

void td__rows_ahead_use(td__rows_ahead *a, int k, td__ps_table *b, const td__batch *now)
{
    memset(b->known, 0, b->n * sizeof *b->known);
    if (!a)
        return;
    a->all += b->n;
    if (!a->there || a->epoch != now->epoch || a->index != now->index)
        return;
    const td__ps_table *next = &a->at[k];
    for (size_t i = 0; i < b->n; i++) {
        size_t at = td__rows_find(next, b->ids[i]);
        if (!next->place[at])
            continue;
        memcpy(b->values + i * b->width, next->values + (next->place[at] - 1) * b->width,
               b->width * sizeof *b->values);
        b->known[i] = true;
        a->used++;
    }
}

/* ---- Making ---------------------------------------------------------------------------------- */

static td_status make(td__rows_ahead *a)
{
    td__ps_tables *t = a->t;
    const td__dataset *d = t->x->data;
    size_t rows = (size_t)t->x->batch;
    a->samples = td__calloc(rows, sizeof *a->samples);
    a->at = td__calloc((size_t)t->n, sizeof *a->at);
    bool good = a->samples && a->at;
    for (int f = 0; good && f < d->n_fields; f++)
        good = (a->field[f] = td__calloc(rows, td__field_nbytes(&d->fields[f]))) != NULL;
    if (!good)
        return TD_FAIL(TD_ENOMEM, "no memory for a batch of %zu samples", rows);
    for (int k = 0; k < t->n; k++)
        TD_TRY(td__rows_client(&t->at[k], &a->at[k]));
    if (pthread_create(&a->thread, NULL, run, a))
        return TD_FAIL(TD_ENOMEM, "no thread for rows of the next batch");
    a->started = true;
    return TD_OK;
}

td_status td__rows_ahead_create(td__ps_tables *t, td__rows_ahead **out)
{
    *out = NULL;
    td__rows_ahead *a = td__calloc(1, sizeof *a);
    if (!a)
        return TD_FAIL(TD_ENOMEM, "no memory for rows of the next batch");
    a->t = t;
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->changed, NULL);
    td_status st = make(a);
    if (st) {
        td__rows_ahead_destroy(a);
        return st;
    }
    *out = a;
    return TD_OK;
}

void td__rows_ahead_destroy(td__rows_ahead *a)
{
    if (!a)
        return;
    pthread_mutex_lock(&a->lock);
    a->phase = CLOSING;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
    if (a->started)
        pthread_join(a->thread, NULL);
    if (a->all)
        TD_LOG(INFO, TRAIN, "%.1f %% of %llu rows were pulled ahead",
               100 * (double)a->used / (double)a->all, (unsigned long long)a->all);
    for (int k = 0; a->at && k < a->t->n; k++)
        td__rows_client_free(&a->at[k]);
    for (int f = 0; f < TD__MAX_FIELDS; f++)
        td__free(a->field[f]);
    td__free(a->samples);
    td__free(a->at);
    pthread_mutex_destroy(&a->lock);
    pthread_cond_destroy(&a->changed);
    td__free(a);
}
