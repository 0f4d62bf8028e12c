/* thrift.h -- Thrift structs in their compact form, read field by field: what Parquet's footer and
 * page headers are. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_DATA_THRIFT_H
#define TD_DATA_THRIFT_H

#include "data/format/parquet.h"

/* A field of a struct; numbers in `i`, texts in text and nbytes; of lists n and the items' type. */
typedef struct td__thrift_field {
    int id, type;
    int64_t i;
    const uint8_t *text;
    uint64_t nbytes;
    uint64_t n;
    int item;
} td__thrift_field;

enum { TD_THRIFT_BINARY = 8, TD_THRIFT_LIST = 9, TD_THRIFT_STRUCT = 12 };

/* The next field of the struct at b; false at its end, or where b is bad. *last: the id of the
 * field before, 0 at first. What is in lists and structs follows, to be read or skipped. */
bool td__thrift_next(td__bytes *b, int *last, td__thrift_field *f);
/* Jump over what is in a list or struct that td__thrift_next gave; nothing for others. */
void td__thrift_skip(td__bytes *b, const td__thrift_field *f);

#endif
