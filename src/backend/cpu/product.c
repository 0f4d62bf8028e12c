/* product.c -- see product.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/product.h"

#include <string.h>

#include "backend/cpu/engine_onednn.h"
#include "backend/cpu/kernels/gemm_lay.h"
#include "backend/cpu/kernels/gemm_post.h"
#include "base/check.h"
#include "base/fail.h"

/* Packing a param once per update writes a second copy of it through all caches; packing on the
 * way, in each run, stays in the nearest ones but costs a run of few rows a good part of its time,
 * and one of many rows the even flow of its products. In f32 the first pays up to FEW rows, even if
 * there is one run per update, and from MANY on. bf16 products are so much faster that it always
 * pays. */
enum { PREPACK_FEW_ROWS = 40, PREPACK_MANY_ROWS = 256 };
/* With this many rows a product turns the roles round: the weight (n, k) is the left factor, read
 * where it lies, the rows are packed as panels, and the result is transposed. Panels should be
 * filled. */
enum { TURNED_MIN_ROWS = 24, TURNED_MAX_ROWS = 128, HALF_PANEL = 16 };
/* Up to this many rows the gemm packs on the way; beyond, blocks of B are packed ahead. */
enum { ON_THE_WAY_MAX_ROWS = 288 };
/* Bytes of B that are packed at a time during a run: they shall stay in the second-level cache. */
enum { PACK_BLOCK_BYTES = 768 * 1024, PACK_BLOCK_ROWS = 512 };

typedef struct tuned {
    const char *kind;
    td__product_use use;
    int64_t m_lo, m_hi, n_lo, n_hi, k_lo, k_hi;
    td__product_engine engine;
} tuned;

