/* allreduce_hierarchical.c -- add up inside each host first, then between one leader per host, so
 * that the array crosses the network once for each host instead of once for each rank (order-safe).
 *
 *     1. The ranks of a host send to its leader, the first of them, over ctx->local.
 *     2. The leader adds them up to the partials of the tree over all ranks that lie within the
 *        host: one if the host's ranks are an aligned power of two (or reach to the end), else
 *        a few. Ranks 3 4 5 6 7 of 8 are the sub-trees 3 and 4..7.
 *     3. Leaders exchange over ctx->hosts as in reduce_direct.c: a leader owns a slice, receives
 *        all partials of it, adds them in the tree, and sends the sum to all leaders.
 *     4. Leaders send the sums to the ranks of their host.
 *
 * By segments: while leaders exchange one, the next comes from the ranks. Needs hosts whose ranks
 * are contiguous. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/comm_impl.h"
#include "coll/exchange.h"

enum { SEGMENT = 1 << 20, MOST_PIECES = 256 };

/* Ranks [begin, begin + 2^level), cut off at the number of ranks. */
typedef struct piece {
    int begin, level, host;
} piece;

typedef struct job {
    td__coll_ctx *x;
    const td__coll_call *c;
    int n, host;            /* ranks; this rank's host */
    int first, ours;        /* ranks of this host: first .. first + ours */
    int n_pieces, my_piece; /* in all; the first of this host's */
    piece pieces[MOST_PIECES];
    size_t each;
    char *local;   /* (2, ours, each) from the ranks of this host */
    char *partial; /* (pieces of this host, each) */
    char *theirs;  /* (n_pieces, slice) partials of this leader's slice */
} job;

/* The pieces of all hosts in the order of ranks; false: a host's ranks are not contiguous, or too
 * many pieces. */
static bool cut(const td__coll_ctx *x, int n, piece *out, int *count)
{
    *count = 0;
    for (int a = 0, b; a < n; a = b) {
        int host = x->host_of[a];
        for (b = a; b < n && x->host_of[b] == host; b++)
            ;
        for (int r = b; r < n; r++)
            if (x->host_of[r] == host)
                return false;
        for (int at = a; at < b;) {
            int level = 0;
            /* As large as it is aligned and within the host, or to the end of all ranks. */
            while (at % (2 << level) == 0 && (at + (2 << level) <= b || b == n) &&
                   (at + (1 << level) < n))
                level++;
            if (*count == MOST_PIECES)
                return false;
            out[(*count)++] = (piece){at, level, host};
            at += 1 << level;
        }
    }
    return true;
}

static bool can(const td__coll_ctx *x, const td__coll_call *c)
{
    piece pieces[MOST_PIECES];
    int count;

    (void)c;
    return x->host_of && x->n_hosts > 1 && x->n_hosts < x->mesh->size &&
           cut(x, x->mesh->size, pieces, &count);
}

static td_status recv_local(job *j, size_t k)
{
    td__span s = td__segment((td__span){0, j->c->count}, j->each, k);
    td__xfer *t = j->x->xfers + (int)(k % 2) * j->ours;

    for (int i = 1; i < j->ours; i++) {
        char *into = j->local + td__nbytes(j->c, j->each) * (k % 2 * (size_t)j->ours + (size_t)i);
        TD_TRY(td__coll_recv(j->x, j->x->local, &t[i - 1], i, into, td__nbytes(j->c, s.count)));
    }
    return TD_OK;
}

/* Step 2: this host's pieces of segment k. */
static void add_local(job *j, size_t k, td__span s)
{
    const td__coll_call *c = j->c;
    char *local = j->local + td__nbytes(c, j->each) * (k % 2 * (size_t)j->ours);
    const void **part = j->x->parts;

    for (int i = 0; i < j->ours; i++)
        part[i] = i ? local + td__nbytes(c, j->each) * (size_t)i : td__at(c, c->in, s.begin);
    for (int p = j->my_piece; p < j->n_pieces && j->pieces[p].host == j->host; p++) {
        int from = j->pieces[p].begin - j->first, count = 1 << j->pieces[p].level;
        if (count > j->ours - from)
            count = j->ours - from;
        td__reduce_tree(j->partial + td__nbytes(c, j->each) * (size_t)(p - j->my_piece),
                        part + from, count, s.count, c->dtype, c->op);
    }
}

