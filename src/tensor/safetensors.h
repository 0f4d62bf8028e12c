/* safetensors.h -- the file format, shared by reader and writer.
 *
 *     u64, little-endian: bytes of the header
 *     header: a JSON object, {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
 *             ..., "__metadata__": {"key": "value", ...}}, which may end in spaces
 *     the elements, row-major, little-endian; offsets count from here
 *
 * The tensors cover the rest of the file without overlaps and holes. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TENSOR_SAFETENSORS_H
#define TD_TENSOR_SAFETENSORS_H

#include "tandem/tensor.h"

enum { TD_ST_PREFIX = 8, TD_ST_HEADER_MAX = 100 * 1000 * 1000 };
#define TD_ST_METADATA "__metadata__"

/* The format's name of a type. */
static inline const char *td__st_dtype_name(td_dtype t)
{
    static const char *const NAMES[TD_DTYPE_COUNT] = {
        [TD_F32] = "F32", [TD_BF16] = "BF16", [TD_F16] = "F16", [TD_F64] = "F64",
        [TD_I32] = "I32", [TD_I64] = "I64",   [TD_U8] = "U8",   [TD_BOOL] = "BOOL",
    };
    return NAMES[t];
}

/* Called before the data of items[i] are read, so that they need not all be there at once. */
typedef struct td__st_show {
    td_status (*fn)(void *user, int i);
    void *user;
} td__st_show;

/* td_safetensors_save; show may be NULL. */
TD_NODISCARD td_status td__safetensors_save(const char *path, const td_named_tensor *items, int n,
                                            const td_metadata *metadata, int n_metadata,
                                            const td__st_show *show);

/* Tensor i will not be read again soon: its part of the file needs no memory of ours. */
void td__safetensors_forget(const td_safetensors *s, int i);

#endif
