/* tensor_peers.c -- see tensor_peers.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/tensor_peers.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "base/log.h"
#include "coll/comm.h"
#include "graph/params.h"

int td__tensor_peers_apart(const int *host_of, int ranks, int size)
{
    for (int r = 0; host_of && r < ranks; r++)
        if (host_of[r] != host_of[r / size * size])
            return r / size * size;
    return -1;
}

static void warn_of_hosts(td_comm *world, int size)
{
    int apart = td__tensor_peers_apart(td__comm_host_of(world), td_comm_size(world), size);
    if (apart >= 0 && td_comm_rank(world) == 0)
        TD_LOG(WARN, TRAIN,
               "ranks %d to %d share layers (parallel.tensor) and are on different hosts: what "
               "they exchange in every layer crosses the network; give each host a multiple of %d "
               "ranks",
               apart, apart + size - 1, size);
}

/* With the pieces of this world's rank, not those of the rank for which they were found. */
static td_status copy_cuts(td__tensor_peers *t, const td__step_cuts *cuts, int lane, int size)
{
    t->cuts = *cuts;
    t->own = td__calloc((size_t)cuts->n + 1, sizeof *t->own);
    if (!t->own)
        return TD_FAIL(TD_ENOMEM, "no memory for %d params in pieces", cuts->n);
    for (int i = 0; i < cuts->n; i++) {
        t->own[i] = cuts->at[i];
        td_attr_pieces *a = &t->own[i].pieces;
        a->ranks = size;
        a->n = a->pieces / size;
        a->first = lane * a->n;
    }
    t->cuts.at = t->own;
    return TD_OK;
}

td_status td__tensor_peers_open(td__tensor_peers *t, td_comm *world, int size,
                                const td__step_cuts *cuts)
{
    *t = (td__tensor_peers){.comm = NULL};
    if (cuts)
        TD_TRY(copy_cuts(t, cuts, td_comm_rank(world) % size, size));
    if (size < 2)
        return TD_OK;
    warn_of_hosts(world, size);
    TD_TRY(td_comm_split(world, td_comm_rank(world) / size, 0, &t->comm));
    t->cuts.sum = td__tensor_peers_sum;
    t->cuts.user = t;
    return TD_OK;
}

void td__tensor_peers_close(td__tensor_peers *t)
{
    td_comm_destroy(t->comm);
    td__free(t->staging.at);
    td__free(t->own);
    *t = (td__tensor_peers){.comm = NULL};
}

void td__tensor_peers_abort(td__tensor_peers *t, const char *why)
{
    if (t->comm)
        td_comm_abort(t->comm, why);
}

td_status td__tensor_peers_sum(void *user, double *numbers, size_t n)
{
    td__tensor_peers *t = user;
    if (!t->comm)
        return TD_OK;
    return td_allreduce(t->comm, numbers, numbers, n, TD_F64, TD_REDUCE_SUM, NULL);
}

/* ---- What a peer has ------------------------------------------------------------------------- */

/* The param in pieces, from w->param on, whose elements are the next in w->rest; -1: none. */
static int next_cut(td__tensor_walk *w)
{
    for (; w->lanes > 1 && w->param < td_params_count(w->ps); w->param++) {
        td_param_info info = td_params_info(w->ps, w->param);
        if (info.offset >= w->rest.end)
            return -1;
        if (info.offset + info.count > w->rest.begin && td__params_pieces(w->ps, w->param))
            return w->param;
    }
    return -1;
}

/* The peer's pieces of a param that is cut. */
static td__param_range pieces_of(const td__tensor_walk *w, int i)
{
    const td_attr_pieces *how = td__params_pieces(w->ps, i);
    int each = how->pieces / w->lanes;
    int64_t begin, n = td__pieces_range(how, &how->whole, each * w->lane, each, &begin);
    size_t at = td_params_info(w->ps, i).offset + (size_t)begin;
    return (td__param_range){at, at + (size_t)n};
}

/* The longest part at the front of w->rest that is all the peer's, or nothing of which is. */
static td__param_range next_part(td__tensor_walk *w, bool *own)
{
    td__param_range r = w->rest;
    int i = next_cut(w);
    td_param_info info = i < 0 ? (td_param_info){0} : td_params_info(w->ps, i);
    *own = i < 0 || info.offset > r.begin;
    if (*own) {
        r.end = i < 0 ? r.end : info.offset;
        return r;
    }
    td__param_range p = pieces_of(w, i);
    size_t ends[] = {p.begin, p.end, info.offset + info.count};
    int k = 0;
    while (ends[k] <= r.begin)
        k++;
    *own = k == 1;
    r.end = ends[k] < r.end ? ends[k] : r.end;
    return r;
}

bool td__tensor_own(td__tensor_walk *w, td__param_range *out)
{
    bool own, any = false;
    while (w->rest.begin < w->rest.end) {
        td__param_range r = next_part(w, &own);
        if (!own && any)
            return true;
        if (own) {
            out->begin = any ? out->begin : r.begin;
            out->end = r.end;
            any = true;
        }
        w->rest.begin = r.end;
    }
    return any;
}

/* ---- Params and states of others ------------------------------------------------------------- */

static bool is_own(const td__param_range *own, int n, size_t element)
{
    for (int i = 0; i < n; i++)
        if (own[i].begin <= element && element < own[i].end)
            return true;
    return !own;
}

/* The tensor at `at`, of which this rank has its pieces. */
static td_status fill(td__tensor_peers *t, td_device *d, td_attr_pieces how, float *at,
                      size_t count)
{
    td__mapping map;
    how.ranks = td_comm_size(t->comm);
    TD_TRY(td__mem_map(d, at, count * sizeof *at, TD_MAP_BOTH, &map));
    td_status st = td__pieces_gather(t->comm, &how, map.at, sizeof *at, &t->staging);
    if (!st)
        return td__mem_unmap(&map);
    td__mem_map_drop(&map);
    return st;
}

td_status td__tensor_peers_fill(td__tensor_peers *t, td_params *ps, td_optimizer *o,
                                const td__param_range *own, int n_own)
{
    td_device *d = td__params_device(ps);
    for (int i = 0; t->comm && i < t->cuts.n; i++) {
        const td__step_cut *c = &t->cuts.at[i];
        td_param_info info = td_params_info(ps, c->param);
        size_t first, end = info.offset + info.count;
        float *state;
        if (c->pieces.packed || !is_own(own, n_own, info.offset))
            continue;
        TD_TRY(fill(t, d, c->pieces, td_params_block(ps, NULL) + info.offset, info.count));
        for (int k = 0; k < td_optimizer_state_count(o); k++) {
            size_t held = td__optim_state_part(o, k, info.offset, end, &first, &state);
            TD_ASSERT(!held || held == info.count, "%zu of %zu elements of a state in pieces", held,
                      info.count);
            if (held)
                TD_TRY(fill(t, d, c->pieces, state, info.count));
        }
    }
    td_params_touch(ps);
    return TD_OK;
}
