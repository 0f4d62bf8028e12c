/* attention_tiles.cu -- attention of bf16 heads of 32 or 64 numbers on tensor cores: tiles of 64
 * keys, scores only in registers, one pass forward with a running maximum.
 *
 * A block has four warps of 16 MT rows each. Products are mma.m16n8k16; a lane holds, of a 16 x 8
 * result, rows g and g + 8 and columns 2 t and 2 t + 1, with g = lane / 4 and t = lane % 4. Results
 * of one product are the left operand of the next without leaving registers. The tile after the
 * one in work is on its way to shared memory meanwhile.
 *
 * Backward is two kernels, by query (dq; and delta, which the other reads) and by key (dk, dv), so
 * that every sum has one owner and a fixed order; they go through a tile in steps of 16, which
 * leaves registers for two blocks and more on a multiprocessor. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/kernels/attention.h"
#include "backend/cuda/kernels/mma.cuh"
#include "backend/cuda/kernels/number.cuh"

enum { TILE = 64, ROWS = 16, BLOCK = 128, NT = TILE / 8, PAD = 8 };

static const float LOG2_E = 1.44269504088896341f, LN_2 = 0.693147180559945309f;

/* A tile of TILE rows in shared memory. Padding spreads rows over banks. */
template <int D> struct alignas(16) tile {
    bf16 at[TILE][D + PAD];
};

/* Rows [first, first + TILE) of a (rows, stride) array, zeros behind its end: on their way. */
template <int D>
static __device__ inline void copy_tile(tile<D> &to, const bf16 *from, long long first,
                                        long long rows, long long stride)
{
#pragma unroll
    for (int e = threadIdx.x; e < TILE * D / 8; e += BLOCK) {
        int row = e / (D / 8), col = e % (D / 8) * 8;
        bool in = first + row < rows;
        copy_16(&to.at[row][col], from + (in ? (first + row) * stride + col : 0), in);
    }
}

/* The left operand: ROWS rows from `row` on, for all D / 16 steps. */
template <int D>
static __device__ inline void load_left(unsigned a[D / 16][4], const bf16 *from, long long row,
                                        long long rows, long long stride)
{
    int t = threadIdx.x % 4;
#pragma unroll
    for (int s = 0; s < D / 16; s++)
#pragma unroll
        for (int r = 0; r < 4; r++) {
            long long at = row + (r % 2) * 8;
            const bf16 *p = from + at * stride + s * 16 + r / 2 * 8 + 2 * t;
            a[s][r] = at < rows ? *(const unsigned *)p : 0;
        }
}

/* c[m] (16, 16) = left[m] (16, D) . rows [first, first + 16) of the tile */
template <int D, int MT>
static __device__ inline void by_rows(float c[MT][2][4], const unsigned a[MT][D / 16][4],
                                      const tile<D> &b, int first)
{
    int lane = threadIdx.x % 32;
    const bf16 *row = &b.at[first + lane / 16 * 8 + lane % 8][lane / 8 % 2 * 8];
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int i = 0; i < 8; i++)
            c[m][i / 4][i % 4] = 0;
#pragma unroll
    for (int s = 0; s < D / 16; s++) {
        unsigned r[4];
        load_matrices<false>(r, row + s * 16);
#pragma unroll
        for (int m = 0; m < MT; m++) {
            mma(c[m][0], a[m][s], r[0], r[1]);
            mma(c[m][1], a[m][s], r[2], r[3]);
        }
    }
}

