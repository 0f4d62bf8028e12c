/* random.h -- many random numbers at a time: the same words as td__philox4(), and normals made of
 * them. Compiled per instruction set (base/isa.h), all of which give the same bits. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BASE_KERNELS_RANDOM_H
#define TD_BASE_KERNELS_RANDOM_H

#include <stddef.h>

#include "base/isa.h"
#include "base/rng.h"

/* out[4 * blocks]: the words of blocks first, first + 1, ... of the stream. */
TD_ISA_DECLARE(void, td__random_words,
               (uint32_t * out, const td__rng_key *key, uint32_t first, size_t blocks));
/* out[n], n even: normals from as many words, with td__rng_normal()'s formula in f32; words 2j and
 * 2j + 1 make numbers 2j and 2j + 1. */
TD_ISA_DECLARE(void, td__random_normals,
               (float *out, const uint32_t *words, size_t n, float mean, float std));

#endif
