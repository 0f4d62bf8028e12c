/* client.c -- the side that pushes and pulls. See client.h.
 *
 * Every request to a server has an answer, in order: its number, and over a link without shared
 * memory the floats of a pull behind it. At most WINDOW requests of a server are without one, so
 * that all answers have room in a mailbox or a socket, and neither side waits for the other to
 * read. Floats of pulls may not have: they are received before more than SMALL of them are on the
 * way and this side sends floats of its own. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "ps/client.h"

enum { WINDOW = 256, SMALL = 1 << 13 }; /* requests, floats */

typedef struct pending {
    uint64_t number;
    bool pulls;
    td__ps_range range;
    float *into; /* of a pull; NULL: floats stay in the lane */
} pending;

typedef struct server {
    td__ps_range own;
    pending queue[WINDOW];
    uint32_t first, n; /* of the queue */
    size_t coming;     /* floats of pulls in it */
} server;

struct td__ps_client {
    td__ps_lane *lanes; /* (servers) */
    server *at;         /* (servers) */
    int servers;
    size_t floats;
    uint64_t number; /* of the last call */
};

td__ps_range td__ps_even_shard(size_t floats, int n, int s)
{
    enum { GRAIN = 16 }; /* floats: a cache line has one owner */
    size_t grains = (floats + GRAIN - 1) / GRAIN;
    size_t begin = grains * (size_t)s / (size_t)n * GRAIN;
    size_t end = grains * ((size_t)s + 1) / (size_t)n * GRAIN;
    begin = begin < floats ? begin : floats;
    end = end < floats ? end : floats;
    return (td__ps_range){begin, end - begin};
}

/* ---- Answers --------------------------------------------------------------------------------- */

/* The answer to the oldest request of a server. */
static td_status absorb(td__ps_client *c, int s)
{
    server *v = &c->at[s];
    td__ps_lane *l = &c->lanes[s];
    pending *p = &v->queue[v->first % WINDOW];
    uint64_t number;
    TD_TRY(td__ps_hear(l, &number, sizeof number, false));
    if (number != p->number)
        return TD_FAIL(TD_EPROTO, "rank %d answers request %llu, not %llu", l->rank,
                       (unsigned long long)number, (unsigned long long)p->number);
    if (p->pulls) {
        float *lies = l->pull + (p->range.begin - v->own.begin);
        TD_TRY(td__ps_take(l, l->shared || !p->into ? lies : p->into, p->range.count));
        if (l->shared && p->into)
            memcpy(p->into, lies, p->range.count * sizeof *lies);
        v->coming -= p->range.count;
    }
    v->first++;
    v->n--;
    return TD_OK;
}

td_status td__ps_wait(td__ps_client *c, td__ps_ticket ticket)
{
    for (int s = 0; s < c->servers; s++)
        while (c->at[s].n && c->at[s].queue[c->at[s].first % WINDOW].number <= ticket)
            TD_TRY(absorb(c, s));
    return TD_OK;
}

/* ---- Requests -------------------------------------------------------------------------------- */

static bool overlap(td__ps_range a, td__ps_range b)
{
    return a.begin < b.begin + b.count && b.begin < a.begin + a.count;
}

/* Must an answer come first? In shared memory an area has one use at a time: what a push wrote is
 * read, and what a pull brought is taken, before the next request writes there. */
static bool blocked(const server *v, const td__ps_lane *l, bool pulls, td__ps_range r)
{
    if (v->n == WINDOW || (!l->shared && !pulls && v->coming > SMALL))
        return true;
    for (uint32_t i = 0; l->shared && i < v->n; i++) {
        const pending *p = &v->queue[(v->first + i) % WINDOW];
        if ((p->pulls || !pulls) && overlap(p->range, r))
            return true;
    }
    return false;
}

static td_status make_way(td__ps_client *c, int s, bool pulls, td__ps_range r)
{
    while (blocked(&c->at[s], &c->lanes[s], pulls, r))
        TD_TRY(absorb(c, s));
    return TD_OK;
}

static td_status ask(td__ps_client *c, int s, td__ps_ask_verb verb, td__ps_range r, float *into)
{
    server *v = &c->at[s];
    td__ps_ask message = {verb, c->number, r.begin, r.count};
    bool pulls = verb == TD__PS_ASK_PULL;
    v->queue[(v->first + v->n++) % WINDOW] = (pending){c->number, pulls, r, into};
    v->coming += pulls ? r.count : 0;
    return td__ps_tell(&c->lanes[s], &message, sizeof message);
}

/* Values of a piece to the server that has it. */
static td_status push_piece(td__ps_client *c, int s, td__ps_range r, const float *values)
{
    td__ps_lane *l = &c->lanes[s];
    float *area = l->push + (r.begin - c->at[s].own.begin);
    if (l->shared && values && values != area)
        memcpy(area, values, r.count * sizeof *area);
    TD_TRY(ask(c, s, TD__PS_ASK_PUSH, r, NULL));
    return td__ps_hand(l, values ? values : area, r.count);
}

/* What a call asks for of each piece. */
typedef struct wanted {
    bool push, pull;
    const float *from; /* NULL: in the areas */
    float *into;       /* NULL: in the lanes */
} wanted;

static td_status ask_piece(td__ps_client *c, int s, const wanted *w, td__ps_range r, size_t at)
{
    if (w->push) {
        TD_TRY(make_way(c, s, false, r));
        TD_TRY(push_piece(c, s, r, w->from ? w->from + at : NULL));
    }
    if (!w->pull)
        return TD_OK;
    TD_TRY(make_way(c, s, true, r));
    return ask(c, s, TD__PS_ASK_PULL, r, w->into ? w->into + at : NULL);
}

