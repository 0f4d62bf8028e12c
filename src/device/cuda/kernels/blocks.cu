/* blocks.cu -- arithmetic over blocks: the loops of device/kernels/ and base/kernels/blend.c, with
 * their bits. Compiled without fused products, with denormals flushed as the host does.
 *
 * An update is one element per thread; sums are taken by TD_OPTIM_LANES threads per chunk, each of
 * which is one of the chunk's interleaved sums. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/kernels/blocks.h"
#include "device/cuda/kernels/kernel.cuh"

enum { CHUNK = 4096, LANES = 16 };

TD_KERNEL(blocks_blend, td__blocks_blend)
{
    for (long long i = td__thread(); i < a.count; i += td__threads())
        for (int k = 0; k < a.n_ops; k++) {
            float *dst = a.op[k].dst + a.begin + i;
            *dst = a.op[k].a * *dst + a.op[k].b * a.op[k].src[a.begin + i];
        }
}

TD_KERNEL(blocks_blended, td__blocks_blend)
{
    for (long long i = td__thread(); i < a.count; i += td__threads())
        a.to[i] = a.op[0].a * a.op[0].dst[a.begin + i] + a.op[0].b * a.op[0].src[a.begin + i];
}

TD_KERNEL(blocks_scale, td__blocks_scale)
{
    for (long long i = td__thread(); i < a.n; i += td__threads())
        a.to[i] = a.from[i] * a.by;
}

/* ---- Updates --------------------------------------------------------------------------------- */

static __device__ inline float clamped(float g, float scale, float clip)
{
    g *= scale;
    return g > clip ? clip : g < -clip ? -clip : g;
}

static __device__ inline float gradient(const td__blocks_update &a, long long i)
{
    return clamped(a.g[i], a.scale, a.clip);
}

TD_KERNEL(blocks_sgd, td__blocks_update)
{
    for (long long i = td__thread(); i < a.n; i += td__threads()) {
        float g = gradient(a, i) + a.l2 * a.p[i];
        if (a.s[0]) {
            float b = a.momentum * a.s[0][i] + a.undamped * g;
            a.s[0][i] = b;
            g = a.nesterov ? g + a.momentum * b : b;
        }
        a.p[i] -= a.lr * g;
    }
}

TD_KERNEL(blocks_adagrad, td__blocks_update)
{
    for (long long i = td__thread(); i < a.n; i += td__threads()) {
        float g = gradient(a, i) + a.l2 * a.p[i];
        float q = a.s[0][i] + g * g;
        a.s[0][i] = q;
        a.p[i] -= a.lr * (g / (sqrtf(q) + a.eps));
    }
}

TD_KERNEL(blocks_rmsprop, td__blocks_update)
{
    for (long long i = td__thread(); i < a.n; i += td__threads()) {
        float g = gradient(a, i) + a.l2 * a.p[i];
        float q = a.beta2 * a.s[0][i] + a.beta2c * g * g;
        a.s[0][i] = q;
        float m = 0;
        if (a.centered) {
            m = a.s[1][i] + a.beta2c * (g - a.s[1][i]);
            a.s[1][i] = m;
        }
        float step = g / (sqrtf(a.centered ? q - m * m : q) + a.eps);
        if (a.momentum > 0) {
            float *buf = a.s[a.centered ? 2 : 1];
            step = a.momentum * buf[i] + step;
            buf[i] = step;
        }
        a.p[i] -= a.lr * step;
    }
}

TD_KERNEL(blocks_adam, td__blocks_update)
{
    for (long long i = td__thread(); i < a.n; i += td__threads()) {
        float p = a.p[i], mean = a.s[0][i];
        float g = gradient(a, i) + a.l2 * p;
        float m = mean + a.beta1c * (g - mean);
        float v = a.beta2 * a.s[1][i] + a.beta2c * g * g;
        a.s[0][i] = m;
        a.s[1][i] = v;
        a.p[i] = p * a.shrink - a.lr * (m / (sqrtf(v) * a.root + a.eps));
    }
}

TD_KERNEL(blocks_lars, td__blocks_update)
{
    for (long long i = td__thread(); i < a.n; i += td__threads()) {
        float b = a.momentum * a.s[0][i] + a.lr * (gradient(a, i) + a.l2 * a.p[i]);
        a.s[0][i] = b;
        a.p[i] -= b;
    }
}

TD_KERNEL(blocks_lamb_apply, td__blocks_update)
{
    for (long long i = td__thread(); i < a.n; i += td__threads()) {
        float u = a.s[0][i] * a.unbias / (sqrtf(a.s[1][i]) * a.root + a.eps);
        a.p[i] -= a.lr * (u + a.l2 * a.p[i]);
    }
}

