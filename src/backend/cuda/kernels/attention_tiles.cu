/* attention_tiles.cu -- attention of bf16 heads of 32 or 64 numbers on tensor cores: tiles of 64
 * queries by 64 keys, scores only in registers, one pass forward with a running maximum.
 *
 * A block has four warps of 16 rows each. Products are mma.m16n8k16; a lane holds, of a 16 x 8
 * result, rows g and g + 8 and columns 2 t and 2 t + 1, with g = lane / 4 and t = lane % 4. Results
 * of one product are the left operand of the next without leaving registers.
 *
 * Backward is two kernels, by key (dk, dv) and by query (dq), so that every sum has one owner and a
 * fixed order. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/kernels/attention.h"
#include "backend/cuda/kernels/mma.cuh"
#include "backend/cuda/kernels/number.cuh"

enum { TILE = 64, ROWS = 16, BLOCK = 128, NT = TILE / 8, PAD = 8 };

/* A tile of TILE rows in shared memory, and its transposed. Padding spreads rows over banks. */
template <int D> struct alignas(16) tile {
    bf16 at[TILE][D + PAD];
};
template <int D> struct alignas(16) turned {
    bf16 at[D][TILE + PAD];
};

static __device__ inline unsigned pair_at(const bf16 *p)
{
    return *(const unsigned *)p;
}

/* Rows [first, first + TILE) of a (rows, stride) array; zeros behind its end. */
template <int D>
static __device__ inline void load_tile(tile<D> &to, turned<D> *across, const bf16 *from,
                                        long long first, long long rows, long long stride)
{
    for (int e = threadIdx.x; e < TILE * D / 8; e += BLOCK) {
        int row = e / (D / 8), col = e % (D / 8) * 8;
        uint4 v = {0, 0, 0, 0};
        if (first + row < rows)
            v = *(const uint4 *)(from + (first + row) * stride + col);
        *(uint4 *)&to.at[row][col] = v;
        if (across)
            for (int i = 0; i < 8; i++)
                across->at[col + i][row] = ((const bf16 *)&v)[i];
    }
}

/* The left operand: rows of this warp, for all D / 16 steps. */
template <int D>
static __device__ inline void load_left(unsigned a[D / 16][4], const bf16 *from, long long first,
                                        long long rows, long long stride)
{
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    long long row = first + threadIdx.x / 32 * ROWS + g;
#pragma unroll
    for (int s = 0; s < D / 16; s++)
#pragma unroll
        for (int r = 0; r < 4; r++) {
            long long at = row + (r % 2) * 8;
            const bf16 *p = from + at * stride + s * 16 + r / 2 * 8 + 2 * t;
            a[s][r] = at < rows ? pair_at(p) : 0;
        }
}

/* c (16, TILE) = left (16, D) . rows of the tile */
template <int D>
static __device__ inline void by_rows(float c[NT][4], const unsigned a[D / 16][4], const tile<D> &b)
{
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int n = 0; n < NT; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            c[n][i] = 0;
#pragma unroll
        for (int s = 0; s < D / 16; s++)
            mma(c[n], a[s], pair_at(&b.at[n * 8 + g][s * 16 + 2 * t]),
                pair_at(&b.at[n * 8 + g][s * 16 + 8 + 2 * t]));
    }
}

/* o (16, D) += left (16, TILE), a result of by_rows, . tile (TILE, D), which lies across */
template <int D>
static __device__ inline void by_columns(float o[D / 8][4], const float p[NT][4],
                                         const turned<D> &b)
{
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int s = 0; s < TILE / 16; s++) {
        unsigned a[4] = {pack(p[2 * s][0], p[2 * s][1]), pack(p[2 * s][2], p[2 * s][3]),
                         pack(p[2 * s + 1][0], p[2 * s + 1][1]),
                         pack(p[2 * s + 1][2], p[2 * s + 1][3])};
#pragma unroll
        for (int n = 0; n < D / 8; n++)
            mma(o[n], a, pair_at(&b.at[n * 8 + g][s * 16 + 2 * t]),
                pair_at(&b.at[n * 8 + g][s * 16 + 8 + 2 * t]));
    }
}

/* The largest, or the sum, of the four lanes that share a row. */
static __device__ inline float row_max(float v)
{
    v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 1));
    return fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 2));
}
static __device__ inline float row_add(float v)
{
    v += __shfl_xor_sync(0xffffffffu, v, 1);
    return v + __shfl_xor_sync(0xffffffffu, v, 2);
}

struct place {
    long long b, h, kv, tile; /* which batch entry, head, head of keys, tile */
};

static __device__ inline place place_of(const td__attention_args &a, long long heads, long long i)
{
    long long per = a.h / a.hkv;
    place p;
    p.tile = blockIdx.x;
    p.h = i % heads;
    p.b = i / heads;
    p.kv = heads == a.h ? p.h / per : p.h;
    return p;
}

