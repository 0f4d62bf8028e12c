/* elementwise.cu -- elementwise operators and fused chains of them: a program that every thread
 * interprets for its elements. All threads take the same branches, and memory is the limit for
 * chains of a few instructions.
 *
 * ew_f32 computes in f32, for f32, bf16, f16, bool and u8; ew_f64 in f64, as the reference kernels
 * do, for all other types. Operators that large models are made of have kernels of their own for
 * operands of one type and shape, lots of elements at a time (lots.def). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/kernels/elementwise.h"
#include "backend/cuda/kernels/math.cuh"
#include "backend/cuda/kernels/number.cuh"

enum opcode {
#define TD_OP(ID, name) OP_##ID,
#include "ops/ops.def"
#undef TD_OP
};

template <class N> static __device__ inline N load(int dtype, const void *p, long long i)
{
    switch (dtype) {
    case TD__IO_F32: return ((const float *)p)[i];
    case TD__IO_F64: return (N)((const double *)p)[i];
    case TD__IO_BF16: return get(((const bf16 *)p)[i]);
    case TD__IO_F16: return from_f16(((const unsigned short *)p)[i]);
    case TD__IO_I32: return (N)((const int *)p)[i];
    case TD__IO_I64: return (N)((const long long *)p)[i];
    default: return ((const unsigned char *)p)[i];
    }
}

/* As td__int_from_f64: NaN is 0, what does not fit is the nearest that does. */
static __device__ inline long long whole(double v, double lo, double hi, long long last)
{
    return v != v ? 0 : v <= lo ? (long long)lo : v >= hi ? last : (long long)v;
}

template <class N> static __device__ inline void store(int dtype, void *p, long long i, N v)
{
    switch (dtype) {
    case TD__IO_F32: ((float *)p)[i] = (float)v; break;
    case TD__IO_F64: ((double *)p)[i] = (double)v; break;
    case TD__IO_BF16: ((bf16 *)p)[i] = to_bf16((float)v); break;
    case TD__IO_F16: ((unsigned short *)p)[i] = to_f16((float)v); break;
    case TD__IO_I32:
        ((int *)p)[i] = (int)whole((double)v, -2147483648.0, 2147483647.0, 2147483647);
        break;
    case TD__IO_I64:
        ((long long *)p)[i] =
            whole((double)v, -9223372036854775808.0, 9223372036854775808.0, 9223372036854775807LL);
        break;
    case TD__IO_U8: ((unsigned char *)p)[i] = (unsigned char)whole((double)v, 0, 255, 255); break;
    default: ((unsigned char *)p)[i] = v != 0;
    }
}

template <class N> static __device__ N apply(int op, N A, N B, N C, N P, N Q)
{
    (void)C;
    switch (op) {
#define powf ew_pow
#define sqrtf ew_sqrt
#define floorf ew_floor
#define EW(OP, expr) \
    case OP_##OP:    \
        return expr;
#include "backend/cpu/kernels/ew_ops.def"
#undef EW
#undef powf
#undef sqrtf
#undef floorf
    default: return A;
    }
}

/* Where input k has the element that goes with element i of the output. */
static __device__ inline long long place(const td__ew_args &a, int k, long long i)
{
    if (a.in_kind[k] == TD__EW_SAME)
        return i;
    if (a.in_kind[k] == TD__EW_ONE)
        return 0;
    long long at = 0;
    if (a.n < 1ll << 31) {
        unsigned rest = (unsigned)i;
        for (int d = a.ndim - 1; d >= 0; d--) {
            unsigned dim = (unsigned)a.dim[d], q = rest / dim;
            at += (long long)(rest - q * dim) * a.step[k][d];
            rest = q;
        }
        return at;
    }
    for (int d = a.ndim - 1; d >= 0; d--) {
        at += i % a.dim[d] * a.step[k][d];
        i /= a.dim[d];
    }
    return at;
}

