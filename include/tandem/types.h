/* tandem/types.h -- the small types that every other header uses: element types and shapes. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TYPES_H
#define TD_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define TD_NODISCARD __attribute__((warn_unused_result))
#define TD_API __attribute__((visibility("default")))
#else
#define TD_NODISCARD
#define TD_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Element types: enumerator, name in texts and files, bytes per element, is it a floating type. */
#define TD_DTYPE_MAP(X)   \
    X(F32, "f32", 4, 1)   \
    X(BF16, "bf16", 2, 1) \
    X(F16, "f16", 2, 1)   \
    X(F64, "f64", 8, 1)   \
    X(I32, "i32", 4, 0)   \
    X(I64, "i64", 8, 0)   \
    X(U8, "u8", 1, 0)     \
    X(BOOL, "bool", 1, 0)

typedef enum td_dtype {
#define X(id, name, nbytes, is_float) TD_##id,
    TD_DTYPE_MAP(X)
#undef X
        TD_DTYPE_COUNT
} td_dtype;

TD_API const char *td_dtype_name(td_dtype t); /* "bf16"; "?" for an unknown value */
TD_API size_t td_dtype_size(td_dtype t);      /* bytes per element; 0 for an unknown value */
TD_API bool td_dtype_is_float(td_dtype t);
/* Find a type by name; false if there is none. */
TD_API bool td_dtype_parse(const char *name, td_dtype *out);

enum { TD_MAX_DIMS = 6 };

/* Row-major sizes; ndim == 0 is a scalar. A size of zero is allowed and means "empty". */
typedef struct td_shape {
    int ndim;
    int64_t dim[TD_MAX_DIMS];
} td_shape;

#ifndef __cplusplus
/* TD_SHAPE(64, 784): a shape value from a list of sizes. TD_SCALAR: the shape of one number. */
#define TD_SHAPE(...)                                                              \
    ((td_shape){.ndim = (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), \
                .dim = {__VA_ARGS__}})
#define TD_SCALAR ((td_shape){.ndim = 0})
#endif

/* Number of elements, or -1 if a size is negative or the product overflows. */
TD_API int64_t td_shape_count(const td_shape *s);
TD_API bool td_shape_equal(const td_shape *a, const td_shape *b);
/* "(64, 784)" into buf, always terminated; returns buf. 128 bytes always suffice. */
TD_API char *td_shape_text(const td_shape *s, char *buf, size_t nbytes);

#ifdef __cplusplus
}
#endif
#endif
