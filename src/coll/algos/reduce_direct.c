/* reduce_direct.c -- reductions in which each rank owns a slice of the array and adds it up
 * (order-safe): allreduce, reduce and reduce_scatter.
 *
 *     1. Rank r sends slice s of its input to rank s, for every other s; so it receives the n - 1
 *        partials of its own slice, and adds them with its own in the tree over ranks.
 *     2. allreduce: it sends the sum to everybody, who receive it in place. reduce: to the root.
 *        reduce_scatter: nothing more, the slices are the blocks.
 *
 * For allreduce 2 (n-1)/n of the array goes out of and into each rank: the volume of a ring, in an
 * order that we choose. Both steps are pipelined: while segment k is added up, segment k + 1 is on
 * its way. Per pair of ranks the messages are partials 0, 1, results 0, partials 2, results 1, ...
 *
 * In place is safe: a result of another slice arrives only after its owner has received our part,
 * and a block of reduce_scatter is overwritten after its segment has gone out. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/exchange.h"

enum { SEGMENT = 256 << 10, SCRATCH = 8 << 20 };

/* Scratch is two segments from each peer. */
static size_t segment_of(const td__coll_call *c, int n)
{
    size_t dflt = SCRATCH / 2 / (size_t)n;
    return td__segment_count(c, dflt > SEGMENT ? SEGMENT : dflt < 4096 ? 4096 : dflt);
}

typedef struct job {
    td__coll_ctx *x;
    const td__coll_call *c;
    td__mesh *m;
    size_t each;                        /* elements in a segment */
    char *scratch[2];                   /* (n + 1, each): partials, and a sum for the root */
    td__xfer *partials[2], *results[2]; /* (2n) of an even and an odd segment */
} job;

static td__span segment(const job *j, int rank, size_t k)
{
    td__span s = td__slice(j->c->count, j->m->size, rank);
    if (j->c->kind == TD_COLL_REDUCE_SCATTER)
        s = (td__span){j->c->count * (size_t)rank, j->c->count};
    return td__segment(s, j->each, k);
}

static char *slot(const job *j, size_t k, int rank)
{
    return j->scratch[k % 2] + td__nbytes(j->c, j->each) * (size_t)rank;
}

/* Where the sum of this rank's segment k is made. */
static void *sum_at(const job *j, size_t k)
{
    td__span own = segment(j, j->m->rank, k);
    if (j->c->kind == TD_COLL_REDUCE_SCATTER)
        return td__at(j->c, j->c->out, own.begin - j->c->count * (size_t)j->m->rank);
    if (j->c->kind == TD_COLL_REDUCE && j->m->rank != j->c->root)
        return slot(j, k, j->m->size);
    return td__at(j->c, j->c->out, own.begin);
}

static td_status post_partials(job *j, size_t k)
{
    td__mesh *m = j->m;
    td__xfer *t = j->partials[k % 2];
    size_t nbytes = td__nbytes(j->c, segment(j, m->rank, k).count);

    /* Start with the next rank, so that not all begin with rank 0. */
    for (int i = 1; i < m->size; i++) {
        int to = (m->rank + i) % m->size, from = (m->rank + m->size - i) % m->size;
        td__span s = segment(j, to, k);
        TD_TRY(td__coll_recv(j->x, m, &t[2 * i - 2], from, slot(j, k, from), nbytes));
        TD_TRY(td__coll_send(j->x, m, &t[2 * i - 1], to, td__at(j->c, j->c->in, s.begin),
                             td__nbytes(j->c, s.count)));
    }
    return TD_OK;
}

static void add_up(job *j, size_t k)
{
    const void **part = j->x->parts;
    td__span own = segment(j, j->m->rank, k);
    void *sum = sum_at(j, k);

    for (int r = 0; r < j->m->size; r++)
        part[r] = r == j->m->rank ? td__at(j->c, j->c->in, own.begin) : slot(j, k, r);
    td__reduce_tree(sum, part, j->m->size, own.count, j->c->dtype, j->c->op);
    td__reduce_finish(sum, own.count, j->c->dtype, j->c->op, j->m->size);
}

