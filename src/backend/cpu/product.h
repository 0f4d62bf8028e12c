/* product.h -- one matrix product of a program, planned: C (m, n) = act(A (m, k) B (k, n) + bias).
 *
 * Chooses between our gemm and oneDNN's matmul by the table tuning.def, a pure function of shape,
 * type and processor kind; decides when B is packed (after each update where it is a param that
 * pays, else block by block in each run), and sums up what memory that takes. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CPU_PRODUCT_H
#define TD_BACKEND_CPU_PRODUCT_H

#include "backend/cpu/gemm.h"

/* What the product is for: rows of tuning.def are per use. */
typedef enum td__product_use {
    TD__USE_FORWARD,     /* X W^T */
    TD__USE_BACK_DATA,   /* dY W */
    TD__USE_BACK_WEIGHT, /* dY^T X */
    TD__USE_OTHER
} td__product_use;

typedef enum td__product_engine {
    TD__ENGINE_TUNED, /* as tuning.def says */
    TD__ENGINE_OWN,
    TD__ENGINE_ONEDNN
} td__product_engine;

typedef struct td__product_spec {
    td__product_use use;
    td__product_engine engine;
    td__isa isa;
    const char *kind; /* td__cpu_kind() */
    int64_t m, n, k;
    td_dtype a_dtype, b_dtype, c_dtype;
    int64_t lda, ldb;      /* elements; C is dense */
    bool a_trans, b_trans; /* stored as (k, m); as (n, k) */
    bool b_param;          /* B changes only with the params */
    bool has_bias, has_pre;
    td_act act;
} td__product_spec;

typedef struct td__product {
    td__product_spec spec;
    const char *impl;
    size_t packed; /* bytes kept from td__product_pack; 0 if B is read in each run */
    size_t scratch;
    /* Ours: whole blocks of B, and the rest. Blocks cut n (or k, where C is plain f32 and A is
     * transposed: transposing it once per block of n would cost too much). */
    td__gemm whole, rest;
    int64_t block; /* columns, or rows of B if by_k, per block */
    bool by_k;
    bool on_the_way;     /* few rows: the gemm itself packs, panel by panel */
    bool turned;         /* few rows of f32: C' = B' A', which reads a transposed B as it lies */
    size_t packed_block; /* bytes of the packed block in scratch */
    size_t turned_c;     /* bytes of C', and of its transpose, behind it */
    struct td__product_onednn *onednn; /* its primitives (product_onednn.c); NULL: ours */
} td__product;

/* The product bf16 x bf16 if A is bf16 (B is rounded where it is f32), else f32 x f32. TD_ENOTSUP,
 * without a text, for other types. */
TD_NODISCARD td_status td__product_init(td__product *p, const td__product_spec *spec);
void td__product_fini(td__product *p);
/* Is B to be packed once per update of the params? */
bool td__product_prepacks(const td__product_spec *s);

/* Fill p->packed bytes from B; only where p->packed > 0. */
TD_NODISCARD td_status td__product_pack(const td__product *p, void *packed, const void *b,
                                        void *scratch);

/* bias (n) f32 and pre (m, n) as the spec says, else NULL. packed and b: whichever p reads. */
TD_NODISCARD td_status td__product_run(const td__product *p, void *c, void *pre, const void *a,
                                       const void *b, const void *packed, const float *bias,
                                       void *scratch);

#endif