/* o[m] (16, D) += left[m] (16, 16), a result of by_rows, . rows [first, first + 16) of the tile */
template <int D, int MT>
static __device__ inline void by_columns(float o[MT][D / 8][4], const float p[MT][2][4],
                                         const tile<D> &b, int first)
{
    int lane = threadIdx.x % 32;
    const bf16 *row = &b.at[first + lane / 8 % 2 * 8 + lane % 8][lane / 16 * 8];
    unsigned a[MT][4];
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            a[m][i] = pack(p[m][i / 2][i % 2 * 2], p[m][i / 2][i % 2 * 2 + 1]);
#pragma unroll
    for (int n = 0; n < D / 8; n += 2) {
        unsigned r[4];
        load_matrices<true>(r, row + n * 8);
#pragma unroll
        for (int m = 0; m < MT; m++) {
            mma(o[m][n], a[m], r[0], r[1]);
            mma(o[m][n + 1], a[m], r[2], r[3]);
        }
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
    long long b, h, kv; /* which batch entry, head, head of keys */
};

static __device__ inline place place_of(const td__attention_args &a, long long heads, long long i)
{
    place p;
    p.h = i % heads;
    p.b = i / heads;
    p.kv = heads == a.h ? p.h / (a.h / a.hkv) : p.h;
    return p;
}

/* q, k, v -> o, lse; grid (tiles of 64 MT queries, B H) */
template <int D, int MT> static __device__ inline void attention_tiles(const td__attention_args &a)
{
    enum { Q = 4 * ROWS * MT };
    __shared__ tile<D> k[2];
    __shared__ tile<D> v[2];
    place p = place_of(a, a.h, blockIdx.y);
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    /* Long rows first: they take longest under a causal mask. */
    long long q0 = (long long)(gridDim.x - 1 - blockIdx.x) * Q;
    long long row = q0 + threadIdx.x / 32 * ROWS * MT + g;
    long long q_stride = a.q_step, k_stride = a.kv_step;
    const bf16 *q = (const bf16 *)a.io.in[0] + p.b * a.t * q_stride + p.h * D;
    const bf16 *keys = (const bf16 *)a.io.in[1] + p.b * a.s * k_stride + p.kv * D;
    const bf16 *values = (const bf16 *)a.io.in[2] + p.b * a.s * k_stride + p.kv * D;
    unsigned left[MT][D / 16][4];
    float o[MT][D / 8][4] = {}, top[MT][2], sum[MT][2], scale = a.scale * LOG2_E;
#pragma unroll
    for (int m = 0; m < MT; m++) {
        load_left<D>(left[m], q, row + m * ROWS, a.t, q_stride);
        top[m][0] = top[m][1] = -TD__INFINITY;
        sum[m][0] = sum[m][1] = 0;
    }
    long long end = a.causal && q0 + Q < a.s ? q0 + Q : a.s;
    int n_tiles = (int)((end + TILE - 1) / TILE);
    copy_tile<D>(k[0], keys, 0, a.s, k_stride);
    copy_tile<D>(v[0], values, 0, a.s, k_stride);
    end_of_copies();
    for (int i = 0; i < n_tiles; i++) {
        float s[TILE / 16][MT][2][4];
        long long k0 = (long long)i * TILE;
        if (i + 1 < n_tiles) {
            copy_tile<D>(k[(i + 1) % 2], keys, k0 + TILE, a.s, k_stride);
            copy_tile<D>(v[(i + 1) % 2], values, k0 + TILE, a.s, k_stride);
        }
        end_of_copies();
        wait_for_copies<1>();
        __syncthreads();
#pragma unroll
        for (int c = 0; c < TILE / 16; c++)
            by_rows<D, MT>(s[c], left, k[i % 2], c * 16);
        if (k0 + TILE > a.s || (a.causal && k0 + TILE > q0)) {
            int keys_left = (int)(a.s - k0), ahead = (int)(row - k0);
#pragma unroll
            for (int c = 0; c < TILE / 16; c++)
#pragma unroll
                for (int m = 0; m < MT; m++)
#pragma unroll
                    for (int e = 0; e < 8; e++) {
                        int key = c * 16 + e / 4 * 8 + 2 * t + e % 2;
                        int query = ahead + m * ROWS + e % 4 / 2 * 8;
                        if (key >= keys_left || (a.causal && key > query))
                            s[c][m][e / 4][e % 4] = -TD__INFINITY;
                    }
        }
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                float high = -TD__INFINITY, here = 0;
#pragma unroll
                for (int c = 0; c < TILE / 16; c++)
#pragma unroll
                    for (int e = 0; e < 4; e++)
                        high = fmaxf(high, s[c][m][e / 2][2 * r + e % 2]);
                high = fmaxf(top[m][r], row_max(high));
                float base = high > -TD__INFINITY ? high * scale : 0;
                float keep = power_of_2(top[m][r] * scale - base);
#pragma unroll
                for (int c = 0; c < TILE / 16; c++)
#pragma unroll
                    for (int e = 0; e < 4; e++) {
                        float *x = &s[c][m][e / 2][2 * r + e % 2];
                        *x = power_of_2(*x * scale - base);
                        here += *x;
                    }
                sum[m][r] = sum[m][r] * keep + here;
                top[m][r] = high;
#pragma unroll
                for (int n = 0; n < D / 8; n++) {
                    o[m][n][2 * r] *= keep;
                    o[m][n][2 * r + 1] *= keep;
                }
            }
#pragma unroll
        for (int c = 0; c < TILE / 16; c++)
            by_columns<D, MT>(o, s[c], v[i % 2], c * 16);
        __syncthreads();
    }
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float total = row_add(sum[m][r]);
            long long query = row + m * ROWS + r * 8;
            if (query >= a.t)
                continue;
            float by = total > 0 ? 1 / total : 0;
            bf16 *to = (bf16 *)a.io.out[0] + ((p.b * a.t + query) * a.h + p.h) * D;
#pragma unroll
            for (int n = 0; n < D / 8; n++)
                *(unsigned *)(to + n * 8 + 2 * t) =
                    pack(o[m][n][2 * r] * by, o[m][n][2 * r + 1] * by);
            if (t == 0)
                ((float *)a.io.out[1])[(p.b * a.h + p.h) * a.t + query] =
                    total > 0 ? top[m][r] * a.scale + LN_2 * log2f(total) : -TD__INFINITY;
        }
}

