/* table_server.c -- the servers' side of tables: a thread per other rank that answers what it asks
 * for. See tables.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "ps/tables_impl.h"

enum { PATIENCE = 300 }; /* seconds that others may take to end, as of calls */

td_status td__rows_pull(td__ps_tables *t, int table, const int64_t *ids, size_t n, bool train,
                        float *out)
{
    pthread_mutex_lock(&t->lock);
    td_status st = td__id_table_pull(t->at[table].rows, ids, n, train, out);
    pthread_mutex_unlock(&t->lock);
    return st;
}

/* ---- Pushes ---------------------------------------------------------------------------------- */

/* What the worker pushed before is applied, or never will be. */
static td_status keep(td__rows_kept *k, size_t width, const td__rows_message *m, const int64_t *ids,
                      const float *grads)
{
    k->step = 0;
    if (m->n > k->room) {
        td__free(k->ids);
        td__free(k->grads);
        k->room = 0;
        k->ids = td__calloc(m->n, sizeof *k->ids);
        k->grads = td__calloc(m->n * width, sizeof *k->grads);
        if (!k->ids || !k->grads)
            return TD_FAIL(TD_ENOMEM, "no memory for gradients of %llu rows",
                           (unsigned long long)m->n);
        k->room = m->n;
    }
    k->n = m->n;
    k->lr = m->lr;
    k->step = m->step;
    if (m->n) {
        memcpy(k->ids, ids, m->n * sizeof *ids);
        memcpy(k->grads, grads, m->n * width * sizeof *grads);
    }
    return TD_OK;
}

typedef struct pair {
    int64_t id;
    uint32_t worker, row;
} pair;

static int by_id(const void *a, const void *b)
{
    const pair *x = a, *y = b;
    if (x->id != y->id)
        return x->id < y->id ? -1 : 1;
    return x->worker < y->worker ? -1 : x->worker > y->worker;
}

/* Of all workers: sums by id, added in the order of workers, are one update. */
static td_status apply_sums(td__ps_tables *t, td__ps_table *b)
{
    int workers = t->ranks - t->servers;
    size_t all = 0, n = 0, unique = 0;
    for (int w = 0; w < workers; w++)
        all += b->kept[w].n;
    pair *pairs = td__calloc(all + 1, sizeof *pairs);
    int64_t *ids = td__calloc(all + 1, sizeof *ids);
    float *sums = td__calloc(all * b->width + 1, sizeof *sums);
    td_status st = pairs && ids && sums
                       ? TD_OK
                       : TD_FAIL(TD_ENOMEM, "no memory for the gradients of %zu rows", all);
    for (int w = 0; !st && w < workers; w++)
        for (size_t i = 0; i < b->kept[w].n; i++)
            pairs[n++] = (pair){b->kept[w].ids[i], (uint32_t)w, (uint32_t)i};
    qsort(pairs, st ? 0 : n, sizeof *pairs, by_id);
    for (size_t i = 0; !st && i < n; i++) {
        const float *g = b->kept[pairs[i].worker].grads + pairs[i].row * b->width;
        bool same = i > 0 && pairs[i].id == pairs[i - 1].id;
        unique += !same;
        ids[unique - 1] = pairs[i].id;
        float *sum = sums + (unique - 1) * b->width;
        for (size_t j = 0; j < b->width; j++)
            sum[j] = same ? sum[j] + g[j] : g[j];
    }
    if (!st)
        st = td__id_table_push(b->rows, ids, sums, unique, b->kept[0].lr, b->kept[0].step);
    td__free(pairs);
    td__free(ids);
    td__free(sums);
    return st;
}

static td_status apply(td__ps_tables *t, td__ps_table *b, int worker, uint64_t step)
{
    int first = worker < 0 ? 0 : worker, end = worker < 0 ? t->ranks - t->servers : worker + 1;
    for (int w = first; w < end; w++)
        if (b->kept[w].step != step)
            return TD_FAIL(TD_EPROTO, "%s: rank %d has pushed rows of step %llu, not of %llu",
                           b->is.param, t->servers + w, (unsigned long long)b->kept[w].step,
                           (unsigned long long)step);
    td__rows_kept *k = &b->kept[first];
    TD_TRY(worker < 0 ? apply_sums(t, b)
                      : td__id_table_push(b->rows, k->ids, k->grads, k->n, k->lr, k->step));
    for (int w = first; w < end; w++)
        b->kept[w].step = 0; /* once */
    return TD_OK;
}

