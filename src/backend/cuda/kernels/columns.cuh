/* columns.cuh -- sums over the columns of (rows, columns) arrays whose rows are whole lots: a lane
 * has the columns of one lot, the eight warps of a block go through its rows in turn, and what they
 * have is put together in a fixed order. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CUDA_KERNELS_COLUMNS_CUH
#define TD_BACKEND_CUDA_KERNELS_COLUMNS_CUH

#include "backend/cuda/kernels/number.cuh"

/* The first column of this lane's lot; blocks lie along x. */
template <class T> static __device__ inline long long first_column()
{
    return ((long long)blockIdx.x * 32 + threadIdx.x % 32) * lot<T>::N;
}

/* to[column] = the sum over the warps of v, for the lanes' columns below `columns`. All threads of
 * the block come here. */
template <int N>
static __device__ inline void store_columns(const float v[N], long long column, long long columns,
                                            float *to)
{
    __shared__ float part[WARPS][32][N + 1]; /* one more: other banks */
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    __syncthreads(); /* the last use of part is over */
#pragma unroll
    for (int i = 0; i < N; i++)
        part[warp][lane][i] = v[i];
    __syncthreads();
    if (warp != 0 || column >= columns)
        return;
#pragma unroll
    for (int i = 0; i < N; i++) {
        float sum = part[0][lane][i];
        for (int w = 1; w < WARPS; w++)
            sum += part[w][lane][i];
        to[column + i] = sum;
    }
}

/* The sums over `splits` rows of K arrays part[] (splits, columns), for column `column` < columns;
 * the same block of 32 columns by 8 threads each. Valid in threads below 32. All threads come
 * here. */
template <int K>
static __device__ inline void sums_of_parts(const float *const part[K], int splits,
                                            long long columns, long long column, float sum[K])
{
    __shared__ float sums[K][WARPS][32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float v[K] = {};
    if (column < columns)
#pragma unroll 16
        for (int s = warp; s < splits; s += WARPS)
#pragma unroll
            for (int k = 0; k < K; k++)
                v[k] += part[k][s * columns + column];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < K; k++)
        sums[k][warp][lane] = v[k];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < K; k++) {
        sum[k] = sums[k][0][lane];
        for (int w = 1; w < WARPS; w++)
            sum[k] += sums[k][w][lane];
    }
}

#endif
