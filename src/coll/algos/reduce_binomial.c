/* reduce_binomial.c -- up a binomial tree: reduce, and allreduce with the way down again.
 *
 * In round l the ranks with bit l lowest send their sum to the rank 2^l before them, which adds it:
 * that is the tree over ranks itself (order-safe). ceil(log2 n) levels; segments follow each other
 * up and down. For a root that is not rank 0, rank 0 hands it the total. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "coll/exchange.h"
#include "coll/algos/tree.h"

static td_status run_allreduce(td__coll_ctx *x, const td__coll_call *c)
{
    int list[TD_TREE_CHILDREN];
    td__tree t = td__tree_binomial(x->mesh->rank, x->mesh->size, 0, list);

    TD_TRY(td__tree_up(x, c, t, c->out));
    if (t.parent < 0)
        td__reduce_finish(c->out, c->count, c->dtype, c->op, x->mesh->size);
    return td__tree_down(x, c, t, c->out);
}

/* The total of rank 0 goes to the root. A transport may make it wait for its receiver, so it leaves
 * when all of it is there. */
static td_status run_reduce(td__coll_ctx *x, const td__coll_call *c)
{
    int list[TD_TREE_CHILDREN], rank = x->mesh->rank, n = x->mesh->size;
    td__tree t = td__tree_binomial(rank, n, 0, list);
    size_t nbytes = td__nbytes(c, c->count);
    td_status st = TD_OK;

    if (rank == 0) {
        void *sum = c->root == 0 ? c->out : td__malloc(nbytes ? nbytes : 1);
        if (!sum)
            return TD_FAIL(TD_ENOMEM, "reduce: the sum of %zu bytes, to be handed to rank %d",
                           nbytes, c->root);
        st = td__tree_up(x, c, t, sum);
        if (!st)
            td__reduce_finish(sum, c->count, c->dtype, c->op, n);
        if (!st && c->root != 0)
            st = td__coll_send(x, x->mesh, x->xfers, c->root, sum, nbytes);
        if (!st && c->root != 0)
            st = td__coll_wait(x, x->mesh, x->xfers, 1);
        if (c->root != 0)
            td__free(sum);
        return st;
    }
    TD_TRY(td__tree_up(x, c, t, NULL));
    if (rank != c->root)
        return TD_OK;
    TD_TRY(td__coll_recv(x, x->mesh, x->xfers, 0, c->out, nbytes));
    return td__coll_wait(x, x->mesh, x->xfers, 1);
}

static double cost(const td__coll_ctx *x, const td__coll_call *c)
{
    double levels = td__log2_up(x->mesh->size), bytes = (double)td__nbytes(c, c->count);
    double segment = (double)td__nbytes(c, td__tree_segment(c));
    double ways = c->kind == TD_COLL_ALLREDUCE || c->root != 0 ? 2 : 1;
    /* The top receives and sends one array for each of its children. */
    return td__rounds_cost(x, ways * levels, 1) +
           ways * (levels * bytes + (levels - 1) * segment) * x->mesh->beta +
           levels * bytes * x->gamma;
}

const td__algo td__algo_allreduce_tree = {
    .kind = TD_COLL_ALLREDUCE,
    .name = "tree",
    .order_safe = true,
    .can = td__algo_always,
    .cost = cost,
    .run = run_allreduce,
};

const td__algo td__algo_reduce_tree = {
    .kind = TD_COLL_REDUCE,
    .name = "tree",
    .order_safe = true,
    .can = td__algo_always,
    .cost = cost,
    .run = run_reduce,
};
