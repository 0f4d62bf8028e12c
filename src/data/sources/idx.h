/* idx.h -- the IDX format of MNIST, in memory.
 *
 *     0 0 type ndim | ndim sizes (u32, big-endian) | elements, row-major; gzip around it or not
 *
 * type 8 is u8, the only one that is taken. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_DATA_IDX_H
#define TD_DATA_IDX_H

#include "tandem/status.h"

typedef struct td__idx {
    td_shape shape; /* the first axis counts samples */
    size_t nbytes;
    const uint8_t *data; /* in the file, or own if it was packed */
    uint8_t *own;        /* freed by td__idx_fini */
} td__idx;

TD_NODISCARD td_status td__idx_parse(td__idx *x, const uint8_t *data, size_t nbytes,
                                     const char *where);
void td__idx_fini(td__idx *x); /* a zeroed struct is allowed */

#endif
