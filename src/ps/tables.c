/* tables.c -- the clients' side of tables on servers: rows of a batch, their gradients, files. See
 * tables.h; table_create.c makes tables. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "coll/comm.h"
#include "graph/params.h"
#include "ps/tables_impl.h"

/* ---- Ids of a batch -------------------------------------------------------------------------- */

static int64_t id_at(td_dtype dtype, const void *field, size_t i)
{
    return dtype == TD_I32 ? ((const int32_t *)field)[i] : ((const int64_t *)field)[i];
}

size_t td__rows_find(const td__ps_table *b, int64_t id)
{
    size_t mask = ((size_t)1 << b->bits) - 1;
    size_t at = (size_t)((uint64_t)id * UINT64_C(0x9E3779B97F4A7C15) >> 20) & mask;
    while (b->place[at] && b->ids[b->place[at] - 1] != id)
        at = (at + 1) & mask;
    return at;
}

/* The number of an id among those of the batch. */
static td_status number(td__ps_table *b, int64_t id, int64_t *out)
{
    size_t at = td__rows_find(b, id);
    if (!b->place[at]) {
        if (b->n == b->most)
            return TD_FAIL(TD_EINVAL, "%s: a batch of more than %zu ids", b->is.param, b->most);
        b->ids[b->n++] = id;
        b->place[at] = (uint32_t)b->n;
    }
    *out = b->place[at] - 1;
    return TD_OK;
}

/* The field of ids as row numbers; ids: what they stand for, in the order of their first use. */
td_status td__rows_number(td__ps_tables *t, td__ps_table *b, const td__batch *batch)
{
    const td__field *f = &t->x->data->fields[b->field];
    size_t n = (size_t)((batch->here.end - batch->here.begin) * td_shape_count(&f->shape));
    size_t nbytes = (size_t)(batch->here.end - batch->here.begin) * td__field_nbytes(f);
    if (nbytes > b->room) {
        td__free(b->local);
        b->room = 0;
        b->local = td__malloc(nbytes);
        if (!b->local)
            return TD_FAIL(TD_ENOMEM, "no memory for %zu ids", n);
        b->room = nbytes;
    }
    memset(b->place, 0, sizeof *b->place << b->bits);
    b->n = 0;
    for (size_t i = 0; i < n; i++) {
        int64_t id = id_at(f->dtype, batch->field[b->field], i), row = -1;
        if (id >= b->is.vocab)
            return TD_FAIL(TD_EINVAL, "%s: id %" PRId64 ", but the table has a vocab of %" PRId64,
                           b->is.param, id, b->is.vocab);
        if (id >= 0) /* else padding */
            TD_TRY(number(b, id, &row));
        if (f->dtype == TD_I32)
            ((int32_t *)b->local)[i] = (int32_t)row;
        else
            ((int64_t *)b->local)[i] = row;
    }
    return TD_OK;
}

/* ---- Messages -------------------------------------------------------------------------------- */

static td_status hear_answer(const td__ps_lane *l)
{
    td__rows_answer a;
    TD_TRY(td__ps_hear(l, &a, sizeof a, false));
    a.text[sizeof a.text - 1] = '\0';
    return a.status ? TD_FAIL((td_status)a.status, "rank %d: %s", l->rank, a.text) : TD_OK;
}

/* Do all ids of the batch go to one server, as they are? */
static bool all_of_them(const td__ps_table *b, size_t n)
{
    return n == b->n;
}

/* Ids of the batch that belong to server s, but for known ones, to its area; b->to: their
 * numbers, unless it is all of them. copies: also those of which it has a copy. */
static size_t list_ids(td__ps_tables *t, td__ps_table *b, int s, bool copies, int64_t *out)
{
    size_t n = 0;
    if (t->servers == 1 && !memchr(b->known, true, b->n)) {
        memcpy(out, b->ids, b->n * sizeof *out);
        return b->n;
    }
    for (size_t i = 0; i < b->n; i++)
        if (!b->known[i] && td__rows_has(t->servers, copies, s, td__rows_owner(t, b->ids[i]))) {
            b->to[n] = (uint32_t)i;
            out[n++] = b->ids[i];
        }
    return n;
}