/* s becomes the probability, d the gradient of the score before its scale; scale and lse are those
 * of powers of 2, lse +inf for a row that sees nothing. */
static __device__ inline void soften(float *s, float *d, float scale, float lse, float delta)
{
    float prob = power_of_2(*s * scale - lse);
    *d = prob * (*d - delta);
    *s = prob;
}

static __device__ inline float lse_of_2(float lse)
{
    return lse > -TD__INFINITY ? lse * LOG2_E : TD__INFINITY;
}

/* do, q, k, v, o, lse -> dq, and delta in scratch; grid (tiles of 64 MT queries, B H) */
template <int D, int MT>
static __device__ inline void attention_tiles_q(const td__attention_args &a)
{
    enum { Q = 4 * ROWS * MT };
    __shared__ tile<D> k[2];
    __shared__ tile<D> v[2];
    place p = place_of(a, a.h, blockIdx.y);
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    long long q0 = (long long)(gridDim.x - 1 - blockIdx.x) * Q;
    long long row = q0 + threadIdx.x / 32 * ROWS * MT + g;
    long long q_stride = a.q_step, k_stride = a.kv_step, o_stride = a.h * D;
    long long o_at = p.b * a.t * o_stride + p.h * D;
    long long q_at = p.b * a.t * q_stride + p.h * D, k_at = p.b * a.s * k_stride + p.kv * D;
    const bf16 *keys = (const bf16 *)a.io.in[2] + k_at, *values = (const bf16 *)a.io.in[3] + k_at;
    copy_tile<D>(k[0], keys, 0, a.s, k_stride);
    copy_tile<D>(v[0], values, 0, a.s, k_stride);
    end_of_copies();
    unsigned left[MT][D / 16][4], dout[MT][D / 16][4];
    float dq[MT][D / 8][4] = {}, lse[MT][2], delta[MT][2], scale = a.scale * LOG2_E;
#pragma unroll
    for (int m = 0; m < MT; m++) {
        long long first = row + m * ROWS;
        load_left<D>(left[m], (const bf16 *)a.io.in[4] + o_at, first, a.t, o_stride); /* o */
        load_left<D>(dout[m], (const bf16 *)a.io.in[0] + o_at, first, a.t, o_stride);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            long long at = (p.b * a.h + p.h) * a.t + first + r * 8;
            bool in = first + r * 8 < a.t;
            float x = 0;
#pragma unroll
            for (int s = 0; s < D / 16; s++)
#pragma unroll
                for (int e = r; e < 4; e += 2)
                    x += low_of(left[m][s][e]) * low_of(dout[m][s][e]) +
                         high_of(left[m][s][e]) * high_of(dout[m][s][e]);
            delta[m][r] = row_add(x);
            lse[m][r] = lse_of_2(in ? ((const float *)a.io.in[5])[at] : -TD__INFINITY);
            if (in && t == 0)
                ((float *)a.io.scratch)[at] = delta[m][r];
        }
        load_left<D>(left[m], (const bf16 *)a.io.in[1] + q_at, first, a.t, q_stride);
    }
    long long end = a.causal && q0 + Q < a.s ? q0 + Q : a.s;
    int n_tiles = (int)((end + TILE - 1) / TILE);
    for (int i = 0; i < n_tiles; i++) {
        long long k0 = (long long)i * TILE;
        if (i + 1 < n_tiles) {
            copy_tile<D>(k[(i + 1) % 2], keys, k0 + TILE, a.s, k_stride);
            copy_tile<D>(v[(i + 1) % 2], values, k0 + TILE, a.s, k_stride);
        }
        end_of_copies();
        wait_for_copies<1>();
        __syncthreads();
        bool edge = k0 + TILE > a.s || (a.causal && k0 + TILE > q0);
        int keys_left = (int)(a.s - k0), ahead = (int)(row - k0);
#pragma unroll
        for (int c = 0; c < TILE / 16; c++) {
            float s[MT][2][4], d[MT][2][4];
            by_rows<D, MT>(s, left, k[i % 2], c * 16);
            by_rows<D, MT>(d, dout, v[i % 2], c * 16);
#pragma unroll
            for (int m = 0; m < MT; m++)
#pragma unroll
                for (int e = 0; e < 8; e++) {
                    int r = e % 4 / 2;
                    soften(&s[m][e / 4][e % 4], &d[m][e / 4][e % 4], scale, lse[m][r], delta[m][r]);
                    int key = c * 16 + e / 4 * 8 + 2 * t + e % 2;
                    if (edge && (key >= keys_left || (a.causal && key > ahead + m * ROWS + r * 8)))
                        d[m][e / 4][e % 4] = 0;
                }
            by_columns<D, MT>(dq, d, k[i % 2], c * 16);
        }
        __syncthreads();
    }
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            long long query = row + m * ROWS + r * 8;
            if (query >= a.t)
                continue;
            bf16 *to = (bf16 *)a.io.out[0] + q_at + query * q_stride;
