/* table_create.c -- how tables on servers are made, for training and for a trained model, and how
 * they end. See tables.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cpu.h"
#include "base/fail.h"
#include "coll/comm.h"
#include "graph/params.h"
#include "ps/tables_impl.h"

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

/* A server has a thread for each other rank besides its own. */
bool td__ps_tables_crowded(const td__ps_tables *t)
{
    return t && t->servers * t->ranks + (t->ranks - t->servers) > td__processors();
}

td_status td__rows_open(td__ps_tables *t, td_comm *comm)
{
    bool crowded = td__ps_tables_crowded(t);
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
            if (crowded && r != s && (t->rank == s || t->rank == r))
                td__ps_lane_waits(to, TD__PS_BLOCK);
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
    *l = (td__model_lookup){.user = t, .rows = td__rows_lookup, .clear = td__rows_clear};
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