/* ---- Sums ------------------------------------------------------------------------------------ */

/* The total of the lanes of a chunk, pair by pair, in its lane 0. */
static __device__ inline double fold(double v)
{
    for (int half = LANES / 2; half > 0; half /= 2)
        v += __shfl_down_sync(0xffffffffu, v, half, LANES);
    return v;
}

TD_KERNEL(blocks_squares, td__blocks_squares)
{
    long long chunk = td__thread() / LANES, lane = td__thread() % LANES;
    long long begin = chunk * CHUNK, end = begin + CHUNK < a.n ? begin + CHUNK : a.n;
    double sum = 0;
    for (long long i = begin + lane; i < end; i += LANES) {
        double v = clamped(a.x[i], a.scale, a.clip);
        sum += v * v;
    }
    sum = fold(sum);
    if (lane == 0 && begin < a.n)
        a.by_chunk[chunk] = sum;
}

/* scale and clip are numbers that the compiler does not know: denormals are flushed as there. */
TD_KERNEL(blocks_square_chunks, td__blocks_square_chunks)
{
    long long chunk = td__thread() / LANES, lane = td__thread() % LANES;
    const float *x = a.x;
    long long n = 0;
    if (chunk < a.n) {
        td__blocks_chunk c = a.list[chunk];
        x += c.at;
        n = (long long)c.n;
    }
    double sum = 0;
    for (long long i = lane; i < n; i += LANES) {
        double v = clamped(x[i], a.scale, a.clip);
        sum += v * v;
    }
    sum = fold(sum);
    if (lane == 0 && chunk < a.n)
        a.by_chunk[chunk] = sum;
}

TD_KERNEL(blocks_moments, td__blocks_update)
{
    long long chunk = td__thread() / LANES, lane = td__thread() % LANES;
    long long begin = chunk * CHUNK, end = begin + CHUNK < a.n ? begin + CHUNK : a.n;
    double weight = 0, update = 0;
    for (long long i = begin + lane; i < end; i += LANES) {
        float g = gradient(a, i);
        float m = a.s[0][i] + a.beta1c * (g - a.s[0][i]);
        float v = a.beta2 * a.s[1][i] + a.beta2c * g * g;
        float u = m * a.unbias / (sqrtf(v) * a.root + a.eps) + a.l2 * a.p[i];
        a.s[0][i] = m;
        a.s[1][i] = v;
        weight += (double)a.p[i] * (double)a.p[i];
        update += (double)u * (double)u;
    }
    weight = fold(weight);
    update = fold(update);
    if (lane == 0 && begin < a.n) {
        a.sums[2 * chunk] = weight;
        a.sums[2 * chunk + 1] = update;
    }
}

/* ---- Copies ---------------------------------------------------------------------------------- */

template <typename T> static __device__ inline void copy_as(const td__blocks_piece &p)
{
    T *to = (T *)p.to;
    const T *from = (const T *)p.from;
    for (unsigned long long i = threadIdx.x; i < p.nbytes / sizeof(T); i += blockDim.x)
        to[i] = from[i];
}

/* In the widest words that both ends and the length are multiples of. */
TD_KERNEL(blocks_copies, td__blocks_copies)
{
    for (long long k = blockIdx.x; k < a.n; k += gridDim.x) {
        td__blocks_piece p = a.list[k];
        unsigned long long odd = (unsigned long long)p.to | (unsigned long long)p.from | p.nbytes;
        if (odd % sizeof(uint4) == 0)
            copy_as<uint4>(p);
        else if (odd % sizeof(unsigned) == 0)
            copy_as<unsigned>(p);
        else
            copy_as<unsigned char>(p);
    }
}

/* ---- Filling --------------------------------------------------------------------------------- */

/* Sixteen bytes a thread; of the last, and where memory does not begin so, one by one. */
TD_KERNEL(blocks_fill, td__blocks_fill)
{
    bool whole = (unsigned long long)a.to % sizeof(uint4) == 0;
    uint4 words = {a.word, a.word, a.word, a.word};
    for (long long at = td__thread() * 16; at < a.n; at += td__threads() * 16) {
        if (whole && at + 16 <= a.n) {
            *(uint4 *)(a.to + at) = words;
            continue;
        }
        for (long long i = at; i < at + 16 && i < a.n; i++)
            a.to[i] = (unsigned char)(a.word >> (8 * (i % 4)));
    }
}
