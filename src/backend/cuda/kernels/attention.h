/* attention.h -- the argument of the attention kernels, for C and CUDA. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CUDA_KERNELS_ATTENTION_H
#define TD_BACKEND_CUDA_KERNELS_ATTENTION_H

#include "backend/cuda/kernels/io.h"

/* q (B, T, H, D), k and v (B, S, Hkv, D); forward: q, k, v, mask?; back: do, q, k, v, o, lse,
 * mask? with delta (B, H, T) f32 in scratch. Heads of a token lie side by side; its q and dq are
 * q_step elements behind the last one's, k, v, dk and dv kv_step, so that they may lie in one
 * tensor. */
typedef struct td__attention_args {
    td__io io;
    long long b, t, s, h, hkv, d;
    long long q_step, kv_step;
    long long mask_step; /* from one batch entry's mask to the next */
    int causal, mask;    /* mask: index of the input; -1: none */
    int mask_dtype;
    float scale;
} td__attention_args;

#endif