/* The sum of all pieces, found in theirs[0]: neighbours of one level that are the halves of a
 * sub-tree are added as soon as both are there; the rest is the tree's right edge. */
static void add_pieces(job *j, size_t count, size_t slot)
{
    int stack[64], level[64], depth = 0;

    for (int p = 0; p <= j->n_pieces; p++) {
        bool end = p == j->n_pieces;
        if (!end) {
            stack[depth] = p;
            level[depth++] = j->pieces[p].level;
        }
        while (depth > 1 &&
               (end || (level[depth - 1] == level[depth - 2] &&
                        (j->pieces[stack[depth - 2]].begin >> level[depth - 1]) % 2 == 0))) {
            char *a = j->theirs + slot * (size_t)stack[depth - 2];
            td__reduce(a, a, j->theirs + slot * (size_t)stack[depth - 1], count, j->c->dtype,
                       j->c->op);
            depth--;
            level[depth - 1]++;
        }
    }
}

/* Step 3 on segment s. */
static td_status between_leaders(job *j, td__span s)
{
    td__coll_ctx *x = j->x;
    const td__coll_call *c = j->c;
    td__mesh *m = x->hosts;
    td__xfer *first = x->xfers + 2 * j->ours, *t = first;
    td__span own = td__slice(s.count, m->size, m->rank);
    size_t slot = td__align_up(td__nbytes(c, td__slice(s.count, m->size, 0).count), 64);

    for (int p = 0; p < j->n_pieces; p++) {
        int h = j->pieces[p].host;
        char *into = j->theirs + slot * (size_t)p;
        if (h != m->rank) {
            TD_TRY(td__coll_recv(x, m, t++, h, into, td__nbytes(c, own.count)));
            continue;
        }
        const char *from = j->partial + td__nbytes(c, j->each) * (size_t)(p - j->my_piece);
        for (int i = 0; i < m->size; i++) {
            td__span to = td__slice(s.count, m->size, i);
            if (i == m->rank)
                td__coll_copy(into, from + td__nbytes(c, to.begin), td__nbytes(c, to.count));
            else
                TD_TRY(td__coll_send(x, m, t++, i, from + td__nbytes(c, to.begin),
                                     td__nbytes(c, to.count)));
        }
    }
    TD_TRY(td__coll_wait(x, m, first, (int)(t - first)));
    add_pieces(j, own.count, slot);
    td__reduce_finish(j->theirs, own.count, c->dtype, c->op, j->n);
    td__coll_copy(td__at(c, c->out, s.begin + own.begin), j->theirs, td__nbytes(c, own.count));
    t = first;
    for (int i = 1; i < m->size; i++) {
        int to = (m->rank + i) % m->size, from = (m->rank + m->size - i) % m->size;
        td__span piece_of = td__slice(s.count, m->size, from);
        TD_TRY(td__coll_recv(x, m, t++, from, td__at(c, c->out, s.begin + piece_of.begin),
                             td__nbytes(c, piece_of.count)));
        TD_TRY(td__coll_send(x, m, t++, to, td__at(c, c->out, s.begin + own.begin),
                             td__nbytes(c, own.count)));
    }
    return td__coll_wait(x, m, first, (int)(t - first));
}

