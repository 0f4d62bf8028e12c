/* slices_move.c -- see slices_move.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "train/slices_move.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "parallel/zero_map.h"

struct td__move {
    td__move_opts o;
    int rank, size;
    td__zero_map *maps; /* (n_maps) of worlds of all sizes that there are */
    int n_maps;
    size_t *points; /* (n_points) where cells begin; the last: where params in slices end */
    size_t n_points;
    size_t missing;
};

/* ---- Layouts --------------------------------------------------------------------------------- */

td_status td__layouts_of(const int *host_of, const int *ranks, int n, td__layout *out)
{
    int *order = td__calloc(2 * (size_t)n, sizeof *order), *hosts = order ? order + n : NULL;
    if (!order)
        return TD_FAIL(TD_ENOMEM, "no memory for a ring of %d ranks", n);
    for (int i = 0; i < n; i++)
        hosts[i] = host_of ? host_of[ranks ? ranks[i] : i] : 0;
    td__zero_ring(hosts, n, order);
    for (int i = 0; i < n; i++)
        out[i] = (td__layout){n, i, td__zero_before(order, n, i)};
    td__free(order);
    return TD_OK;
}

td_status td__layout_optimizer(const td_optim_opts *opts, td_params *ps, td__layout layout,
                               size_t bucket_nbytes, td_optimizer **out)
{
    td__optim_range *own;
    td__zero_map map;
    int n;

    if (layout.size == 1)
        return td_optimizer_create(opts, ps, out);
    TD_TRY(td__zero_map_init(&map, ps, layout.size, bucket_nbytes));
    td_status st = td__zero_ranges(&map, ps, layout.rank, layout.mirror, &own, &n);
    if (!st)
        st = td__optim_create_own(opts, ps, own, n, out);
    td__free(own);
    td__zero_map_fini(&map);
    return st;
}

/* ---- Cells ----------------------------------------------------------------------------------- */

static const td__zero_map *map_of(const td__move *m, int size)
{
    for (int i = 0; i < m->n_maps; i++)
        if (m->maps[i].size == size)
            return &m->maps[i];
    return NULL;
}

static td_status have_map(td__move *m, int size)
{
    if (!size || map_of(m, size))
        return TD_OK;
    TD_TRY(td__zero_map_init(&m->maps[m->n_maps], m->o.params, size, m->o.bucket_nbytes));
    m->n_maps++;
    return TD_OK;
}

static int compare(const void *a, const void *b)
{
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return x < y ? -1 : x > y;
}

static td_status find_cells(td__move *m)
{
    size_t n = 0, kept = 0;
    for (int i = 0; i < m->n_maps; i++)
        n += (size_t)m->maps[i].params * ((size_t)m->maps[i].size + 1);
    m->points = td__calloc(n + 1, sizeof *m->points);
    if (!m->points)
        return TD_FAIL(TD_ENOMEM, "no memory for %zu slices", n);
    for (int i = 0; i < m->n_maps; i++)
        for (int b = 0; b < m->maps[i].params; b++)
            for (int r = 0; r <= m->maps[i].size; r++)
                m->points[m->n_points++] = td__zero_cut(&m->maps[i], b)[r];
    qsort(m->points, m->n_points, sizeof *m->points, compare);
    for (size_t i = 0; i < m->n_points; i++)
        if (!kept || m->points[kept - 1] != m->points[i])
            m->points[kept++] = m->points[i];
    m->n_points = kept;
    return TD_OK;
}

static size_t n_cells(const td__move *m)
{
    return m->n_points ? m->n_points - 1 : 0;
}

/* Buckets are the same in all maps. */
static int bucket_at(const td__move *m, size_t element)
{
    const td__zero_map *any = &m->maps[0];
    int low = 0, high = any->params;
    while (high - low > 1) {
        int mid = (low + high) / 2;
        *(any->begin[mid] <= element ? &low : &high) = mid;
    }
    return low;
}

/* Is the cell that begins at `at`, in bucket b, in a slice of the layout? */
static bool has(const td__move *m, td__layout l, int b, size_t at)
{
    if (!l.size)
        return false;
    const size_t *cut = td__zero_cut(map_of(m, l.size), b);
    return (cut[l.rank] <= at && at < cut[l.rank + 1]) ||
           (l.mirror >= 0 && cut[l.mirror] <= at && at < cut[l.mirror + 1]);
}

static bool holds(const td__move *m, int rank, int b, size_t at)
{
    const td__holder *h = &m->o.holders[rank];
    for (int i = 0; i < h->n; i++)
        if (has(m, h->layout[i], b, at))
            return true;
    return false;
}

/* Who sends the cell to rank `to`: the first holder from it on, so that all have some to send. */
static int holder_of(const td__move *m, int to, int b, size_t at)
{
    for (int i = 0; i < m->size; i++)
        if (holds(m, (to + i) % m->size, b, at))
            return (to + i) % m->size;
    return -1;
}

static void find_missing(td__move *m)
{
    for (size_t i = 0; i < n_cells(m); i++)
        if (holder_of(m, 0, bucket_at(m, m->points[i]), m->points[i]) < 0)
            m->missing += m->points[i + 1] - m->points[i];
}

static td_status set_up(td__move *m)
{
    m->maps = td__calloc((size_t)m->size * (TD__MOST_LAYOUTS + 1), sizeof *m->maps);
    if (!m->maps)
        return TD_FAIL(TD_ENOMEM, "no memory for the slices of %d ranks", m->size);
    for (int r = 0; r < m->size; r++) {
        TD_TRY(have_map(m, m->o.to[r].size));
        for (int i = 0; i < m->o.holders[r].n; i++)
            TD_TRY(have_map(m, m->o.holders[r].layout[i].size));
    }
    TD_TRY(find_cells(m));
    find_missing(m);
    return TD_OK;
}

