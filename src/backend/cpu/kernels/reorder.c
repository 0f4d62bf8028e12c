/* reorder.c -- transposes in blocks that fit the first cache; see the header. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/kernels/reorder.h"

#include "backend/cpu/kernels/turn16.h"

enum { B = 16 };

/* A whole block of B x B, rows of x and of y this many elements apart. */
#define DEFINE_BLOCK(T)                                                                            \
    static inline void block_##T(T *restrict y, int64_t y_row, const T *restrict x, int64_t x_row) \
    {                                                                                              \
        for (int j = 0; j < B; j++)                                                                \
            for (int i = 0; i < B; i++)                                                            \
                y[j * y_row + i] = x[i * x_row + j];                                               \
    }

DEFINE_BLOCK(uint8_t)
DEFINE_BLOCK(uint64_t)

static inline void block_uint32_t(uint32_t *y, int64_t y_row, const uint32_t *x, int64_t x_row)
{
    const void *lines[B];
    for (int i = 0; i < B; i++)
        lines[i] = x + i * x_row;
    td__turn16(y, y_row * (int64_t)sizeof *y, B, lines);
}

/* By way of 32 bits. */
static inline void block_uint16_t(uint16_t *y, int64_t y_row, const uint16_t *x, int64_t x_row)
{
    uint32_t wide[B][B], turned[B][B];
    const void *lines[B];
    for (int i = 0; i < B; i++) {
        for (int j = 0; j < B; j++)
            wide[i][j] = x[i * x_row + j];
        lines[i] = wide[i];
    }
    td__turn16(turned, sizeof turned[0], B, lines);
    for (int j = 0; j < B; j++)
        for (int i = 0; i < B; i++)
            y[j * y_row + i] = (uint16_t)turned[j][i];
}

#define DEFINE_TRANSPOSE(T)                                                                   \
    static void transpose_##T(T *restrict y, const T *restrict x, int64_t rows, int64_t cols) \
    {                                                                                         \
        for (int64_t r = 0; r < rows; r += B) {                                               \
            int64_t rn = rows - r < B ? rows - r : B;                                         \
            for (int64_t c = 0; c < cols; c += B) {                                           \
                int64_t cn = cols - c < B ? cols - c : B;                                     \
                if (rn == B && cn == B) {                                                     \
                    block_##T(y + c * rows + r, rows, x + r * cols + c, cols);                \
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
