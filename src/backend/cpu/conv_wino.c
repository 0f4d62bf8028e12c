/* conv_wino.c -- 3x3 convolutions of stride 1 by Winograd's minimal filtering (the maths is in
 * kernels/winograd.h): transform a block of tiles, one product per frequency, transform back.
 *
 *   forward      M_f (tiles, o) = V_f (tiles, c) U_f (c, o)
 *   back_data    the same, of dy with the flipped weight
 *   back_weight  dU_f (c, o) = sum over blocks of  V_f' (c, tiles) Z_f (tiles, o)
 *
 * A block has as many tiles as let V and M stay in the second-level cache. bf16 activations are
 * transformed in f32 and, where the processor multiplies bf16, rounded to bf16 before the product.
 * Small weights are transformed in prepare; large ones in each run, into scratch, because 16/9 of
 * the size twice over for each layer would weigh on memory more than the time is worth. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "backend/cpu/conv.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/kernels/channel_norm.h"
#include "backend/cpu/kernels/winograd.h"
#include "backend/cpu/sizes.h"
#include "base/alloc.h"
#include "base/fail.h"

enum {
    FREQS = 16,
    SKEW = 16,                    /* elements between frequencies, against cache aliasing */
    BLOCK_BYTES = 2048 * 1024,    /* of V and M together */
    TILES_MIN = 32,               /* transforming the weight costs as much as 16 tiles */
    WEIGHT_MAX = 1024 * 1024,     /* c x o: beyond it scratch would be too large */
    PACKED_MAX = 4 * 1024 * 1024, /* bytes of a transformed weight that is kept */
};

typedef struct wino_state {
    td__wino_kernels kernels;
    void (*sums)(float *sum, const void *x, bool bf16, int64_t rows, int64_t channels);
    td__wino g;
    td__gemm gemm, tail; /* tail: back_weight's last block, which has another k */
    td__wino_packing packing, tail_packing;
    int64_t tiles, block;       /* all; per block */
    int64_t v_stride, m_stride; /* elements between frequencies */
    size_t element;             /* bytes of a transformed factor's element */
    bool flipped, relu, bias, packed;
    int64_t w_o, w_c;                 /* the weight is (w_o, w_c, 3, 3) */
    size_t u_at, v_at, m_at, gemm_at; /* offsets in scratch; zeros lie at 0 */
} wino_state;

static void prepare_weight(const td_kernel_call *c)
{
    const wino_state *s = c->kernel->state;
    s->kernels.weight(c->packed, &s->packing, c->in[1], s->w_o, s->w_c, s->flipped, s->g.v_bf16);
}

static void run_image(const td_kernel_call *c)
{
    const wino_state *s = c->kernel->state;
    char *scratch = c->scratch, *v = scratch + s->v_at;
    float *m = (float *)(void *)(scratch + s->m_at);
    const char *u = s->packed ? c->packed : scratch + s->u_at;

    memset(scratch, 0, (size_t)s->g.c * 4);
    if (!s->packed)
        s->kernels.weight(scratch + s->u_at, &s->packing, c->in[1], s->w_o, s->w_c, s->flipped,
                          s->g.v_bf16);
    for (int64_t t = 0; t < s->tiles; t += s->block) {
        int64_t count = td__min64(s->block, s->tiles - t);
        s->kernels.input(&s->g, v, s->v_stride, c->in[0], scratch, t, count);
        for (int64_t f = 0; f < FREQS; f++)
            td__gemm_run(&s->gemm,
                         &(td__gemm_args){
                             .m = count,
                             .a = v + (size_t)(f * s->v_stride) * s->element,
                             .lda = s->g.c,
                             .a_dtype = s->gemm.dtype,
                             .b = u + (size_t)(f * s->packing.matrix) * s->element,
                             .c = m + f * s->m_stride,
                             .ldc = s->g.o,
                             .c_dtype = TD_F32,
                         },
                         scratch + s->gemm_at);
        s->kernels.output(&s->g, c->out[0], m, s->m_stride, s->bias ? c->in[2] : NULL, s->relu, t,
                          count);
    }
}