/* q, k, v -> o, lse; grid (query tiles, B H) */
template <int D> static __device__ inline void attention_tiles(const td__attention_args &a)
{
    __shared__ tile<D> k;
    __shared__ tile<D> v;
    __shared__ turned<D> vt;
    place p = place_of(a, a.h, blockIdx.y);
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    /* Long rows first: they take longest under a causal mask. */
    long long q0 = (gridDim.x - 1 - p.tile) * TILE, row = q0 + threadIdx.x / 32 * ROWS + g;
    long long q_stride = a.h * D, k_stride = a.hkv * D;
    const bf16 *q = (const bf16 *)a.io.in[0] + p.b * a.t * q_stride + p.h * D;
    const bf16 *keys = (const bf16 *)a.io.in[1] + p.b * a.s * k_stride + p.kv * D;
    const bf16 *values = (const bf16 *)a.io.in[2] + p.b * a.s * k_stride + p.kv * D;
    unsigned left[D / 16][4];
    float o[D / 8][4] = {}, top[2] = {-TD__INFINITY, -TD__INFINITY}, sum[2] = {0, 0};
    load_left<D>(left, q, q0, a.t, q_stride);
    long long end = a.causal && q0 + TILE < a.s ? q0 + TILE : a.s;
    for (long long k0 = 0; k0 < end; k0 += TILE) {
        float s[NT][4];
        __syncthreads();
        load_tile<D>(k, (turned<D> *)0, keys, k0, a.s, k_stride);
        load_tile<D>(v, &vt, values, k0, a.s, k_stride);
        __syncthreads();
        by_rows<D>(s, left, k);
        bool edge = k0 + TILE > a.s || (a.causal && k0 + TILE > q0);
        float high[2] = {top[0], top[1]};
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                long long key = k0 + n * 8 + 2 * t + i % 2, query = row + i / 2 * 8;
                bool out = edge && (key >= a.s || (a.causal && key > query));
                s[n][i] = out ? -TD__INFINITY : s[n][i] * a.scale;
                high[i / 2] = fmaxf(high[i / 2], s[n][i]);
            }
#pragma unroll
        for (int r = 0; r < 2; r++) {
            high[r] = row_max(high[r]);
            float base = high[r] > -TD__INFINITY ? high[r] : 0, keep = __expf(top[r] - base);
            float here = 0;
#pragma unroll
            for (int n = 0; n < NT; n++)
#pragma unroll
                for (int i = 2 * r; i < 2 * r + 2; i++) {
                    s[n][i] = __expf(s[n][i] - base);
                    here += s[n][i];
                }
            sum[r] = sum[r] * keep + here;
            top[r] = high[r];
#pragma unroll
            for (int n = 0; n < D / 8; n++) {
                o[n][2 * r] *= keep;
                o[n][2 * r + 1] *= keep;
            }
        }
        by_columns<D>(o, s, vt);
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float total = row_add(sum[r]);
        long long query = row + r * 8;
        if (query >= a.t)
            continue;
        float scale = total > 0 ? 1 / total : 0;
        bf16 *to = (bf16 *)a.io.out[0] + (p.b * a.t + query) * q_stride + p.h * D;
#pragma unroll
        for (int n = 0; n < D / 8; n++)
            *(unsigned *)(to + n * 8 + 2 * t) = pack(o[n][2 * r] * scale, o[n][2 * r + 1] * scale);
        if (t == 0)
            ((float *)a.io.out[1])[(p.b * a.h + p.h) * a.t + query] =
                total > 0 ? top[r] + logf(total) : -TD__INFINITY;
    }
}

/* s becomes the probabilities, d the gradient of the scores; lse and delta of element (n, i) come
 * from the caller's rows or columns. */
static __device__ inline void soften(float *s, float *d, bool out, float scale, float lse,
                                     float delta)
{
    float prob = out || !(lse > -TD__INFINITY) ? 0 : __expf(*s * scale - lse);
    *d = prob * (*d - delta) * scale;
    *s = prob;
}

