/* compressor_onebit.c -- signs of gradients on the wire, with error feedback (EF-signSGD:
 * Karimireddy, Rebjock, Stich, Jaggi 2019).
 *
 * A chunk of CHUNK numbers p = gradient + owed travels as their signs and one scale, the mean of
 * their magnitudes in bf16; what that misses, p - scale sign(p), is owed to the next step. The sum
 * travels back in the same way (coded_sum.h). 32 CHUNK bits become CHUNK + 16.
 *
 * A number much larger than its chunk's mean is owed for many steps, and all others get noise of
 * its size meanwhile; a network with batch norm, which nothing pulls back, went to infinity. So
 * chunks are small, none has numbers of two params, and vectors (biases, norms) travel in bf16.
 * And p has the velocity rather than the gradient where there is momentum (Zheng, Huang, Kwok
 * 2019): momentum after the sum makes waves of what arrives late, and a network that reads digits
 * with 99.8 % then reads 97 %.
 *
 * A chunk whose mean is not finite arrives as NaN everywhere and owes nothing afterwards: the loss
 * will show it, and if the step is dropped, no memory of it is left. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "parallel/compress/coded_sum.h"
#include "parallel/kernels/compress.h"

enum { CHUNK = 256 };

/* On the wire: the words of all chunks (signs, or numbers in bf16), then the scales. */
static size_t words_of(const td__chunk *c)
{
    static const unsigned per_word[] = {[TD__CHUNK_CODED] = 32, [TD__CHUNK_FINE] = 2};
    return c->kind == TD__CHUNK_GAP ? 0 : (c->count + per_word[c->kind] - 1) / per_word[c->kind];
}

static size_t all_words(const td__chunk *c, size_t count, size_t *scales)
{
    size_t words = 0;
    *scales = 0;
    for (size_t i = 0; i < count; i += c++->count) {
        words += words_of(c);
        *scales += c->kind == TD__CHUNK_CODED;
    }
    return words;
}

static size_t nbytes(const td__chunk *chunk, size_t count)
{
    size_t scales, words = all_words(chunk, count, &scales);
    return words * sizeof(uint32_t) + (scales + 1) / 2 * 2 * sizeof(td_bf16);
}

/* Infinities of both signs would look like numbers that belong there. */
static float scale_of(td_bf16 h)
{
    float scale = td__bf16_to_f32(h);
    return isfinite(scale) ? scale : NAN;
}

/* Numbers in bf16; x: what is left of them. */
static void pack_fine(td_bf16 *y, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        y[i] = td__bf16_from_f32(x[i]);
        float rest = x[i] - td__bf16_to_f32(y[i]);
        x[i] = isfinite(rest) ? rest : 0;
    }
}

static void pack_signs(td__isa isa, uint32_t *sign, td_bf16 *scale, float *x, size_t n)
{
    *scale = td__bf16_from_f32(TD_ISA_PICK(isa, td__sum_abs)(x, n) / (float)n);
    TD_ISA_PICK(isa, td__pack_signs)(sign, x, td__bf16_to_f32(*scale), n);
    if (isnan(scale_of(*scale)))
        memset(x, 0, n * sizeof *x);
}

static void pack(td__isa isa, void *wire, float *x, const td__chunk *c, size_t count)
{
    size_t scales;
    uint32_t *word = wire;
    td_bf16 *scale = (td_bf16 *)(void *)(word + all_words(c, count, &scales));
    for (size_t i = 0; i < count; i += c->count, word += words_of(c), c++)
        if (c->kind == TD__CHUNK_CODED)
            pack_signs(isa, word, scale++, x + i, c->count);
        else if (c->kind == TD__CHUNK_FINE)
            pack_fine((td_bf16 *)(void *)word, x + i, c->count);
        else
            memset(x + i, 0, c->count * sizeof *x);
}

static void unpack(td__isa isa, float *y, const void *wire, const td__chunk *c, size_t count)
{
    size_t scales;
    const uint32_t *word = wire;
    const td_bf16 *from = (const td_bf16 *)(const void *)(word + all_words(c, count, &scales));
    for (size_t i = 0; i < count; i += c->count, word += words_of(c), c++)
        if (c->kind == TD__CHUNK_CODED)
            TD_ISA_PICK(isa, td__unpack_signs)(y + i, word, scale_of(*from++), c->count);
        else if (c->kind == TD__CHUNK_FINE)
            TD_ISA_PICK(isa, td__unpack_bf16)(y + i, (const td_bf16 *)(const void *)word, c->count);
        else
            memset(y + i, 0, c->count * sizeof *y);
}

static void add(td__isa isa, float *y, const void *wire, const td__chunk *c, size_t count)
{
    size_t scales;
    const uint32_t *word = wire;
    const td_bf16 *from = (const td_bf16 *)(const void *)(word + all_words(c, count, &scales));
    for (size_t i = 0; i < count; i += c->count, word += words_of(c), c++)
        if (c->kind == TD__CHUNK_CODED)
            TD_ISA_PICK(isa, td__add_signs)(y + i, word, scale_of(*from++), c->count);
        else if (c->kind == TD__CHUNK_FINE)
            TD_ISA_PICK(isa, td__add_bf16)(y + i, (const td_bf16 *)(const void *)word, c->count);
}

static const td__code code = {
    .feedback = true, .chunk = CHUNK, .nbytes = nbytes, .pack = pack, .unpack = unpack, .add = add};

static td_status create(const td__compressor_opts *o, td__compressor **out)
{
    return td__coded_create(&td__compressor_onebit, &code, o, out);
}

static void plan(struct td__planner *w, const td__compressor_opts *o, int k)
{
    td__coded_plan(w, &code, o, k);
}

const td__compressor_ops td__compressor_onebit = {
    .name = "onebit",
    .help = "signs and a scale per 256 on the wire, with error feedback",
    .compresses = true,
    .kept = 1,
    .sgd_only = true,
    .takes_momentum = true,
    .whole = true,
    .create = create,
    .destroy = td__coded_destroy,
    .step = td__coded_step,
    .reduce = td__coded_reduce,
    .plan = plan,
};