static td_status lead(job *j, size_t segments)
{
    td__coll_ctx *x = j->x;
    const td__coll_call *c = j->c;
    /* Transfers: local receives (2, ours), then those between leaders, then the sends down. */
    td__xfer *down = x->xfers + TD_COLL_XFERS(j->n) - 2 * j->ours;
    int sent[2] = {0, 0};

    if (segments)
        TD_TRY(recv_local(j, 0));
    for (size_t k = 0; k < segments; k++) {
        td__span s = td__segment((td__span){0, c->count}, j->each, k);
        size_t b = k % 2;
        if (k + 1 < segments)
            TD_TRY(recv_local(j, k + 1));
        if (j->ours > 1)
            TD_TRY(td__coll_wait(x, x->local, x->xfers + (int)b * j->ours, j->ours - 1));
        add_local(j, k, s);
        TD_TRY(between_leaders(j, s));
        if (sent[b])
            TD_TRY(td__coll_wait(x, x->local, down + (int)b * j->ours, sent[b]));
        for (sent[b] = 0; sent[b] < j->ours - 1; sent[b]++)
            TD_TRY(td__coll_send(x, x->local, &down[(int)b * j->ours + sent[b]], sent[b] + 1,
                                 td__at(c, c->out, s.begin), td__nbytes(c, s.count)));
    }
    for (int b = 0; b < 2; b++)
        if (sent[b])
            TD_TRY(td__coll_wait(x, x->local, down + b * j->ours, sent[b]));
    return TD_OK;
}

static td_status follow(td__coll_ctx *x, const td__coll_call *c, size_t each, size_t segments)
{
    for (size_t k = 0; k < segments + 2; k++) {
        td__xfer *t = x->xfers + k % 2 * 2;
        td__span s = td__segment((td__span){0, c->count}, each, k);
        if (k >= 2 && k - 2 < segments)
            TD_TRY(td__coll_wait(x, x->local, t, 2));
        if (k >= segments)
            continue;
        TD_TRY(td__coll_send(x, x->local, &t[0], 0, td__at(c, c->in, s.begin),
                             td__nbytes(c, s.count)));
        TD_TRY(td__coll_recv(x, x->local, &t[1], 0, td__at(c, c->out, s.begin),
                             td__nbytes(c, s.count)));
    }
    return TD_OK;
}

static size_t segment_of(const td__coll_call *c)
{
    size_t each = td__segment_count(c, SEGMENT);
    return each < c->count ? each : c->count ? c->count : 1;
}

static td_status run(td__coll_ctx *x, const td__coll_call *c)
{
    job j = {.x = x, .c = c, .n = x->mesh->size, .each = segment_of(c)};
    size_t segments = td__segments(c->count, j.each);

    if (!x->hosts)
        return follow(x, c, j.each, segments);
    j.host = x->host_of[x->mesh->rank];
    j.first = x->mesh->rank;
    j.ours = x->local ? x->local->size : 1;
    (void)cut(x, j.n, j.pieces, &j.n_pieces);
    while (j.pieces[j.my_piece].host != j.host)
        j.my_piece++;
    size_t mine = 0;
    for (int p = 0; p < j.n_pieces; p++)
        mine += j.pieces[p].host == j.host;
    size_t segment = td__align_up(td__nbytes(c, j.each), 64);
    size_t slice = td__align_up(td__nbytes(c, td__slice(j.each, x->n_hosts, 0).count), 64);
    j.local =
        td__coll_scratch(x, segment * (2 * (size_t)j.ours + mine) + slice * (size_t)j.n_pieces);
    if (!j.local)
        return TD_FAIL(TD_ENOMEM, "allreduce: scratch of segments from %d ranks", j.ours);
    j.partial = j.local + segment * 2 * (size_t)j.ours;
    j.theirs = j.partial + segment * mine;
    return lead(&j, segments);
}

static double cost(const td__coll_ctx *x, const td__coll_call *c)
{
    double bytes = (double)td__nbytes(c, c->count), hosts = x->n_hosts;
    double ours = (double)x->mesh->size / hosts;
    return 2 * x->local_alpha + 2 * x->hosts_alpha * (1 + 0.2 * (hosts - 2)) +
           2 * (ours - 1) * bytes * x->local_beta +
           2 * (hosts - 1) / hosts * bytes * x->hosts_beta + (ours + 1) * bytes * x->gamma;
}

const td__algo td__algo_allreduce_hierarchical = {
    .kind = TD_COLL_ALLREDUCE,
    .name = "hierarchical",
    .order_safe = true,
    .can = can,
    .cost = cost,
    .run = run,
};
