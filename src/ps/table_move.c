/* table_move.c -- rows of tables from one generation of an elastic run to the next. See tables.h.
 *
 * A process that was a server keeps its rows when its generation ends (td__sync_keep), with the
 * number of steps that they have seen, the moment. When the next one begins all ranks tell what
 * they keep, and each finds the same plan: of the servers of one generation whose rows are of the
 * run's moment, and which together have all of them, the first that has a row gives it to those
 * servers of this generation that are to have it, and have not kept it themselves. What was kept is
 * dropped when all have theirs (a barrier), so that a generation that fails meanwhile costs
 * nothing.
 *
 * Where rows are lost, servers read them from files, if there are files of this moment; else the
 * run's state is of no use without them: the generation ends, and the next one goes back to the
 * checkpoint. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/fail.h"
#include "base/log.h"
#include "coll/comm.h"
#include "ps/tables_impl.h"

enum { CHUNK = 1 << 20 }; /* bytes at once; more where a row is larger */

static const td_coll_opts IDLE = {.timeout_ms = TD__LINK_IDLE_MS};

/* ---- What stays ------------------------------------------------------------------------------ */

typedef struct rows {
    td__id_table **at; /* (n) */
    int n, servers, server;
    bool copies;
    uint64_t moment;
} rows;

static void drop_rows(void *data)
{
    rows *r = data;
    for (int k = 0; k < r->n; k++)
        td__id_table_destroy(r->at[k]);
    td__free(r->at);
    td__free(r);
}

void td__rows_stay(td__ps_tables *t)
{
    td__sync_keep *keep = t->x && t->placed && t->server >= 0 ? t->x->keep : NULL;
    rows *r = keep ? td__calloc(1, sizeof *r) : NULL;
    td__id_table **at = r ? td__calloc((size_t)t->n, sizeof(td__id_table *)) : NULL;
    if (!at) {
        td__free(r);
        return;
    }
    *r = (rows){at, t->n, t->servers, t->server, t->copies, t->moment};
    for (int k = 0; k < t->n; k++) {
        at[k] = t->at[k].rows;
        t->at[k].rows = NULL;
        td__id_table_own(at[k], NULL, NULL);
    }
    td__sync_keep_drop(keep);
    *keep = (td__sync_keep){r, drop_rows};
}

/* ---- The plan -------------------------------------------------------------------------------- */

typedef struct hello {
    uint64_t moment;
    int32_t servers, server, copies; /* servers 0: it keeps nothing */
} hello;

typedef struct plan {
    hello *all; /* (ranks) */
    int ranks;
    int like; /* the rank whose generation's rows are used; -1: they are lost */
    const td__ps_tables *t;
    int from, to, table; /* ranks, of the transfer under way */
} plan;

/* Has rank r rows of the generation that is used? */
static bool gives(const plan *p, int r)
{
    const hello *h = &p->all[r], *like = &p->all[p->like];
    return h->servers == like->servers && h->moment == like->moment;
}

/* The first rank that has rows of that owner. */
static int giver(const plan *p, int owner)
{
    for (int r = 0; r < p->ranks; r++)
        if (gives(p, r) &&
            td__rows_has(p->all[r].servers, p->all[r].copies, p->all[r].server, owner))
            return r;
    return -1;
}

static bool is_whole(plan *p, int like)
{
    p->like = like;
    for (int owner = 0; owner < p->all[like].servers; owner++)
        if (giver(p, owner) < 0)
            return false;
    return true;
}

static void find_like(plan *p, uint64_t moment)
{
    for (int r = 0; r < p->ranks; r++)
        if (p->all[r].servers && p->all[r].moment == moment && is_whole(p, r))
            return;
    p->like = -1;
}

/* Does a server of this generation have, of the one that is used, all that it is to have? */
static bool has_all(const plan *p, int rank)
{
    const hello *h = &p->all[rank];
    const td__ps_tables *t = p->t;
    return gives(p, rank) && h->servers == t->servers && (h->copies || !t->copies) &&
           (h->server == rank || (t->servers == 2 && h->copies));
}

/* A td__id_filter: does `from` give the row to `to`? */
static bool goes(const void *user, int64_t id)
{
    const plan *p = user;
    const td__ps_tables *t = p->t;
    return td__rows_has(t->servers, t->copies, p->to, td__rows_owner(t, id)) &&
           giver(p, td__rows_owner_of(p->all[p->like].servers, id)) == p->from;
}

static bool is_kept(const void *user, int64_t id)
{
    const td__ps_tables *t = user;
    return td__rows_has(t->servers, t->copies, t->server, td__rows_owner(t, id));
}

/* ---- Transfers ------------------------------------------------------------------------------- */

