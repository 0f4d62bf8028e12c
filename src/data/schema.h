/* schema.h -- what the columns of a table are, and how a row becomes a sample: decided on the
 * train file, kept with the model (fit.h), and applied to all parts and to new rows.
 *
 *   number     one place in x
 *   category   a column of texts: one place per different text of the train file (one-hot); a text
 *              that does not occur there ("other") leaves all of them 0
 *   text       bytes, padded with 0: a single column of texts, for the stage tokenize */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_DATA_SCHEMA_H
#define TD_DATA_SCHEMA_H

#include "data/fit_json.h"
#include "data/records.h"

#define TD__COLUMN_KIND_MAP(X) \
    X(NUMBER, "number")        \
    X(CATEGORY, "category")    \
    X(TEXT, "text")

typedef enum td__column_kind {
#define X(id, name) TD_COLUMN_##id,
    TD__COLUMN_KIND_MAP(X)
#undef X
        TD_COLUMN_KINDS
} td__column_kind;

typedef struct td__column {
    const char *name;
    td__column_kind kind;
    int64_t values;  /* different texts */
    td__cell *value; /* (values), sorted; own */
    int64_t width;   /* places in x */
} td__column;

typedef struct td__schema {
    td__column label;
    bool label_is_class;
    int64_t no_class;     /* a negative label that stands for none; 0: there is none */
    td__column *features; /* (n_features) */
    int64_t n_features, width;
    td__arena *arena; /* texts of one that was loaded; NULL: they are the train file's */
} td__schema;

/* Zero-initialise. The rows must outlive the schema. */
TD_NODISCARD td_status td__schema_make(td__schema *s, const td__source_opts *o,
                                       const td__records *train);
void td__schema_fini(td__schema *s);
json_t *td__schema_save(const td__schema *s);
TD_NODISCARD td_status td__schema_load(td__schema *s, const td__fit *f);

/* Is it the label that stands for no class? */
bool td__schema_no_class(const td__schema *s, const td__cell *cell);
/* The class or category of a cell; -1: none that the schema knows. */
int64_t td__column_find(const td__column *c, const td__cell *cell);
/* For qsort: numbers by value, before all other texts; those by their bytes. */
int td__cell_compare(const void *a, const void *b);
bool td__cell_number(const td__cell *c, double *out);
int64_t td__records_find(const td__records *r, const char *name); /* -1: there is none */
/* Errors that name file, line and column. */
td_status td__no_column(const td__records *r, const char *name);
td_status td__bad_cell(const td__records *r, int64_t row, const char *name, const td__cell *cell,
                       const char *expected);

#endif