/* do, q, k, v, o, lse -> dq; grid (query tiles, B H) */
template <int D> static __device__ inline void attention_tiles_q(const td__attention_args &a)
{
    __shared__ tile<D> k;
    __shared__ turned<D> kt;
    __shared__ tile<D> v;
    place p = place_of(a, a.h, blockIdx.y);
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    long long q0 = (gridDim.x - 1 - p.tile) * TILE, row = q0 + threadIdx.x / 32 * ROWS + g;
    long long q_stride = a.h * D, k_stride = a.hkv * D;
    long long q_at = p.b * a.t * q_stride + p.h * D, k_at = p.b * a.s * k_stride + p.kv * D;
    unsigned left[D / 16][4], dout[D / 16][4];
    float dq[D / 8][4] = {}, lse[2], delta[2];
    load_left<D>(left, (const bf16 *)a.io.in[1] + q_at, q0, a.t, q_stride);
    load_left<D>(dout, (const bf16 *)a.io.in[0] + q_at, q0, a.t, q_stride);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        long long at = (p.b * a.h + p.h) * a.t + row + r * 8;
        bool in = row + r * 8 < a.t;
        lse[r] = in ? ((const float *)a.io.in[5])[at] : -TD__INFINITY;
        delta[r] = in ? ((const float *)a.io.scratch)[at] : 0;
    }
    long long end = a.causal && q0 + TILE < a.s ? q0 + TILE : a.s;
    for (long long k0 = 0; k0 < end; k0 += TILE) {
        float s[NT][4], d[NT][4];
        __syncthreads();
        load_tile<D>(k, &kt, (const bf16 *)a.io.in[2] + k_at, k0, a.s, k_stride);
        load_tile<D>(v, (turned<D> *)0, (const bf16 *)a.io.in[3] + k_at, k0, a.s, k_stride);
        __syncthreads();
        by_rows<D>(s, left, k);
        by_rows<D>(d, dout, v);
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                long long key = k0 + n * 8 + 2 * t + i % 2, query = row + i / 2 * 8;
                soften(&s[n][i], &d[n][i], key >= a.s || (a.causal && key > query), a.scale,
                       lse[i / 2], delta[i / 2]);
            }
        by_columns<D>(dq, d, kt);
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        if (row + r * 8 >= a.t)
            continue;
        bf16 *to = (bf16 *)a.io.out[0] + q_at + (row + r * 8) * q_stride;
#pragma unroll
        for (int n = 0; n < D / 8; n++)
            *(unsigned *)(to + n * 8 + 2 * t) = pack(dq[n][2 * r], dq[n][2 * r + 1]);
    }
}

/* do, q, k, v, o, lse -> dk, dv; grid (key tiles, B Hkv) */
template <int D> static __device__ inline void attention_tiles_kv(const td__attention_args &a)
{
    __shared__ tile<D> q;
    __shared__ turned<D> qt;
    __shared__ tile<D> dout;
    __shared__ turned<D> doutt;
    __shared__ float lse[TILE], delta[TILE];
    place p = place_of(a, a.hkv, blockIdx.y);
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    long long k0 = p.tile * TILE, row = k0 + threadIdx.x / 32 * ROWS + g;
    long long q_stride = a.h * D, k_stride = a.hkv * D, per = a.h / a.hkv;
    long long k_at = p.b * a.s * k_stride + p.kv * D;
    unsigned keys[D / 16][4], values[D / 16][4];
    float dk[D / 8][4] = {}, dv[D / 8][4] = {};
    load_left<D>(keys, (const bf16 *)a.io.in[2] + k_at, k0, a.s, k_stride);
    load_left<D>(values, (const bf16 *)a.io.in[3] + k_at, k0, a.s, k_stride);
    for (long long h = p.kv * per; h < (p.kv + 1) * per; h++)
        for (long long q0 = a.causal ? k0 : 0; q0 < a.t; q0 += TILE) {
            float s[NT][4], d[NT][4];
            long long q_at = p.b * a.t * q_stride + h * D, stat = (p.b * a.h + h) * a.t + q0;
            __syncthreads();
            load_tile<D>(q, &qt, (const bf16 *)a.io.in[1] + q_at, q0, a.t, q_stride);
            load_tile<D>(dout, &doutt, (const bf16 *)a.io.in[0] + q_at, q0, a.t, q_stride);
            for (int i = threadIdx.x; i < TILE; i += BLOCK) {
                bool in = q0 + i < a.t;
                lse[i] = in ? ((const float *)a.io.in[5])[stat + i] : -TD__INFINITY;
                delta[i] = in ? ((const float *)a.io.scratch)[stat + i] : 0;
            }
            __syncthreads();
            by_rows<D>(s, keys, q);
            by_rows<D>(d, values, dout);
#pragma unroll
            for (int n = 0; n < NT; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    int c = n * 8 + 2 * t + i % 2;
                    long long key = row + i / 2 * 8, query = q0 + c;
                    soften(&s[n][i], &d[n][i], a.causal && key > query, a.scale, lse[c], delta[c]);
                }
            by_columns<D>(dv, s, doutt);
            by_columns<D>(dk, d, qt);
        }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        if (row + r * 8 >= a.s)
            continue;
        long long at = k_at + (row + r * 8) * k_stride;
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
            *(unsigned *)((bf16 *)a.io.out[1] + at + n * 8 + 2 * t) =
                pack(dk[n][2 * r], dk[n][2 * r + 1]);
            *(unsigned *)((bf16 *)a.io.out[2] + at + n * 8 + 2 * t) =
                pack(dv[n][2 * r], dv[n][2 * r + 1]);
        }
    }
}

#define TD_TILES(name, width)                     \
    TD_KERNEL(name##_##width, td__attention_args) \
    {                                             \
        name<width>(a);                           \
    }
TD_TILES(attention_tiles, 32)
TD_TILES(attention_tiles, 64)
TD_TILES(attention_tiles_q, 32)
TD_TILES(attention_tiles_q, 64)
TD_TILES(attention_tiles_kv, 32)
TD_TILES(attention_tiles_kv, 64)
