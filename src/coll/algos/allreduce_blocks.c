/* allreduce_blocks.c -- binary blocks: recursive halving and doubling for any number of ranks
 * (order-safe).
 *
 * The ranks are cut in blocks whose sizes are the powers of two in n, largest first: 7 = 4 + 2 + 1.
 *
 *     1. Halving, in each block: in round l partners at distance 2^l swap halves of what they are
 *        left with, and each adds up the half that it keeps. In the end rank i of a block of 2^m
 *        has the block's sum of 1/2^m of the array.
 *     2. From the last block to the first: a rank sends its part, in pieces, to the ranks of the
 *        block before that have the same elements; they add it to theirs.
 *     3. The first block has the sums. They go back the same way, from block to block.
 *     4. Doubling, in each block: the swaps of step 1 backwards, with finished sums.
 *
 * Distances grow in step 1, so pairs of neighbours are added first, then pairs of pairs: the tree
 * over ranks; and a short block at the end is the tree's incomplete right half. With a power of two
 * this is Rabenseifner's algorithm. See docs/algorithms.md. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/exchange.h"
#include "coll/algos/halving.h"

enum { SEGMENT = 256 << 10, LEVELS = 16 };

typedef struct block {
    int base, size;
} block;

typedef struct job {
    td__coll_ctx *x;
    const td__coll_call *c;
    td__mesh *m;
    size_t each; /* elements in a segment */
    char *scratch[2];
    block blocks[LEVELS];
    int n_blocks, mine; /* mine: the block of this rank */
} job;

/* What rank i of a block has after `levels` halvings: bit l of i chooses a half in round l. */
static td__span part(const job *j, int i, int levels)
{
    td__span s = {0, j->c->count};

    for (int l = 0; l < levels; l++) {
        size_t low = s.count - s.count / 2;
        s = i >> l & 1 ? (td__span){s.begin + low, s.count - low} : (td__span){s.begin, low};
    }
    return s;
}

/* Send `send` elements from src, and out[keep] = mine[keep] op theirs (or theirs op mine), in
 * segments: one is added up while the next is under way. */
static td_status swap_reduce(job *j, int peer, const void *src, td__span send, const void *own,
                             td__span keep, bool left)
{
    td__coll_ctx *x = j->x;
    const td__coll_call *c = j->c;
    size_t n = td__segments(send.count > keep.count ? send.count : keep.count, j->each);

    for (size_t k = 0; k < n + 1; k++) {
        if (k < n) {
            td__span out = td__segment(send, j->each, k), in = td__segment(keep, j->each, k);
            td__xfer *t = x->xfers + 2 * (k % 2);
            TD_TRY(td__coll_recv(x, j->m, &t[0], peer, j->scratch[k % 2], td__nbytes(c, in.count)));
            TD_TRY(td__coll_send(x, j->m, &t[1], peer, td__at(c, src, out.begin),
                                 td__nbytes(c, out.count)));
        }
        if (k > 0) {
            td__span in = td__segment(keep, j->each, k - 1);
            const void *a = td__at(c, own, in.begin), *b = j->scratch[(k - 1) % 2];
            TD_TRY(td__coll_wait(x, j->m, x->xfers + 2 * ((k - 1) % 2), 2));
            td__reduce(td__at(c, c->out, in.begin), left ? a : b, left ? b : a, in.count, c->dtype,
                       c->op);
        }
    }
    return TD_OK;
}

static td_status halve(job *j)
{
    const td__coll_call *c = j->c;
    block b = j->blocks[j->mine];
    int i = j->m->rank - b.base;
    const void *from = c->in; /* after the first round the partial sums are in out */

    for (int l = 0; 1 << l < b.size; l++) {
        int other = i ^ 1 << l;
        TD_TRY(swap_reduce(j, b.base + other, from, part(j, other, l + 1), from, part(j, i, l + 1),
                           i < other));
        from = c->out;
    }
    if (b.size == 1)
        td__coll_copy(c->out, c->in, td__nbytes(c, c->count));
    return TD_OK;
}

static td_status double_up(job *j)
{
    td__coll_ctx *x = j->x;
    const td__coll_call *c = j->c;
    block b = j->blocks[j->mine];
    int i = j->m->rank - b.base;

    for (int l = td__log2_up(b.size) - 1; l >= 0; l--) {
        int other = i ^ 1 << l;
        td__span have = part(j, i, l + 1), want = part(j, other, l + 1);
        TD_TRY(td__coll_recv(x, j->m, &x->xfers[0], b.base + other, td__at(c, c->out, want.begin),
                             td__nbytes(c, want.count)));
        TD_TRY(td__coll_send(x, j->m, &x->xfers[1], b.base + other, td__at(c, c->out, have.begin),
                             td__nbytes(c, have.count)));
        TD_TRY(td__coll_wait(x, j->m, x->xfers, 2));
    }
    return TD_OK;
}

