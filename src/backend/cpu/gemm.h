/* gemm.h -- the matrix product that linear, convolution, attention and recurrent kernels share.
 *
 *   C (m, n) = post( [C +] sum over i < reduce of  A_i (m, k) * B_i (k, n) )
 *
 * "Batch-reduce": the A_i are views of one buffer that start at different offsets, so a convolution
 * passes the shifted rows of a padded NHWC image, one per tap of the filter, and never builds the
 * im2col matrix. Products are summed in f32 whatever the types are.
 *
 * Words     panel: 32 columns of B (16 or 8 on lesser instruction sets), the unit of packing;
 *           unit: what one 32-bit lane holds, one f32 or two bf16 that are neighbours along k.
 * Packing   Every B_i is packed once by td__gemm_pack: panels of [k][columns] units, zeros in the
 *           padding. The packed form depends on (n, k, dtype, kind) only: not on m.
 *           A needs no packing by the caller; the driver copies blocks of it where that pays.
 * Numbers   dtype BF16: both factors are bf16 (f32 sources are rounded to nearest even on the way
 *           in), f32 sums; on processors without bf16 products the factors are widened to f32. The
 *           order of summation depends on k, reduce and kind alone, so a row of C has the same bits
 *           whatever m is and wherever the row lies.
 * Memory    Nothing is allocated here. A td__gemm is a plain value; scratch and packed buffers are
 *           the caller's, 64-byte aligned.
 * Threads   Pure functions. Kind AMX needs td__amx_enter on the calling thread (the CPU backend's
 *           enter hook does it). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CPU_GEMM_H
#define TD_BACKEND_CPU_GEMM_H

#include "base/cpu.h"
#include "tandem/ops.h"

typedef enum td__gemm_kind {
    TD__GEMM_SCALAR, /* baseline of the build */
    TD__GEMM_AVX2,
    TD__GEMM_AVX512,
    TD__GEMM_AVX512_BF16, /* vdpbf16ps; dtype BF16 only */
    TD__GEMM_TILE_EMUL, /* the tile kernels on emulated tile registers: for tests on any machine */
    TD__GEMM_AMX,       /* tile registers; dtype BF16 only */
    TD__GEMM_KIND_COUNT
} td__gemm_kind;

/* How products of one shape are computed. Read-only for users. */
typedef struct td__gemm {
    td__gemm_kind kind;
    td_dtype dtype;     /* F32 or BF16 */
    int64_t m, n, k;    /* m: the largest expected; runs may use any */
    int64_t reduce;     /* the largest expected number of A_i */
    int panel;          /* columns of a panel */
    int64_t units;      /* units of one column of a packed B_i, padding included */
    int64_t mc, nc, kc; /* block: rows, columns, units summed per pass */
} td__gemm;

/* The plan for a shape: a pure function of its arguments. `isa` is td__cpu_isa() outside tests.
 * td__gemm_plan_kind forces a kind (dtype F32 falls back from the bf16 kinds to AVX512, from
 * TILE_EMUL to SCALAR). */
td__gemm td__gemm_plan(int64_t m, int64_t n, int64_t k, int64_t reduce, td_dtype dtype,
                       td__isa isa);
td__gemm td__gemm_plan_kind(int64_t m, int64_t n, int64_t k, int64_t reduce, td_dtype dtype,
                            td__gemm_kind kind);
const char *td__gemm_name(const td__gemm *g); /* "amx gemm bf16": for td_kernel.impl */

/* Bytes of one packed B_i; B_i lies at i times this. Bytes of scratch that td__gemm_run wants. */
size_t td__gemm_packed_bytes(const td__gemm *g);
size_t td__gemm_scratch_bytes(const td__gemm *g);

/* Pack one B_i (k, n) from b, f32 or bf16. Element (r, c) is b[r * ld + c], or b[c * ld + r] if
 * transposed (a weight (n, k) used as its transpose). */
void td__gemm_pack(const td__gemm *g, void *packed, const void *b, td_dtype b_dtype, int64_t ld,
                   bool transposed);

/* What happens to the sums before they are stored, in this order. Zero means nothing. */
typedef struct td__gemm_post {
    const float *bias; /* (n): added to every row */
    void *pre;         /* (m, n), C's dtype and ldc: the value before act, stored too */
    td_act act;
    const void *mask; /* (m, n), C's dtype and ldc: result is 0 where mask <= 0 (relu backward) */
} td__gemm_post;

typedef struct td__gemm_args {
    int64_t m;
    const void *a;        /* A_i starts at element a + a_off[i] */
    const int64_t *a_off; /* reduce elements; NULL for all zero */
    int64_t reduce;       /* 0 means 1 */
    int64_t lda;          /* elements from row to row (from column to column if a_trans) */
    bool a_trans;         /* element (r, c) of A_i is a[c * lda + r] */
    bool a_paired;       /* BF16, vector kinds, a_trans, reduce 1: rows of A come in pairs, elements
                             (r, 2 c) and (r, 2 c + 1) side by side at pair c * lda + r */
    td_dtype a_dtype;    /* F32, or BF16 in a BF16 plan */
    const void *b;       /* packed B_0, B_1, ... */
    const void *b_plain; /* or, with b NULL and reduce 1: B as td__gemm_pack takes it, packed
                                 panel by panel on the way; for runs of few rows */
    td_dtype b_dtype;
    int64_t ldb;
    bool b_trans;
    void *c;
    int64_t ldc;      /* elements; c, pre and mask */
    td_dtype c_dtype; /* F32 or BF16 */
    bool accumulate;  /* C must be F32: sums are added to what is there, before post */
    td__gemm_post post;
} td__gemm_args;

void td__gemm_run(const td__gemm *g, const td__gemm_args *a, void *scratch);

/* Give the calling thread the one tile configuration that all kernels use (8 tiles of 16 rows by 64
 * bytes), and release it. Nothing where td__cpu_isa() is below AMX. */
void td__amx_enter(void);
void td__amx_leave(void);

#endif
