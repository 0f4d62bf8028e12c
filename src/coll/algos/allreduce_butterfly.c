/* allreduce_butterfly.c -- recursive doubling for short arrays, recursive halving and doubling for
 * long ones (order-safe).
 *
 * Short: in round l a rank has the sum over its block of 2^l ranks, and swaps it with a rank of the
 * block beside it. Left block plus right block is the tree over ranks. If the number of ranks is no
 * power of two the last block is short: its ranks serve several of the full one, and where there is
 * no block beside, the sum is passed up as it is.
 *
 *     5 ranks:   0-1  2-3  4        0-2  1-3  4        0-4  1-4  2-4  3-4
 *
 * ceil(log2 n) rounds, in each of them the whole array, to as many ranks as a rank serves. Long
 * arrays on 2^k ranks: halving.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/exchange.h"
#include "coll/algos/halving.h"

enum { SHORT = 16 << 10, CHUNK = 1 << 20 };

static bool halves(const td__coll_ctx *x, const td__coll_call *c)
{
    return td__is_power(x->mesh->size) && td__nbytes(c, c->count) > SHORT;
}

/* One round on [out, out + count): this rank's block starts at `base`. */
static td_status round_of(td__coll_ctx *x, const td__coll_call *c, void *out, size_t count,
                          void *scratch, int distance)
{
    td__mesh *m = x->mesh;
    int base = m->rank / distance * distance, i = m->rank - base, n = 0;
    bool left = m->rank / distance % 2 == 0;
    int beside = left ? base + distance : base - distance;
    int theirs = m->size - beside < distance ? m->size - beside : distance;
    int ours = m->size - base < distance ? m->size - base : distance;
    size_t nbytes = td__nbytes(c, count);

    if (theirs <= 0)
        return TD_OK;
    TD_TRY(td__coll_recv(x, m, &x->xfers[n++], beside + i % theirs, scratch, nbytes));
    for (int k = i; k < theirs; k += ours)
        TD_TRY(td__coll_send(x, m, &x->xfers[n++], beside + k, out, nbytes));
    TD_TRY(td__coll_wait(x, m, x->xfers, n));
    td__reduce(out, left ? out : scratch, left ? scratch : out, count, c->dtype, c->op);
    return TD_OK;
}

static td_status run(td__coll_ctx *x, const td__coll_call *c)
{
    if (halves(x, c))
        return td__halving_run(x, c);

    size_t each = td__segment_count(c, CHUNK);
    if (each > c->count)
        each = c->count ? c->count : 1;
    void *scratch = td__coll_scratch(x, td__nbytes(c, each));
    if (!scratch)
        return TD_FAIL(TD_ENOMEM, "allreduce: scratch of %zu elements", each);
    for (size_t k = 0; k < td__segments(c->count, each); k++) {
        td__span s = td__segment((td__span){0, c->count}, each, k);
        void *out = td__at(c, c->out, s.begin);
        td__coll_copy(out, td__at(c, c->in, s.begin), td__nbytes(c, s.count));
        for (int distance = 1; distance < x->mesh->size; distance *= 2)
            TD_TRY(round_of(x, c, out, s.count, scratch, distance));
        td__reduce_finish(out, s.count, c->dtype, c->op, x->mesh->size);
    }
    return TD_OK;
}

/* Messages of the busiest rank in a round: of a short last block one rank serves several. */
static int fan(int size, int distance)
{
    int rest = size % (2 * distance) - distance;
    return rest > 0 ? (distance + rest - 1) / rest : 1;
}

static double cost(const td__coll_ctx *x, const td__coll_call *c)
{
    double bytes = (double)td__nbytes(c, c->count), sum = 0;
    if (halves(x, c))
        return td__halving_cost(x, c);
    for (int distance = 1; distance < x->mesh->size; distance *= 2) {
        double messages = fan(x->mesh->size, distance);
        sum += td__rounds_cost(x, 1, messages) + bytes * (messages * x->mesh->beta + x->gamma);
    }
    return sum;
}

const td__algo td__algo_allreduce_butterfly = {
    .kind = TD_COLL_ALLREDUCE,
    .name = "butterfly",
    .order_safe = true,
    .can = td__algo_always,
    .cost = cost,
    .run = run,
};
