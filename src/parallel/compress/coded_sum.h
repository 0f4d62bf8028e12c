/* coded_sum.h -- the sum over ranks with every message in a shorter code: bf16, f16, signs.
 *
 * The bucket is cut in as many slices as there are ranks, and rank i is the owner of slice i:
 *
 *   1. pack      slice i of this rank's numbers, for every other owner i;
 *   2. exchange  an all-to-all: the owner gets its slice of all ranks;
 *   3. sum       in f32, in the order of ranks, its own part as it is: nothing was rounded there;
 *   4. pack      the sum, once;
 *   5. gather    an all-gather; every rank, the owner too, takes the unpacked numbers.
 *
 * So all ranks have the same bits, a number is rounded twice however many ranks there are, and a
 * rank sends 2 (n-1)/n of the bucket in the code: the ratio to a plain sum is the code's own.
 *
 * A code with feedback leaves what it lost, on both ways (as DoubleSqueeze, Tang et al. 2019, and
 * dist-EF-SGDM, Zheng et al. 2019): the sender keeps it for the next step's number at 1, and the
 * owner what was lost of the sum at 4. An owner sends itself nothing at 1, so one array of the
 * bucket's size holds both. The numbers are then velocities rather than gradients where there is
 * momentum, and gradients are clipped by their norm before, on each rank by itself, to clip_norm /
 * sqrt(n). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PARALLEL_CODED_SUM_H
#define TD_PARALLEL_CODED_SUM_H

#include "base/cpu.h"
#include "parallel/compress/compressor.h"

/* A code may see its numbers in chunks, none of which has numbers of two params. */
typedef enum td__chunk_kind {
    TD__CHUNK_CODED,
    TD__CHUNK_FINE, /* of a vector, or of a very small param: deserves more bits */
    TD__CHUNK_GAP,  /* between params: zeros */
} td__chunk_kind;
typedef struct td__chunk {
    uint16_t count, kind;
} td__chunk;

typedef struct td__code {
    bool feedback;
    uint16_t chunk; /* numbers in a chunk at most; 0: the code has no need of them */
    /* Of `count` numbers, which are whole chunks from `chunk` on: their bytes, a multiple of 4. */
    size_t (*nbytes)(const td__chunk *chunk, size_t count);
    /* With feedback: x becomes what is left of it. */
    void (*pack)(td__isa isa, void *wire, float *x, const td__chunk *chunk, size_t count);
    /* y = the numbers; or y += them */
    void (*unpack)(td__isa isa, float *y, const void *wire, const td__chunk *chunk, size_t count);
    void (*add)(td__isa isa, float *y, const void *wire, const td__chunk *chunk, size_t count);
} td__code;

/* Methods of a compressor; `ops` and `code` are borrowed. */
TD_NODISCARD td_status td__coded_create(const td__compressor_ops *ops, const td__code *code,
                                        const td__compressor_opts *o, td__compressor **out);
void td__coded_destroy(td__compressor *r);
void td__coded_plan(struct td__planner *w, const td__code *code, const td__compressor_opts *o,
                    int k);
TD_NODISCARD td_status td__coded_step(td__compressor *r, uint64_t step, const float *local);
TD_NODISCARD td_status td__coded_reduce(td__compressor *r, int k, float *data);

#endif
