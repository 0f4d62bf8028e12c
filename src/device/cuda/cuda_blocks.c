/* cuda_blocks.c -- arithmetic over blocks on a GPU (kernels/blocks.cu).
 *
 * What lies in memory that kernels do not reach (a host's array, row-sparse gradients, sums) goes
 * through the stream's staging memory, a piece at a time and in the stream's order. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stddef.h>

#include "base/fail.h"
#include "device/cuda/cuda_impl.h"
#include "device/cuda/kernels/blocks.h"

enum { THREADS = 256, LANES = 16, STAGED = TD__CUDA_STAGING / sizeof(float) };

static td__cuda_gpu *gpu(const td_stream *s)
{
    return (td__cuda_gpu *)s->device;
}

/* Enough blocks to fill the GPU several times, at most one element per thread. */
static td__cuda_grid grid(const td_stream *s, size_t n)
{
    size_t most = (size_t)gpu(s)->kind.processors * 32, need = (n + THREADS - 1) / THREADS;
    return (td__cuda_grid){.x = (unsigned)(need < most ? need : most), .threads = THREADS};
}

static td__cuda_grid chunk_grid(size_t n)
{
    size_t chunks = (n + TD_OPTIM_CHUNK - 1) / TD_OPTIM_CHUNK;
    return (td__cuda_grid){.x = (unsigned)((chunks * LANES + THREADS - 1) / THREADS),
                           .threads = THREADS};
}

/* The staging memory, for the calls until unlock; NULL: no memory, and the stream knows. */
static void *stage(td_stream *stream)
{
    td__cuda_stream_t *s = (td__cuda_stream_t *)stream;
    td__cuda_enter(stream->device);
    pthread_mutex_lock(&s->lock);
    if (!s->staging)
        td__cuda_check(stream, td__cu.cuMemAlloc_v2(&s->staging, TD__CUDA_STAGING),
                       "staging memory");
    if (!s->staging)
        pthread_mutex_unlock(&s->lock);
    return (void *)s->staging;
}

static void unlock(td_stream *s)
{
    pthread_mutex_unlock(&((td__cuda_stream_t *)s)->lock);
}

/* ---- Blends ---------------------------------------------------------------------------------- */

static void add_op(td__blocks_blend *a, float *dst, const float *src, float wa, float wb)
{
    a->op[a->n_ops].dst = dst;
    a->op[a->n_ops].src = src;
    a->op[a->n_ops].a = wa;
    a->op[a->n_ops++].b = wb;
}

/* to[0..count) = a dst + b src, where any of them may be memory that kernels do not reach. */
static void blend_staged(td_stream *s, const td__blend_op *op, size_t begin, size_t count,
                         float *to)
{
    enum { PIECE = STAGED / 3 / 64 * 64 };
    float *staged = stage(s);
    for (size_t at = 0; staged && at < count; at += PIECE) {
        size_t n = count - at < PIECE ? count - at : PIECE, nbytes = n * sizeof *to;
        float *dst = op->dst + begin + at, *result = to + at;
        const float *src = op->src + begin + at;
        td__blocks_blend a = {.count = (long long)n};
        if (!td__cuda_reaches(dst)) {
            td__cuda_copy(s, staged, dst, nbytes);
            dst = staged;
        }
        if (!td__cuda_reaches(src)) {
            td__cuda_copy(s, staged + PIECE, src, nbytes);
            src = staged + PIECE;
        }
        a.to = td__cuda_reaches(result) ? result : staged + 2 * (size_t)PIECE;
        add_op(&a, dst, src, op->a, op->b);
        td__cuda_launch(s, gpu(s)->blocks[TD__CUDA_BLENDED], grid(s, n), &a);
        if (a.to != result)
            td__cuda_copy(s, result, a.to, nbytes);
    }
    if (staged)
        unlock(s);
}

static bool reaches_both(const td__blend_op *op)
{
    return td__cuda_reaches(op->dst) && td__cuda_reaches(op->src);
}

