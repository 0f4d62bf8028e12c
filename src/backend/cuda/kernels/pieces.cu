/* pieces.cu -- sums of pieces, means over micro-batches, ids in a piece of a table, and the cross
 * entropy of logits that are cut by classes (ops/op_xent_piece.c has the formulas). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/kernels/pieces.h"
#include "backend/cuda/kernels/softmax.cuh"

enum { LSE, HIT, SUM, STATS };

/* The sum of all inputs in the tree of ops/op_pieces_sum.c: halves of a power of two are added
 * first, as a binary counter does. */
template <class T> static __device__ inline void pieces_sum(const td__pieces_args &a)
{
    for (long long i = td__thread(); i < a.n; i += td__threads()) {
        float part[5]; /* of 2^k inputs each, falling: 16 inputs at most */
        int depth = 0;
        for (int k = 0; k < a.n_in; k++) {
            float v = get(((const T *)a.io.in[k])[i]);
            for (int done = k + 1; done % 2 == 0; done /= 2)
                v = part[--depth] + v;
            part[depth++] = v;
        }
        while (depth > 1) {
            part[depth - 2] += part[depth - 1];
            depth--;
        }
        ((float *)a.io.out[0])[i] = part[0];
    }
}
TD_KERNELS(pieces_sum, td__pieces_args)

/* The mean of one micro-batch (ops/op_sync_mean.c). */
template <class T> static __device__ inline void sync_mean(const td__pieces_args &a)
{
    for (long long i = td__thread(); i < a.n; i += td__threads()) {
        float x = get(((const T *)a.io.in[0])[i]);
        put((T *)a.io.out[0] + i, x);
        put((T *)a.io.out[1] + i, x * a.by);
    }
}
TD_KERNELS(sync_mean, td__pieces_args)

TD_KERNEL(piece_ids, td__pieces_args)
{
    for (long long i = td__thread(); i < a.n; i += td__threads()) {
        long long id = get_id(a.ids, a.io.in[0], i) - a.first;
        id = id < 0 || (id >= a.rows && !a.last) ? -1 : id;
        if (a.ids == TD__IO_I32)
            ((int *)a.io.out[0])[i] = (int)id;
        else
            ((long long *)a.io.out[0])[i] = id;
    }
}

/* logits, target -> stats (3, R); one block per row */
template <class T> static __device__ inline void xent_piece(const td__xent_piece_args &a)
{
    const T *x = (const T *)a.x.io.in[0] + blockIdx.x * a.x.classes;
    long long t = get_id(a.x.ids, a.x.io.in[1], blockIdx.x) - a.first;
    float lse = row_lse(x, a.x.classes), sum = a.x.smoothing > 0 ? row_total(x, a.x.classes) : 0;
    float *y = (float *)a.x.io.out[0] + blockIdx.x;
    if (threadIdx.x != 0)
        return;
    y[LSE * a.x.rows] = lse;
    y[HIT * a.x.rows] = t >= 0 && t < a.x.classes ? get(x[t]) : 0;
    y[SUM * a.x.rows] = sum;
}
TD_KERNELS(xent_piece, td__xent_piece_args)

/* logits, target, stats, dstats -> dlogits; one block per row */
template <class T> static __device__ inline void xent_piece_back(const td__xent_piece_args &a)
{
    const T *x = (const T *)a.x.io.in[0] + blockIdx.x * a.x.classes;
    T *dx = (T *)a.x.io.out[0] + blockIdx.x * a.x.classes;
    long long t = get_id(a.x.ids, a.x.io.in[1], blockIdx.x) - a.first, rows = a.x.rows;
    const float *dy = (const float *)a.x.io.in[3] + blockIdx.x;
    float lse = ((const float *)a.x.io.in[2])[LSE * rows + blockIdx.x];
    float slope = dy[LSE * rows], hit = dy[HIT * rows];
    float each = a.x.smoothing > 0 ? dy[SUM * rows] : 0;
    for (long long i = threadIdx.x; i < a.x.classes; i += THREADS)
        put(dx + i, slope * expf(get(x[i]) - lse) + (i == t ? hit : 0) + each);
}
TD_KERNELS(xent_piece_back, td__xent_piece_args)

/* stats of all pieces, target -> out[0] (R): each row's share of the loss, out[1]: lse */
template <class T> static __device__ inline void xent_join(const td__xent_piece_args &a)
{
    long long rows = a.x.rows;
    float s = a.x.smoothing;
    for (long long r = td__thread(); r < rows; r += td__threads()) {
        const T *y = (const T *)a.x.io.in[0] + r;
        float top = -TD__INFINITY, sum = 0, hit = 0, all = 0;
        for (long long w = 0; w < a.pieces; w++)
            top = fmaxf(top, get(y[(w * STATS + LSE) * rows]));
        for (long long w = 0; w < a.pieces; w++) {
            sum += expf(get(y[(w * STATS + LSE) * rows]) - top);
            hit += get(y[(w * STATS + HIT) * rows]);
            all += get(y[(w * STATS + SUM) * rows]);
        }
        long long t = get_id(a.x.ids, a.x.io.in[1], r);
        float lse = top + logf(sum), loss = (1 - s) * (lse - (t >= 0 && t < a.all ? hit : TD__NAN));
        if (s > 0)
            loss += s * (lse - all / (float)a.all);
        ((float *)a.x.io.out[0])[r] = counts(a.x, t) ? loss : 0;
        ((float *)a.x.io.out[1])[r] = lse;
    }
}
TD_KERNELS(xent_join, td__xent_piece_args)

/* stats of all pieces, target, lse, dloss -> dstats; scratch: how many rows count */
template <class T> static __device__ inline void xent_join_back(const td__xent_piece_args &a)
{
    long long rows = a.x.rows;
    float s = a.x.smoothing, counted = *(const float *)a.x.io.scratch;
    for (long long r = td__thread(); r < rows; r += td__threads()) {
        long long t = get_id(a.x.ids, a.x.io.in[1], r);
        bool live = counts(a.x, t) && t >= 0 && t < a.all;
        float g = live ? *(const float *)a.x.io.in[3] / counted : 0;
        float lse = ((const float *)a.x.io.in[2])[r];
        for (long long w = 0; w < a.pieces; w++) {
            const T *y = (const T *)a.x.io.in[0] + w * STATS * rows + r;
            T *d = (T *)a.x.io.out[0] + w * STATS * rows + r;
            put(d + LSE * rows, expf(get(y[LSE * rows]) - lse) * g);
            put(d + HIT * rows, -(1 - s) * g);
            put(d + SUM * rows, -s * g / (float)a.all);
        }
    }
}
TD_KERNELS(xent_join_back, td__xent_piece_args)
