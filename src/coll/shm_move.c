/* shm_move.c -- the collectives that only move data, over shared memory: broadcast, all_gather,
 * gather, scatter, all_to_all and barrier.
 *
 * All are one thing: some ranks give their input, which is one block or one block per rank, and
 * some ranks take a block from each giver. Takers copy; nobody writes into another's memory.
 *
 *     small    the blocks came with the cards. One meeting.
 *     direct   all givers' inputs are registered: takers copy from there. Two meetings.
 *     staged   givers copy chunk k of their blocks into their staging memory while takers copy
 *              chunk k - 1 out of it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/check.h"
#include "base/fail.h"
#include "coll/shm_call.h"

typedef struct plan {
    td__shmcall s;
    size_t block;  /* bytes */
    size_t blocks; /* that a giver gives */
} plan;

static bool gives(const plan *p, int r)
{
    switch (p->s.c->kind) {
    case TD_COLL_BROADCAST:
    case TD_COLL_SCATTER: return r == p->s.c->root;
    case TD_COLL_GATHER: return r != p->s.c->root;
    case TD_COLL_ALL_GATHER:
    case TD_COLL_ALL_TO_ALL: return true;
    default: return false;
    }
}

/* Does this rank take from r? Which block, and where does it go? My own is no business of the
 * others: own_block(). */
static bool takes(const plan *p, int r, size_t *block, uint8_t **to)
{
    const td__coll_call *c = p->s.c;
    *block = p->blocks > 1 ? (size_t)p->s.rank : 0;
    *to = c->out;
    if (r == p->s.rank || !gives(p, r) || (c->kind == TD_COLL_GATHER && p->s.rank != c->root))
        return false;
    if (c->kind != TD_COLL_BROADCAST && c->kind != TD_COLL_SCATTER)
        *to += (size_t)r * p->block;
    return true;
}

/* The block that this rank gives to itself; in may lie in its place already. */
static void own_block(const plan *p)
{
    const td__coll_call *c = p->s.c;
    size_t mine = (size_t)p->s.rank * p->block;
    const uint8_t *from = c->in;
    uint8_t *to = c->out;
    if (c->kind == TD_COLL_BROADCAST || c->kind == TD_COLL_BARRIER)
        return;
    if ((c->kind == TD_COLL_SCATTER || c->kind == TD_COLL_GATHER) && p->s.rank != c->root)
        return;
    if (p->blocks > 1)
        from += mine;
    if (c->kind != TD_COLL_SCATTER)
        to += mine;
    if (from != to)
        memmove(to, from, p->block);
}

static void take_all(const plan *p, const void *(*source)(const td__shmcall *s, int rank))
{
    for (int i = 1; i < p->s.size; i++) {
        int r = (p->s.rank + i) % p->s.size;
        size_t block;
        uint8_t *to;
        if (takes(p, r, &block, &to))
            memcpy(to, (const uint8_t *)source(&p->s, r) + block * p->block, p->block);
    }
}

static const void *registered_in(const td__shmcall *s, int rank)
{
    return td__shmcall_buffer(s, rank, 0);
}

static bool is_direct(const plan *p)
{
    for (int r = 0; r < p->s.size; r++)
        if (gives(p, r) && !td__shmcall_buffer(&p->s, r, 0))
            return false;
    return true;
}

/* ---- staged ---- */

typedef struct stager {
    uint64_t base; /* number of the first chunk */
    size_t piece;  /* bytes of a block in a chunk */
    size_t chunks;
} stager;

static void plan_stages(const plan *p, stager *g)
{
    g->base = td__shm_count(p->s.m, TD_SHM_STAGED);
    g->piece = TD_SHM_STAGE / p->blocks / 64 * 64;
    g->chunks = p->block ? (p->block + g->piece - 1) / g->piece : 1;
}

static size_t piece_at(const plan *p, const stager *g, size_t k)
{
    size_t left = p->block - k * g->piece;
    return left < g->piece ? left : g->piece;
}

