/* sync_dpsgd.c -- decentralized SGD (D-PSGD: Lian and others, 2017): in every step a rank takes the
 * mean of its own and its neighbours' params, and updates that with the gradient of its own:
 *
 *     x_i <- sum_j W_ij x_j - rate grad f_i(x_i)
 *
 * W_ij is 1 / (1 + neighbours) for rank i and those it hears from. At a meeting ranks take the mean
 * of all.
 *
 * A graph is a list of shifts: permutations of the ranks, in each of which a rank sends its params
 * on and gets those of another. A send may have to wait for its receive, so every other rank of a
 * cycle receives first. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "graph/params.h"
#include "parallel/rules/sync_local.h"

enum { RING, GRID, EXPONENTIAL, MOST_SHIFTS = 32 };

typedef struct shift {
    int to, from, place; /* place: in the cycle */
} shift;

/* Those of a rank. */
typedef struct graph {
    shift at[MOST_SHIFTS];
    int n;
} graph;

typedef struct dpsgd {
    td__sync_local base;
    graph with;
    float *inbox; /* (count) */
} dpsgd;

static const td__key OPTIONS[] = {
    TD_KEY_ROW("graph", INT,
               "Communication graph: neighbours whose params a rank averages with its own. ring: "
               "both neighbours; grid: four, on a torus; exponential: the ranks 1, 2, 4, ... "
               "before it.",
               .hi = EXPONENTIAL, .words = "ring=0 grid=1 exponential=2", .def = "exponential"),
    TD_KEYS_END};

/* ---- Graphs ---------------------------------------------------------------------------------- */

/* Ranks base + k stride, k = 0 ... length - 1, are a cycle, in which rank `place` sends to the one
 * `by` after it. A neighbour twice is one neighbour. */
static void add_shift(graph *g, int base, int stride, int length, int place, int by)
{
    shift s = {base + (place + by) % length * stride,
               base + (place + length - by % length) % length * stride, 0};
    for (int i = 0; i < g->n; i++)
        if (g->at[i].to == s.to && g->at[i].from == s.from)
            return;
    if (length == 1 || by % length == 0)
        return;
    int first = place; /* of the cycles that steps of `by` make, the one of this rank */
    for (int p = (place + by) % length; p != place; p = (p + by) % length)
        first = p < first ? p : first;
    for (int p = first; p != place; p = (p + by) % length)
        s.place++;
    TD_ASSERT(g->n < MOST_SHIFTS, "%d neighbours", g->n);
    g->at[g->n++] = s;
}

static void make_graph(graph *g, int shape, int rank, int ranks)
{
    int rows = 1;
    for (int r = 2; shape == GRID && r * r <= ranks; r++)
        rows = ranks % r == 0 ? r : rows;
    int columns = ranks / rows, row = rank / columns, column = rank % columns;
    if (shape == EXPONENTIAL) {
        for (int by = 1; by < ranks; by *= 2)
            add_shift(g, 0, 1, ranks, rank, by);
        return;
    }
    add_shift(g, row * columns, 1, columns, column, 1);
    add_shift(g, row * columns, 1, columns, column, columns - 1);
    add_shift(g, column, columns, rows, row, 1);
    add_shift(g, column, columns, rows, row, rows - 1);
}

/* ---- The rule -------------------------------------------------------------------------------- */

static td_status create(td__sync *s)
{
    static const td__local_ops OPS = {.merge = td__local_take_mean};
    dpsgd *d = (dpsgd *)s;
    TD_TRY(td__sync_local_create(s, &OPS));
    d->inbox = td__calloc(d->base.count + 1, sizeof *d->inbox);
    if (!d->inbox)
        return TD_FAIL(TD_ENOMEM, "no memory for the params of a neighbour");
    make_graph(&d->with, (int)td__sync_value(s, "graph"), s->x.comm ? td_comm_rank(s->x.comm) : 0,
               d->base.ranks);
    return TD_OK;
}