static td_status ask_for(td__ps_tables *t, int k, td__ps_table *b, int s, bool train)
{
    td__ps_lane *l = &t->ask[s];
    td__rows_message m = {.verb = TD__ROWS_PULL, .table = k, .train = train};
    m.n = list_ids(t, b, s, false, td__rows_ids(l->push));
    TD_TRY(td__ps_tell(l, &m, sizeof m));
    return td__ps_hand(l, l->push, 2 * m.n);
}

static void place_some(td__ps_table *b, const float *rows, size_t n)
{
    for (size_t i = 0; i < n; i++)
        memcpy(b->values + b->to[i] * b->width, rows + i * b->width, b->width * sizeof *rows);
}

static void place_rows(td__ps_table *b, const float *rows, size_t n)
{
    if (all_of_them(b, n))
        memcpy(b->values, rows, n * b->width * sizeof *rows);
    else
        place_some(b, rows, n);
}

static td_status take_rows(td__ps_tables *t, td__ps_table *b, int s)
{
    td__ps_lane *l = &t->ask[s];
    TD_TRY(hear_answer(l));
    size_t n = list_ids(t, b, s, false, td__rows_ids(l->push)); /* as they were asked for */
    TD_TRY(td__ps_take(l, l->pull, n * b->width));
    place_rows(b, l->pull, n);
    return TD_OK;
}

static td_status own_rows(td__ps_tables *t, int k, td__ps_table *b, bool train)
{
    float *own = td__calloc(b->n * b->width + 1, sizeof *own);
    int64_t *ids = td__calloc(b->n + 1, sizeof *ids);
    td_status st = own && ids ? TD_OK : TD_FAIL(TD_ENOMEM, "no memory for %zu rows", b->n);
    size_t n = st ? 0 : list_ids(t, b, t->server, false, ids);
    if (!st)
        st = td__rows_pull(t, k, ids, n, train, own);
    if (!st)
        place_rows(b, own, n);
    td__free(own);
    td__free(ids);
    return st;
}

/* All servers work at the same time. */
td_status td__rows_fetch(td__ps_tables *t, int k, td__ps_table *b, bool train)
{
    for (int s = 0; s < t->servers; s++)
        if (s != t->server)
            TD_TRY(ask_for(t, k, b, s, train));
    if (t->server >= 0)
        TD_TRY(own_rows(t, k, b, train));
    for (int s = 0; s < t->servers; s++)
        if (s != t->server)
            TD_TRY(take_rows(t, b, s));
    return TD_OK;
}

static void waits(const td__ps_tables *t, const char *what)
{
    if (t->x->host.waits)
        t->x->host.waits(t->x->host.user, what);
}

td_status td__rows_lookup(void *user, const td__batch *batch, bool train, const td__batch **out)
{
    td__ps_tables *t = user;
    td__rows_ahead *ahead = train ? t->ahead : NULL;
    if (t->unread)
        TD_TRY(td__rows_load(t, t->unread));
    t->unread = 0;
    t->batch = *batch;
    TD_TRY(td__rows_ahead_wait(t->ahead));
    for (int k = 0; k < t->n; k++) {
        td__ps_table *b = &t->at[k];
        TD_TRY(td__rows_number(t, b, batch));
        td__rows_ahead_use(ahead, k, b, batch);
        waits(t, "rows of servers");
        td_status st = td__rows_fetch(t, k, b, train);
        waits(t, NULL);
        TD_TRY(st);
        TD_TRY(td_params_write(t->x->step.params, b->offset, b->n * b->width, b->values));
        t->batch.field[b->field] = b->local;
    }
    td__rows_ahead_ask(ahead, batch);
    td_params_touch(t->x->step.params);
    *out = &t->batch;
    return TD_OK;
}

/* ---- Push ------------------------------------------------------------------------------------ */

