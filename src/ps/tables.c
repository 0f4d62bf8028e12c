/* tables.c -- the clients' side of tables on servers, and how tables are made. See tables.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "coll/comm.h"
#include "graph/params.h"
#include "ps/tables_impl.h"

/* ---- Ids of a batch -------------------------------------------------------------------------- */

static int64_t id_at(const td__ps_table *b, td_dtype dtype, const void *field, size_t i)
{
    (void)b;
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
        int64_t id = id_at(b, f->dtype, batch->field[b->field], i), row = -1;
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

/* Ids of the batch that belong to server s, but for known ones, to its area; b->to: their
 * numbers. copies: also those of which it has a copy. */
static size_t list_ids(td__ps_tables *t, td__ps_table *b, int s, bool copies, int64_t *out)
{
    size_t n = 0;
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

static void place_rows(td__ps_table *b, const float *rows, size_t n)
{
    for (size_t i = 0; i < n; i++)
        memcpy(b->values + b->to[i] * b->width, rows + i * b->width, b->width * sizeof *rows);
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

static td_status lookup(void *user, const td__batch *batch, bool train, const td__batch **out)
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
    for (size_t i = 0; i < m.n; i++)
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

static td_status clear(void *user)
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
    TD_TRY(clear(t));
    return *t->folder ? ask_all(t, TD__ROWS_SAVE, step) : TD_OK;
}

td_status td__ps_tables_load(td__ps_tables *t, uint64_t step)
{
    return t && !t->placed && *t->folder ? ask_all(t, TD__ROWS_LOAD, step) : TD_OK;
}

/* ---- Making ---------------------------------------------------------------------------------- */

td_status td__rows_hold(td__ps_tables *t, td__ps_table *b, const td__id_table_opts *o)
{
    b->kept = td__calloc((size_t)(t->ranks - t->servers) + 1, sizeof *b->kept);
    if (!b->kept)
        return TD_FAIL(TD_ENOMEM, "no memory for gradients of %d workers", t->ranks - t->servers);
    return td__id_table_create(o, &b->rows);
}

static bool is_own(const void *user, int64_t id)
{
    const td__ps_tables *t = user;
    return td__rows_owner(t, id) == t->server;
}

static td_status make_rows(td__ps_tables *t, td__ps_table *b)
{
    const td__sync_ctx *x = t->x;
    td__id_table_opts o = {.name = b->is.param,
                           .width = b->width,
                           .std = b->is.std,
                           .seed = td__micro_batch_options(x->step.set)->seed,
                           .optim = x->optim,
                           .min_count = (uint32_t)b->is.min_count,
                           .expire = (uint64_t)b->is.expire,
                           .memory = b->is.memory};
    return td__rows_hold(t, b, &o);
}

td_status td__rows_client(const td__ps_table *of, td__ps_table *b)
{
    if (of != b)
        *b = (td__ps_table){.is = of->is,
                            .param = of->param,
                            .list = of->list,
                            .field = of->field,
                            .width = of->width,
                            .most = of->most,
                            .offset = of->offset};
    for (b->bits = 4; (size_t)1 << b->bits < 2 * b->most; b->bits++)
        continue;
    b->ids = td__calloc(b->most, sizeof *b->ids);
    b->values = td__calloc(b->most * b->width, sizeof *b->values);
    b->place = td__calloc((size_t)1 << b->bits, sizeof *b->place);
    b->to = td__calloc(b->most, sizeof *b->to);
    b->known = td__calloc(b->most, sizeof *b->known);
    return b->ids && b->values && b->place && b->to && b->known
               ? TD_OK
               : TD_FAIL(TD_ENOMEM, "no memory for %zu rows of %s", b->most, b->is.param);
}

void td__rows_client_free(td__ps_table *b)
{
    td__free(b->ids);
    td__free(b->local);
    td__free(b->values);
    td__free(b->place);
    td__free(b->to);
    td__free(b->known);
}

static td_status make_table(td__ps_tables *t, const td__model_table *is, td__ps_table *b)
{
    const td__sync_ctx *x = t->x;
    b->is = *is;
    b->param = td_params_find(x->step.params, is->param);
    b->field = x->data ? td__dataset_field(x->data, is->ids) : -1;
    b->list = -1;
    for (int i = 0; i < td__program_sparse_count(x->step.program); i++)
        if (strcmp(td__program_sparse(x->step.program, i).name, is->param) == 0)
            b->list = i;
    if (b->param < 0 || b->field < 0 || b->list < 0)
        return TD_FAIL(TD_EINVAL, "%s: no table with ids of the data", is->param);
    td_param_info info = td_params_info(x->step.params, b->param);
    b->offset = info.offset;
    b->most = (size_t)info.shape.dim[0];
    b->width = (size_t)info.shape.dim[1];
    TD_TRY(td__rows_client(b, b));
    return t->server >= 0 ? make_rows(t, b) : TD_OK;
}

td_status td__rows_open(td__ps_tables *t, td_comm *comm)
{
    td__ps_lane_size size = {0, 0};
    for (int k = 0; k < t->n; k++) {
        const td__ps_table *b = &t->at[k];
        size.push = b->most * (2 + b->width) > size.push ? b->most * (2 + b->width) : size.push;
        size.pull = b->most * b->width > size.pull ? b->most * b->width : size.pull;
    }
    for (int s = 0; s < t->servers; s++)
        for (int r = 0; r < t->ranks; r++) {
            td__ps_lane *to = t->rank == s ? &t->serve[r] : &t->ask[s];
            if (r != s)
                TD_TRY(td__ps_lane_open(comm, s, r, size, to));
            if (t->rank == r && r != s && !(t->x && t->x->elastic)) /* those have agents */
                td__comm_keep_vigil(to->link);
        }
    return t->server >= 0 ? td__rows_serve_start(t) : TD_OK;
}

/* Server 0 alone is told where checkpoints are. */
static td_status share_folder(td__ps_tables *t)
{
    const char *dir = t->x->checkpoint_dir;
    int n = t->rank == 0 && dir ? snprintf(t->folder, sizeof t->folder, "%s/tables", dir) : 0;
    if (n >= (int)sizeof t->folder)
        return TD_FAIL(TD_EINVAL, "the path of checkpoints is too long for tables: %d characters",
                       n);
    return td_broadcast(t->x->comm, t->folder, sizeof t->folder, TD_U8, 0, NULL);
}

/* Row-sparse gradients that are of no table. */
static td_status check_sparse(const td__sync_ctx *x, const td__model_facts *facts)
{
    for (int i = 0; i < td__program_sparse_count(x->step.program); i++) {
        const char *name = td__program_sparse(x->step.program, i).name;
        bool table = false;
        for (int k = 0; k < facts->n_tables; k++)
            table = table || strcmp(facts->table[k].param, name) == 0;
        if (!table)
            return TD_FAIL(TD_EINVAL,
                           "parallel.servers: %s has row-sparse gradients, which workers do not "
                           "push: put the embedding on servers (on: servers) or make it dense",
                           name);
    }
    return TD_OK;
}

static td_status look_up_here(td__ps_tables *t)
{
    td__model_lookup *l = td__micro_batch_options(t->x->step.set)->model.lookup;
    if (!l)
        return TD_FAIL(TD_EINVAL, "tables on servers are for models of job files");
    *l = (td__model_lookup){.user = t, .rows = lookup, .clear = clear};
    return TD_OK;
}

static td_status make(td__ps_tables *t, const td__model_facts *facts)
{
    for (int k = 0; k < t->n; k++)
        TD_TRY(make_table(t, &facts->table[k], &t->at[k]));
    TD_TRY(share_folder(t));
    if (t->x->elastic)
        TD_TRY(td__rows_move(t));
    for (int k = 0; t->copies && t->server >= 0 && k < t->n; k++)
        td__id_table_own(t->at[k].rows, is_own, t);
    TD_TRY(td__rows_open(t, t->x->comm));
    bool ahead = false;
    for (int k = 0; k < t->n; k++)
        ahead = ahead || t->at[k].is.ahead;
    if (ahead && t->server < 0 && !t->together && t->x->host.sample)
        TD_TRY(td__rows_ahead_create(t, &t->ahead));
    return look_up_here(t);
}

td_status td__rows_create(td_comm *comm, int servers, int n, td__ps_tables **out)
{
    *out = NULL;
    td__ps_tables *t = td__calloc(1, sizeof *t);
    if (!t)
        return TD_FAIL(TD_ENOMEM, "no memory for tables");
    *t = (td__ps_tables){
        .rank = comm ? td_comm_rank(comm) : 0, .ranks = comm ? td_comm_size(comm) : 1, .n = n};
    t->servers = servers;
    t->server = t->rank < servers ? t->rank : -1;
    pthread_mutex_init(&t->lock, NULL);
    t->at = td__calloc((size_t)n, sizeof *t->at);
    t->ask = td__calloc((size_t)servers, sizeof *t->ask);
    t->serve = td__calloc((size_t)t->ranks, sizeof *t->serve);
    t->guests = td__calloc((size_t)t->ranks, sizeof *t->guests);
    if (!t->at || !t->ask || !t->serve || !t->guests) {
        td__ps_tables_destroy(t);
        return TD_FAIL(TD_ENOMEM, "no memory for %d tables", n);
    }
    *out = t;
    return TD_OK;
}

td_status td__ps_tables_create(const td__sync_ctx *x, int servers, bool together,
                               td__ps_tables **out)
{
    td__model_facts facts;
    const td_program *program;
    *out = NULL;
    TD_TRY(td__micro_batch_program(x->step.set, x->rows, &program, &facts));
    TD_TRY(check_sparse(x, &facts));
    if (!facts.n_tables)
        return TD_OK;
    if (x->step.accumulate > 1)
        return TD_FAIL(TD_EINVAL, "train.accumulate: not with tables on servers");
    td__ps_tables *t;
    TD_TRY(td__rows_create(x->comm, servers, facts.n_tables, &t));
    t->x = x;
    t->together = together;
    t->copies = x->config->replicas > 0 && servers > 1;
    t->moment = x->done;
    td_status st = make(t, &facts);
    if (st) {
        td__ps_tables_destroy(t);
        return st;
    }
    *out = t;
    return TD_OK;
}

static td_status make_read(td__ps_tables *t, const td__model_facts *facts, const char *dir)
{
    if (snprintf(t->folder, sizeof t->folder, "%s/tables", dir) >= (int)sizeof t->folder)
        return TD_FAIL(TD_EINVAL, "the path of checkpoints is too long for tables: %s", dir);
    for (int k = 0; k < t->n; k++)
        TD_TRY(make_table(t, &facts->table[k], &t->at[k]));
    return look_up_here(t);
}

td_status td__ps_tables_read(const td__sync_ctx *x, const char *checkpoint_dir, uint64_t step,
                             td__ps_tables **out)
{
    td__model_facts facts;
    const td_program *program;
    td__ps_tables *t;
    *out = NULL;
    TD_TRY(td__micro_batch_program(x->step.set, x->rows, &program, &facts));
    if (!facts.n_tables)
        return TD_OK;
    TD_TRY(td__rows_create(NULL, 1, facts.n_tables, &t));
    t->own = *x;
    t->x = &t->own;
    t->unread = step;
    td_status st = make_read(t, &facts, checkpoint_dir);
    if (st) {
        td__ps_tables_destroy(t);
        return st;
    }
    *out = t;
    return TD_OK;
}

void td__ps_tables_abandon(td__ps_tables *t, const char *why)
{
    if (!t)
        return;
    td__ps_lanes_abort(t->ask, t->ask ? t->servers : 0, why);
    td__ps_lanes_abort(t->serve, t->serve ? t->ranks : 0, why);
}

bool td__ps_tables_late(const td__ps_tables *t)
{
    bool late = false;
    for (int s = 0; t && s < t->servers; s++)
        late = late || (t->ask[s].link && td__comm_cause(t->ask[s].link) == TD_ETIMEDOUT);
    return late;
}

int td__ps_tables_unanswered(const td__ps_tables *t)
{
    for (int s = 0; t && s < t->servers; s++)
        if (s != t->server && td__comm_unanswered(t->ask[s].link))
            return s;
    return -1;
}

void td__ps_tables_lose(td__ps_tables *t, int rank, const char *why)
{
    if (t && t->server >= 0)
        td__ps_lanes_abort(&t->serve[rank], 1, why);
}

void td__ps_tables_close(td__ps_tables *t)
{
    if (!t)
        return;
    td__rows_ahead_destroy(t->ahead);
    t->ahead = NULL;
    td__ps_lanes_close(t->ask, t->ask ? t->servers : 0);
    td__rows_serve_stop(t);
    td__ps_lanes_close(t->serve, t->serve ? t->ranks : 0);
}

void td__ps_tables_destroy(td__ps_tables *t)
{
    if (!t)
        return;
    td__model_lookup *l = t->x ? td__micro_batch_options(t->x->step.set)->model.lookup : NULL;
    if (l && l->user == t)
        *l = (td__model_lookup){.user = NULL};
    td__ps_tables_close(t);
    td__rows_stay(t);
    for (int k = 0; t->at && k < t->n; k++) {
        td__ps_table *b = &t->at[k];
        for (int w = 0; b->kept && w < t->ranks - t->servers; w++) {
            td__free(b->kept[w].ids);
            td__free(b->kept[w].grads);
        }
        td__id_table_destroy(b->rows);
        td__free(b->kept);
        td__rows_client_free(b);
    }
    td__free(t->at);
    td__free(t->ask);
    td__free(t->serve);
    td__free(t->guests);
    pthread_mutex_destroy(&t->lock);
    td__free(t);
}