static const tuned TUNED[] = {
#define TD_TUNED(kind, use, ...) TD_TUNED_(kind, use, __VA_ARGS__)
#define TD_TUNED_(kind, use, m0, m1, n0, n1, k0, k1, engine) \
    {kind, TD__USE_##use, m0, m1, n0, n1, k0, k1, TD__ENGINE_##engine},
#include "backend/cpu/tuning.def"
#undef TD_TUNED_
#undef TD_TUNED
};

bool td__product_prepacks(const td__product_spec *s)
{
    return s->b_param &&
           (s->a_dtype == TD_BF16 || s->m <= PREPACK_FEW_ROWS || s->m >= PREPACK_MANY_ROWS);
}

static bool wants_turned(const td__product_spec *s)
{
    const int64_t filled = (s->m + HALF_PANEL - 1) / HALF_PANEL * HALF_PANEL;

    return s->a_dtype == TD_F32 && s->c_dtype == TD_F32 && s->b_trans && !s->a_trans &&
           s->m >= TURNED_MIN_ROWS && s->m <= TURNED_MAX_ROWS && 8 * s->m >= 7 * filled;
}

static td__product_engine choose(const td__product_spec *s)
{
    if (s->m == 0 || s->n == 0 || s->k == 0)
        return TD__ENGINE_OWN;
    if (s->engine != TD__ENGINE_TUNED)
        return s->engine;
    if (s->a_dtype != TD_F32 || s->c_dtype != TD_F32)
        return TD__ENGINE_OWN;
    for (int i = 0; i < TD_LEN(TUNED); i++) {
        const tuned *t = &TUNED[i];
        if (strncmp(s->kind, t->kind, strlen(t->kind)) == 0 && s->use == t->use &&
            s->m >= t->m_lo && s->m <= t->m_hi && s->n >= t->n_lo && s->n <= t->n_hi &&
            s->k >= t->k_lo && s->k <= t->k_hi)
            return t->engine;
    }
    return TD__ENGINE_OWN;
}

/* Elements from row to row of the transposed C': the transposition writes whole vectors. */
static int64_t padded_row(const td__product_spec *s)
{
    return (s->n + 15) / 16 * 16;
}

static void init_own(td__product *p, td_dtype dtype)
{
    const td__product_spec *s = &p->spec;
    size_t rest;

    p->turned = wants_turned(s);
    p->whole = p->turned ? td__gemm_plan(s->n, s->m, s->k, 1, dtype, s->isa)
                         : td__gemm_plan(s->m, s->n, s->k, 1, dtype, s->isa);
    p->impl = td__gemm_name(&p->whole);
    p->block = s->n;
    if (p->turned) {
        p->packed_block = td__align_up(td__gemm_packed_bytes(&p->whole), 64);
        p->turned_c = (size_t)(s->m * padded_row(s)) * sizeof(float);
        p->scratch = p->packed_block + 2 * p->turned_c + td__gemm_scratch_bytes(&p->whole);
        return;
    }
    if (td__product_prepacks(s)) {
        p->packed = td__gemm_packed_bytes(&p->whole);
        p->scratch = td__gemm_scratch_bytes(&p->whole);
        return;
    }
    if (s->m <= ON_THE_WAY_MAX_ROWS) {
        p->on_the_way = true;
        p->scratch = td__gemm_scratch_bytes(&p->whole);
        return;
    }
    p->by_k =
        s->a_trans && s->c_dtype == TD_F32 && !s->has_bias && !s->has_pre && s->act == TD_ACT_NONE;
    if (p->by_k) {
        p->block = s->k < PACK_BLOCK_ROWS ? s->k : PACK_BLOCK_ROWS;
        p->whole = td__gemm_plan(s->m, s->n, p->block, 1, dtype, s->isa);
        p->rest = td__gemm_plan(s->m, s->n, p->block ? s->k % p->block : 0, 1, dtype, s->isa);
    } else {
        const int64_t fits = PACK_BLOCK_BYTES / (4 * (p->whole.units ? p->whole.units : 1));
        const int64_t cols = fits / p->whole.panel * p->whole.panel;
        p->block = cols < 8 * p->whole.panel ? 8 * p->whole.panel : cols;
        p->block = p->block < s->n ? p->block : s->n;
        p->whole = td__gemm_plan(s->m, p->block, s->k, 1, dtype, s->isa);
        p->rest = td__gemm_plan(s->m, p->block ? s->n % p->block : 0, s->k, 1, dtype, s->isa);
    }
    p->packed_block = td__align_up(td__gemm_packed_bytes(&p->whole), 64);
    p->scratch = td__gemm_scratch_bytes(&p->whole);
    rest = td__gemm_scratch_bytes(&p->rest);
    p->scratch = p->packed_block + (p->scratch > rest ? p->scratch : rest);
}

td_status td__product_init(td__product *p, const td__product_spec *spec)
{
    const td_dtype a = spec->a_dtype, b = spec->b_dtype, c = spec->c_dtype;

    *p = (td__product){.spec = *spec};
    if ((a != TD_F32 && a != TD_BF16) || (c != TD_F32 && c != TD_BF16) ||
        (b != TD_F32 && (b != TD_BF16 || a != TD_BF16)))
        return TD_ENOTSUP;
    if (choose(spec) == TD__ENGINE_ONEDNN) {
        const td_status st = td__product_onednn_init(p);
        if (st != TD_ENOTSUP)
            return st;
        *p = (td__product){.spec = *spec};
    }
    init_own(p, a);
    return TD_OK;
}

void td__product_fini(td__product *p)
{
    if (p->onednn)
        td__product_onednn_fini(p);
}

td_status td__product_pack(const td__product *p, void *packed, const void *b, void *scratch)
{
    const td__product_spec *s = &p->spec;

    if (p->onednn)
        return td__product_onednn_pack(p, packed, b, scratch);
    td__gemm_pack(&p->whole, packed, b, s->b_dtype, s->ldb, s->b_trans);
    return TD_OK;
}

/* C' (n, m) = B' A' and its transpose in scratch, then what follows the sums. */
static void run_turned(const td__product *p, void *c, void *pre, const void *a, const void *b,
                       const float *bias, char *scratch)
{
    const td__product_spec *s = &p->spec;
    const int64_t row = padded_row(s);
    float *turned = (float *)(void *)(scratch + p->packed_block), *sums = turned + s->m * row;

    td__gemm_pack(&p->whole, scratch, a, TD_F32, s->lda, true);
    td__gemm_run(&p->whole,
                 &(td__gemm_args){.m = s->n,
                                  .a = b,
                                  .lda = s->ldb,
                                  .a_dtype = TD_F32,
                                  .b = scratch,
                                  .c = turned,
                                  .ldc = s->m,
                                  .c_dtype = TD_F32},
                 scratch + p->packed_block + 2 * p->turned_c);
    TD_ISA_PICK(s->isa, td__gemm_lay_out)
    (&(td__gemm_lay){.unit = TD__UNIT_F32_FROM_F32,
                     .src = turned,
                     .ld = s->m,
                     .k = s->n,
                     .x = s->m,
                     .dst = sums,
                     .dst_along_k = true,
                     .units = s->n,
                     .xs = s->m,
                     .row = row * 4,
                     .u16 = 64,
                     .x16 = 16 * row * 4});
    TD_ISA_PICK(s->isa, td__gemm_post_block)
    (c, s->n, TD_F32, sums, row, s->m, s->n,
     &(td__gemm_post){.bias = bias, .pre = pre, .act = s->act});
}

td_status td__product_run(const td__product *p, void *c, void *pre, const void *a, const void *b,
                          const void *packed, const float *bias, void *scratch)
{
    const td__product_spec *s = &p->spec;
    const int64_t end = p->by_k ? s->k : s->n;
    td__gemm_args args = {
        .m = s->m,
        .a = a,
        .lda = s->lda,
        .a_trans = s->a_trans,
        .a_dtype = s->a_dtype,
        .c = c,
        .ldc = s->n,
        .c_dtype = s->c_dtype,
        .post = {.bias = bias, .pre = pre, .act = s->act},
    };

    if (p->onednn)
        return td__product_onednn_run(p, c, pre, a, p->packed ? packed : b, bias, scratch);
    if (p->turned) {
        run_turned(p, c, pre, a, b, bias, scratch);
        return TD_OK;
    }
    if (p->packed || p->on_the_way) {
        args.b = p->packed ? packed : NULL;
        args.b_plain = b;
        args.b_dtype = s->b_dtype;
        args.ldb = s->ldb;
        args.b_trans = s->b_trans;
        td__gemm_run(&p->whole, &args, scratch);
        return TD_OK;
    }
    args.b = scratch;
    if (p->by_k && s->k == 0) /* no block at all: the empty sum */
        memset(c, 0, (size_t)(s->m * s->n) * sizeof(float));
    for (int64_t at = 0; at < end; at += p->block) {
        const td__gemm *g = end - at >= p->block ? &p->whole : &p->rest;
        const int64_t b_size = (int64_t)td_dtype_size(s->b_dtype);
        const int64_t c_size = (int64_t)td_dtype_size(s->c_dtype);
        const int64_t b_at = at * (p->by_k != s->b_trans ? s->ldb : 1);

        td__gemm_pack(g, scratch, (const char *)b + b_at * b_size, s->b_dtype, s->ldb, s->b_trans);
        if (p->by_k) {
            args.a = (const char *)a +
                     at * (s->a_trans ? s->lda : 1) * (int64_t)td_dtype_size(s->a_dtype);
            args.accumulate = at > 0;
        } else {
            args.c = (char *)c + at * c_size;
            args.post.bias = bias ? bias + at : NULL;
            args.post.pre = pre ? (char *)pre + at * c_size : NULL;
        }
        td__gemm_run(g, &args, (char *)scratch + p->packed_block);
    }
    return TD_OK;
}
