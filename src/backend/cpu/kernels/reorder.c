/* reorder.c -- transposes in blocks that fit the first cache; see the header. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/kernels/reorder.h"

#define DEFINE_TRANSPOSE(T)                                                                   \
    static void transpose_##T(T *restrict y, const T *restrict x, int64_t rows, int64_t cols) \
    {                                                                                         \
        enum { B = 16 };                                                                      \
        for (int64_t r = 0; r < rows; r += B) {                                               \
            int64_t rn = rows - r < B ? rows - r : B;                                         \
            for (int64_t c = 0; c < cols; c += B) {                                           \
                int64_t cn = cols - c < B ? cols - c : B;                                     \
                if (rn == B && cn == B) {                                                     \
                    for (int j = 0; j < B; j++)                                               \
                        for (int i = 0; i < B; i++)                                           \
                            y[(c + j) * rows + r + i] = x[(r + i) * cols + c + j];            \
                } else {                                                                      \
                    for (int64_t j = 0; j < cn; j++)                                          \
                        for (int64_t i = 0; i < rn; i++)                                      \
                            y[(c + j) * rows + r + i] = x[(r + i) * cols + c + j];            \
                }                                                                             \
            }                                                                                 \
        }                                                                                     \
    }

DEFINE_TRANSPOSE(uint8_t)
DEFINE_TRANSPOSE(uint16_t)
DEFINE_TRANSPOSE(uint32_t)
DEFINE_TRANSPOSE(uint64_t)

void TD_ISA_SYM(td__transpose)(void *y, const void *x, int64_t rows, int64_t cols,
                               size_t element_bytes)
{
    switch (element_bytes) {
    case 1: transpose_uint8_t(y, x, rows, cols); break;
    case 2: transpose_uint16_t(y, x, rows, cols); break;
    case 4: transpose_uint32_t(y, x, rows, cols); break;
    default: transpose_uint64_t(y, x, rows, cols); break;
    }
}