static td_status give_chunk(plan *p, const stager *g, size_t k)
{
    uint64_t number = g->base + k + 1;
    if (number > TD_SHM_STAGES)
        TD_TRY(td__shmcall_wait_all(&p->s, TD_SHM_COPIED, number - TD_SHM_STAGES));
    uint8_t *stage = td__shm_stage(p->s.m, p->s.rank, g->base + k);
    const uint8_t *in = p->s.c->in;
    for (size_t b = 0; b < p->blocks; b++)
        memcpy(stage + b * g->piece, in + b * p->block + k * g->piece, piece_at(p, g, k));
    td__shm_raise(p->s.m, TD_SHM_STAGED, number);
    return TD_OK;
}

static td_status take_chunk(plan *p, const stager *g, size_t k)
{
    for (int i = 1; i < p->s.size; i++) {
        int r = (p->s.rank + i) % p->s.size;
        size_t block;
        uint8_t *to;
        if (!takes(p, r, &block, &to))
            continue;
        TD_TRY(td__shmcall_wait(&p->s, r, TD_SHM_STAGED, g->base + k + 1));
        const uint8_t *stage = td__shm_stage(p->s.m, r, g->base + k);
        memcpy(to + k * g->piece, stage + block * g->piece, piece_at(p, g, k));
    }
    td__shm_raise(p->s.m, TD_SHM_COPIED, g->base + k + 1);
    return TD_OK;
}

static td_status run_staged(plan *p)
{
    stager g;
    plan_stages(p, &g);
    bool giver = gives(p, p->s.rank);
    if (!giver)
        td__shm_raise(p->s.m, TD_SHM_STAGED, g.base + g.chunks);
    for (size_t k = 0; k <= g.chunks; k++) {
        if (giver && k < g.chunks)
            TD_TRY(give_chunk(p, &g, k));
        if (k >= 1)
            TD_TRY(take_chunk(p, &g, k - 1));
    }
    return TD_OK;
}

/* ---- all of them ---- */

static td_status run(td__coll_ctx *x, const td__coll_call *c)
{
    size_t each = td_dtype_size(c->dtype), n = (size_t)x->mesh->size;
    plan p = {
        .s = {.c = c, .rank = x->mesh->rank},
        .block = c->count * each,
        .blocks = c->kind == TD_COLL_SCATTER || c->kind == TD_COLL_ALL_TO_ALL ? n : 1,
    };
    bool giver = gives(&p, x->mesh->rank), last = c->kind == TD_COLL_SCATTER;
    size_t all = p.block * p.blocks;
    const void *in = giver ? c->in : NULL;
    /* In place, rank 0's block comes to lie on this rank's input: nobody else may read that. */
    if (c->kind == TD_COLL_ALL_GATHER && in == c->out && p.s.rank != 0 &&
        !td__shmcall_is_small(all))
        in = NULL;
    TD_TRY(td__shmcall_begin(&p.s, x, c, in, in ? all : 0, NULL, 0, all));
    /* In place, what others put over my block must come after it has moved, and what I put over
     * theirs after they have it. */
    if (!last)
        own_block(&p);
    if (p.s.small) {
        take_all(&p, td__shmcall_small);
    } else if (is_direct(&p)) {
        take_all(&p, registered_in);
        TD_TRY(td__shmcall_end(&p.s));
    } else {
        TD_TRY(run_staged(&p));
    }
    if (last)
        own_block(&p);
    return TD_OK;
}

static double cost(const td__coll_ctx *x, const td__coll_call *c)
{
    double n = x->mesh->size, nbytes = (double)c->count * (double)td_dtype_size(c->dtype);
    double taken =
        c->kind == TD_COLL_BROADCAST || c->kind == TD_COLL_SCATTER ? nbytes : nbytes * (n - 1);
    bool small = td__shmcall_is_small((size_t)(nbytes * n));
    return (small ? 1 : 2) * TD_SHM_MEETING * x->mesh->alpha + taken * x->mesh->beta;
}

#define ROW(id, collective)                        \
    const td__algo td__algo_##collective##_shm = { \
        .kind = TD_COLL_##id,                      \
        .name = "shm",                             \
        .order_safe = true,                        \
        .can = td__shmcall_can,                    \
        .cost = cost,                              \
        .run = run,                                \
    }
ROW(BROADCAST, broadcast);
ROW(ALL_GATHER, all_gather);
ROW(GATHER, gather);
ROW(SCATTER, scatter);
ROW(ALL_TO_ALL, all_to_all);
ROW(BARRIER, barrier);
