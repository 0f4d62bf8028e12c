/* reduce_f16.c -- gradients as f16 on the wire: half the bytes, 11 bits of each number.
 *
 * f16 reaches from 6e-8 to 65504, gradients do not care. So every chunk of CHUNK numbers travels
 * with a scale of its own, the power of two that brings its largest magnitude to [2^14, 2^15):
 * nothing can overflow, and what is lost at the lower end is below 2^-39 of the chunk's largest
 * number. Scales are exact to multiply with, and the sum gets new ones, so none need be agreed on.
 * A chunk with an infinity or a NaN has the scale 1: they arrive as they are, and numbers beyond
 * the range beside them become infinities. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "parallel/compress/coded_sum.h"
#include "parallel/kernels/compress.h"

enum { CHUNK = 4096, CHUNK_NBYTES = sizeof(float) + CHUNK * sizeof(td_f16), TOP = 15 };

static size_t nbytes(const td__chunk *chunk, size_t count)
{
    (void)chunk;
    size_t rest = count % CHUNK;
    return count / CHUNK * CHUNK_NBYTES + (rest ? sizeof(float) + (rest + 1) / 2 * 4 : 0);
}

/* largest: the bits of the largest magnitude. The inverse must be a normal number as well. */
static float scale_for(uint32_t largest)
{
    int e;
    float x;
    if (!largest || largest >= 0x7f800000u)
        return 1;
    memcpy(&x, &largest, sizeof x);
    frexpf(x, &e); /* x in [2^(e-1), 2^e) */
    e = TOP - e;
    return ldexpf(1, e > 126 ? 126 : e);
}

static void pack(td__isa isa, void *wire, float *x, const td__chunk *chunk, size_t count)
{
    (void)chunk;
    uint8_t *to = wire;
    for (size_t i = 0; i < count; i += CHUNK, to += CHUNK_NBYTES) {
        size_t n = count - i < CHUNK ? count - i : CHUNK;
        float scale = scale_for(TD_ISA_PICK(isa, td__largest_bits)(x + i, n));
        memcpy(to, &scale, sizeof scale);
        TD_ISA_PICK(isa, td__pack_f16)((td_f16 *)(void *)(to + sizeof scale), x + i, scale, n);
    }
}

static void each(void (*take)(float *, const td_f16 *, float, size_t), float *y, const void *wire,
                 size_t count)
{
    const uint8_t *from = wire;
    for (size_t i = 0; i < count; i += CHUNK, from += CHUNK_NBYTES) {
        size_t n = count - i < CHUNK ? count - i : CHUNK;
        float scale;
        memcpy(&scale, from, sizeof scale);
        take(y + i, (const td_f16 *)(const void *)(from + sizeof scale), 1.0f / scale, n);
    }
}

static void unpack(td__isa isa, float *y, const void *wire, const td__chunk *chunk, size_t count)
{
    (void)chunk;
    each(TD_ISA_PICK(isa, td__unpack_f16), y, wire, count);
}

static void add(td__isa isa, float *y, const void *wire, const td__chunk *chunk, size_t count)
{
    (void)chunk;
    each(TD_ISA_PICK(isa, td__add_f16), y, wire, count);
}

static const td__code code = {.nbytes = nbytes, .pack = pack, .unpack = unpack, .add = add};

static td_status create(const td__compressor_opts *o, td__compressor **out)
{
    return td__coded_create(&td__compressor_f16, &code, o, out);
}

static void plan(struct td__planner *w, const td__compressor_opts *o, int k)
{
    td__coded_plan(w, &code, o, k);
}

const td__compressor_ops td__compressor_f16 = {
    .name = "f16",
    .help = "f16 with a scale per 4096 on the wire, sums in f32",
    .compresses = true,
    .create = create,
    .destroy = td__coded_destroy,
    .reduce = td__coded_reduce,
    .plan = plan,
};
