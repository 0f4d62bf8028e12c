/* reshard.c -- see reshard.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/reshard.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/fail.h"

typedef struct planner {
    td__reshard *p;
    td_params *ps;
    const td__worlds *worlds;
    const td__holder *holders;
    const td__holding *to;
    td__ownership *maps; /* (n_maps) of all numbers of ranks that there are */
    int *owner, *bucket; /* (n_maps) of the cell at hand */
    int n_maps;
    int *sources; /* (ranks) who holds the cell at hand */
    int n_sources;
    size_t *points; /* (n_points) where cells begin; the last: where params in shards end */
    size_t n_points, room;
} planner;

/* ---- Maps and cells -------------------------------------------------------------------------- */

static int map_of(const planner *q, int ranks)
{
    for (int i = 0; i < q->n_maps; i++)
        if (q->maps[i].ranks == ranks)
            return i;
    return -1;
}

static td_status need_map(planner *q, int ranks)
{
    if (!ranks || map_of(q, ranks) >= 0)
        return TD_OK;
    TD_TRY(td__worlds_map(q->worlds, q->ps, ranks, &q->maps[q->n_maps]));
    q->n_maps++;
    return TD_OK;
}

static td_status make_maps(planner *q)
{
    size_t most = (size_t)q->p->ranks * (TD__MOST_HOLDINGS + 1);
    q->maps = td__calloc(most, sizeof *q->maps);
    q->owner = td__calloc(most, sizeof *q->owner);
    q->bucket = td__calloc(most, sizeof *q->bucket);
    q->sources = td__calloc((size_t)q->p->ranks, sizeof *q->sources);
    if (!q->maps || !q->owner || !q->bucket || !q->sources)
        return TD_FAIL(TD_ENOMEM, "no memory for the shards of %d ranks", q->p->ranks);
    for (int r = 0; r < q->p->ranks; r++) {
        TD_TRY(need_map(q, q->to[r].ranks));
        for (int i = 0; i < q->holders[r].n; i++)
            TD_TRY(need_map(q, q->holders[r].of[i].ranks));
    }
    return TD_OK;
}

static int compare(const void *a, const void *b)
{
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return x < y ? -1 : x > y;
}

static td_status find_cells(planner *q)
{
    size_t n = 0, kept = 0;
    for (int i = 0; i < q->n_maps; i++)
        n += (size_t)q->maps[i].params * ((size_t)q->maps[i].ranks + 1);
    q->points = td__calloc(n + 1, sizeof *q->points);
    if (!q->points)
        return TD_FAIL(TD_ENOMEM, "no memory for %zu shards", n);
    for (int i = 0; i < q->n_maps; i++)
        for (int b = 0; b < q->maps[i].params; b++)
            for (int r = 0; r <= q->maps[i].ranks; r++)
                q->points[q->n_points++] = td__shards_of(&q->maps[i], b)[r];
    qsort(q->points, q->n_points, sizeof *q->points, compare);
    for (size_t i = 0; i < q->n_points; i++)
        if (!kept || q->points[kept - 1] != q->points[i])
            q->points[kept++] = q->points[i];
    q->n_points = kept;
    q->p->params = kept ? q->points[kept - 1] : 0;
    return TD_OK;
}

/* ---- Transfers ------------------------------------------------------------------------------- */

/* Is the cell at hand part of this holding? */
static bool has(const planner *q, td__holding h)
{
    int k = map_of(q, h.ranks);
    return h.ranks && td__ownership_holds(&q->maps[k], h, q->bucket[k], q->owner[k]);
}

static bool holds(const planner *q, int rank)
{
    for (int i = 0; i < q->holders[rank].n; i++)
        if (has(q, q->holders[rank].of[i]))
            return true;
    return false;
}

static td_status add(planner *q, td__transfer t)
{
    td__reshard *p = q->p;
    if (p->n == q->room) {
        size_t room = 2 * q->room + 64;
        td__transfer *at = td__realloc(p->at, room * sizeof *at);
        if (!at)
            return TD_FAIL(TD_ENOMEM, "no memory for %zu transfers of shards", room);
        p->at = at;
        q->room = room;
    }
    p->at[p->n++] = t;
    return TD_OK;
}

/* Holders take turns, over the ranks that lack the cell and over cells. */
static td_status plan_cell(planner *q, size_t cell)
{
    size_t begin = q->points[cell], end = q->points[cell + 1], turn = cell;

    for (int i = 0; i < q->n_maps; i++) {
        q->owner[i] = td__ownership_owner(&q->maps[i], begin);
        q->bucket[i] = td__ownership_bucket(&q->maps[i], begin);
    }
    q->n_sources = 0;
    for (int r = 0; r < q->p->ranks; r++)
        if (holds(q, r))
            q->sources[q->n_sources++] = r;
    if (!q->n_sources)
        q->p->missing += end - begin;
    for (int r = 0; q->n_sources && r < q->p->ranks; r++)
        if (has(q, q->to[r])) {
            int from = holds(q, r) ? r : q->sources[turn++ % (size_t)q->n_sources];
            TD_TRY(add(q, (td__transfer){begin, end, from, r}));
        }
    return TD_OK;
}

static void plan_whole(planner *q)
{
    int n = 0, turn = 0;
    for (int r = 0; r < q->p->ranks; r++)
        if (q->holders[r].n)
            q->sources[n++] = r;
    for (int r = 0; r < q->p->ranks; r++) {
        bool lacks = q->to[r].ranks && !q->holders[r].n;
        q->p->whole_from[r] = !lacks ? r : n ? q->sources[turn++ % n] : -1;
    }
}

static td_status plan(planner *q)
{
    TD_TRY(make_maps(q));
    TD_TRY(find_cells(q));
    for (size_t i = 0; i + 1 < q->n_points; i++)
        TD_TRY(plan_cell(q, i));
    q->p->whole_from = td__calloc((size_t)q->p->ranks, sizeof *q->p->whole_from);
    if (!q->p->whole_from)
        return TD_FAIL(TD_ENOMEM, "no memory for %d ranks", q->p->ranks);
    plan_whole(q);
    return TD_OK;
}

td_status td__reshard_plan(td__reshard *p, td_params *ps, const td__worlds *worlds, int ranks,
                           const td__holder *holders, const td__holding *to)
{
    planner q = {.p = p, .ps = ps, .worlds = worlds, .holders = holders, .to = to};
    *p = (td__reshard){.ranks = ranks};
    td_status st = plan(&q);
    for (int i = 0; i < q.n_maps; i++)
        td__ownership_fini(&q.maps[i]);
    td__free(q.maps);
    td__free(q.owner);
    td__free(q.bucket);
    td__free(q.sources);
    td__free(q.points);
    if (st)
        td__reshard_fini(p);
    return st;
}

void td__reshard_fini(td__reshard *p)
{
    td__free(p->at);
    td__free(p->whole_from);
    *p = (td__reshard){.ranks = 0};
}
