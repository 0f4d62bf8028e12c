/* shm_reduce.c -- allreduce, reduce and reduce_scatter over shared memory.
 *
 * The elements are cut into one slice per rank; rank r adds slice r of everybody, in the rank tree,
 * so bits do not depend on how the call is carried out.
 *
 *     small    all ranks read all data: each rank that needs a result adds for itself. One meeting.
 *     direct   rank r reads slice r from the peers' registered memory and writes the sums into the
 *              memory of all who want them, block by block so that a block is still in the first
 *              cache when it is copied. Two meetings, no staging: 2 n bytes moved per element byte
 *              and rank.
 *     staged   per chunk: put my pieces of the others' slices into my staging memory; add my slice
 *              from the others' staging memory and my own input, and put the sums back to where the
 *              pieces were; fetch the sums from my own staging memory. The three steps work on
 *              chunks k, k - 1 and k - 2, so that waits are for things long done. Memory of chunk
 *              k is reused for k + 3, when it has been fetched from.
 *
 * Why sums go back to where the pieces were, once for each rank, instead of to one place where all
 * read them: a core that reads a line which another has written takes it over, so writing it then
 * is free, whereas writing lines that others only read costs a round trip each. With one place, 256
 * KB on 2 ranks took 125 us instead of 24.
 *
 * A private buffer makes the call a staged one whatever the others have, so its owner stages the
 * first chunk before it arrives. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "coll/shm_call.h"

enum {
    BLOCK = 8192, /* bytes added and then copied, in the direct form */
    ALIGN = 64,   /* elements: slices begin on cache lines */
};

typedef struct plan {
    td__shmcall s;
    size_t stride; /* elements between the beginnings of slices */
    size_t total;  /* elements of `in` */
    bool scatter;  /* out has my slice alone */
    bool wants;    /* this rank wants all sums */
} plan;

static size_t slice_begin(const plan *p, int r)
{
    size_t at = p->stride * (size_t)r;
    return at < p->total ? at : p->total;
}

static size_t slice_count(const plan *p, int r)
{
    return slice_begin(p, r + 1) - slice_begin(p, r);
}

static bool wants_sums(const td__coll_call *c, int rank)
{
    return c->kind == TD_COLL_ALLREDUCE || (c->kind == TD_COLL_REDUCE && c->root == rank);
}

static const uint8_t *in_at(const plan *p, size_t element)
{
    return (const uint8_t *)p->s.c->in + element * p->s.each;
}

static uint8_t *out_at(const plan *p, size_t element)
{
    return (uint8_t *)p->s.c->out + element * p->s.each;
}

static void add(const plan *p, void *out, const void *const *part, size_t count)
{
    const td__coll_call *c = p->s.c;
    td__reduce_tree(out, part, p->s.size, count, c->dtype, c->op);
    td__reduce_finish(out, count, c->dtype, c->op, p->s.size);
}

/* ---- small ---- */

static td_status run_small(plan *p)
{
    const void **part = p->s.x->parts;
    size_t skip = p->scatter ? slice_begin(p, p->s.rank) * p->s.each : 0;
    if (!p->scatter && !p->wants)
        return TD_OK;
    for (int r = 0; r < p->s.size; r++)
        part[r] = (const uint8_t *)td__shmcall_small(&p->s, r) + skip;
    add(p, p->s.c->out, part, p->s.c->count);
    return TD_OK;
}

/* ---- direct ---- */

static bool is_direct(const plan *p)
{
    for (int r = 0; r < p->s.size; r++) {
        if (!td__shmcall_buffer(&p->s, r, 0))
            return false;
        if (wants_sums(p->s.c, r) && !td__shmcall_buffer(&p->s, r, 1))
            return false;
    }
    return true;
}

/* Where the sums of my slice go: targets[0] is where they are made. */
static int find_targets(const plan *p, uint8_t **targets)
{
    int n = 0, size = p->s.size;
    size_t skip = slice_begin(p, p->s.rank) * p->s.each;
    for (int i = 0; i < size; i++) {
        int r = (p->s.rank + i) % size;
        if (wants_sums(p->s.c, r))
            targets[n++] = (uint8_t *)td__shmcall_buffer(&p->s, r, 1) + skip;
    }
    if (p->scatter)
        targets[n++] = p->s.c->out;
    return n;
}

