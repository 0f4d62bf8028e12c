/* all_gather_direct.c -- everybody sends its block to everybody, and receives in place.
 *
 * One round, n - 1 messages out of and into each rank. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/exchange.h"

static td_status run(td__coll_ctx *x, const td__coll_call *c)
{
    td__mesh *m = x->mesh;
    td__xfer *t = x->xfers;
    size_t nbytes = td__nbytes(c, c->count);
    char *out = c->out;

    for (int i = 1; i < m->size; i++) {
        int to = (m->rank + i) % m->size, from = (m->rank + m->size - i) % m->size;
        TD_TRY(td__coll_recv(x, m, t++, from, out + nbytes * (size_t)from, nbytes));
        TD_TRY(td__coll_send(x, m, t++, to, c->in, nbytes));
    }
    td__coll_copy(out + nbytes * (size_t)m->rank, c->in, nbytes);
    return td__coll_wait(x, m, x->xfers, (int)(t - x->xfers));
}

static double cost(const td__coll_ctx *x, const td__coll_call *c)
{
    double n = x->mesh->size;
    return td__rounds_cost(x, 1, n - 1) + (n - 1) * (double)td__nbytes(c, c->count) * x->mesh->beta;
}

const td__algo td__algo_all_gather_direct = {
    .kind = TD_COLL_ALL_GATHER,
    .name = "direct",
    .order_safe = true,
    .can = td__algo_always,
    .cost = cost,
    .run = run,
};
