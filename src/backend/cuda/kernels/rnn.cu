/* rnn.cu -- what a step of lstm and gru does beside its product: gates, states and their gradients,
 * one thread per element of the state. The formulas are in ops/op_lstm.c and ops/op_gru.c.
 *
 * s (B, gates H) is the product of the state before and w_hh, f32. Inputs that are NULL count as
 * zeros. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/kernels/math.cuh"
#include "backend/cuda/kernels/number.cuh"
#include "backend/cuda/kernels/rnn.h"

/* gx, s, bias, c before -> gates, c, y */
template <class T> static __device__ inline void lstm_step(const td__rnn_args &a)
{
    const T *gx = (const T *)a.io.in[0];
    const float *s = (const float *)a.io.in[1], *bias = (const float *)a.io.in[2];
    long long h = a.hidden;
    for (long long k = td__thread(); k < a.batch * h; k += td__threads()) {
        long long row = k / h * 4 * h, j = k % h;
        float gate[4];
        for (int g = 0; g < 4; g++) {
            long long at = row + g * h + j;
            float v = get(gx[at]) + s[at] + bias[g * h + j];
            gate[g] = g == 2 ? tanhf(v) : v_sigmoid(v);
            put((T *)a.io.out[0] + at, gate[g]);
        }
        float c = gate[1] * ((const float *)a.io.in[3])[k] + gate[0] * gate[2];
        ((float *)a.io.out[1])[k] = c;
        put((T *)a.io.out[2] + k, gate[3] * tanhf(c));
    }
}
TD_KERNELS(lstm_step, td__rnn_args)

/* dh?, dy, gates, c, c before, dc -> dgx, dc */
template <class T> static __device__ inline void lstm_back_step(const td__rnn_args &a)
{
    const float *dh = (const float *)a.io.in[0], *before = (const float *)a.io.in[4];
    const T *gates = (const T *)a.io.in[2];
    T *d = (T *)a.io.out[0];
    long long h = a.hidden;
    for (long long k = td__thread(); k < a.batch * h; k += td__threads()) {
        long long at = k / h * 4 * h + k % h;
        float i = get(gates[at]), f = get(gates[at + h]);
        float g = get(gates[at + 2 * h]), o = get(gates[at + 3 * h]);
        float through = (dh ? dh[k] : 0) + get(((const T *)a.io.in[1])[k]);
        float tc = tanhf(((const float *)a.io.in[3])[k]);
        float carry = ((const float *)a.io.in[5])[k] + through * o * (1 - tc * tc);
        put(d + at, carry * g * i * (1 - i));
        put(d + at + h, carry * before[k] * f * (1 - f));
        put(d + at + 2 * h, carry * i * (1 - g * g));
        put(d + at + 3 * h, through * tc * o * (1 - o));
        ((float *)a.io.out[1])[k] = carry * f;
    }
}
TD_KERNELS(lstm_back_step, td__rnn_args)

/* gx, s, bias, h before -> gates, y */
template <class T> static __device__ inline void gru_step(const td__rnn_args &a)
{
    const T *gx = (const T *)a.io.in[0];
    const float *s = (const float *)a.io.in[1], *bias = (const float *)a.io.in[2];
    T *gates = (T *)a.io.out[0];
    long long h = a.hidden;
    for (long long k = td__thread(); k < a.batch * h; k += td__threads()) {
        long long j = k % h, in = k / h * 3 * h + j, to = k / h * 4 * h + j;
        float r = v_sigmoid(get(gx[in]) + s[in] + bias[j]);
        float z = v_sigmoid(get(gx[in + h]) + s[in + h] + bias[h + j]);
        float gh = s[in + 2 * h] + bias[2 * h + j];
        float n = tanhf(get(gx[in + 2 * h]) + r * gh);
        put(gates + to, r);
        put(gates + to + h, z);
        put(gates + to + 2 * h, n);
        put(gates + to + 3 * h, gh);
        put((T *)a.io.out[1] + k, (1 - z) * n + z * get(((const T *)a.io.in[3])[k]));
    }
}
TD_KERNELS(gru_step, td__rnn_args)

/* product?, carry?, dy, gates, h before -> dgx, dgh, carry; dh is product + carry */
template <class T> static __device__ inline void gru_back_step(const td__rnn_args &a)
{
    const float *product = (const float *)a.io.in[0], *carry = (const float *)a.io.in[1];
    const T *gates = (const T *)a.io.in[3];
    T *dx = (T *)a.io.out[0], *dg = (T *)a.io.out[1];
    long long h = a.hidden;
    for (long long k = td__thread(); k < a.batch * h; k += td__threads()) {
        long long at = k / h * 4 * h + k % h, to = k / h * 3 * h + k % h;
        float r = get(gates[at]), z = get(gates[at + h]);
        float n = get(gates[at + 2 * h]), gh = get(gates[at + 3 * h]);
        float through = (product ? product[k] + carry[k] : 0) + get(((const T *)a.io.in[2])[k]);
        float dn = through * (1 - z) * (1 - n * n);
        float dz = through * (get(((const T *)a.io.in[4])[k]) - n) * z * (1 - z);
        float dr = dn * gh * r * (1 - r);
        put(dx + to, dr);
        put(dg + to, dr);
        put(dx + to + h, dz);
        put(dg + to + h, dz);
        put(dx + to + 2 * h, dn);
        put(dg + to + 2 * h, dn * r);
        ((float *)a.io.out[2])[k] = through * z;
    }
}
TD_KERNELS(gru_back_step, td__rnn_args)

/* product, carry -> dh0 */
template <class T> static __device__ inline void gru_back_end(const td__rnn_args &a)
{
    for (long long k = td__thread(); k < a.batch * a.hidden; k += td__threads())
        put((T *)a.io.out[0] + k, ((const float *)a.io.in[0])[k] + ((const float *)a.io.in[1])[k]);
}
TD_KERNELS(gru_back_end, td__rnn_args)
