/* allreduce_direct.c -- each rank owns a slice of the array and adds it up (order-safe).
 *
 *     1. Rank r sends slice s of its input to rank s, for every other s; so it receives the n - 1
 *        partials of its own slice, and adds them with its own in the tree over ranks.
 *     2. It sends the sum to everybody, who receive it in place.
 *
 * 2 (n-1)/n of the array goes out of and into each rank: the volume of a ring, in an order that we
 * choose. Both steps are pipelined: while segment k is added up, segment k + 1 is on its way. Per
 * pair of ranks the messages are partials 0, 1, results 0, partials 2, results 1, ...
 *
 * In place is safe: a result of another slice arrives only after its owner has received our part. */
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
    td__span mine;
    size_t each;
    char *scratch[2];                   /* (n, each) partials of an even and an odd segment */
    td__xfer *partials[2], *results[2]; /* (2n) */
} job;

static td_status post_partials(job *j, size_t k)
{
    td__mesh *m = j->x->mesh;
    td__xfer *t = j->partials[k % 2];
    td__span own = td__segment(j->mine, j->each, k);

    /* Start with the next rank, so that not all begin with rank 0. */
    for (int i = 1; i < m->size; i++) {
        int to = (m->rank + i) % m->size, from = (m->rank + m->size - i) % m->size;
        td__span s = td__segment(td__slice(j->c->count, m->size, to), j->each, k);
        char *into = j->scratch[k % 2] + td__nbytes(j->c, j->each) * (size_t)from;
        TD_TRY(td__coll_recv(j->x, m, &t[2 * i - 2], from, into, td__nbytes(j->c, own.count)));
        TD_TRY(td__coll_send(j->x, m, &t[2 * i - 1], to, td__at(j->c, j->c->in, s.begin),
                             td__nbytes(j->c, s.count)));
    }
    return TD_OK;
}

static void add_up(job *j, size_t k)
{
    const td__mesh *m = j->x->mesh;
    const void **part = j->x->parts;
    td__span own = td__segment(j->mine, j->each, k);
    void *out = td__at(j->c, j->c->out, own.begin);

    for (int r = 0; r < m->size; r++)
        part[r] = r == m->rank ? td__at(j->c, j->c->in, own.begin)
                               : j->scratch[k % 2] + td__nbytes(j->c, j->each) * (size_t)r;
    td__reduce_tree(out, part, m->size, own.count, j->c->dtype, j->c->op);
    td__reduce_finish(out, own.count, j->c->dtype, j->c->op, m->size);
}

static td_status post_results(job *j, size_t k)
{
    td__mesh *m = j->x->mesh;
    td__xfer *t = j->results[k % 2];
    td__span own = td__segment(j->mine, j->each, k);

    for (int i = 1; i < m->size; i++) {
        int to = (m->rank + i) % m->size, from = (m->rank + m->size - i) % m->size;
        td__span s = td__segment(td__slice(j->c->count, m->size, from), j->each, k);
        TD_TRY(td__coll_recv(j->x, m, &t[2 * i - 2], from, td__at(j->c, j->c->out, s.begin),
                             td__nbytes(j->c, s.count)));
        TD_TRY(td__coll_send(j->x, m, &t[2 * i - 1], to, td__at(j->c, j->c->out, own.begin),
                             td__nbytes(j->c, own.count)));
    }
    return TD_OK;
}

static td_status run(td__coll_ctx *x, const td__coll_call *c)
{
    int n = x->mesh->size, pairs = 2 * (n - 1);
    size_t most = td__slice(c->count, n, 0).count, each = segment_of(c, n);
    if (each > most)
        each = most ? most : 1;
    size_t segments = td__segments(most, each);
    size_t block = td__align_up(td__nbytes(c, each) * (size_t)n, 64);
    char *scratch = td__coll_scratch(x, 2 * block);
    if (!scratch)
        return TD_FAIL(TD_ENOMEM, "allreduce: scratch of two segments from %d ranks", n);

    job j = {.x = x, .c = c, .mine = td__slice(c->count, n, x->mesh->rank), .each = each};
    for (int i = 0; i < 2; i++) {
        j.scratch[i] = scratch + (size_t)i * block;
        j.partials[i] = x->xfers + i * pairs;
        j.results[i] = x->xfers + (2 + i) * pairs;
    }
    if (segments)
        TD_TRY(post_partials(&j, 0));
    for (size_t k = 0; k < segments; k++) {
        if (k + 1 < segments)
            TD_TRY(post_partials(&j, k + 1));
        TD_TRY(td__coll_wait(x, x->mesh, j.partials[k % 2], pairs));
        add_up(&j, k);
        if (k >= 2)
            TD_TRY(td__coll_wait(x, x->mesh, j.results[k % 2], pairs));
        TD_TRY(post_results(&j, k));
    }
    for (size_t k = segments > 2 ? segments - 2 : 0; k < segments; k++)
        TD_TRY(td__coll_wait(x, x->mesh, j.results[k % 2], pairs));
    return TD_OK;
}

static double cost(const td__coll_ctx *x, const td__coll_call *c)
{
    double n = x->mesh->size, bytes = (double)td__nbytes(c, c->count);
    double segments =
        (double)td__segments(c->count / (size_t)x->mesh->size + 1, segment_of(c, x->mesh->size));
    return td__rounds_cost(x, 2 * segments, n - 1) + 2 * (n - 1) / n * bytes * x->mesh->beta +
           bytes * x->gamma;
}

const td__algo td__algo_allreduce_direct = {
    .kind = TD_COLL_ALLREDUCE,
    .name = "direct",
    .order_safe = true,
    .can = td__algo_always,
    .cost = cost,
    .run = run,
};
