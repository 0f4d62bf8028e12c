/* gemm.c -- planning, packing and the blocked driver of the matrix product; see gemm.h.
 *
 * The driver cuts the work so that each level of cache holds one thing:
 *
 *   for columns of nc              (all of them, unless sums need a buffer)
 *     for rows of mc               copied A: mc x kc units, second-level cache
 *       for passes over k          at most kc units: slices of one A_i, or several whole A_i
 *         copy A
 *         for panels               panel of B: kc x panel units, near the first-level cache
 *           for blocks of rows     C block in registers: the kernel
 *           after the last pass: post
 *
 * Sums live in C itself where C is f32 and the panel is whole; otherwise in a buffer of mc x nc.
 * A is read where it is if its elements already are units; else the copy of it gives rows an odd
 * stride (gemm_impl.h), zero padding, rounding and transposition, at one move per 16 units against
 * 16 x panel products for each panel. Tiles are loaded from A in place only for few panels. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/gemm.h"

#include <string.h>

#include "backend/cpu/gemm_impl.h"
#include "backend/cpu/kernels/gemm_f32.h"
#include "backend/cpu/kernels/gemm_lay.h"
#include "backend/cpu/kernels/gemm_post.h"
#include "backend/cpu/sizes.h"
#include "base/check.h"
#include "base/fail.h"

enum { MC_VECTOR = 140, MC_TILE = 128, KC_TILE = 256 };
enum { SUMS_MAX = 96 * 1024 };     /* elements of the buffer of sums */
enum { IN_PLACE_MAX_STEP = 2048 }; /* bytes between units of a transposed A that is not copied */

typedef struct gemm_impl {
    const char *name[2]; /* f32, bf16 */
    int panel, rows;
    bool pairs; /* bf16 is multiplied in pairs; else it is widened to f32 */
    bool tiles;
    int64_t mc, kc;
    td__gemm_block_fn *block;
    void (*lay)(const td__gemm_lay *l);
    void (*post)(void *c, int64_t ldc, td_dtype dtype, const float *sums, int64_t ld, int64_t rows,
                 int64_t cols, const td__gemm_post *post);
} gemm_impl;

