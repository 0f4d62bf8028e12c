/* record_file.h -- the samples of a dataset as records of their own size, one after the other in an
 * unnamed file, found by their offsets. A record is, for each field,
 *
 *     u32 bytes | bytes
 *
 * without the zeros at a field's end: padded texts and sequences take what they are long. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_DATA_RECORD_FILE_H
#define TD_DATA_RECORD_FILE_H

#include "data/dataset.h"

typedef struct td__record_file {
    int64_t *offset; /* (count + 1): of records, and the end */
    int64_t count;
    const uint8_t *data; /* mapped */
} td__record_file;

/* Reads all samples once. `what` names them in errors. */
TD_NODISCARD td_status td__record_file_make(td__record_file *r, td__dataset *d, const char *what);
void td__record_file_close(td__record_file *r); /* a zeroed struct is allowed */
/* The most that a record of this dataset can take: bytes. */
size_t td__record_most(const td__dataset *d);
/* A record becomes sample i of out. TD_EPROTO if it is not one of d's fields. */
TD_NODISCARD td_status td__record_unpack(const td__dataset *d, const uint8_t *record, size_t nbytes,
                                         int64_t i, void *const *out);

#endif
