/* ring.c -- rank r sends to r + 1 and receives from r - 1 only: allreduce, reduce_scatter and
 * all_gather in rings.
 *
 *     reduce-scatter   n - 1 steps. Step t: receive slice r - t - 2, add our own, pass it on in
 *                      step t + 1. In the end rank r has the sum of slice r.
 *     all-gather       n - 1 steps. Step t: receive slice r - t - 1, finished, and pass it on.
 *
 * What is sent in a step is what was received in the step before, so allreduce is one line of
 * 2 (n - 1) steps, in each of which one slice goes by. A slice moves in segments: a segment is
 * passed on as soon as it is added up. The sum of slice s starts at rank s + 1 and goes round: the
 * order of additions depends on the number of ranks. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/exchange.h"

enum { SEGMENT = 128 << 10, AHEAD = 4, MOST_SEGMENTS = 64 };

typedef struct job {
    td__coll_ctx *x;
    const td__coll_call *c;
    td__mesh *m;
    int reduce_steps, steps; /* the first reduce_steps of steps add */
    size_t each, segments;   /* elements in a segment; segments in a slice */
    char *scratch;           /* (AHEAD, each) received, to be added */
    char *sums;              /* (segments + 1, each) of reduce_scatter */
    td__xfer *recvs;         /* (AHEAD) */
    td__xfer *sends;         /* (segments + 1) used in turn */
    size_t sent;
} job;

static td__span slice(const job *j, int s)
{
    int n = j->m->size, i = (s % n + n) % n;
    if (j->c->kind == TD_COLL_ALLREDUCE)
        return td__slice(j->c->count, n, i);
    return (td__span){j->c->count * (size_t)i, j->c->count};
}

/* The slice that is received in step t. */
static int received(const job *j, int t)
{
    return t < j->reduce_steps ? j->m->rank - t - 2 : j->m->rank - (t - j->reduce_steps) - 1;
}

/* Where item q = (step, segment) is received. */
static td_status post_recv(job *j, size_t q)
{
    int t = (int)(q / j->segments), left = (j->m->rank + j->m->size - 1) % j->m->size;
    td__span s = td__segment(slice(j, received(j, t)), j->each, q % j->segments);
    void *into = t < j->reduce_steps ? j->scratch + q % AHEAD * td__nbytes(j->c, j->each)
                                     : td__at(j->c, j->c->out, s.begin);
    return td__coll_recv(j->x, j->m, &j->recvs[q % AHEAD], left, into, td__nbytes(j->c, s.count));
}

static td_status post_send(job *j, const void *data, size_t count)
{
    td__xfer *t = &j->sends[j->sent++ % (j->segments + 1)];
    TD_TRY(td__coll_wait(j->x, j->m, t, 1));
    return td__coll_send(j->x, j->m, t, (j->m->rank + 1) % j->m->size, data,
                         td__nbytes(j->c, count));
}

/* Where the sum of a segment is made. reduce_scatter must not touch its input, so there sums have
 * places of their own, as many as can be under way, and only the last step writes to out. */
static td_status sum_at(job *j, size_t q, td__span s, void **at)
{
    size_t turn = j->sent % (j->segments + 1), k = q % j->segments;

    if (j->c->kind == TD_COLL_ALLREDUCE) {
        *at = td__at(j->c, j->c->out, s.begin);
        return TD_OK;
    }
    if ((int)(q / j->segments) < j->reduce_steps - 1) {
        *at = j->sums + turn * td__nbytes(j->c, j->each);
        return td__coll_wait(j->x, j->m, &j->sends[turn], 1);
    }
    *at = td__at(j->c, j->c->out, s.begin - j->c->count * (size_t)j->m->rank);
    /* In place, this may be the block that was sent first. If that transfer is not used again yet,
     * it may be under way still. */
    return j->sent <= j->segments + 1 + k ? td__coll_wait(j->x, j->m, &j->sends[k], 1) : TD_OK;
}

