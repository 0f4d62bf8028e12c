/* strided.c -- copying and converting strided elements.
 *
 * Axes that both sides lay out without gaps are merged first, so that a dense tensor is one run.
 * Then an odometer walks over the outer axes, and the innermost is converted run by run. Unequal
 * types go through a tile of the widest type of the source's family (double or int64_t), which is
 * exact; the one rounding happens when the tile is narrowed. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor/strided.h"

#include <string.h>

#include "base/half.h"
#include "base/narrow.h"

enum { TILE = 256 };

typedef union tile {
    double f[TILE];
    int64_t i[TILE];
} tile;

/* Elements are read and written by memcpy: files may hold them unaligned. */
#define LOAD_RUN(field, type, expr)            \
    for (int64_t k = 0; k < n; k++) {          \
        type x;                                \
        memcpy(&x, from + k * step, sizeof x); \
        t->field[k] = (expr);                  \
    }                                          \
    break

/* n <= TILE elements, `step` bytes apart, widened: floating types into t->f, others into t->i. */
static void load(tile *t, td_dtype dtype, const char *from, int64_t step, int64_t n)
{
    switch (dtype) {
    case TD_F32: LOAD_RUN(f, float, (double)x);
    case TD_F64: LOAD_RUN(f, double, x);
    case TD_BF16: LOAD_RUN(f, td_bf16, (double)td__bf16_to_f32(x));
    case TD_F16: LOAD_RUN(f, td_f16, (double)td__f16_to_f32(x));
    case TD_I32: LOAD_RUN(i, int32_t, x);
    case TD_I64: LOAD_RUN(i, int64_t, x);
    case TD_U8: LOAD_RUN(i, uint8_t, x);
    case TD_BOOL: LOAD_RUN(i, uint8_t, x != 0);
    case TD_DTYPE_COUNT: break;
    }
}

/* int64_t to double, rounded to odd as in base/narrow.h. */
static double i64_to_odd(int64_t i)
{
    uint64_t a = i < 0 ? -(uint64_t)i : (uint64_t)i;
    if (a >> 53) { /* drop the bits that do not fit, and keep in the last one that there were any */
        int shift = 11 - __builtin_clzll(a);
        uint64_t kept = a >> shift;
        a = (kept | ((kept << shift) != a)) << shift;
    }
    return i < 0 ? -(double)a : (double)a;
}

static int64_t clamp_int(int64_t i, int64_t lo, int64_t hi)
{
    return i < lo ? lo : i > hi ? hi : i;
}

#define STORE_RUN(type, expr)                \
    for (int64_t k = 0; k < n; k++) {        \
        type y = (expr);                     \
        memcpy(to + k * step, &y, sizeof y); \
    }                                        \
    break

static void store_floats(char *to, int64_t step, td_dtype dtype, const double *x, int64_t n)
{
    switch (dtype) {
    case TD_F32: STORE_RUN(float, (float)x[k]);
    case TD_F64: STORE_RUN(double, x[k]);
    case TD_BF16: STORE_RUN(td_bf16, td__bf16_from_f32(td__f32_odd_from_f64(x[k])));
    case TD_F16: STORE_RUN(td_f16, td__f16_from_f32(td__f32_odd_from_f64(x[k])));
    case TD_I32: STORE_RUN(int32_t, (int32_t)td__int_from_f64(x[k], INT32_MIN, INT32_MAX));
    case TD_I64: STORE_RUN(int64_t, td__int_from_f64(x[k], INT64_MIN, INT64_MAX));
    case TD_U8: STORE_RUN(uint8_t, (uint8_t)td__int_from_f64(x[k], 0, UINT8_MAX));
    case TD_BOOL: STORE_RUN(uint8_t, x[k] != 0);
    case TD_DTYPE_COUNT: break;
    }
}

