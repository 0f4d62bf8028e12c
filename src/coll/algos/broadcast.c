/* broadcast.c -- an array from the root to everybody, along a tree of ranks and in segments
 * (tree.h); the algorithms differ in the tree:
 *
 *     direct   the root sends to everybody: one round, but n - 1 arrays leave one rank
 *     tree     binomial: ceil(log2 n) rounds; the root sends the array log2 n times
 *     chain    every rank passes it on to the next: n - 1 rounds of a segment, and the array leaves
 *              each rank once: the best for long arrays */
/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/exchange.h"
#include "coll/algos/tree.h"

static td_status run_direct(td__coll_ctx *x, const td__coll_call *c)
{
    td__mesh *m = x->mesh;
    size_t nbytes = td__nbytes(c, c->count);
    int n = 0;

    if (m->rank != c->root)
        TD_TRY(td__coll_recv(x, m, &x->xfers[n++], c->root, c->out, nbytes));
    for (int i = 1; i < m->size && m->rank == c->root; i++)
        TD_TRY(td__coll_send(x, m, &x->xfers[n++], (m->rank + i) % m->size, c->out, nbytes));
    return td__coll_wait(x, m, x->xfers, n);
}

static td_status run_tree(td__coll_ctx *x, const td__coll_call *c)
{
    int list[TD_TREE_CHILDREN];
    td__tree t = td__tree_binomial(x->mesh->rank, x->mesh->size, c->root, list);
    return td__tree_down(x, c, t, c->out);
}

static td_status run_chain(td__coll_ctx *x, const td__coll_call *c)
{
    int n = x->mesh->size, v = (x->mesh->rank - c->root + n) % n;
    int next = (x->mesh->rank + 1) % n;
    td__tree t = {
        .parent = v ? (x->mesh->rank + n - 1) % n : -1, .n_children = v < n - 1, .children = &next};
    return td__tree_down(x, c, t, c->out);
}

static double cost_direct(const td__coll_ctx *x, const td__coll_call *c)
{
    double n = x->mesh->size;
    return td__rounds_cost(x, 1, n - 1) + (n - 1) * (double)td__nbytes(c, c->count) * x->mesh->beta;
}

/* `fan` arrays leave the root; the last segment then passes `depth` ranks. */
static double pipeline_cost(const td__coll_ctx *x, const td__coll_call *c, double fan, double depth)
{
    double bytes = (double)td__nbytes(c, c->count);
    double segment = (double)td__nbytes(c, td__tree_segment(c));
    return td__rounds_cost(x, depth, 1) + 0.2 * x->mesh->alpha * fan * (bytes / segment) +
           (fan * bytes + (depth - 1) * segment) * x->mesh->beta;
}

static double cost_tree(const td__coll_ctx *x, const td__coll_call *c)
{
    return c->count ? pipeline_cost(x, c, td__log2_up(x->mesh->size), td__log2_up(x->mesh->size))
                    : 0;
}

static double cost_chain(const td__coll_ctx *x, const td__coll_call *c)
{
    return c->count ? pipeline_cost(x, c, 1, x->mesh->size - 1) : 0;
}

#define ROW(algo)                                \
    const td__algo td__algo_broadcast_##algo = { \
        .kind = TD_COLL_BROADCAST,               \
        .name = #algo,                           \
        .order_safe = true,                      \
        .can = td__algo_always,                  \
        .cost = cost_##algo,                     \
        .run = run_##algo,                       \
    }
ROW(direct);
ROW(tree);
ROW(chain);