static td_status give(plan *p, td__id_table *from, char *room, size_t size)
{
    uint64_t nbytes = 1;
    for (size_t place = 0; nbytes;) {
        size_t some;
        TD_TRY(td__id_table_give(from, goes, p, &place, room, size, &some));
        nbytes = some;
        if (p->from == p->to) {
            TD_TRY(td__id_table_put(p->t->at[p->table].rows, room, some));
            continue;
        }
        TD_TRY(td_send(p->t->x->comm, &nbytes, sizeof nbytes, TD_U8, p->to, NULL));
        if (some)
            TD_TRY(td_send(p->t->x->comm, room, some, TD_U8, p->to, NULL));
    }
    return TD_OK;
}

static td_status take(plan *p, td__id_table *to, char *room, size_t size)
{
    for (uint64_t nbytes = 1; nbytes;) {
        TD_TRY(td_recv(p->t->x->comm, &nbytes, sizeof nbytes, TD_U8, p->from, &IDLE));
        if (nbytes > size)
            return TD_FAIL(TD_EPROTO, "rank %d gives %llu bytes of rows", p->from,
                           (unsigned long long)nbytes);
        if (nbytes)
            TD_TRY(td_recv(p->t->x->comm, room, (size_t)nbytes, TD_U8, p->from, NULL));
        TD_TRY(td__id_table_put(to, room, (size_t)nbytes));
    }
    return TD_OK;
}

/* All that one rank gives to another, or to itself. */
static td_status transfer(plan *p, td__ps_tables *t, const rows *own)
{
    for (int k = 0; k < t->n; k++) {
        td__id_table *any = own && p->from == t->rank ? own->at[k] : t->at[k].rows;
        size_t row = td__id_table_row_nbytes(any), size = row > CHUNK ? row : CHUNK;
        char *room = td__malloc(size);
        if (!room)
            return TD_FAIL(TD_ENOMEM, "no memory for %zu bytes of rows", size);
        p->table = k;
        td_status st = p->from == t->rank ? give(p, own->at[k], room, size)
                                          : take(p, t->at[k].rows, room, size);
        td__free(room);
        TD_TRY(st);
    }
    return TD_OK;
}

static td_status move_all(plan *p, td__ps_tables *t, const rows *own)
{
    for (p->to = 0; p->to < t->servers; p->to++)
        for (p->from = 0; p->from < p->ranks; p->from++) {
            bool mine = p->from == t->rank || p->to == t->rank;
            if (mine && gives(p, p->from) && !has_all(p, p->to))
                TD_TRY(transfer(p, t, own));
        }
    return td_barrier(t->x->comm, &IDLE);
}

/* This server goes on with the tables that it has kept. */
static td_status take_own(td__ps_tables *t, rows *own)
{
    for (int k = 0; k < t->n; k++) {
        td__id_table *none = t->at[k].rows;
        t->at[k].rows = own->at[k];
        own->at[k] = none;
        TD_TRY(td__id_table_keep(t->at[k].rows, is_kept, t));
    }
    return TD_OK;
}

/* ---- All of it ------------------------------------------------------------------------------- */

/* Rows are nowhere: do files have them? Rank 0 knows. */
static td_status look_for_files(td__ps_tables *t)
{
    int32_t saved = 0;
    bool yes = false;
    if (t->rank == 0)
        TD_TRY(td__rows_are_saved(t, t->x->done, &yes));
    saved = yes;
    TD_TRY(td_broadcast(t->x->comm, &saved, 1, TD_I32, 0, NULL));
    if (saved)
        return TD_OK;
    t->x->host.lost(t->x->host.user);
    TD_TRY(td_barrier(t->x->comm, NULL)); /* all know before the first one goes */
    return TD_FAIL(TD_EPEER, "rows of step %llu were lost with their servers",
                   (unsigned long long)t->x->done);
}

static td_status move(td__ps_tables *t, plan *p)
{
    td__sync_keep *keep = t->x->keep;
    rows *own = keep->data;
    hello mine = {0};
    if (own)
        mine = (hello){own->moment, own->servers, own->server, own->copies};
    TD_TRY(td_all_gather(t->x->comm, &mine, p->all, sizeof mine, TD_U8, NULL));
    find_like(p, t->x->done);
    if (p->like < 0 && t->x->done)
        TD_TRY(look_for_files(t));
    if (p->like >= 0) {
        TD_TRY(move_all(p, t, own));
        if (t->server >= 0 && has_all(p, t->rank))
            TD_TRY(take_own(t, own));
    }
    td__sync_keep_drop(keep);
    t->placed = p->like >= 0 || !t->x->done;
    return TD_OK;
}

td_status td__rows_move(td__ps_tables *t)
{
    plan p = {.ranks = t->ranks, .like = -1, .t = t};
    p.all = td__calloc((size_t)t->ranks, sizeof *p.all);
    if (!p.all)
        return TD_FAIL(TD_ENOMEM, "no memory for the rows of %d ranks", t->ranks);
    td_status st = move(t, &p);
    td__free(p.all);
    return st;
}