td_status td__ps_tables_apply(td__ps_tables *t, int worker, uint64_t step)
{
    td_status st = TD_OK;
    if (!t)
        return TD_OK;
    pthread_mutex_lock(&t->lock);
    for (int k = 0; !st && k < t->n; k++)
        st = apply(t, &t->at[k], worker, step);
    t->moment += !st;
    pthread_mutex_unlock(&t->lock);
    return st;
}

/* ---- Threads --------------------------------------------------------------------------------- */

static td_status obey(td__ps_tables *t, td__ps_lane *l, const td__rows_message *m)
{
    switch ((td__rows_verb)m->verb) {
    case TD__ROWS_PULL:
        return td__rows_pull(t, m->table, td__rows_ids(l->push), m->n, m->train, l->pull);
    case TD__ROWS_PUSH: {
        td__ps_table *b = &t->at[m->table];
        pthread_mutex_lock(&t->lock);
        td_status st = keep(&b->kept[l->rank - t->servers], b->width, m, td__rows_ids(l->push),
                            td__rows_grads(l->push, m->n));
        pthread_mutex_unlock(&t->lock);
        return st;
    }
    case TD__ROWS_SAVE: return td__rows_save(t, m->step);
    case TD__ROWS_LOAD: return td__rows_load(t, m->step);
    }
    return TD_FAIL(TD_EPROTO, "rank %d sent unknown request %d (version mismatch?)", l->rank,
                   m->verb);
}

static td_status check(const td__ps_tables *t, const td__ps_lane *l, const td__rows_message *m)
{
    bool rows = m->verb == TD__ROWS_PULL || m->verb == TD__ROWS_PUSH;
    bool good = m->table >= 0 && m->table < t->n && m->n <= (rows ? t->at[m->table].most : 0) &&
                (m->verb != TD__ROWS_PUSH || l->rank >= t->servers);
    return good ? TD_OK
                : TD_FAIL(TD_EPROTO, "rank %d asks for %llu rows of table %d", l->rank,
                          (unsigned long long)m->n, m->table);
}

static td_status answer(td__ps_tables *t, td__ps_lane *l)
{
    td__rows_message m;
    td__rows_answer a = {.status = TD_OK};
    TD_TRY(td__ps_hear(l, &m, sizeof m, true));
    TD_TRY(check(t, l, &m));
    size_t width = t->at[m.table].width;
    TD_TRY(td__ps_take(l, l->push, m.verb == TD__ROWS_PUSH ? m.n * (2 + width) : 2 * m.n));
    a.status = obey(t, l, &m);
    if (a.status)
        snprintf(a.text, sizeof a.text, "%s", td_last_error());
    TD_TRY(td__ps_tell(l, &a, sizeof a));
    return !a.status && m.verb == TD__ROWS_PULL ? td__ps_hand(l, l->pull, m.n * width) : TD_OK;
}

static void *attend(void *arg)
{
    td__rows_guest *g = arg;
    td__ps_lane *l = &g->t->serve[g->rank];
    td_status st = TD_OK;
    while (!st)
        st = answer(g->t, l);
    if (st != TD_EPEER) /* else it has gone */
        td_comm_abort(l->link, td_last_error());
    return NULL;
}

td_status td__rows_serve_start(td__ps_tables *t)
{
    for (int r = 0; r < t->ranks; r++) {
        td__rows_guest *g = &t->guests[r];
        if (r == t->rank)
            continue;
        *g = (td__rows_guest){.t = t, .rank = r};
        if (pthread_create(&g->thread, NULL, attend, g))
            return TD_FAIL(TD_ENOMEM, "no thread for the rows of rank %d", r);
        g->started = true;
    }
    return TD_OK;
}

/* Others may still evaluate: a thread ends when its rank has closed its side, or is gone. */
void td__rows_serve_stop(td__ps_tables *t)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE;
    for (int r = 0; t->guests && r < t->ranks; r++) {
        bool started = t->guests[r].started;
        t->guests[r].started = false;
        if (!started || !pthread_timedjoin_np(t->guests[r].thread, NULL, &until))
            continue;
        td_comm_abort(t->serve[r].link, "tables are closed");
        pthread_join(t->guests[r].thread, NULL);
    }
}