static td_status run_direct(plan *p)
{
    const void **part = p->s.x->parts;
    const uint8_t *from[TD_SHM_MOST_RANKS];
    uint8_t *to[TD_SHM_MOST_RANKS];
    int size = p->s.size, n_to = find_targets(p, to);
    size_t first = slice_begin(p, p->s.rank), count = slice_count(p, p->s.rank);
    size_t each = p->s.each, step = BLOCK / each;
    /* In place, block 0 of a reduce_scatter is also rank 0's input: not before all have read. */
    bool aside = p->scatter && p->s.c->in == p->s.c->out && p->s.rank != 0;
    if (aside) {
        to[0] = td__coll_scratch(p->s.x, count * each);
        if (!to[0])
            return TD_FAIL(TD_ENOMEM, "reduce_scatter in place: no scratch of %zu bytes",
                           count * each);
    }
    for (int r = 0; r < size; r++)
        from[r] = (const uint8_t *)td__shmcall_buffer(&p->s, r, 0) + first * each;
    for (size_t done = 0; done < count; done += step) {
        size_t n = count - done < step ? count - done : step;
        for (int r = 0; r < size; r++)
            part[r] = from[r] + done * each;
        add(p, to[0] + done * each, part, n);
        for (int t = 1; t < n_to; t++)
            memcpy(to[t] + done * each, to[0] + done * each, n * each);
    }
    TD_TRY(td__shmcall_end(&p->s));
    if (aside)
        memcpy(p->s.c->out, to[0], count * each);
    return TD_OK;
}

/* ---- staged ---- */

typedef struct stager {
    uint64_t base; /* number of the first chunk */
    size_t piece;  /* elements of a slice in a chunk */
    size_t chunks;
} stager;

static void plan_stages(const plan *p, stager *g)
{
    td__mesh *m = p->s.m;
    size_t most = TD_SHM_STAGE / (size_t)p->s.size / ALIGN * ALIGN / p->s.each;
    size_t slice = slice_count(p, 0); /* no other is longer */
    g->base = td__shm_count(m, TD_SHM_STAGED);
    g->chunks = slice ? (slice + most - 1) / most : 1;
    g->piece = td__align_up((slice + g->chunks - 1) / g->chunks, ALIGN);
    if (g->piece > most)
        g->piece = most;
    if (g->piece == 0)
        g->piece = 1;
}

/* Elements of slice r in chunk k, and where they begin. */
static size_t piece_of(const plan *p, const stager *g, size_t k, int r, size_t *begin)
{
    size_t count = slice_count(p, r), skip = k * g->piece;
    if (skip >= count)
        return 0;
    *begin = slice_begin(p, r) + skip;
    return count - skip < g->piece ? count - skip : g->piece;
}

static uint8_t *staged(const plan *p, const stager *g, size_t k, int owner, int slice)
{
    uint8_t *stage = td__shm_stage(p->s.m, owner, g->base + k);
    return stage + (size_t)slice * g->piece * p->s.each;
}

static td_status put_chunk(plan *p, const stager *g, size_t k)
{
    uint64_t number = g->base + k + 1;
    if (number > TD_SHM_STAGES)
        TD_TRY(td__shmcall_wait_all(&p->s, TD_SHM_COPIED, number - TD_SHM_STAGES));
    for (int i = 1; i < p->s.size; i++) {
        int r = (p->s.rank + i) % p->s.size;
        size_t begin, n = piece_of(p, g, k, r, &begin);
        if (n)
            memcpy(staged(p, g, k, p->s.rank, r), in_at(p, begin), n * p->s.each);
    }
    td__shm_raise(p->s.m, TD_SHM_STAGED, number);
    return TD_OK;
}