template <class N> static __device__ inline void ew(const td__ew_args &a)
{
    for (long long i = td__thread(); i < a.n; i += td__threads()) {
        N v[TD__EW_IN + TD__EW_INSTR];
        for (int k = 0; k < a.n_in; k++)
            v[k] = load<N>(a.in_dtype[k], a.io.in[k], place(a, k, i));
        for (int j = 0; j < a.n_instr; j++)
            v[a.n_in + j] =
                apply<N>(a.instr[j].op, v[a.instr[j].src[0]], v[a.instr[j].src[1]],
                         v[a.instr[j].src[2]], (N)a.instr[j].num[0], (N)a.instr[j].num[1]);
        for (int k = 0; k < a.n_out; k++)
            store<N>(a.out_dtype[k], a.io.out[k], i, v[a.out_operand[k]]);
    }
}

TD_KERNEL(ew_f32, td__ew_args)
{
    ew<float>(a);
}

TD_KERNEL(ew_f64, td__ew_args)
{
    ew<double>(a);
}

/* Do eight elements of the output that lie side by side go with eight of input k that do? */
static __device__ inline bool in_eights(const td__ew_args &a, int k)
{
    bool known = (a.in_dtype[k] == TD__IO_F32 || a.in_dtype[k] == TD__IO_BF16) &&
                 (a.out_dtype[0] == TD__IO_F32 || a.out_dtype[0] == TD__IO_BF16);
    if (a.in_kind[k] == TD__EW_SAME)
        return known && a.n % 8 == 0;
    return known && a.in_kind[k] != TD__EW_ONE && a.dim[a.ndim - 1] % 8 == 0 &&
           a.step[k][a.ndim - 1] == 1;
}

/* The sum of two operands: what is left of a chain where one of them is broadcast. */
TD_KERNEL(ew_sum, td__ew_args)
{
    if (in_eights(a, 0) && in_eights(a, 1)) {
        for (long long i = td__thread() * 8; i < a.n; i += td__threads() * 8) {
            float v[2][8];
            for (int k = 0; k < 2; k++)
                if (a.in_dtype[k] == TD__IO_F32)
                    get_8(v[k], (const float *)a.io.in[k] + place(a, k, i));
                else
                    get_8(v[k], (const bf16 *)a.io.in[k] + place(a, k, i));
            for (int j = 0; j < 8; j++)
                v[0][j] += v[1][j];
            if (a.out_dtype[0] == TD__IO_F32)
                put_8((float *)a.io.out[0] + i, v[0]);
            else
                put_8((bf16 *)a.io.out[0] + i, v[0]);
        }
        return;
    }
    for (long long i = td__thread(); i < a.n; i += td__threads())
        store<float>(a.out_dtype[0], a.io.out[0], i,
                     load<float>(a.in_dtype[0], a.io.in[0], place(a, 0, i)) +
                         load<float>(a.in_dtype[1], a.io.in[1], place(a, 1, i)));
}

/* ---- Single operators, lots at a time -------------------------------------------------------- */

template <class T, int OP> static __device__ inline void lots(const td__ew_args &a)
{
    enum { N = lot<T>::N };
    const T *x = (const T *)a.io.in[0], *y = (const T *)a.io.in[a.n_in > 1];
    T *z = (T *)a.io.out[0];
    float num0 = (float)a.instr[0].num[0], num1 = (float)a.instr[0].num[1];
    for (long long i = td__thread(); i < a.n / N; i += td__threads()) {
        lot<T> u = load_lot(x + i * N), v = load_lot(y + i * N), w;
        for (int k = 0; k < N; k++)
            put(&w.at[k], apply<float>(OP, get(u.at[k]), get(v.at[k]), 0.0f, num0, num1));
        store_lot(z + i * N, w);
    }
    long long rest = a.n / N * N + td__thread();
    if (rest < a.n)
        put(z + rest, apply<float>(OP, get(x[rest]), get(y[rest]), 0.0f, num0, num1));
}

#define TD_LOTS(OP, name)                    \
    TD_KERNEL(ew_##name##_f32, td__ew_args)  \
    {                                        \
        lots<float, OP_##OP>(a);             \
    }                                        \
    TD_KERNEL(ew_##name##_bf16, td__ew_args) \
    {                                        \
        lots<bf16, OP_##OP>(a);              \
    }
#include "backend/cuda/kernels/lots.def"
#undef TD_LOTS