/* `set`: the instruction set that gives the sizes; `sides`: that of layout and post. */
#define VECTOR_IMPL(set, sides, bf16_name, in_pairs, blk)                                   \
    {                                                                                       \
        .name = {"gemm f32 " #set, bf16_name}, .panel = TD__GEMM_PANEL_##set,               \
        .rows = TD__GEMM_ROWS_##set, .pairs = (in_pairs),                                   \
        .mc = MC_VECTOR / TD__GEMM_ROWS_##set * TD__GEMM_ROWS_##set, .kc = TD__GEMM_KC_MAX, \
        .block = blk, .lay = td__gemm_lay_out_##sides, .post = td__gemm_post_block_##sides, \
    }
#define TILE_IMPL(sides, bf16_name, blk)                                                  \
    {                                                                                     \
        .name = {NULL, bf16_name}, .panel = 32, .rows = 32, .pairs = true, .tiles = true, \
        .mc = MC_TILE, .kc = KC_TILE, .block = blk, .lay = td__gemm_lay_out_##sides,      \
        .post = td__gemm_post_block_##sides,                                              \
    }

static const gemm_impl IMPLS[TD__GEMM_KIND_COUNT] = {
    [TD__GEMM_SCALAR] =
        VECTOR_IMPL(scalar, scalar, "gemm bf16 widened scalar", false, td__gemm_block_f32_scalar),
    [TD__GEMM_AVX2] =
        VECTOR_IMPL(avx2, avx2, "gemm bf16 widened avx2", false, td__gemm_block_f32_avx2),
    [TD__GEMM_AVX512] =
        VECTOR_IMPL(avx512, avx512, "gemm bf16 widened avx512", false, td__gemm_block_f32_avx512),
    [TD__GEMM_AVX512_BF16] =
        VECTOR_IMPL(avx512, avx512bf16, "gemm bf16 avx512", true, td__gemm_block_avx512bf16),
    [TD__GEMM_TILE_EMUL] = TILE_IMPL(scalar, "gemm bf16 emulated tiles", td__gemm_block_tile_emul),
    [TD__GEMM_AMX] = TILE_IMPL(avx512bf16, "gemm bf16 amx", td__gemm_block_amx),
};

static int64_t round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

td__gemm td__gemm_plan_kind(int64_t m, int64_t n, int64_t k, int64_t reduce, td_dtype dtype,
                            td__gemm_kind kind)
{
    const gemm_impl *impl;
    td__gemm g = {.dtype = dtype, .m = m, .n = n, .k = k, .reduce = reduce ? reduce : 1};

    TD_ASSERT(dtype == TD_F32 || dtype == TD_BF16, "dtype %d", (int)dtype);
    if (dtype == TD_F32 && kind == TD__GEMM_TILE_EMUL)
        kind = TD__GEMM_SCALAR;
    else if (dtype == TD_F32 && kind > TD__GEMM_AVX512)
        kind = TD__GEMM_AVX512;
    impl = &IMPLS[kind];
    g.kind = kind;
    g.panel = impl->panel;
    g.units = dtype == TD_BF16 && impl->pairs ? (k + 1) / 2 : k;
    if (impl->tiles)
        g.units = round_up(g.units, 16);
    g.mc = impl->mc;
    g.kc = impl->kc;
    g.nc = td__min64(round_up(n, g.panel), SUMS_MAX / g.mc / g.panel * g.panel);
    return g;
}

td__gemm td__gemm_plan(int64_t m, int64_t n, int64_t k, int64_t reduce, td_dtype dtype, td__isa isa)
{
    static const td__gemm_kind KIND[TD_ISA_COUNT] = {
        [TD_ISA_SCALAR] = TD__GEMM_SCALAR, [TD_ISA_AVX2] = TD__GEMM_AVX2,
        [TD_ISA_AVX512] = TD__GEMM_AVX512, [TD_ISA_AVX512_BF16] = TD__GEMM_AVX512_BF16,
        [TD_ISA_AMX] = TD__GEMM_AMX,
    };

    return td__gemm_plan_kind(m, n, k, reduce, dtype, KIND[isa]);
}

const char *td__gemm_name(const td__gemm *g)
{
    return IMPLS[g->kind].name[g->dtype == TD_BF16];
}

size_t td__gemm_packed_bytes(const td__gemm *g)
{
    return (size_t)(round_up(g->n, g->panel) * g->units) * 4;
}

/* Scratch: the copied A, a panel of B for one pass, then the sums. */
static size_t copy_bytes(const td__gemm *g)
{
    return (size_t)(round_up(g->mc, 16) * TD__GEMM_A_STRIDE);
}

static size_t panel_bytes(const td__gemm *g)
{
    return (size_t)(g->kc * g->panel) * 4;
}

size_t td__gemm_scratch_bytes(const td__gemm *g)
{
    return copy_bytes(g) + panel_bytes(g) + (size_t)(round_up(g->mc, 16) * g->nc) * sizeof(float);
}

/* How elements of `from` become the units of a plan. */
static td__gemm_unit unit_of(const td__gemm *g, td_dtype from)
{
    if (g->dtype == TD_F32) {
        TD_ASSERT(from == TD_F32, "a f32 product of %s", td_dtype_name(from));
        return TD__UNIT_F32_FROM_F32;
    }
    if (IMPLS[g->kind].pairs)
        return from == TD_BF16 ? TD__UNIT_PAIR_FROM_BF16 : TD__UNIT_PAIR_FROM_F32;
    return from == TD_BF16 ? TD__UNIT_F32_FROM_BF16 : TD__UNIT_F32_ROUNDED;
}

/* Elements along k in a unit. */
static int64_t per_unit(td__gemm_unit unit)
{
    return unit == TD__UNIT_PAIR_FROM_BF16 || unit == TD__UNIT_PAIR_FROM_F32 ? 2 : 1;
}

/* Pack units [u, u + units) of the panel that starts at column c. */
static void pack_piece(const td__gemm *g, void *to, int64_t c, int64_t u, int64_t units,
                       const void *b, td_dtype b_dtype, int64_t ld, bool transposed)
{
    const td__gemm_unit unit = unit_of(g, b_dtype);
    const int64_t k = u * per_unit(unit);

    IMPLS[g->kind].lay(&(td__gemm_lay){
        .unit = unit,
        .src = (const char *)b +
               (transposed ? c * ld + k : k * ld + c) * (int64_t)td_dtype_size(b_dtype),
        .ld = ld,
        .src_along_k = transposed,
        .k = g->k - k,
        .x = td__min64(g->panel, g->n - c),
        .dst = to,
        .units = units,
        .xs = g->panel,
        .row = g->panel * 4,
        .u16 = 16 * g->panel * 4,
        .x16 = 64,
    });
}

void td__gemm_pack(const td__gemm *g, void *packed, const void *b, td_dtype b_dtype, int64_t ld,
                   bool transposed)
{
    /* Rows of an untransposed source are long: 16 at a time through all panels, so that they are
     * read in order. */
    const int64_t step = transposed ? g->units : 16;

    for (int64_t u = 0; u < g->units; u += step)
        for (int64_t c = 0; c < g->n; c += g->panel)
            pack_piece(g, (char *)packed + (c * g->units + u * g->panel) * 4, c, u,
                       td__min64(step, g->units - u), b, b_dtype, ld, transposed);
}

/* One pass over k: `segs` consecutive A_i from `first`, of each the units [unit, unit + units). */
typedef struct pass {
    int64_t first, segs, unit, units;
} pass;

/* Everything that stays the same during a run. */
typedef struct run {
    const td__gemm *g;
    const gemm_impl *impl;
    const td__gemm_args *a;
    char *copy, *b_panel;
    float *sums;
    int64_t sums_ld;            /* elements: nc, or one panel where sums need not outlast it */
    int64_t n_passes, per_pass; /* per_pass: A_i of a pass, or units of it if passes cut an A_i */
    int64_t cuts;               /* passes per A_i; 0 if passes hold whole A_i */
    int64_t reduce;
    bool in_place;   /* A is read where it is */
    bool b_in_place; /* whole panels of an unpacked B are read from B itself */
} run;

static void plan_passes(run *r)
{
    const td__gemm *g = r->g;

    if (g->units > g->kc) {
        const int64_t cuts = (g->units + g->kc - 1) / g->kc;
        r->per_pass = round_up((g->units + cuts - 1) / cuts, 16);
        r->cuts = (g->units + r->per_pass - 1) / r->per_pass;
        r->n_passes = r->cuts * r->reduce;
    } else {
        const int64_t most = td__min64(g->units ? g->kc / g->units : r->reduce, TD__GEMM_MAX_SEGS);
        r->n_passes = (r->reduce + most - 1) / most;
        r->per_pass = (r->reduce + r->n_passes - 1) / r->n_passes;
        r->n_passes = (r->reduce + r->per_pass - 1) / r->per_pass;
    }
}

static pass pass_at(const run *r, int64_t i)
{
    if (r->cuts) {
        const int64_t unit = i % r->cuts * r->per_pass;
        return (pass){i / r->cuts, 1, unit, td__min64(r->per_pass, r->g->units - unit)};
    }
    const int64_t first = i * r->per_pass;
    return (pass){first, td__min64(r->per_pass, r->reduce - first), 0, r->g->units};
}

/* Copy rows [m, m + rows) of the pass's slices of A. Vectors: rows of constant stride, slice after
 * slice. Tiles: 16 x 16 units together, tiles of one row block after one another. */
static void copy_a(const run *r, const pass *p, int64_t m, int64_t rows)
{
    const td__gemm *g = r->g;
    const td__gemm_args *a = r->a;
    const td__gemm_unit unit = unit_of(g, a->a_dtype);
    const int64_t k = p->unit * per_unit(unit);
    const int64_t tiles = p->segs * p->units / 16;

    for (int64_t s = 0; s < p->segs; s++) {
        const int64_t start = (a->a_off ? a->a_off[p->first + s] : 0) +
                              (a->a_trans ? k * a->lda + m : m * a->lda + k);
        td__gemm_lay l = {
            .unit = unit,
            .src = (const char *)a->a + start * (int64_t)td_dtype_size(a->a_dtype),
            .ld = a->lda,
            .src_along_k = !a->a_trans,
            .k = td__min64(g->k - k, p->units * per_unit(unit)),
            .x = rows,
            .dst_along_k = true,
            .units = p->units,
        };
        if (r->impl->tiles) {
            l.dst = r->copy + s * p->units / 16 * 1024;
            l.xs = round_up(rows, 16);
            l.row = 64;
            l.u16 = 1024;
            l.x16 = tiles * 1024;
        } else {
            l.dst = r->copy + s * p->units * 4;
            l.xs = rows;
            l.row = TD__GEMM_A_STRIDE;
            l.u16 = 64;
            l.x16 = 16 * TD__GEMM_A_STRIDE;
        }
        r->impl->lay(&l);
    }
}

/* Where a block finds A itself: the slices of a pass, rows and units. */
static void place_in_place(const run *r, const pass *p, td__gemm_block *blk, int64_t *off)
{
    const td__gemm_args *a = r->a;
    const int64_t size = (int64_t)td_dtype_size(a->a_dtype);
    const int64_t unit = a->a_trans ? a->lda * 4 : 4;

    for (int64_t s = 0; s < p->segs; s++)
        off[s] = (a->a_off ? a->a_off[p->first + s] : 0) * size + p->unit * unit;
    blk->a_row = a->a_trans ? 4 : a->lda * size;
    blk->a_step = r->impl->tiles ? 64 : unit;
    blk->a_half = 16 * blk->a_row;
}

/* The kernel calls of one panel in one pass: rows [m, m + rows) into sums at c. `first`: the rows
 * of A have not been read before. */
static void panel_blocks(const run *r, const pass *p, int64_t m, int64_t rows, int64_t cols,
                         const char *b, int64_t b_row, float *c, int64_t ldc, bool accumulate,
                         bool first)
{
    const td__gemm *g = r->g;
    const gemm_impl *impl = r->impl;
    int64_t off[TD__GEMM_MAX_SEGS];
    const int64_t count = (rows + impl->rows - 1) / impl->rows;
    td__gemm_block blk = {
        .half = cols <= g->panel / 2,
        .segs = (int)p->segs,
        .units = p->units,
        .a = r->copy,
        .a_off = off,
        .a_row = impl->tiles ? 64 : TD__GEMM_A_STRIDE,
        .a_step = impl->tiles ? 1024 : 4,
        .a_half = p->segs * p->units * 64,
        .b = b,
        .b_seg = (int64_t)td__gemm_packed_bytes(g),
        .b_row = b_row,
        .ldc = ldc,
        .accumulate = accumulate,
    };

    if (r->in_place)
        place_in_place(r, p, &blk, off);
    else
        for (int64_t s = 0; s < p->segs; s++)
            off[s] = s * p->units * (impl->tiles ? 64 : 4);
    for (int64_t i = 0, at = 0; i < count; i++) {
        /* Vectors share the rows out evenly; tiles take 32 at a time. */
        const int64_t n =
            impl->tiles ? td__min64(32, rows - at) : rows / count + (i < rows % count);
        blk.rows = (int)n;
        blk.a_ahead = first && r->in_place && !r->a->a_trans ? n * blk.a_row : 0;
        blk.c = c + at * ldc;
        if (r->in_place)
            blk.a = (const char *)r->a->a + (m + at) * blk.a_row;
        else
            blk.a = r->copy + (impl->tiles ? at / 16 * blk.a_half : at * TD__GEMM_A_STRIDE);
        impl->block(&blk);
        at += n;
    }
}

static void finish(const run *r, int64_t m, int64_t rows, int64_t n, int64_t cols,
                   const float *sums, int64_t ld)
{
    const td__gemm_args *a = r->a;
    const int64_t at = (m * a->ldc + n) * (int64_t)td_dtype_size(a->c_dtype);
    const td__gemm_post *p = &a->post;
    td__gemm_post here = {.act = p->act, .bias = p->bias ? p->bias + n : NULL};

    if (p->pre)
        here.pre = (char *)p->pre + at;
    if (p->mask)
        here.mask = (const char *)p->mask + at;
    if (sums == (const float *)a->c + m * a->ldc + n && !here.bias && !here.pre && !here.mask &&
        here.act == TD_ACT_NONE)
        return;
    r->impl->post((char *)a->c + at, a->ldc, a->c_dtype, sums, ld, rows, cols, &here);
}

/* Rows [m, m + rows), columns [n0, n1). */
static void block_mn(run *r, int64_t m, int64_t rows, int64_t n0, int64_t n1)
{
    const td__gemm *g = r->g;
    const td__gemm_args *a = r->a;
    const int64_t ragged = r->impl->tiles ? rows % 16 : 0;

    for (int64_t i = 0; i < r->n_passes; i++) {
        const pass p = pass_at(r, i);
        const int64_t b_at = p.first * (int64_t)td__gemm_packed_bytes(g) + p.unit * g->panel * 4;

        /* A short last tile must not be read past the end of A: it is copied, padded. */
        const bool in_place = r->in_place;
        r->in_place = in_place && !ragged;
        if (!r->in_place)
            copy_a(r, &p, m, rows);
        for (int64_t n = n0; n < n1; n += g->panel) {
            const int64_t cols = td__min64(g->panel, g->n - n);
            const bool direct = a->c_dtype == TD_F32 && cols == g->panel && !ragged;
            float *c = direct ? (float *)a->c + m * a->ldc + n : r->sums + (n - n0) % r->sums_ld;
            const int64_t ldc = direct ? a->ldc : r->sums_ld;

            if (i == 0 && a->accumulate && !direct)
                for (int64_t j = 0; j < rows; j++)
                    memcpy(c + j * ldc, (const float *)a->c + (m + j) * a->ldc + n,
                           (size_t)cols * sizeof *c);
            const char *b = r->b_panel;
            int64_t b_row = g->panel;
            if (a->b) {
                b = (const char *)a->b + b_at + n * g->units * 4;
            } else if (r->b_in_place && cols == g->panel) {
                b = (const char *)a->b_plain + (p.unit * a->ldb + n) * 4;
                b_row = a->ldb;
            } else {
                pack_piece(g, r->b_panel, n, p.unit, p.units, a->b_plain, a->b_dtype, a->ldb,
                           a->b_trans);
            }
            panel_blocks(r, &p, m, rows, cols, b, b_row, c, ldc, i > 0 || a->accumulate, n == n0);
            if (i == r->n_passes - 1)
                finish(r, m, rows, n, cols, c, ldc);
        }
        r->in_place = in_place;
    }
}

/* Is A read where it is? Its elements must be units as they lie. Rows that fall on one another in
 * the first-level cache are better copied, and so are units that lie far apart. */
static bool reads_in_place(const td__gemm *g, const td__gemm_args *a)
{
    const td__gemm_unit unit = unit_of(g, a->a_dtype);
    const int64_t row = a->lda * (int64_t)td_dtype_size(a->a_dtype);

    if (a->a_paired)
        return true;
    if (unit != TD__UNIT_F32_FROM_F32 && unit != TD__UNIT_PAIR_FROM_BF16)
        return false;
    if (a->a_trans)
        return unit == TD__UNIT_F32_FROM_F32 && row <= IN_PLACE_MAX_STEP;
    if (IMPLS[g->kind].tiles)
        return g->k % 32 == 0 &&
               (g->n <= 4 * g->panel || (row % 2048 != 0 && g->n <= 8 * g->panel));
    return g->k % per_unit(unit) == 0 && row % 4096 != 0;
}

void td__gemm_run(const td__gemm *g, const td__gemm_args *a, void *scratch)
{
    const gemm_impl *impl = &IMPLS[g->kind];
    const bool plain = a->c_dtype == TD_F32;
    run r = {.g = g, .impl = impl, .a = a, .reduce = a->reduce ? a->reduce : 1};
    int64_t nc = round_up(g->n, g->panel);

    TD_ASSERT(!a->accumulate || plain, "only f32 sums can be added to");
    TD_ASSERT(a->b || r.reduce == 1, "%d factors are not packed", (int)r.reduce);
    TD_ASSERT(!a->a_paired || (a->a_trans && impl->pairs && !impl->tiles && r.reduce == 1),
              "pairs of rows are for vectors of pairs");
    if (a->m <= 0 || g->n <= 0)
        return;
    r.copy = scratch;
    r.b_panel = r.copy + copy_bytes(g);
    r.sums = (float *)(void *)(r.b_panel + panel_bytes(g));
    r.in_place = reads_in_place(g, a);
    /* Row-major f32 needs no packing, unless its rows would fall on one another in the caches. */
    r.b_in_place = g->dtype == TD_F32 && !a->b && !a->b_trans && a->ldb % 256 != 0;
    plan_passes(&r);
    /* The buffer of sums is for panels that C has no room for: all of them if C is not f32 or a row
     * of tiles is ragged, else just the last. With one pass a panel is finished at once. */
    r.sums_ld = g->panel;
    if (r.n_passes > 1 && (!plain || (impl->tiles && a->m % 16 != 0)))
        r.sums_ld = nc = g->nc;
    for (int64_t n0 = 0; n0 < g->n; n0 += nc)
        for (int64_t m = 0; m < a->m; m += g->mc)
            block_mn(&r, m, td__min64(g->mc, a->m - m), n0, td__min64(n0 + nc, g->n));
}