static void run_weight(const td_kernel_call *c)
{
    const wino_state *s = c->kernel->state;
    char *scratch = c->scratch, *v = scratch + s->v_at, *z = scratch + s->u_at;
    float *du = (float *)(void *)(scratch + s->m_at);

    if (s->bias)
        s->sums(c->out[1], c->in[0], s->g.bf16, s->g.n * s->g.oh * s->g.ow, s->g.o);
    memset(scratch, 0, (size_t)(s->g.c > s->g.o ? s->g.c : s->g.o) * 4);
    for (int64_t t = 0; t < s->tiles; t += s->block) {
        int64_t count = td__min64(s->block, s->tiles - t);
        bool whole = count == s->block;
        const td__wino_packing *packing = whole ? &s->packing : &s->tail_packing;
        (s->g.v_bf16 ? s->kernels.input_pairs : s->kernels.input)(&s->g, v, s->v_stride, c->in[1],
                                                                  scratch, t, count);
        s->kernels.gradient(&s->g, z, packing, c->in[0], scratch, t, count);
        for (int64_t f = 0; f < FREQS; f++)
            td__gemm_run(whole ? &s->gemm : &s->tail,
                         &(td__gemm_args){
                             .m = s->g.c,
                             .a = v + (size_t)(f * s->v_stride) * sizeof(float),
                             .lda = s->g.c,
                             .a_trans = true,
                             .a_paired = s->g.v_bf16,
                             .a_dtype = s->gemm.dtype,
                             .b = z + (size_t)(f * packing->matrix) * s->element,
                             .c = du + f * s->m_stride,
                             .ldc = s->g.o,
                             .c_dtype = TD_F32,
                             .accumulate = t > 0,
                         },
                         scratch + s->gemm_at);
    }
    s->kernels.weight_back(c->out[0], du, s->m_stride, s->g.o, s->g.c);
}

static td__wino_packing packing_of(const td__gemm *g, size_t element)
{
    return (td__wino_packing){
        .panel = g->panel,
        .units = g->units,
        .matrix = (int64_t)(td__gemm_packed_bytes(g) / element) + SKEW * 2,
    };
}

/* Tiles per block: what the cache holds, in whole blocks of the product's rows, evenly shared. */
static int64_t block_of(int64_t tiles, int64_t channels, size_t element, int64_t lo, int64_t hi)
{
    int64_t most = BLOCK_BYTES / (FREQS * channels * (int64_t)element);
    most = most < lo ? lo : most > hi ? hi : most;
    int64_t blocks = (tiles + most - 1) / most;
    return td__min64((((tiles + blocks - 1) / blocks) + 13) / 14 * 14, tiles);
}

static void plan_image(const td__cpu *cpu, const td__conv *v, wino_state *s, td_kernel *k)
{
    size_t at = 0;
    s->block = block_of(s->tiles, s->g.c + s->g.o, s->element, 42, 140);
    s->gemm = td__gemm_plan(s->block, s->g.o, s->g.c, 1, s->g.v_bf16 ? TD_BF16 : TD_F32, cpu->isa);
    s->packing = packing_of(&s->gemm, s->element);
    s->v_stride = s->block * s->g.c + SKEW * 2;
    s->m_stride = s->block * s->g.o + SKEW;
    size_t u_bytes = (size_t)(FREQS * s->packing.matrix) * s->element;
    s->packed = v->weight_is_param && u_bytes <= PACKED_MAX;
    td__take(&at, (size_t)s->g.c * 4);
    s->u_at = td__take(&at, s->packed ? 0 : u_bytes);
    s->v_at = td__take(&at, (size_t)(FREQS * s->v_stride) * s->element);
    s->m_at = td__take(&at, (size_t)(FREQS * s->m_stride) * sizeof(float));
    s->gemm_at = td__take(&at, td__gemm_scratch_bytes(&s->gemm));
    k->scratch = at;
    k->run = run_image;
    if (s->packed) {
        k->prepare = prepare_weight;
        k->packs = 1u << 1;
        k->packed = u_bytes;
    }
}

