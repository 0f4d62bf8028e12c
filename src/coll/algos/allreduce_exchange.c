/* allreduce_exchange.c -- for short arrays: everybody sends all of its input to everybody, and adds
 * up all of it in the tree over ranks (order-safe).
 *
 * One round, so the lowest latency there is; but n - 1 times the array goes out of each rank. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/exchange.h"

enum { MOST = 1 << 20 }; /* bytes of scratch */

static bool can(const td__coll_ctx *x, const td__coll_call *c)
{
    return td__nbytes(c, c->count) <= MOST / (size_t)x->mesh->size;
}

static td_status run(td__coll_ctx *x, const td__coll_call *c)
{
    td__mesh *m = x->mesh;
    td__xfer *t = x->xfers;
    size_t nbytes = td__nbytes(c, c->count), apart = td__align_up(nbytes, 64);
    char *scratch = td__coll_scratch(x, apart * (size_t)m->size);

    if (!scratch)
        return TD_FAIL(TD_ENOMEM, "allreduce: scratch for the input of %d ranks", m->size);
    for (int i = 1; i < m->size; i++) {
        int to = (m->rank + i) % m->size, from = (m->rank + m->size - i) % m->size;
        TD_TRY(td__coll_recv(x, m, t++, from, scratch + apart * (size_t)from, nbytes));
        TD_TRY(td__coll_send(x, m, t++, to, c->in, nbytes));
    }
    for (int r = 0; r < m->size; r++)
        x->parts[r] = r == m->rank ? c->in : scratch + apart * (size_t)r;
    TD_TRY(td__coll_wait(x, m, x->xfers, (int)(t - x->xfers)));
    td__reduce_tree(c->out, x->parts, m->size, c->count, c->dtype, c->op);
    td__reduce_finish(c->out, c->count, c->dtype, c->op, m->size);
    return TD_OK;
}

static double cost(const td__coll_ctx *x, const td__coll_call *c)
{
    double n = x->mesh->size, bytes = (double)td__nbytes(c, c->count);
    return td__rounds_cost(x, 1, n - 1) + (n - 1) * bytes * (x->mesh->beta + x->gamma);
}

const td__algo td__algo_allreduce_exchange = {
    .kind = TD_COLL_ALLREDUCE,
    .name = "exchange",
    .order_safe = true,
    .can = can,
    .cost = cost,
    .run = run,
};