#pragma unroll
            for (int n = 0; n < D / 8; n++)
                *(unsigned *)(to + n * 8 + 2 * t) =
                    pack(dq[m][n][2 * r] * a.scale, dq[m][n][2 * r + 1] * a.scale);
        }
}

/* do, q, k, v, lse, and delta in scratch -> dk, dv; grid (tiles of 64 keys, B Hkv) */
template <int D> static __device__ inline void attention_tiles_kv(const td__attention_args &a)
{
    __shared__ tile<D> q[2];
    __shared__ tile<D> dout[2];
    __shared__ float lse[2][TILE], delta[2][TILE];
    place p = place_of(a, a.hkv, blockIdx.y);
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    long long k0 = (long long)blockIdx.x * TILE, row = k0 + threadIdx.x / 32 * ROWS + g;
    long long q_stride = a.q_step, k_stride = a.kv_step, o_stride = a.h * D, per = a.h / a.hkv;
    long long k_at = p.b * a.s * k_stride + p.kv * D;
    unsigned keys[1][D / 16][4], values[1][D / 16][4];
    float dk[1][D / 8][4] = {}, dv[1][D / 8][4] = {}, scale = a.scale * LOG2_E;
    load_left<D>(keys[0], (const bf16 *)a.io.in[2] + k_at, row, a.s, k_stride);
    load_left<D>(values[0], (const bf16 *)a.io.in[3] + k_at, row, a.s, k_stride);
    long long first = a.causal ? k0 : 0;
    int each = first < a.t ? (int)((a.t - first + TILE - 1) / TILE) : 0, n_tiles = each * (int)per;
    for (int i = -1; i < n_tiles; i++) {
        int next = i + 1;
        if (next < n_tiles) {
            long long h = p.kv * per + next / each, q0 = first + (long long)(next % each) * TILE;
            long long q_at = p.b * a.t * q_stride + h * D, stat = (p.b * a.h + h) * a.t + q0;
            copy_tile<D>(q[next % 2], (const bf16 *)a.io.in[1] + q_at, q0, a.t, q_stride);
            copy_tile<D>(dout[next % 2], (const bf16 *)a.io.in[0] + p.b * a.t * o_stride + h * D,
                         q0, a.t, o_stride);
            if (threadIdx.x < TILE) {
                bool in = q0 + threadIdx.x < a.t;
                const float *from = (const float *)a.io.in[5] + stat;
                lse[next % 2][threadIdx.x] = lse_of_2(in ? from[threadIdx.x] : -TD__INFINITY);
                delta[next % 2][threadIdx.x] =
                    in ? ((const float *)a.io.scratch)[stat + threadIdx.x] : 0;
            }
        }
        end_of_copies();
        if (i < 0)
            continue;
        wait_for_copies<1>();
        __syncthreads();
        long long q0 = first + (long long)(i % each) * TILE;
        bool edge = a.causal && q0 < k0 + TILE;
        int behind = (int)(row - q0);
#pragma unroll
        for (int c = 0; c < TILE / 16; c++) {
            float s[1][2][4], d[1][2][4];
            by_rows<D, 1>(s, keys, q[i % 2], c * 16);
            by_rows<D, 1>(d, values, dout[i % 2], c * 16);
#pragma unroll
            for (int e = 0; e < 8; e++) {
                int query = c * 16 + e / 4 * 8 + 2 * t + e % 2;
                soften(&s[0][e / 4][e % 4], &d[0][e / 4][e % 4], scale, lse[i % 2][query],
                       delta[i % 2][query]);
                if (edge && behind + e % 4 / 2 * 8 > query)
                    s[0][e / 4][e % 4] = d[0][e / 4][e % 4] = 0;
            }
            by_columns<D, 1>(dv, s, dout[i % 2], c * 16);
            by_columns<D, 1>(dk, d, q[i % 2], c * 16);
        }
        __syncthreads();
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        if (row + r * 8 >= a.s)
            continue;
        long long at = k_at + (row + r * 8) * k_stride;
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
            *(unsigned *)((bf16 *)a.io.out[1] + at + n * 8 + 2 * t) =
                pack(dk[0][n][2 * r] * a.scale, dk[0][n][2 * r + 1] * a.scale);
            *(unsigned *)((bf16 *)a.io.out[2] + at + n * 8 + 2 * t) =
                pack(dv[0][n][2 * r], dv[0][n][2 * r + 1]);
        }
    }
}

#define TD_TILES(name, label, ...)                \
    TD_KERNEL(name##_##label, td__attention_args) \
    {                                             \
        name<__VA_ARGS__>(a);                     \
    }
TD_TILES(attention_tiles, 32, 32, 2)
TD_TILES(attention_tiles, 64, 64, 2)
TD_TILES(attention_tiles_q, 32, 32, 2)
TD_TILES(attention_tiles_q, 64, 64, 2)
TD_TILES(attention_tiles_kv, 32, 32)
TD_TILES(attention_tiles_kv, 64, 64)
