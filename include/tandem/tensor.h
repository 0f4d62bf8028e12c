/* tandem/tensor.h -- tensors outside graphs: strided views of memory, and the files they live in.
 *
 * A td_tensor is a small value: element type, shape, strides and a pointer. Its memory is either
 * borrowed (td_tensor_wrap) or a counted storage, which the last view to be finished releases:
 * every td_tensor filled by a function below is given to td_tensor_fini once, in any order.
 *
 * Files     Written to a temporary name beside the final one, fsynced and renamed: a reader sees
 *           the old file or the whole new one. Read files are checked in full: a damaged or hostile
 *           file gives TD_EPROTO, and TD_ENOTSUP says that it may be fine but is not for us.
 * Errors    On failure `out` is left empty (td_tensor_fini is allowed and does nothing).
 * Threads   Distinct td_tensor values may be used by distinct threads, also on one storage, as long
 *           as nobody writes. An open file may be read by many threads. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TENSOR_H
#define TD_TENSOR_H

#include "tandem/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct td_storage td_storage;

typedef struct td_tensor {
    td_dtype dtype;
    td_shape shape;
    int64_t stride[TD_MAX_DIMS]; /* elements from one index to the next; may be negative */
    void *data;                  /* element (0, ..., 0) */
    td_storage *storage;         /* NULL: the memory is borrowed */
} td_tensor;

/* A new row-major tensor of zeros, aligned to 64 bytes. */
TD_NODISCARD TD_API td_status td_tensor_init(td_tensor *out, td_dtype dtype, td_shape shape);
/* A row-major tensor over memory that the caller keeps alive. */
TD_NODISCARD TD_API td_status td_tensor_wrap(td_tensor *out, td_dtype dtype, td_shape shape,
                                             void *data);
TD_API void td_tensor_fini(td_tensor *t); /* leaves it empty; an empty one is allowed */

TD_API int64_t td_tensor_count(const td_tensor *t);
TD_API size_t td_tensor_nbytes(const td_tensor *t);      /* count times element size */
TD_API bool td_tensor_is_contiguous(const td_tensor *t); /* row-major without gaps */

/* Views: no element moves, memory is shared; `out` is not `t`. Negative axes count from the end. */
TD_API void td_tensor_view(const td_tensor *t, td_tensor *out); /* all of it */
/* Elements start, start+step, ... before stop (after it, if step < 0) along axis, as in Python:
 * negative bounds count from the end and all are clamped. step is not 0. */
TD_NODISCARD TD_API td_status td_tensor_slice(const td_tensor *t, int axis, int64_t start,
                                              int64_t stop, int64_t step, td_tensor *out);
/* Axis i of out is axis axes[i] of t. */
TD_NODISCARD TD_API td_status td_tensor_permute(const td_tensor *t, const int *axes,
                                                td_tensor *out);
/* Another shape of the same count; one size may be -1. TD_ENOTSUP if the strides do not allow it
 * without moving elements (take td_tensor_contiguous first). */
TD_NODISCARD TD_API td_status td_tensor_reshape(const td_tensor *t, td_shape shape, td_tensor *out);

/* Copy all elements into `to`, which has the same shape and any strides and dtype, and does not
 * overlap `t`. Conversions: to a floating type one rounding to nearest even; from floating to
 * integer towards zero; integers that do not fit become the nearest that does; NaN becomes 0; to
 * bool "is not zero". */
TD_NODISCARD TD_API td_status td_tensor_copy(const td_tensor *t, td_tensor *to);
/* A row-major tensor of the same elements: a view if t is one already, else a copy. */
TD_NODISCARD TD_API td_status td_tensor_contiguous(const td_tensor *t, td_tensor *out);
/* A new row-major tensor of another type. */
TD_NODISCARD TD_API td_status td_tensor_convert(const td_tensor *t, td_dtype dtype, td_tensor *out);

/* A tensor with its name in a file. Both are borrowed. */
typedef struct td_named_tensor {
    const char *name;
    const td_tensor *tensor;
} td_named_tensor;

/* .npy, versions 1 to 3, C and Fortran order, either endianness. The result is row-major. NumPy has
 * no bf16: saving one is TD_ENOTSUP (convert it first, or use safetensors). */
TD_NODISCARD TD_API td_status td_npy_load(const char *path, td_tensor *out);
TD_NODISCARD TD_API td_status td_npy_save(const char *path, const td_tensor *t);

/* .npz: a zip archive of .npy files, stored or deflated. Names are without ".npy". Archives and
 * members of 4 GB and more (zip64) are TD_ENOTSUP. */
typedef struct td_npz td_npz;
TD_NODISCARD TD_API td_status td_npz_open(const char *path, td_npz **out);
TD_API void td_npz_close(td_npz *z); /* NULL is allowed */
TD_API int td_npz_count(const td_npz *z);
TD_API const char *td_npz_name(const td_npz *z, int i);
TD_API int td_npz_find(const td_npz *z, const char *name); /* -1 if there is none */
TD_NODISCARD TD_API td_status td_npz_load(const td_npz *z, int i, td_tensor *out); /* a copy */
TD_NODISCARD TD_API td_status td_npz_save(const char *path, const td_named_tensor *items, int n,
                                          bool compress);

/* safetensors. Tensors are numbered in the order of their bytes in the file. */
typedef struct td_safetensors td_safetensors;
typedef struct td_metadata {
    const char *key, *value;
} td_metadata;
TD_NODISCARD TD_API td_status td_safetensors_open(const char *path, td_safetensors **out);
TD_API void td_safetensors_close(td_safetensors *s); /* NULL is allowed */
TD_API int td_safetensors_count(const td_safetensors *s);
TD_API const char *td_safetensors_name(const td_safetensors *s, int i);
TD_API int td_safetensors_find(const td_safetensors *s, const char *name); /* -1: there is none */
/* A view into the file, read-only and valid until close. The pointer may be unaligned where another
 * program wrote the file: td_tensor_copy copes, plain loads may not. */
TD_API td_tensor td_safetensors_tensor(const td_safetensors *s, int i);
TD_API int td_safetensors_metadata_count(const td_safetensors *s);
TD_API td_metadata td_safetensors_metadata(const td_safetensors *s, int i);
/* Tensors of any strides; names unique, valid UTF-8, not "__metadata__". */
TD_NODISCARD TD_API td_status td_safetensors_save(const char *path, const td_named_tensor *items,
                                                  int n, const td_metadata *metadata,
                                                  int n_metadata);

#ifdef __cplusplus
}
#endif
#endif