static void blend(td_stream *s, const td__blend_op *op, int n, size_t begin, size_t count)
{
    td__blocks_blend a = {.begin = (long long)begin, .count = (long long)count};
    td__cuda_enter(s->device);
    for (int i = 0; i < n; i++) {
        bool direct = reaches_both(&op[i]);
        if (direct)
            add_op(&a, op[i].dst, op[i].src, op[i].a, op[i].b);
        if (a.n_ops && (!direct || a.n_ops == TD__BLOCKS_BLENDS || i == n - 1)) {
            td__cuda_launch(s, gpu(s)->blocks[TD__CUDA_BLEND], grid(s, count), &a);
            a.n_ops = 0;
        }
        if (!direct)
            blend_staged(s, &op[i], begin, count, op[i].dst + begin);
    }
}

static void blended(td_stream *s, const td__blend_op *op, size_t begin, size_t count, float *to)
{
    td__blocks_blend a = {.begin = (long long)begin, .count = (long long)count, .to = to};
    td__cuda_enter(s->device);
    if (!reaches_both(op) || !td__cuda_reaches(to)) {
        blend_staged(s, op, begin, count, to);
        return;
    }
    add_op(&a, op->dst, op->src, op->a, op->b);
    td__cuda_launch(s, gpu(s)->blocks[TD__CUDA_BLENDED], grid(s, count), &a);
}

static void scale_at(td_stream *s, float *to, const float *from, float by, size_t n)
{
    td__blocks_scale a = {.to = to, .from = from, .by = by, .n = (long long)n};
    td__cuda_launch(s, gpu(s)->blocks[TD__CUDA_SCALE], grid(s, n), &a);
}

static void scale(td_stream *s, float *to, const float *from, float by, size_t n)
{
    td__cuda_enter(s->device);
    if (td__cuda_reaches(to) && td__cuda_reaches(from)) {
        scale_at(s, to, from, by, n);
        return;
    }
    float *staged = stage(s);
    for (size_t at = 0; staged && at < n; at += STAGED) {
        size_t m = n - at < STAGED ? n - at : STAGED;
        const float *piece = from + at;
        if (!td__cuda_reaches(from)) {
            td__cuda_copy(s, staged, piece, m * sizeof *to);
            piece = staged;
        }
        scale_at(s, staged, piece, by, m);
        td__cuda_copy(s, to + at, staged, m * sizeof *to);
    }
    if (staged)
        unlock(s);
}

/* ---- Optimizers ------------------------------------------------------------------------------ */

static td__blocks_update update_args(const td__optim_hyper *h, const td__optim_slice *x)
{
    td__blocks_update a = {.scale = h->scale,
                           .clip = h->clip,
                           .lr = h->lr,
                           .l2 = h->l2,
                           .shrink = h->shrink,
                           .beta1c = h->beta1c,
                           .beta2 = h->beta2,
                           .beta2c = h->beta2c,
                           .eps = h->eps,
                           .root = h->root,
                           .unbias = h->unbias,
                           .momentum = h->momentum,
                           .undamped = h->undamped,
                           .nesterov = h->nesterov,
                           .centered = h->centered,
                           .p = x->p,
                           .g = x->g,
                           .n = (long long)x->n};
    for (int k = 0; k < TD_OPTIM_MAX_STATE; k++)
        a.s[k] = x->s[k];
    return a;
}

/* Gradients of single rows are the host's: they are staged, a piece at a time. */
static void update_staged(td_stream *s, CUfunction kernel, td__blocks_update a)
{
    float *staged = stage(s);
    const float *g = a.g;
    long long n = a.n;
    for (long long at = 0; staged && at < n; at += STAGED) {
        a.n = n - at < STAGED ? n - at : STAGED;
        td__cuda_copy(s, staged, g + at, (size_t)a.n * sizeof *g);
        a.g = staged;
        td__cuda_launch(s, kernel, grid(s, (size_t)a.n), &a);
        a.p += a.n;
        for (int k = 0; k < TD_OPTIM_MAX_STATE; k++)
            a.s[k] = a.s[k] ? a.s[k] + a.n : NULL;
    }
    if (staged)
        unlock(s);
}

static void update(td_stream *s, td__update u, const td__optim_hyper *h, const td__optim_slice *x)
{
    td__blocks_update a = update_args(h, x);
    CUfunction kernel = gpu(s)->blocks[TD__CUDA_UPDATE + u];
    td__cuda_enter(s->device);
    if (td__cuda_reaches(x->g))
        td__cuda_launch(s, kernel, grid(s, x->n), &a);
    else
        update_staged(s, kernel, a);
}

