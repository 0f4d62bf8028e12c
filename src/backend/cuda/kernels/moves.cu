/* moves.cu -- elements that change their place: permute, slice, pad, concat, expand, reorder,
 * gather, one-hot. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/kernels/moves.h"
#include "backend/cuda/kernels/number.cuh"

template <class T> static __device__ inline void move(const td__move_args &a)
{
    const T *in = (const T *)a.io.in[a.in];
    T *out = (T *)a.io.out[0];
    bool narrow = a.n < 1ll << 31; /* divisions of 32 bits are much shorter */
    for (long long i = td__thread(); i < a.n; i += td__threads()) {
        long long rest = i, from = 0, to = a.out_at;
        bool inside = true;
        for (int d = a.ndim - 1; d >= 0; d--) {
            long long next = narrow ? (unsigned)rest / (unsigned)a.dim[d] : rest / a.dim[d];
            long long at = rest - next * a.dim[d], k = at - a.lo[d];
            rest = next;
            to += at * a.out_step[d];
            inside = inside && k >= 0 && at < a.hi[d];
            if (a.by[d] != 1) {
                inside = inside && k % a.by[d] == 0;
                k /= a.by[d];
            }
            from += k * a.in_step[d];
        }
        out[to] = inside ? in[from] : (T)a.fill;
    }
}

TD_KERNEL(move, td__move_args)
{
    if (a.nbytes == 1)
        move<unsigned char>(a);
    else if (a.nbytes == 2)
        move<unsigned short>(a);
    else if (a.nbytes == 4)
        move<unsigned>(a);
    else
        move<unsigned long long>(a);
}

TD_KERNEL(move_rows, td__move_rows_args)
{
    const uint4 *in = (const uint4 *)a.io.in[0];
    uint4 *out = (uint4 *)a.io.out[0];
    unsigned lots = (unsigned)a.lots;
    for (long long i = td__thread(); i < a.rows * a.lots; i += td__threads()) {
        long long row = a.rows * a.lots < 1ll << 32 ? (unsigned)i / lots : i / a.lots;
        out[row * a.out_pitch + (i - row * a.lots)] = in[row * a.in_pitch + (i - row * a.lots)];
    }
}

TD_KERNEL(one_hot, td__one_hot_args)
{
    for (long long i = td__thread(); i < a.n * a.depth; i += td__threads()) {
        bool hit = get_id(a.ids, a.io.in[0], i / a.depth) == i % a.depth;
        switch (a.dtype) {
        case TD__IO_F32: ((float *)a.io.out[0])[i] = hit; break;
        case TD__IO_F64: ((double *)a.io.out[0])[i] = hit; break;
        case TD__IO_BF16: ((bf16 *)a.io.out[0])[i] = to_bf16(hit); break;
        case TD__IO_F16: ((unsigned short *)a.io.out[0])[i] = hit ? 0x3c00 : 0; break;
        case TD__IO_I32: ((int *)a.io.out[0])[i] = hit; break;
        case TD__IO_I64: ((long long *)a.io.out[0])[i] = hit; break;
        default: ((unsigned char *)a.io.out[0])[i] = hit;
        }
    }
}

TD_KERNEL(gather, td__gather_args)
{
    for (long long i = td__thread(); i < a.n; i += td__threads()) {
        long long id = get_id(a.ids, a.io.in[1], i), rest = i, at = 0, step = 1;
        for (int d = a.ndim - 1; d >= 0; d--) {
            at += (d == a.axis ? id : rest % a.index[d]) * step;
            rest /= a.index[d];
            step *= a.x[d];
        }
        bool inside = id >= 0 && id < a.x[a.axis];
        if (a.nbytes == 1)
            ((unsigned char *)a.io.out[0])[i] =
                inside ? ((const unsigned char *)a.io.in[0])[at] : (unsigned char)a.missing;
        else if (a.nbytes == 2)
            ((unsigned short *)a.io.out[0])[i] =
                inside ? ((const unsigned short *)a.io.in[0])[at] : (unsigned short)a.missing;
        else if (a.nbytes == 4)
            ((unsigned *)a.io.out[0])[i] =
                inside ? ((const unsigned *)a.io.in[0])[at] : (unsigned)a.missing;
        else
            ((unsigned long long *)a.io.out[0])[i] =
                inside ? ((const unsigned long long *)a.io.in[0])[at] : a.missing;
    }
}

/* Each element of dx adds up what was taken from it, in the order of the index. */
template <class T> static __device__ inline void gather_back(const td__gather_args &a)
{
    for (long long i = td__thread(); i < a.n; i += td__threads()) {
        long long rest = i, at = 0, step = 1, along = 0, mine = 0;
        bool inside = true;
        for (int d = a.ndim - 1; d >= 0; d--) {
            long long k = rest % a.x[d];
            rest /= a.x[d];
            if (d == a.axis) {
                along = step;
                mine = k;
            } else {
                inside = inside && k < a.index[d];
                at += k * step;
            }
            step *= a.index[d];
        }
        float sum = 0;
        for (long long k = 0; inside && k < a.index[a.axis]; k++)
            if (get_id(a.ids, a.io.in[0], at + k * along) == mine)
                sum += get(((const T *)a.io.in[1])[at + k * along]);
        put((T *)a.io.out[0] + i, sum);
    }
}
TD_KERNELS(gather_back, td__gather_args)