td_status td__move_create(const td__move_opts *opts, td__move **out)
{
    *out = NULL;
    td__move *m = td__calloc(1, sizeof *m);
    if (!m)
        return TD_FAIL(TD_ENOMEM, "no memory to move slices");
    m->o = *opts;
    m->rank = td_comm_rank(opts->comm);
    m->size = td_comm_size(opts->comm);
    td_status st = set_up(m);
    if (st) {
        td__move_destroy(m);
        return st;
    }
    *out = m;
    return TD_OK;
}

void td__move_destroy(td__move *m)
{
    if (!m)
        return;
    for (int i = 0; i < m->n_maps; i++)
        td__zero_map_fini(&m->maps[i]);
    td__free(m->maps);
    td__free(m->points);
    td__free(m);
}

size_t td__move_missing(const td__move *m)
{
    return m->missing;
}

/* ---- Moving ---------------------------------------------------------------------------------- */

typedef struct run {
    td__move *m;
    td_optimizer *const *from;
    td_optimizer *to;
    int n_states;
} run;

/* State k of elements [begin, end), all of which o holds in one piece; NULL: it does not. */
static float *state_of(td_optimizer *o, int k, size_t begin, size_t end)
{
    size_t first;
    float *state;
    size_t n = o ? td__optim_state_part(o, k, begin, end, &first, &state) : 0;
    return n == end - begin ? state : NULL;
}

static float *held_state(const run *r, int k, size_t begin, size_t end)
{
    const td__holder *h = &r->m->o.holders[r->m->rank];
    for (int i = 0; i < h->n; i++) {
        float *state = state_of(r->from[i], k, begin, end);
        if (state)
            return state;
    }
    return NULL;
}

static float *params_at(const run *r, size_t at)
{
    size_t all;
    return td_params_block(r->m->o.params, &all) + at;
}

/* Elements from rank `from` to rank `to`, on both: their states, and (params) themselves. */
static td_status carry(const run *r, size_t begin, size_t end, int from, int to, bool params)
{
    td_comm *comm = r->m->o.comm;
    size_t n = end - begin;

    for (int k = params ? -1 : 0; k < r->n_states; k++) {
        if (from == r->m->rank) {
            const float *data = k < 0 ? params_at(r, begin) : held_state(r, k, begin, end);
            TD_ASSERT(data, "elements [%zu, %zu) are not here", begin, end);
            TD_TRY(td_send(comm, data, n, TD_F32, to, NULL));
        } else {
            float *data = k < 0 ? params_at(r, begin) : state_of(r->to, k, begin, end);
            TD_ASSERT(data, "there is no place for elements [%zu, %zu)", begin, end);
            TD_TRY(td_recv(comm, data, n, TD_F32, from, NULL));
        }
    }
    return TD_OK;
}

/* The same within this rank: params are where they belong. */
static void keep(const run *r, size_t begin, size_t end)
{
    for (int k = 0; k < r->n_states; k++) {
        float *to = state_of(r->to, k, begin, end);
        const float *from = held_state(r, k, begin, end);
        TD_ASSERT(to && from, "elements [%zu, %zu) are not here", begin, end);
        if (to != from)
            memcpy(to, from, (end - begin) * sizeof *to);
    }
}

/* What every rank holds whole, to those who have nothing of the moment. */
static td_status move_whole(const run *r, int to)
{
    const td__move *m = r->m;
    td_params *ps = m->o.params;
    size_t all, tail = m->n_points ? m->points[m->n_points - 1] : 0;
    int from = to;

    td_params_block(ps, &all);
    for (int i = 0; i < m->size && !m->o.holders[from].n; i++)
        from = (to + i) % m->size;
    if (m->rank != from && m->rank != to)
        return TD_OK;
    if (from != to && m->rank == from)
        TD_TRY(td_send(m->o.comm, params_at(r, tail), all - tail, TD_F32, to, NULL));
    else if (from != to)
        TD_TRY(td_recv(m->o.comm, params_at(r, tail), all - tail, TD_F32, from, NULL));
    for (int i = 0; i < td_params_count(ps); i++) {
        td_param_info info = td_params_info(ps, i);
        if (info.is_state || !info.sparse || !info.count)
            continue;
        if (from == to)
            keep(r, info.offset, info.offset + info.count);
        else
            TD_TRY(carry(r, info.offset, info.offset + info.count, from, to, false));
    }
    return TD_OK;
}

td_status td__move_run(td__move *m, td_optimizer *const *from, td_optimizer *to)
{
    run r = {.m = m, .from = from, .to = to};
    if (to || m->o.holders[m->rank].n)
        r.n_states = td_optimizer_state_count(to ? to : from[0]);
    for (size_t i = 0; i < n_cells(m); i++) {
        size_t begin = m->points[i], end = m->points[i + 1];
        int b = bucket_at(m, begin);
        for (int d = 0; d < m->size; d++) {
            if (!has(m, m->o.to[d], b, begin))
                continue;
            int s = holder_of(m, d, b, begin);
            TD_ASSERT(s >= 0, "nobody holds elements [%zu, %zu)", begin, end);
            if (s == d && d == m->rank)
                keep(&r, begin, end);
            else if (s != d && (s == m->rank || d == m->rank))
                TD_TRY(carry(&r, begin, end, s, d, !m->o.holders[d].whole));
        }
    }
    for (int d = 0; d < m->size; d++)
        if (m->o.to[d].size)
            TD_TRY(move_whole(&r, d));
    return TD_OK;
}
