/* product.cu -- matrix products of our own, for machines without cuBLASLt and for operands that lie
 * in a way it does not take. A block makes 64 x 64 elements, a thread 4 x 4 of them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/kernels/math.cuh"
#include "backend/cuda/kernels/number.cuh"
#include "backend/cuda/kernels/product.h"

enum { TILE = 64, DEPTH = 16, EACH = 4, ACROSS = TILE / EACH };
enum { ACT_NONE, ACT_RELU, ACT_GELU, ACT_GELU_TANH };

static __device__ inline float activated(int act, float v)
{
    switch (act) {
    case ACT_RELU: return v > 0 ? v : 0;
    case ACT_GELU: return v_gelu(v);
    case ACT_GELU_TANH: return v_gelu_tanh(v);
    default: return v;
    }
}

static __device__ inline float load(int dtype, const void *p, long long i)
{
    return dtype == TD__IO_F32 ? ((const float *)p)[i] : get(((const bf16 *)p)[i]);
}

static __device__ inline void store(int dtype, void *p, long long i, float v)
{
    if (dtype == TD__IO_F32)
        ((float *)p)[i] = v;
    else
        ((bf16 *)p)[i] = to_bf16(v);
}

/* What is stored at `at` for a sum with its bias. */
static __device__ inline float finished(const td__product_args &a, long long at, float v)
{
    if (a.slope_at) /* there is one activation that products go back through */
        return v * v_gelu_tanh_slope(load(a.out_dtype, a.slope_at, at));
    v = activated(a.act, v);
    return a.residual ? v + load(a.out_dtype, a.residual, at) : v;
}

template <class T> static __device__ inline void product(const td__product_args &a)
{
    __shared__ float left[DEPTH][TILE], right[DEPTH][TILE];
    const T *pa = (const T *)a.a, *pb = (const T *)a.b;
    long long rest = blockIdx.z;
    for (int d = a.n_batch - 1; d >= 0; d--) {
        pa += rest % a.batch[d] * a.a_step[d];
        pb += rest % a.batch[d] * a.b_step[d];
        rest /= a.batch[d];
    }
    long long row = (long long)blockIdx.y * TILE, col = (long long)blockIdx.x * TILE;
    int ty = threadIdx.x / ACROSS * EACH, tx = threadIdx.x % ACROSS * EACH;
    float sum[EACH][EACH] = {};
    for (long long k0 = 0; k0 < a.k; k0 += DEPTH) {
        for (int e = threadIdx.x; e < DEPTH * TILE; e += THREADS) {
            /* Neighbouring threads read what lies side by side. */
            int ka = a.a_col == 1 ? e % DEPTH : e / TILE, ia = a.a_col == 1 ? e / DEPTH : e % TILE;
            int kb = a.b_col == 1 ? e / TILE : e % DEPTH, ib = a.b_col == 1 ? e % TILE : e / DEPTH;
            left[ka][ia] = row + ia < a.m && k0 + ka < a.k
                               ? get(pa[(row + ia) * a.a_row + (k0 + ka) * a.a_col])
                               : 0;
            right[kb][ib] = col + ib < a.n && k0 + kb < a.k
                                ? get(pb[(k0 + kb) * a.b_row + (col + ib) * a.b_col])
                                : 0;
        }
        __syncthreads();
        for (int k = 0; k < DEPTH; k++)
            for (int i = 0; i < EACH; i++)
                for (int j = 0; j < EACH; j++)
                    sum[i][j] += left[k][ty + i] * right[k][tx + j];
        __syncthreads();
    }
    for (int i = 0; i < EACH; i++)
        for (int j = 0; j < EACH; j++) {
            long long r = row + ty + i, c = col + tx + j;
            if (r >= a.m || c >= a.n)
                continue;
            long long at = ((long long)blockIdx.z * a.m + r) * a.n + c;
            float v = sum[i][j] + (a.bias ? load(a.out_dtype, a.bias, c) : 0);
            if (a.pre)
                store(a.out_dtype, a.pre, at, v);
            store(a.out_dtype, a.c, at, finished(a, at, v));
        }
}

TD_KERNEL(product_f32, td__product_args)
{
    product<float>(a);
}

TD_KERNEL(product_bf16, td__product_args)
{
    product<bf16>(a);
}

/* a -> c, for products whose epilogue is not cuBLASLt's; n: elements. */
TD_KERNEL(product_act, td__product_args)
{
    for (long long i = td__thread(); i < a.n; i += td__threads())
        store(a.out_dtype, a.c, i, finished(a, i, load(a.out_dtype, a.a, i)));
}
