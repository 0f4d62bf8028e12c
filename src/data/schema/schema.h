/* schema.h -- what the columns of a table are, and how a row becomes a sample: decided on the
 * train file, kept with the model (fit.h), and applied to all parts and to new rows.
 *
 *   number      one place in x
 *   category    one place in x per different text of the train file (one-hot); a text that does not
 *               occur there ("other") leaves all of them 0
 *   bucketized  a number by its boundaries, one-hot: below the first, between two, from the last on
 *   hashed      a text by its hash (FNV-1a, 64 bits) modulo the buckets, one-hot
 *   crossed     the texts of several columns together, hashed likewise
 *   embedding   a field of its own, i32: the number of the category from 1 on, 0 for other
 *   text        a field of its own: bytes, padded with 0, for the stage tokenize. A text column
 *               that is the only feature is x.
 *
 * Where other parts are cut from the train file and a split says how, what is measured there is
 * measured on the rows that are left for training; only classes are those of all rows.
 *
 * Without data.features a column of numbers is a number and one of texts a category, or the text if
 * there is no other feature. Missing cells are those that pandas takes for missing. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_DATA_SCHEMA_H
#define TD_DATA_SCHEMA_H

#include "data/fit_json.h"
#include "data/records.h"
#include "data/table.h"

/* enumerator, name in preprocessing.json, name in data.features */
#define TD__COLUMN_KIND_MAP(X)             \
    X(NUMBER, "number", "numeric")         \
    X(CATEGORY, "category", "one_hot")     \
    X(TEXT, "text", "text")                \
    X(EMBEDDING, "embedding", "embedding") \
    X(BUCKETS, "bucketized", "bucketized") \
    X(HASHED, "hashed", "hashed")          \
    X(CROSSED, "crossed", "crossed")

typedef enum td__column_kind {
#define X(id, name, feature) TD_COLUMN_##id,
    TD__COLUMN_KIND_MAP(X)
#undef X
        TD_COLUMN_KINDS
} td__column_kind;

/* What is done where a cell is missing. */
#define TD__MISSING_MAP(X) \
    X(ERROR, "error") X(MEAN, "mean") X(MEDIAN, "median") X(ZERO, "zero") X(DROP, "drop")
typedef enum td__missing {
    TD_MISSING_UNSAID, /* an error in numbers; a text like any other in categories */
#define X(id, name) TD_MISSING_##id,
    TD__MISSING_MAP(X)
#undef X
} td__missing;

enum { TD__MAX_CROSSED = 8 };

typedef struct td__column {
    const char *name; /* crossed: of the first */
    td__column_kind kind;
    const char *more[TD__MAX_CROSSED - 1]; /* crossed: the others */
    int n_more;
    int64_t values;   /* different texts */
    td__cell *value;  /* (values), sorted; own */
    double *boundary; /* (n_boundaries), rising; own */
    int64_t n_boundaries, buckets;
    double fill; /* of missing numbers */
    /* Of the train file: what is there, for people. */
    int64_t rows, missing;
    double least, most;
    int64_t width; /* places in x, or elements of its own field */
} td__column;

typedef struct td__schema {
    td__column label;
    bool label_is_class;
    int64_t no_class; /* a negative label that stands for none; 0: there is none */
    td__missing missing;
    bool joined; /* windows run over rows that were dropped, as runs of older versions have them */
    td__column *features; /* (n_features) */
    int64_t n_features;
    int64_t width;    /* of x; 0: there is no x */
    td__arena *arena; /* texts of one that was loaded; NULL: they are the train file's */
} td__schema;

/* Zero-initialise. The rows must outlive the schema; under TD_MISSING_DROP, those with missing
 * cells are taken out of them. cut: see td__schema_rows. */
TD_NODISCARD td_status td__schema_make(td__schema *s, const td__source_opts *o,
                                       const struct td__split *cut, td__records *train);
/* (rows) Which rows of the train file training reads, where it is cut (NULL: it is not); NULL: all.
 * The caller's. */
TD_NODISCARD td_status td__schema_rows(const td__source_opts *o, const struct td__split *cut,
                                       const td__records *all, bool **use);
void td__schema_fini(td__schema *s);
json_t *td__schema_save(const td__schema *s);
TD_NODISCARD td_status td__schema_load(td__schema *s, const td__fit *f);
/* Is it the label that stands for no class? */
bool td__schema_no_class(const td__schema *s, const td__cell *cell);
/* Take the rows that TD_MISSING_DROP drops out of the table, which then has places (records.h). */
TD_NODISCARD td_status td__schema_drop(const td__schema *s, td__records *r);
/* Does the column have a field of its own? Else its places are in x. */
bool td__column_own(const td__schema *s, const td__column *c);

/* How the rows of a part become samples. */
typedef struct td__reading {
    const td__schema *s;
    const td__records *r;
    size_t file_nbytes;
    bool label_optional;
    bool fitted; /* the schema is not of all these rows: texts that it does not know are "other" */
} td__reading;
/* Fields and samples of t, which is empty: x, y, then the fields of columns. */
TD_NODISCARD td_status td__schema_encode(const td__reading *in, td__table *t);

/* ---- Cells ----------------------------------------------------------------------------------- */

bool td__cell_number(const td__cell *c, double *out);
bool td__cell_missing(const td__cell *c);
enum { TD__CELL_ROOM = 32 }; /* bytes of the text of any number */
/* A cell as text. That of a number is written to `room`. */
td__cell td__cell_at(const td__records *r, int64_t row, int64_t column, char room[TD__CELL_ROOM]);
/* The same as td__cell_number, td__cell_missing of it. */
bool td__number_at(const td__records *r, int64_t row, int64_t column, double *out);
bool td__missing_at(const td__records *r, int64_t row, int64_t column);
/* The same of some rows from `begin` on, as many as td__some_rows says, but what it gives only has
 * the order of the numbers: that of an f32 column is the f32, not the f64 that its text says. x[i]
 * where there[i]. */
enum { TD__SOME_ROWS = 256 };
void td__rough_rows(const td__records *r, int64_t begin, int64_t n, int64_t column, double *x,
                    bool *there);
static inline int64_t td__some_rows(const td__records *r, int64_t begin)
{
    return r->rows - begin < TD__SOME_ROWS ? r->rows - begin : TD__SOME_ROWS;
}
/* For qsort: numbers by value, before all other texts; those by their bytes. */
int td__cell_compare(const void *a, const void *b);
/* The class or category of a cell; -1: none that the column knows. */
int64_t td__column_find(const td__column *c, const td__cell *cell);
int64_t td__records_find(const td__records *r, const char *name); /* -1: there is none */
/* Errors that name file, line and column. */
td_status td__no_column(const td__records *r, const char *name);
td_status td__bad_cell(const td__records *r, int64_t row, int64_t column, const char *expected);

#endif
