/* shard_move.c -- see shard_move.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "elastic/shard_move.h"

#include "base/check.h"
#include "base/fail.h"
#include "graph/params.h"

/* State k of elements [begin, end), all of which o holds in one piece; NULL: it does not. */
static float *state_of(td_optimizer *o, int k, size_t begin, size_t end)
{
    size_t first;
    float *state;
    size_t n = o ? td__optim_state_part(o, k, begin, end, &first, &state) : 0;
    return n == end - begin ? state : NULL;
}

static float *held_state(const td__shard_move *m, int k, size_t begin, size_t end)
{
    for (int i = 0; i < m->n_from; i++) {
        float *state = state_of(m->from[i], k, begin, end);
        if (state)
            return state;
    }
    return NULL;
}

static float *params_at(const td__shard_move *m, size_t at)
{
    return td_params_block(m->params, NULL) + at;
}

static int n_states(const td__shard_move *m)
{
    td_optimizer *any = m->to ? m->to : m->n_from ? m->from[0] : NULL;
    return any ? td_optimizer_state_count(any) : 0;
}

/* n floats of the device's memory, to or from another rank. */
static td_status send_floats(const td__shard_move *m, const float *data, size_t n, int to)
{
    td__mapping map;
    TD_TRY(td__mem_map(td__params_device(m->params), data, n * sizeof *data, TD_MAP_READ, &map));
    td_status st = td_send(m->comm, map.at, n, TD_F32, to, NULL);
    td__mem_map_drop(&map);
    return st;
}

static td_status receive_floats(const td__shard_move *m, float *data, size_t n, int from)
{
    td__mapping map;
    TD_TRY(td__mem_map(td__params_device(m->params), data, n * sizeof *data, TD_MAP_WRITE, &map));
    td_status st = td_recv(m->comm, map.at, n, TD_F32, from, NULL);
    if (!st)
        return td__mem_unmap(&map);
    td__mem_map_drop(&map);
    return st;
}

/* One transfer, on both sides: the states of its elements, and (params) themselves. */
static td_status carry(const td__shard_move *m, td__transfer x, bool params)
{
    size_t n = x.end - x.begin;
    for (int k = params ? -1 : 0; k < n_states(m); k++) {
        if (x.from == td_comm_rank(m->comm)) {
            const float *data = k < 0 ? params_at(m, x.begin) : held_state(m, k, x.begin, x.end);
            TD_ASSERT(data, "elements [%zu, %zu) are not here", x.begin, x.end);
            TD_TRY(send_floats(m, data, n, x.to));
        } else {
            float *data = k < 0 ? params_at(m, x.begin) : state_of(m->to, k, x.begin, x.end);
            TD_ASSERT(data, "no memory is assigned to elements [%zu, %zu)", x.begin, x.end);
            TD_TRY(receive_floats(m, data, n, x.from));
        }
    }
    return TD_OK;
}

/* The same within this rank: params are where they belong. */
static td_status keep(const td__shard_move *m, td__transfer x)
{
    size_t nbytes = (x.end - x.begin) * sizeof(float);
    for (int k = 0; k < n_states(m); k++) {
        float *to = state_of(m->to, k, x.begin, x.end);
        const float *from = held_state(m, k, x.begin, x.end);
        td__mapping map;
        TD_ASSERT(to && from, "elements [%zu, %zu) are not here", x.begin, x.end);
        if (to == from)
            continue;
        TD_TRY(td__mem_map(td__params_device(m->params), from, nbytes, TD_MAP_READ, &map));
        td_status st = td__mem_write(td__params_device(m->params), to, map.at, nbytes);
        td__mem_map_drop(&map);
        TD_TRY(st);
    }
    return TD_OK;
}

static td_status transfer(const td__shard_move *m, td__transfer x, bool params)
{
    int rank = td_comm_rank(m->comm);
    if (x.from != rank && x.to != rank)
        return TD_OK;
    return x.from != x.to ? carry(m, x, params) : keep(m, x);
}

/* What every rank holds whole, to rank `to`: running averages and row-sparse params, and the
 * optimizer state of these. */
static td_status transfer_whole(const td__shard_move *m, int to)
{
    int from = m->plan->whole_from[to], rank = td_comm_rank(m->comm);
    size_t all, tail = m->plan->params;

    td_params_block(m->params, &all);
    if (from != to && rank == from)
        TD_TRY(send_floats(m, params_at(m, tail), all - tail, to));
    else if (from != to && rank == to)
        TD_TRY(receive_floats(m, params_at(m, tail), all - tail, from));
    for (int i = 0; i < td_params_count(m->params); i++) {
        td_param_info info = td_params_info(m->params, i);
        td__transfer x = {info.offset, info.offset + info.count, from, to};
        if (!info.is_state && info.sparse && info.count)
            TD_TRY(transfer(m, x, false));
    }
    return TD_OK;
}

td_status td__shards_move(const td__shard_move *m)
{
    for (size_t i = 0; i < m->plan->n; i++)
        TD_TRY(transfer(m, m->plan->at[i], !m->has_params[m->plan->at[i].to]));
    for (int r = 0; r < m->plan->ranks; r++)
        if (m->holds[r].ranks)
            TD_TRY(transfer_whole(m, r));
    return TD_OK;
}
