/* move_direct.c -- all_gather, all_to_all, gather and scatter in one round: every block goes
 * straight from the rank that has it to the rank that wants it, and is received in place. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/exchange.h"

/* What goes from one rank to another? */
static bool moves(const td__coll_call *c, int from, int to)
{
    return c->kind == TD_COLL_GATHER    ? to == c->root
           : c->kind == TD_COLL_SCATTER ? from == c->root
                                        : true;
}

/* The block for `to` in the sender's in, and the one from `from` in the receiver's out. */
static char *source(const td__coll_call *c, int to)
{
    bool many = c->kind == TD_COLL_ALL_TO_ALL || c->kind == TD_COLL_SCATTER;
    return td__at(c, c->in, many ? c->count * (size_t)to : 0);
}

static char *target(const td__coll_call *c, int from)
{
    bool many = c->kind != TD_COLL_SCATTER;
    return td__at(c, c->out, many ? c->count * (size_t)from : 0);
}

static td_status run(td__coll_ctx *x, const td__coll_call *c)
{
    td__mesh *m = x->mesh;
    size_t nbytes = td__nbytes(c, c->count);
    bool mine = moves(c, m->rank, m->rank), scatters = c->kind == TD_COLL_SCATTER;
    int n = 0;

    /* In place, gathering overwrites block 0 with what arrives, so the own block moves first; a
     * scatter overwrites it with the own one, so that comes last. */
    if (mine && !scatters)
        td__coll_copy(target(c, m->rank), source(c, m->rank), nbytes);
    for (int i = 1; i < m->size; i++) {
        int to = (m->rank + i) % m->size, from = (m->rank + m->size - i) % m->size;
        const char *data = c->kind == TD_COLL_ALL_GATHER ? target(c, m->rank) : source(c, to);
        if (moves(c, from, m->rank))
            TD_TRY(td__coll_recv(x, m, &x->xfers[n++], from, target(c, from), nbytes));
        if (moves(c, m->rank, to))
            TD_TRY(td__coll_send(x, m, &x->xfers[n++], to, data, nbytes));
    }
    TD_TRY(td__coll_wait(x, m, x->xfers, n));
    if (mine && scatters)
        td__coll_copy(target(c, m->rank), source(c, m->rank), nbytes);
    return TD_OK;
}

static double cost(const td__coll_ctx *x, const td__coll_call *c)
{
    double n = x->mesh->size;
    return td__rounds_cost(x, 1, n - 1) + (n - 1) * (double)td__nbytes(c, c->count) * x->mesh->beta;
}

#define ROW(collective, COLLECTIVE)                   \
    const td__algo td__algo_##collective##_direct = { \
        .kind = TD_COLL_##COLLECTIVE,                 \
        .name = "direct",                             \
        .order_safe = true,                           \
        .can = td__algo_always,                       \
        .cost = cost,                                 \
        .run = run,                                   \
    }
ROW(all_gather, ALL_GATHER);
ROW(all_to_all, ALL_TO_ALL);
ROW(gather, GATHER);
ROW(scatter, SCATTER);
