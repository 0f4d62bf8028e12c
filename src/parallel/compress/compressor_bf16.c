/* reduce_bf16.c -- gradients as bf16 on the wire: half the bytes, the range of f32, 8 bits of it.
 *
 * Sums are taken in f32 (coded_sum.h), so the error does not grow with the number of ranks. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/compress/coded_sum.h"
#include "parallel/kernels/compress.h"

static size_t nbytes(const td__chunk *chunk, size_t count)
{
    (void)chunk;
    return (count + 1) / 2 * 4;
}

static void pack(td__isa isa, void *wire, float *x, const td__chunk *chunk, size_t count)
{
    (void)chunk;
    TD_ISA_PICK(isa, td__pack_bf16)(wire, x, count);
}

static void unpack(td__isa isa, float *y, const void *wire, const td__chunk *chunk, size_t count)
{
    (void)chunk;
    TD_ISA_PICK(isa, td__unpack_bf16)(y, wire, count);
}

static void add(td__isa isa, float *y, const void *wire, const td__chunk *chunk, size_t count)
{
    (void)chunk;
    TD_ISA_PICK(isa, td__add_bf16)(y, wire, count);
}

static const td__code code = {.nbytes = nbytes, .pack = pack, .unpack = unpack, .add = add};

static td_status create(const td__compressor_opts *o, td__compressor **out)
{
    return td__coded_create(&td__compressor_bf16, &code, o, out);
}

static void plan(struct td__planner *w, const td__compressor_opts *o, int k)
{
    td__coded_plan(w, &code, o, k);
}

const td__compressor_ops td__compressor_bf16 = {
    .name = "bf16",
    .help = "bf16 on the wire, sums in f32",
    .compresses = true,
    .create = create,
    .destroy = td__coded_destroy,
    .reduce = td__coded_reduce,
    .plan = plan,
};
