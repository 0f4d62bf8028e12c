/* sharded_tell.c -- what each rank holds of a checkpoint that rank 0 has written from the shards of
 * all: for observers that send it somewhere else (td__shards_event).
 *
 * The rows are those of the ownership map, cut at tensors, so rank 0 knows which ranks have what
 * without asking. What is in pieces of another order, or whole on every rank, is in no row: it is
 * rank 0's. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fail.h"
#include "checkpoint/names.h"
#include "graph/params.h"
#include "optim/optimizer.h"
#include "train/sharded.h"

typedef struct row_list {
    td__trainer *t;
    td__arena *names;
    td__shard_row *row;
    struct row_place {
        int k;     /* state; -1: the params */
        size_t at; /* element of the block */
    } * place;
    int n, room;
} row_list;

static td_status make_room(row_list *l)
{
    if (l->n < l->room)
        return TD_OK;
    int room = l->room ? 2 * l->room : 64;
    td__shard_row *row = td__realloc(l->row, (size_t)room * sizeof *row);
    l->row = row ? row : l->row;
    struct row_place *place = td__realloc(l->place, (size_t)room * sizeof *place);
    l->place = place ? place : l->place;
    if (!row || !place)
        return TD_FAIL(TD_ENOMEM, "no memory for a list of shards");
    l->room = room;
    return TD_OK;
}

/* What `rank` holds of tensor i, in the params (k < 0) or in state k. */
static td_status add_tensor(row_list *l, int rank, int k, int i)
{
    const td__replica *r = &l->t->replica;
    const td__ownership *m = td__shards_ownership(r->shards);
    td_param_info info = td_params_info(r->params, i);
    size_t end = info.offset + info.count;

    if (info.is_state || info.sparse || !info.count || td__params_pieces(r->params, i))
        return TD_OK;
    const char *name = k < 0
                           ? td__arena_strdup(l->names, info.name)
                           : td__arena_printf(l->names, "%s/%s",
                                              td_optimizer_state_name(r->optimizer, k), info.name);
    if (!name)
        return TD_FAIL(TD_ENOMEM, "no memory for a list of shards");
    for (int b = 0; b < m->params; b++) {
        const size_t *cut = td__shards_of(m, b);
        size_t from = cut[rank] > info.offset ? cut[rank] : info.offset;
        size_t to = cut[rank + 1] < end ? cut[rank + 1] : end;
        if (from >= to)
            continue;
        TD_TRY(make_room(l));
        l->row[l->n] = (td__shard_row){
            .rank = rank,
            .file = td__checkpoint_file_name(k < 0 ? TD__FILE_MODEL : TD__FILE_OPTIMIZER),
            .tensor = name,
            .first = from - info.offset,
            .count = to - from};
        l->place[l->n++] = (struct row_place){k, from};
    }
    return TD_OK;
}

static td_status add_rank(row_list *l, int rank)
{
    const td__replica *r = &l->t->replica;

    for (int k = -1; k < td_optimizer_state_count(r->optimizer); k++)
        for (int i = 0; i < td_params_count(r->params); i++)
            TD_TRY(add_tensor(l, rank, k, i));
    return TD_OK;
}

static td_status read_row(void *user, int row, uint64_t first, uint64_t count, float *to)
{
    const row_list *l = user;
    const td__replica *r = &l->t->replica;
    struct row_place p = l->place[row];
    size_t at = p.at + (size_t)first, begin;
    float *from;

    if (p.k < 0)
        return td_params_read(r->params, at, (size_t)count, to);
    size_t held = td__optim_state_part(r->optimizer, p.k, at, at + (size_t)count, &begin, &from);
    if (held != count || begin != at)
        return TD_FAIL(TD_EPROTO, "%s: %zu of %zu elements are held here", l->row[row].tensor, held,
                       (size_t)count);
    return td__mem_read(td__params_device(r->params), to, from, (size_t)count * sizeof *to);
}

td_status td__sharded_tell(td__trainer *t, bool last, uint32_t *token)
{
    row_list l = {.t = t};
    const td__ownership *m = td__shards_ownership(t->replica.shards);
    int rank = td__shards_rank(t->replica.shards);
    td_status st = TD_OK;
    bool asked = false;

    for (int i = 0; i < t->report.n_observers; i++)
        asked = asked || t->report.observers[i]->shards;
    if (!asked || m->one_owner)
        return TD_OK;
    TD_TRY(td__arena_create(&l.names));
    for (int r = rank ? rank : 1; r < m->ranks && !st; r = rank ? m->ranks : r + 1)
        st = add_rank(&l, r);
    td__shards_event e = {.step = t->replica.state.step,
                          .generation = t->world.generation,
                          .rank = rank,
                          .ranks = m->ranks,
                          .last = last,
                          .token = token,
                          .row = l.row,
                          .n = l.n,
                          .read = read_row,
                          .user = &l};
    for (int i = 0; i < t->report.n_observers && !st; i++)
        if (t->report.observers[i]->shards)
            st = t->report.observers[i]->shards(t->report.observers[i], &e);
    td__arena_destroy(l.names);
    td__free(l.row);
    td__free(l.place);
    return st;
}
