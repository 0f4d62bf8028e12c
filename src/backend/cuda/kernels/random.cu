/* random.cu -- dropout, whose mask is that of every backend (base/rng.h: Philox4x32-10 of the run's
 * key and the element's number); and rotary positions. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/kernels/number.cuh"
#include "backend/cuda/kernels/random.h"

struct words {
    unsigned w[4];
};

static __device__ inline words philox(const td__io_key &key, unsigned stream, unsigned block)
{
    unsigned c[4] = {block, stream, key.step, key.micro_batch};
    unsigned k[2] = {(unsigned)key.seed, (unsigned)(key.seed >> 32)};
    for (int round = 0; round < 10; round++) {
        unsigned hi0 = __umulhi(0xD2511F53u, c[0]), lo0 = 0xD2511F53u * c[0];
        unsigned hi1 = __umulhi(0xCD9E8D57u, c[2]), lo1 = 0xCD9E8D57u * c[2];
        c[0] = hi1 ^ c[1] ^ k[0];
        c[1] = lo1;
        c[2] = hi0 ^ c[3] ^ k[1];
        c[3] = lo0;
        k[0] += 0x9E3779B9u;
        k[1] += 0xBB67AE85u;
    }
    words out = {{c[0], c[1], c[2], c[3]}};
    return out;
}

/* Four elements per thread: a block of Philox. */
template <class T> static __device__ inline void dropout(const td__dropout_args &a)
{
    const T *x = (const T *)a.io.in[0];
    T *y = (T *)a.io.out[0];
    for (long long block = td__thread(); block * 4 < a.n; block += td__threads()) {
        words r = philox(*a.io.key, a.stream, (unsigned)block);
        for (int i = 0; i < 4 && block * 4 + i < a.n; i++) {
            long long e = block * 4 + i;
            put(y + e, r.w[i] >= a.threshold ? get(x[e]) * a.scale : 0);
        }
    }
}
TD_KERNELS(dropout, td__dropout_args)

template <class T> static __device__ inline void rope(const td__rope_args &a)
{
    long long half = a.width / 2;
    for (long long e = td__thread(); e < a.n; e += td__threads()) {
        long long row = e / half, j = e % half, at = row * a.width + j;
        double position = (double)a.first + (double)(row / a.heads % a.steps);
        double angle = position * pow(a.base, -2.0 * (double)j / (double)a.width);
        float c = (float)cos(angle), s = (float)sin(angle);
        float x0 = get(((const T *)a.io.in[0])[at]), x1 = get(((const T *)a.io.in[0])[at + half]);
        s = a.inverse ? -s : s;
        put((T *)a.io.out[0] + at, x0 * c - x1 * s);
        put((T *)a.io.out[0] + at + half, x1 * c + x0 * s);
    }
}
TD_KERNELS(rope, td__rope_args)