/* The gradients of all partials, by row number. */
static void add_up(td__ps_table *b, td__step_engine *e)
{
    const td__grad_stack *partials = td__step_partials(e);
    memset(b->values, 0, b->n * b->width * sizeof *b->values);
    for (int i = 0; i < partials->n; i++) {
        const td__partial *p = &partials->at[i];
        if (!p->dense)
            continue;
        td_sparse_grad g = td__grad_sparse(td__step_grads(e), p, b->list);
        for (int64_t r = 0; r < g.n_rows; r++) {
            float *to = b->values + (size_t)g.rows[r] * b->width;
            const float *from = g.values + (size_t)r * b->width;
            for (size_t j = 0; j < b->width; j++)
                to[j] += from[j];
        }
    }
}

static td_status hand_grads(td__ps_tables *t, int k, int s, double lr, uint64_t step)
{
    td__ps_table *b = &t->at[k];
    td__ps_lane *l = &t->ask[s];
    td__rows_message m = {.verb = TD__ROWS_PUSH, .table = k, .step = step, .lr = lr};
    m.n = list_ids(t, b, s, t->copies, td__rows_ids(l->push));
    float *to = td__rows_grads(l->push, m.n);
    if (all_of_them(b, (size_t)m.n))
        memcpy(to, b->values, m.n * b->width * sizeof *to);
    for (size_t i = 0; i < m.n && !all_of_them(b, (size_t)m.n); i++)
        memcpy(to + i * b->width, b->values + b->to[i] * b->width, b->width * sizeof *to);
    TD_TRY(td__ps_tell(l, &m, sizeof m));
    return td__ps_hand(l, l->push, m.n * (2 + b->width));
}

td_status td__rows_push(td__ps_tables *t, int k, double lr, uint64_t step)
{
    memset(t->at[k].known, 0, t->at[k].n * sizeof *t->at[k].known);
    for (int s = 0; s < t->servers; s++)
        TD_TRY(hand_grads(t, k, s, lr, step));
    for (int s = 0; s < t->servers; s++)
        TD_TRY(hear_answer(&t->ask[s]));
    return TD_OK;
}

td_status td__ps_tables_push(td__ps_tables *t, td__step_engine *e, double lr, uint64_t step)
{
    if (t)
        TD_TRY(td__rows_ahead_wait(t->ahead));
    for (int k = 0; t && k < t->n; k++) {
        add_up(&t->at[k], e);
        waits(t, "servers that take rows");
        td_status st = td__rows_push(t, k, lr, step);
        waits(t, NULL);
        TD_TRY(st);
        t->at[k].n = 0;
    }
    return TD_OK;
}

/* ---- Files ----------------------------------------------------------------------------------- */

static td_status ask_all(td__ps_tables *t, td__rows_verb verb, uint64_t step)
{
    td__rows_message m = {.verb = verb, .step = step};
    for (int s = 1; s < t->servers; s++)
        TD_TRY(td__ps_tell(&t->ask[s], &m, sizeof m));
    bool first = verb == TD__ROWS_SAVE && !t->saved;
    TD_TRY(verb == TD__ROWS_SAVE ? td__rows_save(t, step) : td__rows_load(t, step));
    for (int s = 1; s < t->servers; s++)
        TD_TRY(hear_answer(&t->ask[s]));
    return first ? td__rows_clean(t, step) : TD_OK;
}

td_status td__rows_clear(void *user)
{
    td__ps_tables *t = user;
    for (int k = 0; k < t->n; k++) {
        td__ps_table *b = &t->at[k];
        memset(b->values, 0, b->most * b->width * sizeof *b->values);
        TD_TRY(td_params_write(t->x->step.params, b->offset, b->most * b->width, b->values));
    }
    td_params_touch(t->x->step.params);
    return TD_OK;
}

td_status td__ps_tables_save(td__ps_tables *t, uint64_t step)
{
    if (!t)
        return TD_OK;
    TD_TRY(td__rows_clear(t));
    return *t->folder ? ask_all(t, TD__ROWS_SAVE, step) : TD_OK;
}

td_status td__ps_tables_load(td__ps_tables *t, uint64_t step)
{
    return t && !t->placed && *t->folder ? ask_all(t, TD__ROWS_LOAD, step) : TD_OK;
}