static void destroy(td__sync *s)
{
    td__free(((dpsgd *)s)->inbox);
    td__sync_local_destroy(s);
}

static td_status swap(const dpsgd *d, const shift *s, const float *x)
{
    td_comm *comm = d->base.base.x.comm;
    if (s->place % 2)
        TD_TRY(td_recv(comm, d->inbox, d->base.count, TD_F32, s->from, NULL));
    TD_TRY(td_send(comm, x, d->base.count, TD_F32, s->to, NULL));
    return s->place % 2 ? TD_OK : td_recv(comm, d->inbox, d->base.count, TD_F32, s->from, NULL);
}

/* The mean of the neighbourhood into base.mean. */
static td_status hear(dpsgd *d, const float *x)
{
    td__sync_local *l = &d->base;
    memcpy(l->mean, x, l->count * sizeof *x);
    for (int i = 0; i < d->with.n; i++) {
        TD_TRY(swap(d, &d->with.at[i], x));
        for (size_t k = 0; k < l->count; k++)
            l->mean[k] += d->inbox[k];
    }
    for (size_t k = 0; d->with.n && k < l->count; k++)
        l->mean[k] /= (float)(1 + d->with.n);
    td__local_keep_frozen(l, x);
    return TD_OK;
}

/* Params change when all neighbours have been heard. */
static td_status mix(dpsgd *d)
{
    td_params *params = d->base.base.x.step.params;
    td__mapping map;
    if (!d->with.n)
        return TD_OK;
    TD_TRY(td__params_map(params, 0, d->base.count, TD_MAP_BOTH, &map));
    td_status st = hear(d, map.at);
    if (st) {
        td__mem_map_drop(&map);
        return st;
    }
    memcpy(map.at, d->base.mean, map.nbytes);
    return td__mem_unmap(&map);
}

static td_status step(td__sync *s, double lr, td__step_result *out)
{
    dpsgd *d = (dpsgd *)s;
    int64_t rows = td__step_own_rows(s->engine);
    td__grad_share own;

    TD_TRY(td__step_own_share(s->engine, &own));
    TD_TRY(td__sync_sum_numbers(s));
    TD_TRY(mix(d));
    if (rows)
        TD_TRY(td__step_apply(s->engine, NULL, 0, lr, out));
    td_params_touch(s->x.step.params);
    td__step_done(s->engine, out);
    out->times.sent_nbytes = out->times.plain_nbytes =
        (uint64_t)d->with.n * d->base.count * sizeof(float);
    return TD_OK;
}

static void plan(td__planner *w)
{
    uint64_t nbytes = td__params_total(w->at->params) * sizeof(float);
    graph g = {.n = 0};
    make_graph(&g, (int)td__sync_option(w->at->config, "graph"), w->rank, w->ranks);
    td__planner_runs(w);
    td__planner_numbers(w);
    for (int i = 0; i < g.n; i++) {
        bool first = g.at[i].place % 2; /* receives first */
        if (first)
            td__planner_recv(w, TD__PLAN_PARAMS, g.at[i].from, nbytes);
        td__planner_send(w, TD__PLAN_PARAMS, g.at[i].to, nbytes);
        if (!first)
            td__planner_recv(w, TD__PLAN_PARAMS, g.at[i].from, nbytes);
    }
    td__planner_update(w, 0);
}

const td__sync_ops td__sync_dpsgd = {
    .name = "dpsgd",
    .help = "decentralized SGD: local updates of the mean of a rank's and its neighbours' params",
    .promise = "a function of the number of ranks, the seed, and when ranks meet",
    .options = OPTIONS,
    .size = sizeof(dpsgd),
    .check = td__sync_local_check,
    .traits = td__sync_local_traits,
    .exchange = td__sync_local_exchange,
    .create = create,
    .destroy = destroy,
    .begin = td__sync_local_begin,
    .step = step,
    .meet = td__sync_local_meet,
    .plan = plan,
};
