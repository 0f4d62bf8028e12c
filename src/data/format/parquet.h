/* parquet.h -- Apache Parquet files with flat columns, read without a library of theirs.
 *
 *     "PAR1" | pages of column chunks, row group after row group | footer | u32 its size | "PAR1"
 *
 * The footer and the headers of pages are Thrift structs in their compact form (thrift.h). A chunk
 * is an optional dictionary page and data pages; a page of an optional column begins with
 * definition levels, of which 0 says that a value is missing. Encodings: PLAIN, RLE (booleans),
 * dictionaries, DELTA_BINARY_PACKED, DELTA_LENGTH_BYTE_ARRAY, DELTA_BYTE_ARRAY; BYTE_STREAM_SPLIT
 * is refused.
 * Pages are plain or compressed by snappy, gzip or zstd. Nested columns, encryption and other
 * codecs are refused in one line. No size in a file is believed before it is held against the
 * file's. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_DATA_PARQUET_H
#define TD_DATA_PARQUET_H

#include "data/records.h"

/* Physical types, by their numbers in the format. */
typedef enum td__parquet_type {
    TD_PARQUET_BOOL,
    TD_PARQUET_INT32,
    TD_PARQUET_INT64,
    TD_PARQUET_INT96,
    TD_PARQUET_FLOAT,
    TD_PARQUET_DOUBLE,
    TD_PARQUET_BYTES,
    TD_PARQUET_FIXED
} td__parquet_type;

/* What a value of a type is in memory: BOOL, INT32, INT64 are int64_t, FLOAT and DOUBLE themselves,
 * BYTES and FIXED a td__cell, whose text is the file's or the arena's. */
size_t td__parquet_size(td__parquet_type type);

/* Bytes that are read from the front. `bad` stays once it is set, and reads give zeros then. */
typedef struct td__bytes {
    const uint8_t *p, *end;
    bool bad;
} td__bytes;
const uint8_t *td__bytes_take(td__bytes *b, uint64_t nbytes); /* NULL: not that many are left */
uint64_t td__bytes_little(td__bytes *b, int nbytes);
uint64_t td__bytes_varint(td__bytes *b);

/* n values of an encoding (its number in the format) into out, an array of what the type is in
 * memory. false: damaged, or *refused is set: what it does not read. */
typedef struct td__parquet_page {
    td__parquet_type type;
    int fixed; /* FIXED: bytes of each */
    int encoding;
    const void *dictionary; /* (n_dictionary) */
    int64_t n_dictionary;
    td__arena *arena;
} td__parquet_page;
bool td__parquet_values(const td__parquet_page *page, td__bytes b, void *out, int64_t n,
                        const char **refused);
/* n numbers of `bits` bits each: runs and bit-packed groups. */
bool td__parquet_runs(td__bytes *b, int bits, uint32_t *out, int64_t n);

/* The file as columns of values. */
TD_NODISCARD td_status td__parquet_parse(td__records *r, const td__source_opts *o,
                                         const uint8_t *data, size_t nbytes);

#endif