/* Between the small block and the one before it: the small one's rank i and the others' ranks i,
 * i + small, i + 2 small, ... have the same elements. */
static td_status between(job *j, int small, bool upward)
{
    td__coll_ctx *x = j->x;
    const td__coll_call *c = j->c;
    block s = j->blocks[small], b = j->blocks[small - 1];
    int levels = td__log2_up(b.size), n = 0;

    if (j->mine == small) {
        for (int k = j->m->rank - s.base; k < b.size; k += s.size, n++) {
            td__span p = part(j, k, levels);
            void *at = td__at(c, c->out, p.begin);
            if (upward)
                TD_TRY(
                    td__coll_send(x, j->m, &x->xfers[n], b.base + k, at, td__nbytes(c, p.count)));
            else
                TD_TRY(
                    td__coll_recv(x, j->m, &x->xfers[n], b.base + k, at, td__nbytes(c, p.count)));
        }
    } else if (j->mine == small - 1) {
        int i = j->m->rank - b.base, peer = s.base + i % s.size;
        td__span p = part(j, i, levels);
        void *at = td__at(c, c->out, p.begin);
        if (!upward) {
            TD_TRY(td__coll_send(x, j->m, &x->xfers[n++], peer, at, td__nbytes(c, p.count)));
        } else {
            char *theirs = j->scratch[0];
            TD_TRY(td__coll_recv(x, j->m, &x->xfers[0], peer, theirs, td__nbytes(c, p.count)));
            TD_TRY(td__coll_wait(x, j->m, x->xfers, 1));
            td__reduce(at, at, theirs, p.count, c->dtype, c->op);
        }
    }
    return td__coll_wait(x, j->m, x->xfers, n);
}

static size_t segment_of(const td__coll_call *c)
{
    size_t each = td__segment_count(c, SEGMENT);
    return each < c->count ? each : c->count ? c->count : 1;
}

td_status td__halving_run(td__coll_ctx *x, const td__coll_call *c)
{
    job j = {.x = x, .c = c, .m = x->mesh, .each = segment_of(c)};
    int n = x->mesh->size;

    for (int size = 1 << (LEVELS - 1), base = 0; size > 0; size /= 2) {
        if (!(n & size))
            continue;
        if (x->mesh->rank >= base)
            j.mine = j.n_blocks;
        j.blocks[j.n_blocks++] = (block){base, size};
        base += size;
    }
    /* Step 2 takes a whole part at once. */
    size_t most = j.n_blocks > 1 ? c->count / (size_t)j.blocks[0].size + LEVELS : j.each;
    for (int b = 0; b + 1 < j.n_blocks; b++) {
        size_t whole = c->count / (size_t)j.blocks[b].size + LEVELS;
        most = whole > most ? whole : most;
    }
    size_t nbytes = td__align_up(td__nbytes(c, most > j.each ? most : j.each), 64);
    j.scratch[0] = td__coll_scratch(x, 2 * nbytes);
    if (!j.scratch[0])
        return TD_FAIL(TD_ENOMEM, "allreduce: scratch of %zu bytes", 2 * nbytes);
    j.scratch[1] = j.scratch[0] + nbytes;

    TD_TRY(halve(&j));
    for (int b = j.n_blocks - 1; b > 0; b--)
        TD_TRY(between(&j, b, true));
    if (j.mine == 0) {
        td__span p = part(&j, x->mesh->rank, td__log2_up(j.blocks[0].size));
        td__reduce_finish(td__at(c, c->out, p.begin), p.count, c->dtype, c->op, n);
    }
    for (int b = 1; b < j.n_blocks; b++)
        TD_TRY(between(&j, b, false));
    return double_up(&j);
}

double td__halving_cost(const td__coll_ctx *x, const td__coll_call *c)
{
    int n = x->mesh->size, first = 1;
    double bytes = (double)td__nbytes(c, c->count);

    while (2 * first <= n)
        first *= 2;
    double size = first, between_blocks = n == first ? 0 : 2;
    return td__rounds_cost(x, 2 * td__log2_up(first) + 2 * between_blocks, 1) +
           (2 * (size - 1) / size + 0.5 * between_blocks) * bytes * x->mesh->beta +
           bytes * x->gamma;
}

const td__algo td__algo_allreduce_blocks = {
    .kind = TD_COLL_ALLREDUCE,
    .name = "blocks",
    .order_safe = true,
    .can = td__algo_always,
    .cost = td__halving_cost,
    .run = td__halving_run,
};
