/* star.c -- one rank does all the work: allreduce (rank 0) and reduce (the root).
 *
 * Every other rank sends its array to the centre, which adds them up in the tree over ranks
 * (order-safe) and, for allreduce, sends the sum back. Two rounds, but n - 1 arrays go through one
 * rank; for few ranks and short arrays, and as the plainest algorithm there is. Segments are
 * pipelined: the centre receives one while it adds up the one before. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/exchange.h"

enum { SEGMENT = 256 << 10, SCRATCH = 8 << 20 };

static size_t segment_of(const td__coll_call *c, int n)
{
    size_t dflt = SCRATCH / 2 / (size_t)n;
    return td__segment_count(c, dflt > SEGMENT ? SEGMENT : dflt < 4096 ? 4096 : dflt);
}

static td_status centre(td__coll_ctx *x, const td__coll_call *c, size_t each, size_t segments)
{
    td__mesh *m = x->mesh;
    int n = m->size;
    td__xfer *recvs[2] = {x->xfers, x->xfers + n}, *sends[2] = {x->xfers + 2 * n, x->xfers + 3 * n};
    int sent[2] = {0, 0};
    size_t slot = td__align_up(td__nbytes(c, each), 64), half = slot * (size_t)n;
    char *scratch = td__coll_scratch(x, 2 * half);

    if (!scratch)
        return TD_FAIL(TD_ENOMEM, "%s: scratch of two segments from %d ranks",
                       td__coll_name(c->kind), n);
    for (size_t k = 0; k < segments + 1; k++) {
        td__span all = {0, c->count};
        if (k < segments) {
            td__span s = td__segment(all, each, k);
            for (int i = 1; i < n; i++) {
                int from = (m->rank + i) % n;
                TD_TRY(td__coll_recv(x, m, &recvs[k % 2][i - 1], from,
                                     scratch + k % 2 * half + slot * (size_t)from,
                                     td__nbytes(c, s.count)));
            }
        }
        if (k == 0)
            continue;
        size_t b = (k - 1) % 2;
        td__span s = td__segment(all, each, k - 1);
        void *out = td__at(c, c->out, s.begin);
        TD_TRY(td__coll_wait(x, m, recvs[b], n - 1));
        for (int r = 0; r < n; r++)
            x->parts[r] =
                r == m->rank ? td__at(c, c->in, s.begin) : scratch + b * half + slot * (size_t)r;
        td__reduce_tree(out, x->parts, n, s.count, c->dtype, c->op);
        td__reduce_finish(out, s.count, c->dtype, c->op, n);
        TD_TRY(td__coll_wait(x, m, sends[b], sent[b]));
        for (sent[b] = 0; c->kind == TD_COLL_ALLREDUCE && sent[b] < n - 1; sent[b]++)
            TD_TRY(td__coll_send(x, m, &sends[b][sent[b]], (m->rank + sent[b] + 1) % n, out,
                                 td__nbytes(c, s.count)));
    }
    TD_TRY(td__coll_wait(x, m, sends[0], sent[0]));
    return td__coll_wait(x, m, sends[1], sent[1]);
}

/* Two segments under way: one going up, one coming down. */
static td_status arm(td__coll_ctx *x, const td__coll_call *c, int at, size_t each, size_t segments)
{
    bool back = c->kind == TD_COLL_ALLREDUCE;

    for (size_t k = 0; k < segments + 2; k++) {
        td__xfer *t = x->xfers + k % 2 * 2;
        td__span s = td__segment((td__span){0, c->count}, each, k);
        if (k >= 2)
            TD_TRY(td__coll_wait(x, x->mesh, t, back ? 2 : 1));
        if (k >= segments)
            continue;
        TD_TRY(td__coll_send(x, x->mesh, &t[0], at, td__at(c, c->in, s.begin),
                             td__nbytes(c, s.count)));
        if (back)
            TD_TRY(td__coll_recv(x, x->mesh, &t[1], at, td__at(c, c->out, s.begin),
                                 td__nbytes(c, s.count)));
    }
    return TD_OK;
}

static td_status run(td__coll_ctx *x, const td__coll_call *c)
{
    size_t each = segment_of(c, x->mesh->size);
    if (each > c->count)
        each = c->count ? c->count : 1;
    size_t segments = td__segments(c->count, each);
    int at = c->kind == TD_COLL_REDUCE ? c->root : 0;
    return x->mesh->rank == at ? centre(x, c, each, segments) : arm(x, c, at, each, segments);
}

static double cost(const td__coll_ctx *x, const td__coll_call *c)
{
    double n = x->mesh->size, bytes = (double)td__nbytes(c, c->count);
    double rounds = c->kind == TD_COLL_ALLREDUCE ? 2 : 1;
    return td__rounds_cost(x, rounds, n - 1) + rounds * (n - 1) * bytes * x->mesh->beta +
           (n - 1) * bytes * x->gamma;
}

#define ROW(collective, COLLECTIVE)                 \
    const td__algo td__algo_##collective##_star = { \
        .kind = TD_COLL_##COLLECTIVE,               \
        .name = "star",                             \
        .order_safe = true,                         \
        .can = td__algo_always,                     \
        .cost = cost,                               \
        .run = run,                                 \
    }
ROW(allreduce, ALLREDUCE);
ROW(reduce, REDUCE);
