/* barrier_dissemination.c -- in round k a rank tells the one 2^k behind it and hears from the one
 * 2^k before it; after ceil(log2 n) rounds everybody has heard of everybody. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/exchange.h"

static td_status run(td__coll_ctx *x, const td__coll_call *c)
{
    td__mesh *m = x->mesh;
    char token[2] = {0};

    (void)c;
    for (int d = 1; d < m->size; d *= 2) {
        td__xfer *t = x->xfers;
        TD_TRY(td__coll_recv(x, m, &t[0], (m->rank + m->size - d) % m->size, &token[0], 1));
        TD_TRY(td__coll_send(x, m, &t[1], (m->rank + d) % m->size, &token[1], 1));
        TD_TRY(td__coll_wait(x, m, t, 2));
    }
    return TD_OK;
}

static double cost(const td__coll_ctx *x, const td__coll_call *c)
{
    (void)c;
    return td__rounds_cost(x, td__log2_up(x->mesh->size), 1);
}

const td__algo td__algo_barrier_dissemination = {
    .kind = TD_COLL_BARRIER,
    .name = "dissemination",
    .order_safe = true,
    .can = td__algo_always,
    .cost = cost,
    .run = run,
};
