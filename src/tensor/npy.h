/* npy.h -- the .npy format in memory, for .npy files and for members of .npz archives.
 *
 *     "\x93NUMPY" major minor | header length (u16 in version 1, u32 in 2 and 3, little-endian)
 *     header: a Python dict of 'descr', 'fortran_order', 'shape', padded with spaces, then '\n'
 *     the elements */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TENSOR_NPY_H
#define TD_TENSOR_NPY_H

#include "tandem/tensor.h"

enum { TD_NPY_HEADER_MAX = 256 }; /* what td__npy_header may write */

/* A tensor of its own from the bytes of a .npy file; `where` names it in texts. */
TD_NODISCARD td_status td__npy_parse(const uint8_t *data, size_t nbytes, const char *where,
                                     td_tensor *out);

/* Everything before the elements of a row-major tensor; TD_ENOTSUP for bf16. */
TD_NODISCARD td_status td__npy_header(const td_tensor *t, uint8_t header[TD_NPY_HEADER_MAX],
                                      size_t *nbytes);

#endif
