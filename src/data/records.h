/* records.h -- rows of named cells, as CSV and JSON Lines have them, and how they become samples.
 *
 * A parser fills td__records; td__records_open does the rest for both sources:
 *
 *   y   the label column (`label`, by default the last): a class, numbered in the order of its
 *       texts in the train file, or with target "number" an f32 (1)
 *   x   the feature columns (`columns`, by default all others) side by side as f32. A column of
 *       texts takes one place per different text of the train file (one-hot). A single column of
 *       texts instead gives x as bytes (u8, padded with 0), for the stage tokenize.
 *
 * What columns are, the train file decides for all parts. Errors name file, line and column. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_DATA_RECORDS_H
#define TD_DATA_RECORDS_H

#include "base/alloc.h"
#include "data/fit.h"
#include "data/source.h"

typedef struct td__cell {
    const char *text; /* not terminated; NULL: missing */
    size_t nbytes;
} td__cell;

/* A column of one type, as files have them that are not texts. Numbers stay what they are; the text
 * of one is made where it is asked for. */
typedef enum td__values_type {
    TD_VALUES_CELL,
    TD_VALUES_F32, /* NaN: missing */
    TD_VALUES_F64, /* likewise */
    TD_VALUES_I64,
    TD_VALUES_U64
} td__values_type;

typedef struct td__values {
    td__values_type type;
    void *data;    /* (rows) */
    bool *missing; /* (rows), of whole numbers; NULL: none is */
} td__values;

typedef struct td__records {
    const char *where; /* the file's name in texts */
    td__arena *arena;  /* texts that are not in the file as they are */
    int64_t rows, cols, rows_max;
    const char **names; /* (cols), in the arena */
    td__cell *cells;    /* (rows, cols), unless columns have types */
    td__values *values; /* (cols), if they have */
    int64_t *line;      /* (rows): where a row begins */
    int64_t *place;     /* (rows): a row's number before some were taken out; NULL: all are there */
} td__records;

enum { TD__MAX_COLUMNS = 65536 };

/* Make ready for cols columns; names is copied. */
TD_NODISCARD td_status td__records_init(td__records *r, const char *where);
TD_NODISCARD td_status td__records_columns(td__records *r, const td__cell *names, int64_t cols);
/* A further row of missing cells, begun at this line. */
TD_NODISCARD td_status td__records_row(td__records *r, int64_t line, td__cell **cells);
/* Instead of rows: columns of these types, and then n further rows of them, whose values the caller
 * sets (cells are missing until then). Lines are counted from 1. */
TD_NODISCARD td_status td__records_types(td__records *r, const td__values_type *types);
TD_NODISCARD td_status td__records_extend(td__records *r, int64_t n);
/* Whole numbers from this row on may be missing; none is yet. */
TD_NODISCARD td_status td__records_missable(td__records *r, int64_t column);
void td__records_move(td__records *r, int64_t from, int64_t to); /* a row, over another */
/* Copies of the rows of `all` that are used. Texts stay those of `all`, which must outlive them. */
TD_NODISCARD td_status td__records_pick(const td__records *all, const bool *use, td__records *out);
void td__records_drop(td__records *picked);   /* a zeroed struct is allowed */
size_t td__values_size(td__values_type type); /* bytes of one */
void td__records_fini(td__records *r);        /* a zeroed struct is allowed */

/* Reads a whole file, which outlives the records: cells may point into it. */
typedef td_status (*td__records_parser)(td__records *r, const td__source_opts *o,
                                        const uint8_t *data, size_t nbytes);
TD_NODISCARD td_status td__csv_parse(td__records *r, const td__source_opts *o, const uint8_t *data,
                                     size_t nbytes);
TD_NODISCARD td_status td__jsonl_parse(td__records *r, const td__source_opts *o,
                                       const uint8_t *data, size_t nbytes);

/* A source of tables. */
typedef struct td__table_format {
    const char *source, *expected; /* its name; what its files are, in errors */
    td__records_parser parse;
    /* (optional, both) Is a part of that name no file? Then: its rows, from there. */
    bool (*is_elsewhere)(const char *name);
    td_status (*ask)(td__records *r, const td__source_opts *o, const char *name);
} td__table_format;
/* A part as a dataset. fit: what the columns are, instead of asking the train file; NULL: ask, on
 * the rows that cut leaves for training (NULL: on all). */
TD_NODISCARD td_status td__records_open(const td__table_format *format, const td__source_opts *o,
                                        const char *part, const td__fit *fit,
                                        const struct td__split *cut, td__dataset **out);

#endif
