/* reduce_onebit.c -- signs of gradients on the wire, with error feedback (EF-signSGD: Karimireddy,
 * Rebjock, Stich, Jaggi 2019).
 *
 * A chunk of CHUNK numbers p = gradient + owed travels as their signs and one scale, the mean of
 * their magnitudes in bf16; what that misses, p - scale sign(p), is owed to the next step. The sum
 * travels back in the same way (coded_sum.h). 32 CHUNK bits become CHUNK + 16.
 *
 * Small chunks, because a number much larger than its chunk's mean is owed for many steps. p has
 * the velocity rather than the gradient where there is momentum (Zheng, Huang, Kwok 2019): momentum
 * after the sum makes waves of what arrives late, and a network that reads digits with 99.8 % then
 * reads 97 %.
 *
 * A chunk whose mean is not finite arrives as NaN everywhere and owes nothing afterwards: the loss
 * will show it, and if the step is dropped, no memory of it is left. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "parallel/coded_sum.h"
#include "parallel/kernels/compress.h"

enum { CHUNK = 256 };

/* All signs, then the scales. */
static size_t signs_nbytes(size_t count)
{
    return (count + 31) / 32 * sizeof(uint32_t);
}

static size_t nbytes(size_t count)
{
    size_t chunks = (count + CHUNK - 1) / CHUNK;
    return signs_nbytes(count) + (chunks + 1) / 2 * 2 * sizeof(td_bf16);
}

static void pack(td__isa isa, void *wire, float *x, size_t count)
{
    uint32_t *sign = wire;
    td_bf16 *to = (td_bf16 *)(void *)((uint8_t *)wire + signs_nbytes(count));
    for (size_t i = 0; i < count; i += CHUNK, sign += CHUNK / 32) {
        size_t n = count - i < CHUNK ? count - i : CHUNK;
        *to = td__bf16_from_f32(TD_ISA_PICK(isa, td__sum_abs)(x + i, n) / (float)n);
        float scale = td__bf16_to_f32(*to++);
        TD_ISA_PICK(isa, td__pack_signs)(sign, x + i, scale, n);
        if (!isfinite(scale))
            memset(x + i, 0, n * sizeof *x);
    }
}

/* Infinities of both signs would look like numbers that belong there. */
static void each(void (*take)(float *, const uint32_t *, float, size_t), float *y, const void *wire,
                 size_t count)
{
    const uint32_t *sign = wire;
    const td_bf16 *from =
        (const td_bf16 *)(const void *)((const uint8_t *)wire + signs_nbytes(count));
    for (size_t i = 0; i < count; i += CHUNK, sign += CHUNK / 32) {
        size_t n = count - i < CHUNK ? count - i : CHUNK;
        float scale = td__bf16_to_f32(*from++);
        take(y + i, sign, isfinite(scale) ? scale : NAN, n);
    }
}

static void unpack(td__isa isa, float *y, const void *wire, size_t count)
{
    each(TD_ISA_PICK(isa, td__unpack_signs), y, wire, count);
}

static void add(td__isa isa, float *y, const void *wire, size_t count)
{
    each(TD_ISA_PICK(isa, td__add_signs), y, wire, count);
}

static const td__code code = {
    .feedback = true, .nbytes = nbytes, .pack = pack, .unpack = unpack, .add = add};

static td_status create(const td__reducer_opts *o, td__reducer **out)
{
    return td__coded_create(&td__reducer_onebit, &code, o, out);
}

const td__reducer_ops td__reducer_onebit = {
    .name = "onebit",
    .help = "signs and a scale per 256 on the wire, with error feedback",
    .compresses = true,
    .sgd_only = true,
    .takes_momentum = true,
    .whole = true,
    .create = create,
    .destroy = td__coded_destroy,
    .step = td__coded_step,
    .reduce = td__coded_reduce,
};