static td_status arrived(job *j, size_t q)
{
    const td__coll_call *c = j->c;
    int t = (int)(q / j->segments);
    td__span s = td__segment(slice(j, received(j, t)), j->each, q % j->segments);
    void *data = td__at(c, c->out, s.begin);

    if (t < j->reduce_steps) {
        const void *theirs = j->scratch + q % AHEAD * td__nbytes(c, j->each);
        TD_TRY(sum_at(j, q, s, &data));
        td__reduce(data, theirs, td__at(c, c->in, s.begin), s.count, c->dtype, c->op);
        if (t == j->reduce_steps - 1)
            td__reduce_finish(data, s.count, c->dtype, c->op, j->m->size);
    }
    return t + 1 < j->steps ? post_send(j, data, s.count) : TD_OK;
}

static td_status run(td__coll_ctx *x, const td__coll_call *c)
{
    int n = x->mesh->size;
    job j = {.x = x, .c = c, .m = x->mesh, .recvs = x->xfers, .sends = x->xfers + AHEAD};
    j.reduce_steps = c->kind == TD_COLL_ALL_GATHER ? 0 : n - 1;
    j.steps = c->kind == TD_COLL_REDUCE_SCATTER ? n - 1 : j.reduce_steps + n - 1;
    size_t most = slice(&j, 0).count;
    j.each = td__segment_count(c, SEGMENT);
    if (j.each < most / MOST_SEGMENTS + 1)
        j.each = most / MOST_SEGMENTS + 1;
    j.segments = td__segments(most, j.each);
    if (j.segments == 0)
        return TD_OK;
    size_t slots = c->kind == TD_COLL_REDUCE_SCATTER ? AHEAD + j.segments + 1 : AHEAD;
    j.scratch = td__coll_scratch(x, slots * td__nbytes(c, j.each));
    if (!j.scratch)
        return TD_FAIL(TD_ENOMEM, "%s: scratch of %zu segments", td__coll_name(c->kind), slots);
    j.sums = j.scratch + AHEAD * td__nbytes(c, j.each);
    for (size_t i = 0; i <= j.segments; i++)
        j.sends[i] = (td__xfer){.is_send = true, .done = true};

    size_t items = (size_t)j.steps * j.segments, posted = 0;
    td__span first = slice(&j, j.reduce_steps ? x->mesh->rank - 1 : x->mesh->rank);
    const void *source = c->in;
    if (c->kind == TD_COLL_ALL_GATHER) {
        td__coll_copy(td__at(c, c->out, first.begin), c->in, td__nbytes(c, c->count));
        source = c->out;
    }
    for (; posted < AHEAD && posted < items; posted++)
        TD_TRY(post_recv(&j, posted));
    for (size_t k = 0; k < j.segments; k++) {
        td__span s = td__segment(first, j.each, k);
        TD_TRY(post_send(&j, td__at(c, source, s.begin), s.count));
    }
    for (size_t q = 0; q < items; q++) {
        TD_TRY(td__coll_wait(x, x->mesh, &j.recvs[q % AHEAD], 1));
        TD_TRY(arrived(&j, q));
        if (posted < items)
            TD_TRY(post_recv(&j, posted++));
    }
    return td__coll_wait(x, x->mesh, j.sends, (int)(j.segments + 1));
}

static double cost(const td__coll_ctx *x, const td__coll_call *c)
{
    double n = x->mesh->size, bytes = (double)td__nbytes(c, c->count);
    double steps = c->kind == TD_COLL_ALLREDUCE ? 2 * (n - 1) : n - 1;
    if (c->kind == TD_COLL_ALLREDUCE)
        bytes /= n;
    return td__rounds_cost(x, steps, 1) + steps * bytes * x->mesh->beta +
           (c->kind == TD_COLL_ALL_GATHER ? 0 : n - 1) * bytes * x->gamma;
}

#define ROW(collective, COLLECTIVE, safe)           \
    const td__algo td__algo_##collective##_ring = { \
        .kind = TD_COLL_##COLLECTIVE,               \
        .name = "ring",                             \
        .order_safe = (safe),                       \
        .can = td__algo_always,                     \
        .cost = cost,                               \
        .run = run,                                 \
    }
ROW(allreduce, ALLREDUCE, false);
ROW(reduce_scatter, REDUCE_SCATTER, false);
ROW(all_gather, ALL_GATHER, true);
