/* dataset.h -- samples by number. A dataset is a fixed count of samples; a sample is a fixed
 * list of fields (an image and its class, a line of tokens and the next line), each with a type
 * and a shape.
 *
 * Sources (source.h) make datasets from files or from nothing; views of datasets (a split,
 * mapped fields) are datasets again. Any sample can be read at any time: order, shuffling and
 * batching are the loader's business (loader.h), so that any position of any epoch can be opened
 * at once.
 *
 * Threads   read() may be called by many threads at once. Everything else before or after. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_DATA_DATASET_H
#define TD_DATA_DATASET_H

#include "base/file.h"
#include "tandem/status.h"

enum { TD__MAX_FIELDS = 16, TD__FIELD_NAME = 32 };

/* How normalized values become real ones again: value * std + mean, by groups of neighbours. */
typedef struct td__units {
    const double *mean, *std; /* (n): the stage's own */
    int64_t n, inner; /* groups, and elements of each, over and over; 0: the values are real ones */
} td__units;

typedef struct td__field {
    char name[TD__FIELD_NAME]; /* "x", "y", a column's name */
    td_dtype dtype;
    td_shape shape;  /* of one sample; a scalar for a class number */
    int64_t classes; /* values are 0 .. classes-1 (also: size of a vocabulary); 0: not a class */
    /* Of a part beside train: an id here that is not below `classes`; 0: none. Refused unless a
     * stage makes numbers of the ids. */
    int64_t unknown;
    const char *const *class_names; /* `classes` texts; NULL if there are none; the dataset's own */
    td__units units;
    bool in_time; /* the first axis is time: rows of a table on end; the others are its columns */
} td__field;

typedef struct td__dataset td__dataset;

/* What stages that draw (crop, flip) are keyed by, besides the sample's number in the source. */
typedef struct td__draw {
    uint64_t seed, epoch;
} td__draw;

/* A sample as its file has it. */
typedef struct td__stored {
    const uint8_t *data;
    size_t nbytes;
    int32_t label;
    td__file_map map; /* closed by the caller */
} td__stored;

typedef struct td__dataset_ops {
    void (*destroy)(td__dataset *d);
    /* Samples index[0..n) into out[f], a dense array of n values of field f. Indices are valid.
     * May fail only for reasons outside the program (i/o, a damaged file). draw NULL: nothing
     * random. */
    td_status (*read)(td__dataset *d, const int64_t *index, int64_t n, const td__draw *draw,
                      void *const *out);
    /* NULL, or for samples that are decoded: what sample i is decoded from. */
    td_status (*stored)(td__dataset *d, int64_t i, td__stored *out);
    /* NULL, or one field of samples where that is less work than all: a label, without decoding the
     * image. TD_ENOTSUP, without a text: it is not for this field. */
    td_status (*read_field)(td__dataset *d, int field, const int64_t *index, int64_t n, void *out);
    /* NULL, or what sample i was read from, if it is a file or a record of its own: the dataset's
     * own text, which may be NULL. */
    const char *(*name)(const td__dataset *d, int64_t i);
} td__dataset_ops;

struct td__dataset {
    const td__dataset_ops *ops;
    int64_t count;
    int n_fields;
    td__field fields[TD__MAX_FIELDS];
    /* Splits by fraction: samples are drawn at random, unless neighbours share content (windows
     * of a text); then a split is a range, and `gap` samples are left out between two ranges. */
    bool in_order;
    int64_t gap;
    /* What the source measured on the train file, besides the fields, as JSON (fit.h); NULL:
     * nothing. The dataset's own. */
    const char *measured;
    /* Samples are decoded or made by a program: what is measured looks at some, spread over all. */
    bool costly;
};

void td__dataset_destroy(td__dataset *d);                      /* NULL is allowed */
int td__dataset_field(const td__dataset *d, const char *name); /* -1 if there is none */
size_t td__field_nbytes(const td__field *f);                   /* of one sample */
TD_NODISCARD td_status td__dataset_read(td__dataset *d, const int64_t *index, int64_t n,
                                        const td__draw *draw, void *const *out);

/* See read_field; TD_ENOTSUP also where there is none. */
TD_NODISCARD td_status td__dataset_read_field(td__dataset *d, int field, const int64_t *index,
                                              int64_t n, void *out);
/* "photos/cat/1.jpg"; NULL: samples have no files of their own. */
const char *td__dataset_name(const td__dataset *d, int64_t i);

/* The samples of `base` named by index (copied), as a dataset. `base` is retained by the caller and
 * must outlive the view. */
TD_NODISCARD td_status td__dataset_subset(td__dataset *base, const int64_t *index, int64_t n,
                                          td__dataset **out);

#endif