/* One run of floats, cut at shards and pieces; its values are those from `at` on. */
static td_status ask_run(td__ps_client *c, const wanted *w, td__ps_range run, size_t at)
{
    for (int s = 0; s < c->servers && run.count; s++) {
        size_t end = c->at[s].own.begin + c->at[s].own.count;
        while (run.count && run.begin < end) {
            size_t n = run.count < end - run.begin ? run.count : end - run.begin;
            n = n < TD__PS_PIECE ? n : TD__PS_PIECE;
            TD_TRY(ask_piece(c, s, w, (td__ps_range){run.begin, n}, at));
            run.begin += n;
            run.count -= n;
            at += n;
        }
    }
    return TD_OK;
}

/* Ranges that follow one another are one run. */
static td_status ask_all(td__ps_client *c, const wanted *w, const td__ps_range *ranges, size_t n)
{
    size_t at = 0;
    for (size_t i = 0; i < n;) {
        td__ps_range run = ranges[i++];
        while (i < n && ranges[i].begin == run.begin + run.count)
            run.count += ranges[i++].count;
        TD_TRY(ask_run(c, w, run, at));
        at += run.count;
    }
    return TD_OK;
}

static td_status check(const td__ps_client *c, const td__ps_range *ranges, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (ranges[i].begin > c->floats || ranges[i].count > c->floats - ranges[i].begin)
            return TD_FAIL(TD_EINVAL, "floats %zu to %zu of a block of %zu", ranges[i].begin,
                           ranges[i].begin + ranges[i].count, c->floats);
    return TD_OK;
}

td_status td__ps_push(td__ps_client *c, const td__ps_range *ranges, size_t n, const float *values,
                      td__ps_ticket *out)
{
    TD_TRY(check(c, ranges, n));
    *out = ++c->number;
    return ask_all(c, &(wanted){.push = true, .from = values}, ranges, n);
}

td_status td__ps_pull(td__ps_client *c, const td__ps_range *ranges, size_t n, float *values,
                      td__ps_ticket *out)
{
    TD_TRY(check(c, ranges, n));
    *out = ++c->number;
    return ask_all(c, &(wanted){.pull = true, .into = values}, ranges, n);
}

td_status td__ps_push_pull(td__ps_client *c, const td__ps_range *ranges, size_t n,
                           const float *from, float *into, td__ps_ticket *out)
{
    bool shared = true;
    for (int s = 0; s < c->servers; s++)
        shared = shared && c->lanes[s].shared;
    if (!shared) { /* all floats one way, then all the other */
        TD_TRY(td__ps_push(c, ranges, n, from, out));
        return td__ps_pull(c, ranges, n, into, out);
    }
    TD_TRY(check(c, ranges, n));
    *out = ++c->number;
    return ask_all(c, &(wanted){true, true, from, into}, ranges, n);
}

static float *find(td__ps_client *c, size_t begin, size_t *count, bool push)
{
    for (int s = 0; s < c->servers; s++) {
        td__ps_range own = c->at[s].own;
        if (begin - own.begin >= own.count)
            continue;
        *count = own.begin + own.count - begin;
        return (push ? c->lanes[s].push : c->lanes[s].pull) + (begin - own.begin);
    }
    *count = 0;
    return NULL;
}

float *td__ps_client_area(td__ps_client *c, size_t begin, size_t *count)
{
    return find(c, begin, count, true);
}

const float *td__ps_client_view(td__ps_client *c, size_t begin, size_t *count)
{
    return find(c, begin, count, false);
}

void td__ps_client_waits(td__ps_client *c, td__ps_wait_mode mode)
{
    for (int s = 0; s < c->servers; s++)
        td__ps_lane_waits(&c->lanes[s], mode);
}

/* ---- Begin and end --------------------------------------------------------------------------- */

static void destroy(td__ps_client *c)
{
    td__ps_lanes_close(c->lanes, c->servers);
    td__free(c->lanes);
    td__free(c->at);
    td__free(c);
}

td_status td__ps_client_close(td__ps_client *c)
{
    if (!c)
        return TD_OK;
    td_status st = td__ps_wait(c, c->number);
    for (int s = 0; s < c->servers && !st; s++)
        st = td__ps_tell(&c->lanes[s], &(td__ps_ask){.verb = TD__PS_ASK_END}, sizeof(td__ps_ask));
    destroy(c);
    return st;
}

td_status td__ps_client_open(td_comm *comm, int servers, size_t floats, td__ps_client **out)
{
    *out = NULL;
    td__ps_client *c = td__calloc(1, sizeof *c);
    td__ps_lane_size *sizes = td__calloc((size_t)servers, sizeof *sizes);
    td_status st = c && sizes ? TD_OK : TD_FAIL(TD_ENOMEM, "no memory for %d servers", servers);
    if (!st) {
        *c = (td__ps_client){.lanes = td__calloc((size_t)servers, sizeof *c->lanes),
                             .at = td__calloc((size_t)servers, sizeof *c->at),
                             .servers = servers,
                             .floats = floats};
        if (!c->lanes || !c->at)
            st = TD_FAIL(TD_ENOMEM, "no memory for %d servers", servers);
    }
    for (int s = 0; !st && s < servers; s++) {
        c->at[s].own = td__ps_even_shard(floats, servers, s);
        sizes[s] = (td__ps_lane_size){c->at[s].own.count, c->at[s].own.count};
    }
    if (!st)
        st = td__ps_lanes_open(comm, servers, 1, sizes, c->lanes);
    td__free(sizes);
    if (st && c)
        destroy(c);
    else if (!st)
        *out = c;
    return st;
}