static void plan_weight(const td__cpu *cpu, wino_state *s, td_kernel *k)
{
    size_t at = 0;
    td_dtype dtype = s->g.v_bf16 ? TD_BF16 : TD_F32;
    /* Each block reads and writes all of dU: few long sums. */
    s->block = block_of(s->tiles, s->g.c + s->g.o, s->element, 128, 256);
    int64_t rest = s->tiles % s->block;
    s->gemm = td__gemm_plan(s->g.c, s->g.o, s->block, 1, dtype, cpu->isa);
    s->tail = td__gemm_plan(s->g.c, s->g.o, rest ? rest : s->block, 1, dtype, cpu->isa);
    s->packing = packing_of(&s->gemm, s->element);
    s->tail_packing = packing_of(&s->tail, s->element);
    s->v_stride = (s->g.v_bf16 ? (s->block + 1) / 2 : s->block) * s->g.c + SKEW; /* units */
    s->m_stride = s->g.c * s->g.o + SKEW;
    td__take(&at, (size_t)(s->g.c > s->g.o ? s->g.c : s->g.o) * 4);
    s->u_at = td__take(&at, (size_t)(FREQS * s->packing.matrix) * s->element);
    s->v_at = td__take(&at, (size_t)(FREQS * s->v_stride) * sizeof(float));
    s->m_at = td__take(&at, (size_t)(FREQS * s->m_stride) * sizeof(float));
    s->gemm_at = td__take(&at, td__gemm_scratch_bytes(&s->gemm));
    k->scratch = at;
    k->run = run_weight;
}

/* The convolution that is computed: back_data is one of dy, with the roles of c and o exchanged. */
static td__wino geometry(const td__cpu *cpu, const td__conv *v)
{
    bool back = v->pass == TD__CONV_BACK_DATA, bf16 = v->x.dtype == TD_BF16;
    td__wino g = {
        .n = v->n,
        .h = back ? v->oh : v->h,
        .w = back ? v->ow : v->w,
        .c = back ? v->o : v->c,
        .oh = back ? v->h : v->oh,
        .ow = back ? v->w : v->ow,
        .o = back ? v->c : v->o,
        .pad = {back ? 2 - v->pad[0] : v->pad[0], back ? 2 - v->pad[1] : v->pad[1]},
        .bf16 = bf16,
        .v_bf16 = bf16 && cpu->isa >= TD_ISA_AVX512_BF16,
    };
    g.rows = (g.oh + 1) / 2;
    g.cols = (g.ow + 1) / 2;
    return g;
}

td_status td__conv_plan_wino(const td__cpu *cpu, const td__conv *v, td_kernel *k)
{
    td_dtype dtype = v->x.dtype;
    bool bf16 = dtype == TD_BF16;

    if ((dtype != TD_F32 && !bf16) || !td__conv_is_nhwc(v, dtype) || v->groups != 1 || v->kh != 3 ||
        v->kw != 3 || v->stride[0] != 1 || v->stride[1] != 1 || v->dilation[0] != 1 ||
        v->dilation[1] != 1 || v->pad[0] > 2 || v->pad[1] > 2 || v->c % 32 != 0 || v->o % 32 != 0 ||
        v->c * v->o > WEIGHT_MAX || (bf16 && cpu->isa == TD_ISA_AMX))
        return TD_ENOTSUP;
    td__wino g = geometry(cpu, v);
    if (g.n * g.rows * g.cols < TILES_MIN)
        return TD_ENOTSUP;
    wino_state *s = td__calloc(1, sizeof *s);
    if (!s)
        return TD_FAIL(TD_ENOMEM, "no memory to plan a convolution");
    s->kernels =
        cpu->isa >= TD_ISA_AVX512_BF16 ? td__wino_avx512bf16 : TD_ISA_PICK(cpu->isa, td__wino);
    s->sums = TD_ISA_PICK(cpu->isa, td__channel_norm).sums;
    s->g = g;
    s->tiles = s->g.n * s->g.rows * s->g.cols;
    s->element = s->g.v_bf16 ? 2 : 4;
    s->flipped = v->pass == TD__CONV_BACK_DATA;
    s->relu = v->relu;
    s->bias = v->bias;
    s->w_o = v->o;
    s->w_c = v->c;
    if (v->pass == TD__CONV_BACK_WEIGHT)
        plan_weight(cpu, s, k);
    else
        plan_image(cpu, v, s, k);
    k->state = s;
    k->fini = td__free;
    k->impl = s->g.v_bf16 ? "winograd bf16" : "winograd f32";
    return TD_OK;
}
