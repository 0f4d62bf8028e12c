/* catch_up_parts.c -- where the furthest ranks have parts of the run's state alone, as parameter
 * servers have (ps/copies.c): these are put together on one of them, which then has everything and
 * hands it to all (catch_up.c).
 *
 *   1. settle    An update that this rank is prepared for is made, if others have made it.
 *   2. cells     The longest ranges of elements that lie in one part of every rank that is there.
 *   3. bring     Each cell that rank best does not have goes there from the first rank that has it.
 *
 * What rank best had stays as it is meanwhile: if a transfer fails, all still have their parts. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/log.h"
#include "graph/params.h"
#include "optim/optimizer.h"
#include "elastic/catch_up.h"

/* ---- 1 --------------------------------------------------------------------------------------- */

static bool rolls(const td__hello *all, int r, int best)
{
    return all[r].has && all[r].prepared && all[r].state.step + 1 == all[best].state.step;
}

td_status td__parts_settle(td__elastic *e, const td__hello *all, int best, bool *changed)
{
    td__replica *own = e->replica;
    td__event_log event_log = own->event_log;
    bool mine = rolls(all, e->world->rank, best), some = false;

    *changed = false;
    for (int r = 0; r < e->world->ranks; r++) {
        some = some || rolls(all, r, best);
        *changed = *changed || all[r].prepared; /* what its rule keeps is told of when it is gone */
    }
    if (some)
        TD_TRY(td_broadcast(e->world->comm, &event_log, sizeof event_log, TD_U8, best, NULL));
    if (mine)
        TD_TRY(e->ops->forward(e->trainer));
    e->ops->close(e->trainer);
    if (mine) {
        td__replica_part part = own->part;
        own->event_log = event_log;
        td__catch_up_commit(e, &all[best]);
        own->part = part;
    }
    return TD_OK;
}

/* ---- 2 --------------------------------------------------------------------------------------- */

typedef struct cells {
    size_t *at; /* (n + 1) rising: where they begin */
    int n;
} cells;

static int by_size(const void *a, const void *b)
{
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return x < y ? -1 : x > y;
}

/* Has rank r a part of the moment of rank best? */
static bool is_there(const td__hello *all, int r, int best)
{
    return all[r].has && all[r].part.n && all[r].state.step == all[best].state.step;
}

static td_status cut(const td__hello *all, int ranks, int best, cells *c)
{
    int n = 0;
    c->at = td__calloc(4 * (size_t)ranks + 2, sizeof *c->at);
    if (!c->at)
        return TD_FAIL(TD_ENOMEM, "no memory for the parts of %d ranks", ranks);
    c->at[n++] = 0;
    c->at[n++] = all[best].part.total;
    for (int r = 0; r < ranks; r++)
        for (int i = 0; is_there(all, r, best) && i < all[r].part.n; i++) {
            c->at[n++] = all[r].part.at[i].begin;
            c->at[n++] = all[r].part.at[i].end;
        }
    qsort(c->at, (size_t)n, sizeof *c->at, by_size);
    for (int i = 0; i < n; i++)
        if (!i || c->at[i] != c->at[c->n])
            c->at[i ? ++c->n : 0] = c->at[i];
    return TD_OK;
}

static bool has(const td__hello *h, size_t element)
{
    for (int i = 0; i < h->part.n; i++)
        if (element >= h->part.at[i].begin && element < h->part.at[i].end)
            return true;
    return false;
}

/* Who gives a cell to rank best; itself: it has it; -1: nobody has it. */
static int giver(const td__hello *all, int ranks, int best, size_t element)
{
    if (has(&all[best], element))
        return best;
    for (int r = 0; r < ranks; r++)
        if (is_there(all, r, best) && has(&all[r], element))
            return r;
    return -1;
}

/* ---- 3 --------------------------------------------------------------------------------------- */

/* Of a block of params, or of a state of theirs, which may end before. */
static td_status move(td__elastic *e, td__mapping *map, td__param_range at, int from, int to)
{
    size_t count = map->nbytes / sizeof(float), end = at.end < count ? at.end : count;
    if (at.begin >= end)
        return TD_OK;
    float *block = (float *)map->at + at.begin;
    return e->world->rank == from
               ? td_send(e->world->comm, block, end - at.begin, TD_F32, to, NULL)
               : td_recv(e->world->comm, block, end - at.begin, TD_F32, from, NULL);
}

static td_status keep(td__mapping *map, td_status st)
{
    if (!st)
        return td__mem_unmap(map);
    td__mem_map_drop(map);
    return st;
}

static td_status bring(td__elastic *e, td__param_range at, int from, int to)
{
    td__replica *own = e->replica;
    td__map_use use = e->world->rank == to ? TD_MAP_BOTH : TD_MAP_READ;
    td__mapping map;
    if (e->world->rank != from && e->world->rank != to)
        return TD_OK;
    TD_TRY(td__params_map(own->params, 0, td__params_total(own->params), use, &map));
    TD_TRY(keep(&map, move(e, &map, at, from, to)));
    for (int k = 0; k < td_optimizer_state_count(own->optimizer); k++) {
        TD_TRY(td__optim_map_state(own->optimizer, k, use, &map));
        TD_TRY(keep(&map, move(e, &map, at, from, to)));
    }
    return TD_OK;
}

/* Nobody can go on from a part. */
static void give_up(td__elastic *e, size_t missing, size_t total, uint64_t step)
{
    if (e->world->rank == 0)
        TD_LOG(WARN, TRAIN,
               "all servers that had %zu of %zu weights of step %llu were lost: what the others "
               "have is of no use",
               missing, total, (unsigned long long)step);
    if (e->replica->part.n)
        e->replica->has = TD_REPLICA_INVALID;
}

td_status td__parts_bring(td__elastic *e, const td__hello *all, int best)
{
    int ranks = e->world->ranks;
    size_t missing = 0;
    cells c = {.at = NULL};
    td_status st = cut(all, ranks, best, &c);

    for (int i = 0; !st && i < c.n; i++)
        if (giver(all, ranks, best, c.at[i]) < 0)
            missing += c.at[i + 1] - c.at[i];
    if (!st && missing)
        give_up(e, missing, all[best].part.total, all[best].state.step);
    for (int i = 0; !st && !missing && i < c.n; i++) {
        int from = giver(all, ranks, best, c.at[i]);
        if (from != best)
            st = bring(e, (td__param_range){c.at[i], c.at[i + 1]}, from, best);
    }
    if (!st && !missing && e->world->rank == best) {
        e->replica->part.n = 0;
        td_params_touch(e->replica->params);
    }
    td__free(c.at);
    return st;
}