static void moments(td_stream *s, const td__optim_hyper *h, const td__optim_slice *x,
                    double sums[2])
{
    td__blocks_update a = update_args(h, x);
    a.sums = stage(s);
    if (!a.sums)
        return;
    td__cuda_launch(s, gpu(s)->blocks[TD__CUDA_MOMENTS], chunk_grid(x->n), &a);
    td__cuda_copy(s, sums, a.sums, 2 * sizeof *sums);
    unlock(s);
}

static void squares(td_stream *s, const float *x, size_t n, float by, float clip, double *by_chunk)
{
    enum { HALF = TD__CUDA_STAGING / 2, PIECE = HALF / sizeof(float) };
    double *staged = stage(s);
    float *beside = (float *)(staged + HALF / sizeof *staged); /* for x that is the host's */
    bool direct = staged && td__cuda_reaches(x);
    const size_t most = direct ? HALF / sizeof *staged * TD_OPTIM_CHUNK : PIECE;
    for (size_t at = 0; staged && at < n; at += most) {
        size_t m = n - at < most ? n - at : most;
        td__blocks_squares a = {.x = x + at, .n = (long long)m, .scale = by, .clip = clip};
        a.by_chunk = staged;
        if (!direct) {
            td__cuda_copy(s, beside, x + at, m * sizeof *x);
            a.x = beside;
        }
        td__cuda_launch(s, gpu(s)->blocks[TD__CUDA_SQUARES], chunk_grid(m), &a);
        td__cuda_copy(s, by_chunk + at / TD_OPTIM_CHUNK, staged,
                      (m + TD_OPTIM_CHUNK - 1) / TD_OPTIM_CHUNK * sizeof *staged);
    }
    if (staged)
        unlock(s);
}

/* Of an array of the host's: what lies side by side together. */
static void square_staged(td_stream *s, const float *x, const td__square_chunk *list, size_t n,
                          double *by_chunk)
{
    for (size_t i = 0, end; i < n; i = end) {
        size_t count = list[i].n;
        for (end = i + 1;
             end < n && list[end - 1].n == TD_OPTIM_CHUNK && list[end].at == list[i].at + count;
             end++)
            count += list[end].n;
        squares(s, x + list[i].at, count, 1, INFINITY, by_chunk + i);
    }
}

static void square_chunks(td_stream *s, const float *x, const td__square_chunk *list, size_t n,
                          double *by_chunk)
{
    td__blocks_square_chunks a = {.x = x,
                                  .list = (const td__blocks_chunk *)(const void *)list,
                                  .n = (long long)n,
                                  .scale = 1,
                                  .clip = INFINITY,
                                  .by_chunk = by_chunk};
    td__cuda_enter(s->device);
    if (!td__cuda_reaches(x + list[0].at)) {
        square_staged(s, x, list, n, by_chunk);
        return;
    }
    td__cuda_launch(s, gpu(s)->blocks[TD__CUDA_SQUARE_CHUNKS], chunk_grid(n * TD_OPTIM_CHUNK), &a);
}
_Static_assert(sizeof(td__square_chunk) == sizeof(td__blocks_chunk) &&
                   offsetof(td__square_chunk, n) == offsetof(td__blocks_chunk, n),
               "the kernel reads the list as it is");

/* ---- Copies ---------------------------------------------------------------------------------- */

/* A block of threads for each piece, as far as the GPU has room for them. */
static void copies(td_stream *s, const td__copy_piece *list, size_t n)
{
    size_t most = (size_t)gpu(s)->kind.processors * 32;
    td__cuda_grid g = {.x = (unsigned)(n < most ? n : most), .threads = THREADS};
    td__blocks_copies a = {.list = (const td__blocks_piece *)(const void *)list, .n = (long long)n};
    td__cuda_enter(s->device);
    td__cuda_launch(s, gpu(s)->blocks[TD__CUDA_COPIES], g, &a);
}
_Static_assert(sizeof(td__copy_piece) == sizeof(td__blocks_piece) &&
                   offsetof(td__copy_piece, nbytes) == offsetof(td__blocks_piece, nbytes),
               "the kernel reads the list as it is");

/* Memory of the host that others read is no different from other memory of the host. */
const td_arith_ops td__arith_cuda = {.blend = blend,
                                     .blended = blended,
                                     .scale = scale,
                                     .publish = scale,
                                     .update = update,
                                     .moments = moments,
                                     .squares = squares,
                                     .square_chunks = square_chunks,
                                     .copies = copies};