static td_status post_result(job *j, size_t k, td__xfer *t, int peer, bool send)
{
    td__span s = segment(j, send ? j->m->rank : peer, k);
    if (send)
        return td__coll_send(j->x, j->m, t, peer, sum_at(j, k), td__nbytes(j->c, s.count));
    return td__coll_recv(j->x, j->m, t, peer, td__at(j->c, j->c->out, s.begin),
                         td__nbytes(j->c, s.count));
}

/* Returns in *n how many transfers were started. */
static td_status post_results(job *j, size_t k, int *n)
{
    const td__mesh *m = j->m;
    td__xfer *t = j->results[k % 2];
    bool all = j->c->kind == TD_COLL_ALLREDUCE, to_root = j->c->kind == TD_COLL_REDUCE;
    bool root = to_root && m->rank == j->c->root;

    *n = 0;
    for (int i = 1; i < m->size; i++) {
        int to = (m->rank + i) % m->size, from = (m->rank + m->size - i) % m->size;
        if (all || root)
            TD_TRY(post_result(j, k, &t[(*n)++], from, false));
        if (all || (to_root && to == j->c->root))
            TD_TRY(post_result(j, k, &t[(*n)++], to, true));
    }
    return TD_OK;
}

static td_status run(td__coll_ctx *x, const td__coll_call *c)
{
    int n = x->mesh->size, pairs = 2 * (n - 1), posted[2] = {0, 0};
    bool blocks = c->kind == TD_COLL_REDUCE_SCATTER;
    size_t most = blocks ? c->count : td__slice(c->count, n, 0).count, each = segment_of(c, n);
    if (each > most)
        each = most ? most : 1;
    size_t segments = td__segments(most, each);
    size_t half = td__align_up(td__nbytes(c, each) * (size_t)(n + 1), 64);
    char *scratch = td__coll_scratch(x, 2 * half);
    if (!scratch)
        return TD_FAIL(TD_ENOMEM, "%s: scratch of two segments from %d ranks",
                       td__coll_name(c->kind), n);

    job j = {.x = x, .c = c, .m = x->mesh, .each = each};
    for (int i = 0; i < 2; i++) {
        j.scratch[i] = scratch + (size_t)i * half;
        j.partials[i] = x->xfers + i * pairs;
        j.results[i] = x->xfers + (2 + i) * pairs;
    }
    if (segments)
        TD_TRY(post_partials(&j, 0));
    for (size_t k = 0; k < segments; k++) {
        if (k + 1 < segments)
            TD_TRY(post_partials(&j, k + 1));
        TD_TRY(td__coll_wait(x, x->mesh, j.partials[k % 2], pairs));
        TD_TRY(td__coll_wait(x, x->mesh, j.results[k % 2], posted[k % 2]));
        add_up(&j, k);
        TD_TRY(post_results(&j, k, &posted[k % 2]));
    }
    TD_TRY(td__coll_wait(x, x->mesh, j.results[0], posted[0]));
    return td__coll_wait(x, x->mesh, j.results[1], posted[1]);
}

static double cost(const td__coll_ctx *x, const td__coll_call *c)
{
    double n = x->mesh->size, bytes = (double)td__nbytes(c, c->count);
    bool blocks = c->kind == TD_COLL_REDUCE_SCATTER;
    size_t slice = blocks ? c->count : c->count / (size_t)x->mesh->size + 1;
    double segments = (double)td__segments(slice, segment_of(c, x->mesh->size));
    if (blocks)
        bytes *= n;
    return td__rounds_cost(x, (blocks ? 1 : 2) + 0.2 * (segments - 1), n - 1) +
           (blocks ? 1 : 2) * (n - 1) / n * bytes * x->mesh->beta + bytes * x->gamma;
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
ROW(allreduce, ALLREDUCE);
ROW(reduce, REDUCE);
ROW(reduce_scatter, REDUCE_SCATTER);
