/* check.h -- size arithmetic that cannot overflow unnoticed, and other small macros. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BASE_CHECK_H
#define TD_BASE_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TD_LEN(array) ((int)(sizeof(array) / sizeof((array)[0])))

/* *out = a op b; false on overflow (and then *out is unspecified). */
static inline bool td__size_mul(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool td__size_add(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}
static inline bool td__i64_mul(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}
/* Round n up to a multiple of a power of two. Callers keep n far below SIZE_MAX. */
static inline size_t td__align_up(size_t n, size_t align)
{
    return (n + align - 1) & ~(align - 1);
}

#endif
