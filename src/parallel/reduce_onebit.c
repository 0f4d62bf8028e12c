/* reduce_onebit.c -- signs of gradients on the wire, with error feedback (EF-signSGD: Karimireddy,
 * Rebjock, Stich, Jaggi 2019).
 *
 * A chunk of CHUNK numbers p = gradient + owed travels as their signs and one scale, the mean of
 * their magnitudes; what that misses, p - scale sign(p), is owed to the next step. The sum travels
 * back in the same way (coded_sum.h). 32 CHUNK bits become CHUNK + 32: 31 times fewer.
 *
 * A chunk whose mean is not finite arrives as NaN everywhere and owes nothing afterwards: the loss
 * will show it, and if the step is dropped, no memory of it is left. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "parallel/coded_sum.h"
#include "parallel/kernels/compress.h"

enum { CHUNK = 1024, CHUNK_WORDS = 1 + CHUNK / 32 };

static size_t nbytes(size_t count)
{
    size_t rest = count % CHUNK;
    return 4 * (count / CHUNK * CHUNK_WORDS + (rest ? 1 + (rest + 31) / 32 : 0));
}

static void pack(td__isa isa, void *wire, float *x, size_t count)
{
    uint32_t *to = wire;
    for (size_t i = 0; i < count; i += CHUNK, to += CHUNK_WORDS) {
        size_t n = count - i < CHUNK ? count - i : CHUNK;
        float scale = TD_ISA_PICK(isa, td__sum_abs)(x + i, n) / (float)n;
        if (!isfinite(scale))
            scale = NAN;
        memcpy(to, &scale, sizeof scale);
        TD_ISA_PICK(isa, td__pack_signs)(to + 1, x + i, scale, n);
        if (isnan(scale))
            memset(x + i, 0, n * sizeof *x);
    }
}

static void each(void (*take)(float *, const uint32_t *, float, size_t), float *y, const void *wire,
                 size_t count)
{
    const uint32_t *from = wire;
    for (size_t i = 0; i < count; i += CHUNK, from += CHUNK_WORDS) {
        size_t n = count - i < CHUNK ? count - i : CHUNK;
        float scale;
        memcpy(&scale, from, sizeof scale);
        take(y + i, from + 1, scale, n);
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
    .help = "signs and a scale per 1024 on the wire, with error feedback",
    .compresses = true,
    .sgd_only = true,
    .create = create,
    .destroy = td__coded_destroy,
    .reduce = td__coded_reduce,
};