static void store_ints(char *to, int64_t step, td_dtype dtype, const int64_t *x, int64_t n)
{
    switch (dtype) {
    case TD_F32: STORE_RUN(float, (float)x[k]);
    case TD_F64: STORE_RUN(double, (double)x[k]);
    case TD_BF16: STORE_RUN(td_bf16, td__bf16_from_f32(td__f32_odd_from_f64(i64_to_odd(x[k]))));
    case TD_F16: STORE_RUN(td_f16, td__f16_from_f32(td__f32_odd_from_f64(i64_to_odd(x[k]))));
    case TD_I32: STORE_RUN(int32_t, (int32_t)clamp_int(x[k], INT32_MIN, INT32_MAX));
    case TD_I64: STORE_RUN(int64_t, x[k]);
    case TD_U8: STORE_RUN(uint8_t, (uint8_t)clamp_int(x[k], 0, UINT8_MAX));
    case TD_BOOL: STORE_RUN(uint8_t, x[k] != 0);
    case TD_DTYPE_COUNT: break;
    }
}

static void convert_run(char *to, int64_t to_step, td_dtype to_type, const char *from,
                        int64_t from_step, td_dtype from_type, int64_t n)
{
    tile t;

    for (int64_t begin = 0; begin < n; begin += TILE) {
        int64_t m = n - begin < TILE ? n - begin : TILE;
        load(&t, from_type, from + begin * from_step, from_step, m);
        if (td_dtype_is_float(from_type))
            store_floats(to + begin * to_step, to_step, to_type, t.f, m);
        else
            store_ints(to + begin * to_step, to_step, to_type, t.i, m);
    }
}

static void copy_run(char *to, int64_t to_step, const char *from, int64_t from_step, size_t size,
                     int64_t n)
{
    if (to_step == (int64_t)size && from_step == (int64_t)size) {
        memcpy(to, from, (size_t)n * size);
        return;
    }
    for (int64_t k = 0; k < n; k++, to += to_step, from += from_step) {
        switch (size) { /* constant sizes, so that each becomes one move */
        case 1: memcpy(to, from, 1); break;
        case 2: memcpy(to, from, 2); break;
        case 4: memcpy(to, from, 4); break;
        default: memcpy(to, from, 8); break;
        }
    }
}

void td__strided_copy(td_tensor *to, const td_tensor *from)
{
    int64_t dim[TD_MAX_DIMS + 1], ts[TD_MAX_DIMS + 1], fs[TD_MAX_DIMS + 1], at[TD_MAX_DIMS] = {0};
    int64_t to_size = (int64_t)td_dtype_size(to->dtype);
    int64_t from_size = (int64_t)td_dtype_size(from->dtype);
    int n = 0;

    if (td_tensor_count(from) == 0)
        return;
    /* Strides in bytes; an axis joins the one before it if both sides allow. */
    for (int a = 0; a < from->shape.ndim; a++) {
        int64_t d = from->shape.dim[a];
        int64_t t = to->stride[a] * to_size, f = from->stride[a] * from_size;
        if (d == 1)
            continue;
        if (n && ts[n - 1] == t * d && fs[n - 1] == f * d) {
            dim[n - 1] *= d;
            ts[n - 1] = t;
            fs[n - 1] = f;
        } else {
            dim[n] = d;
            ts[n] = t;
            fs[n++] = f;
        }
    }
    if (n == 0) { /* one element */
        dim[0] = 1;
        ts[0] = to_size;
        fs[0] = from_size;
        n = 1;
    }

    char *t = to->data;
    const char *f = from->data;
    int inner = n - 1, a;
    do {
        if (to->dtype == from->dtype)
            copy_run(t, ts[inner], f, fs[inner], (size_t)to_size, dim[inner]);
        else
            convert_run(t, ts[inner], to->dtype, f, fs[inner], from->dtype, dim[inner]);
        for (a = inner - 1; a >= 0; a--) { /* the odometer */
            t += ts[a];
            f += fs[a];
            if (++at[a] < dim[a])
                break;
            t -= ts[a] * dim[a];
            f -= fs[a] * dim[a];
            at[a] = 0;
        }
    } while (a >= 0);
}