static td_status add_chunk(plan *p, const stager *g, size_t k)
{
    const void **part = p->s.x->parts;
    int me = p->s.rank;
    size_t begin, n = piece_of(p, g, k, me, &begin);
    TD_TRY(td__shmcall_wait_all(&p->s, TD_SHM_STAGED, g->base + k + 1));
    if (n) {
        uint8_t *sums = staged(p, g, k, me, me);
        for (int r = 0; r < p->s.size; r++)
            part[r] = r == me ? in_at(p, begin) : staged(p, g, k, r, me);
        if (p->scatter)
            sums = out_at(p, k * g->piece);
        else if (p->wants)
            sums = out_at(p, begin);
        add(p, sums, part, n);
        for (int i = 1; i < p->s.size; i++) {
            int r = (me + i) % p->s.size;
            if (wants_sums(p->s.c, r))
                memcpy(staged(p, g, k, r, me), sums, n * p->s.each);
        }
    }
    td__shm_raise(p->s.m, TD_SHM_REDUCED, g->base + k + 1);
    return TD_OK;
}

static td_status fetch_chunk(plan *p, const stager *g, size_t k)
{
    for (int i = 1; p->wants && i < p->s.size; i++) {
        int r = (p->s.rank + i) % p->s.size;
        size_t begin, n = piece_of(p, g, k, r, &begin);
        TD_TRY(td__shmcall_wait(&p->s, r, TD_SHM_REDUCED, g->base + k + 1));
        if (n)
            memcpy(out_at(p, begin), staged(p, g, k, p->s.rank, r), n * p->s.each);
    }
    td__shm_raise(p->s.m, TD_SHM_COPIED, g->base + k + 1);
    return TD_OK;
}

/* `ahead` chunks have been put already. */
static td_status run_staged(plan *p, const stager *g, size_t ahead)
{
    for (size_t k = 0; k < g->chunks + 2; k++) {
        if (k >= ahead && k < g->chunks)
            TD_TRY(put_chunk(p, g, k));
        if (k >= 1 && k <= g->chunks)
            TD_TRY(add_chunk(p, g, k - 1));
        if (k >= 2)
            TD_TRY(fetch_chunk(p, g, k - 2));
    }
    return TD_OK;
}

/* ---- all three ---- */

static td_status run(td__coll_ctx *x, const td__coll_call *c)
{
    size_t each = td_dtype_size(c->dtype), n = (size_t)x->mesh->size;
    bool scatter = c->kind == TD_COLL_REDUCE_SCATTER;
    plan p = {
        .s = {.x = x,
              .c = c,
              .m = x->mesh,
              .rank = x->mesh->rank,
              .size = x->mesh->size,
              .each = each},
        .total = scatter ? c->count * n : c->count,
        .stride = scatter ? c->count : td__align_up((c->count + n - 1) / n, ALIGN),
        .scatter = scatter,
        .wants = wants_sums(c, x->mesh->rank),
    };
    size_t nbytes = p.total * each;
    const void *out = p.wants ? c->out : NULL;
    bool small = td__shmcall_is_small(nbytes), ahead = false;
    stager g;
    plan_stages(&p, &g);
    if (!small && (!td__shmcall_registered(x, c->in, nbytes) ||
                   (out && !td__shmcall_registered(x, out, nbytes)))) {
        TD_TRY(put_chunk(&p, &g, 0));
        ahead = true;
    }
    TD_TRY(td__shmcall_begin(&p.s, x, c, c->in, nbytes, out, nbytes, nbytes));
    if (small)
        return run_small(&p);
    if (is_direct(&p))
        return run_direct(&p);
    return run_staged(&p, &g, ahead);
}

/* Model: meetings, bytes that each rank moves at the speed of one copy (a message is two), sums. */
static double cost(const td__coll_ctx *x, const td__coll_call *c)
{
    double n = x->mesh->size, nbytes = (double)c->count * (double)td_dtype_size(c->dtype);
    double all = c->kind == TD_COLL_REDUCE_SCATTER ? nbytes * n : nbytes;
    double meetings = td__shmcall_is_small((size_t)all) ? 1 : 2;
    return meetings * TD_SHM_MEETING * x->mesh->alpha + all * (n - 1) / n * x->mesh->beta +
           all * x->gamma;
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
ROW(ALLREDUCE, allreduce);
ROW(REDUCE, reduce);
ROW(REDUCE_SCATTER, reduce_scatter);
