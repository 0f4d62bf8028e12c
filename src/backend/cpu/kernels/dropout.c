/* dropout.c -- see dropout.h. Random words are made some cache lines at a time. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/kernels/dropout.h"

#include "backend/cpu/kernels/widen.h"
#include "base/kernels/random.h"

enum { BLOCKS = 128, BLOCK = 4 * BLOCKS };

void TD_ISA_SYM(td__dropout)(void *y, const void *x, td_dtype t, int64_t n, const td__rng_key *key,
                             uint32_t threshold, float scale)
{
    _Alignas(64) uint32_t bits[BLOCK];
    _Alignas(64) float buf[BLOCK];

    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t count = n - at < BLOCK ? n - at : BLOCK;
        const float *in = widen_at(buf, t, x, at, count);
        float *out = narrow_begin(buf, t, y, at);

        TD_ISA_SYM(td__random_words)(bits, key, (uint32_t)(at / 4), BLOCKS);
#pragma GCC ivdep
        for (int64_t i = 0; i < count; i++) {
            float v = in[i] * scale;

            out[i] = bits[i] >= threshold ? v : 0.0f;
        }
        narrow_end(out, t, y, at, count);
    }
}
