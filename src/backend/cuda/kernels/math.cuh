/* math.cuh -- functions of one element, in f32 and f64, by the names that
 * backend/cpu/kernels/ew_ops.def uses. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CUDA_KERNELS_MATH_CUH
#define TD_BACKEND_CUDA_KERNELS_MATH_CUH

#define TD__EITHER(name, f32, f64)                 \
    static __device__ inline float name(float x)   \
    {                                              \
        return f32(x);                             \
    }                                              \
    static __device__ inline double name(double x) \
    {                                              \
        return f64(x);                             \
    }
TD__EITHER(v_abs, fabsf, fabs)
TD__EITHER(v_exp, expf, exp)
TD__EITHER(v_log, logf, log)
TD__EITHER(v_sin, sinf, sin)
TD__EITHER(v_cos, cosf, cos)
TD__EITHER(v_erf, erff, erf)
TD__EITHER(v_tanh, tanhf, tanh)
TD__EITHER(ew_sqrt, sqrtf, sqrt)
TD__EITHER(ew_floor, floorf, floor)
TD__EITHER(ew_log1p, log1pf, log1p)
#undef TD__EITHER

static __device__ inline float ew_pow(float x, float y)
{
    return powf(x, y);
}
static __device__ inline double ew_pow(double x, double y)
{
    return pow(x, y);
}

template <class N> static __device__ inline N v_sigmoid(N x)
{
    return 1 / (1 + v_exp(-x));
}
template <class N> static __device__ inline N v_softplus(N x)
{
    return (x > 0 ? x : 0) + ew_log1p(v_exp(-v_abs(x)));
}
template <class N> static __device__ inline N v_silu_slope(N x)
{
    N s = v_sigmoid(x);
    return s * (1 + x * (1 - s));
}
template <class N> static __device__ inline N v_gelu(N x)
{
    return (N)0.5 * x * (1 + v_erf(x * (N)0.7071067811865476));
}
template <class N> static __device__ inline N v_gelu_slope(N x)
{
    return (N)0.5 * (1 + v_erf(x * (N)0.7071067811865476)) +
           x * (N)0.3989422804014327 * v_exp((N)-0.5 * x * x);
}
template <class N> static __device__ inline N v_gelu_tanh(N x)
{
    return (N)0.5 * x * (1 + v_tanh((N)0.7978845608028654 * (x + (N)0.044715 * x * x * x)));
}
template <class N> static __device__ inline N v_gelu_tanh_slope(N x)
{
    N t = v_tanh((N)0.7978845608028654 * (x + (N)0.044715 * x * x * x));
    return (N)0.5 * (1 + t) +
           (N)0.5 * x * (1 - t * t) * (N)0.7978845608028654 * (1 + (N)0.134145 * x * x);
}

#endif
