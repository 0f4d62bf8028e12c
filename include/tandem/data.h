/* tandem/data.h -- samples and batches: a pipeline from a source to the batches of an epoch.
 *
 *     td_dataset *all, *shuffled, *batches;
 *     td_dataset_source("digits", "train", NULL, &all);
 *     td_dataset_shuffle(all, 1, &shuffled);
 *     td_dataset_batch(shuffled, 64, false, &batches);
 *     const td_batch *b;
 *     while (!td_dataset_next(batches, &b) && b)
 *         use(b->field[0], b->rows);
 *
 * Samples   A dataset is a fixed count of samples; a sample is a fixed list of fields (an image and
 *           its class), each with a type and a shape. Sources, memory, callbacks and iterators make
 *           datasets; map, filter and subset make new ones from others.
 * Order     shuffle, batch, repeat, prefetch and for_rank say how samples are given out, not what
 *           they are: they may stand before or after map and filter, and of two of a kind the later
 *           one counts.
 * Bits      The order of epoch e is a function of (seed, e) alone, and so is what random stages
 *           (crop, flip) draw for a sample. Ranks that take their rows with for_rank see together,
 *           in the order of ranks, the batches that one rank sees.
 * Memory    Every function gives a new dataset, owned by the caller, which keeps alive those that
 *           it is made from: destroy them in any order.
 * Threads   A dataset is used by one thread at a time; several that share the ones below may be
 *           used by several threads. With prefetch, callbacks are called by other threads, several
 *           at once.
 * Errors    A td_status, with one line in td_last_error(). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_DATA_H
#define TD_DATA_H

#include "tandem/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TD_MAX_FIELDS = 16 };

typedef struct td_field {
    const char *name; /* "x", "y"; at most 31 characters */
    td_dtype dtype;
    td_shape shape;  /* of one sample; a scalar for a class number */
    int64_t classes; /* values are 0 .. classes-1 (also: size of a vocabulary); 0: not a class */
    const char *const *class_names; /* `classes` texts; NULL if there are none */
} td_field;

typedef struct td_dataset td_dataset;

TD_API void td_dataset_destroy(td_dataset *d); /* NULL is allowed */
TD_API int64_t td_dataset_count(const td_dataset *d);
TD_API int td_dataset_field_count(const td_dataset *d);
TD_API td_field td_dataset_field(const td_dataset *d, int i); /* texts are the dataset's own */

/* ---- Where samples come from ----------------------------------------------------------------- */

/* How a column of a table becomes features. */
typedef struct td_feature {
    const char *kind;   /* numeric, one_hot, bucketized, hashed, crossed: places in x; embedding,
                         * text: a field called as the column */
    const char *column; /* of the table */
    const char *const *with; /* crossed: the other columns */
    int n_with;
    const double *boundaries; /* bucketized: rising */
    int n_boundaries;
    int64_t buckets; /* hashed, crossed */
} td_feature;

/* What sources may be told; zero means default. */
typedef struct td_source_opts {
    const char *dir;                  /* folder of the files; relative names start there */
    const char *train, *valid, *test; /* files, where the source does not know their names */
    const char *label;                /* csv, jsonl: column or key of the target */
    const char *const *columns;       /* csv, jsonl: features to take; all others by default */
    int n_columns;
    const td_feature *features; /* csv, jsonl: instead of columns, with what to make of them */
    int n_features;
    const char *missing; /* csv, jsonl: what to do with missing cells: error, mean, median, zero,
                          * drop */
    bool unlabelled;     /* csv, jsonl, npy: a test file without the label is fine; y is then 0 */
    const char *target;  /* csv, jsonl: "class" (default) or "number" */
    int64_t no_class;    /* csv, jsonl, npy: a negative label that is no class, for losses that
                         * ignore it; 0: there is none */
    char delimiter;      /* csv: ',' */
    bool no_header;      /* csv: columns are then named c0, c1, ... */
    const char *unit;    /* text: "char" (default) or "byte" */
    int64_t window;      /* csv, jsonl: a sample is so many rows on end (time, width); 0: one row */
    int64_t horizon;     /* with window: rows from its last one to the label's; 0: 1; -1: none */
    int64_t context;     /* text, tokens: length of a sample; intents: padded to */
    int64_t stride;      /* text, tokens: from one sample to the next; context. window: 1 */
    int64_t vocab;       /* intents: words kept; tokens, clicks, ratings: size of the vocabulary */
    int64_t count;       /* digits, spirals, clicks, ratings: samples of the train part */
    int64_t classes;     /* spirals; cifar: 10 or 100 */
    double noise;        /* digits, spirals */
    uint64_t seed;       /* digits, spirals */
    int64_t size;        /* images, webdataset: height of samples; 0: all images have one size */
    int64_t width;       /* images, webdataset: size */
    int64_t channels;    /* images, webdataset: 3 (default), or 1 for grey */
    const char *resize;  /* images, webdataset: "crop" (default), "stretch" or "random" */
    const char *query;   /* sql: a SELECT with an ORDER BY */
    bool keep_images;    /* images, webdataset: stay in memory as they are decoded */
} td_source_opts;

/* The names of all sources, i = 0, 1, ...; NULL after the last. td_source_help says in one line
 * what a source reads, td_source_options the options it takes ("dir context stride"); NULL: there
 * is no such source. */
TD_API const char *td_source_list(int i);
TD_API const char *td_source_help(const char *name);
TD_API const char *td_source_options(const char *name);

/* One part ("train", "valid", "test") of a source. TD_ENOTSUP: the source has no such part. */
TD_NODISCARD TD_API td_status td_dataset_source(const char *name, const char *part,
                                                const td_source_opts *opts, td_dataset **out);

/* Arrays of the caller: data[f] holds `count` values of fields[f], one after the other. They are
 * borrowed: they must outlive every dataset made from this one. Names of fields are copied. */
TD_NODISCARD TD_API td_status td_dataset_memory(const td_field *fields, const void *const *data,
                                                int n_fields, int64_t count, td_dataset **out);

/* Samples by number: `read` writes the fields of sample `index`. */
typedef td_status (*td_read_fn)(void *user, int64_t index, void *const *fields);
TD_NODISCARD TD_API td_status td_dataset_callback(const td_field *fields, int n_fields,
                                                  int64_t count, td_read_fn read, void *user,
                                                  td_dataset **out);

/* Samples one after the other: `next` writes the fields of the next sample, or sets *end. It is
 * called until the end before this returns, and the samples are kept in a temporary file without a
 * name ($TMPDIR, or /tmp), so that they need no memory. */
typedef td_status (*td_next_fn)(void *user, void *const *fields, bool *end);
TD_NODISCARD TD_API td_status td_dataset_iterator(const td_field *fields, int n_fields,
                                                  td_next_fn next, void *user, td_dataset **out);

/* ---- Other samples from samples -------------------------------------------------------------- */

/* What the built-in stages may be told; zero means default. */
typedef struct td_map_opts {
    const char *field; /* that is changed; "x" */
    double mean, std;  /* normalize: both 0: measured */
    double p;          /* flip: probability; 0.5 */
    double value;      /* pad: what to pad with */
    int64_t size;      /* crop, resize, pad, tokenize: rows, or length, afterwards */
    int64_t width;     /* crop, resize: columns afterwards; size */
    int64_t pad;       /* crop, pad: values around */
    int64_t classes;   /* one_hot: length of the vector; the field's classes */
    int64_t vocab;     /* tokenize: words kept; all */
    const char *unit;  /* tokenize: "word" (default), "char" or "byte" */
    /* normalize, tokenize: the dataset that they measure; NULL: the one they change. A validation
     * part is changed by what was measured on the training part. */
    const td_dataset *fit;
    double brightness, contrast; /* color: by how much of itself each varies */
} td_map_opts;

TD_API const char *td_map_list(int i); /* NULL after the last */

/* A built-in stage by name: normalize, crop, flip, pad, one_hot, tokenize, resize, grey, color.
 * crop, flip and color draw at random in datasets that are shuffled; others they crop in the
 * middle, and neither flip nor color. */
TD_NODISCARD TD_API td_status td_dataset_map(td_dataset *base, const char *stage,
                                             const td_map_opts *opts, td_dataset **out);

/* The caller's own stage. `in` has the fields of base, `out` those given here. */
typedef struct td_sample {
    int64_t index; /* in the dataset below */
    bool random;   /* is the stage to draw? if so, by these and the index alone: */
    uint64_t seed, epoch;
} td_sample;
typedef td_status (*td_map_fn)(void *user, const td_sample *s, const void *const *in,
                               void *const *out);
TD_NODISCARD TD_API td_status td_dataset_map_fn(td_dataset *base, const td_field *fields,
                                                int n_fields, td_map_fn map, void *user,
                                                td_dataset **out);

/* The samples for which a condition on one number holds: "y < 5", "y != cat". */
TD_NODISCARD TD_API td_status td_dataset_filter(td_dataset *base, const char *condition,
                                                td_dataset **out);
/* The samples that `keep` keeps; called once for each, before this returns. */
typedef bool (*td_keep_fn)(void *user, int64_t index, const void *const *fields);
TD_NODISCARD TD_API td_status td_dataset_filter_fn(td_dataset *base, td_keep_fn keep, void *user,
                                                   td_dataset **out);
/* Samples index[0..n) of base; index is copied. */
TD_NODISCARD TD_API td_status td_dataset_subset(td_dataset *base, const int64_t *index, int64_t n,
                                                td_dataset **out);

/* ---- How they are given out ------------------------------------------------------------------ */

/* Another order in every epoch; without it, that of the samples, and stages do not draw. */
TD_NODISCARD TD_API td_status td_dataset_shuffle(td_dataset *base, uint64_t seed, td_dataset **out);
/* Batches of `rows` samples; without it, of 1. The last one of an epoch may be short. */
TD_NODISCARD TD_API td_status td_dataset_batch(td_dataset *base, int64_t rows, bool drop_last,
                                               td_dataset **out);
/* So many epochs; 0: without end. Without it, 1. */
TD_NODISCARD TD_API td_status td_dataset_repeat(td_dataset *base, int64_t epochs, td_dataset **out);
/* `batches` are read ahead by `threads` threads (0: 1). Without it, td_dataset_next reads. */
TD_NODISCARD TD_API td_status td_dataset_prefetch(td_dataset *base, int batches, int threads,
                                                  td_dataset **out);
/* Of every batch the rows of one rank: contiguous ranges, equal to within one row. */
TD_NODISCARD TD_API td_status td_dataset_for_rank(td_dataset *base, int rank, int world,
                                                  td_dataset **out);

typedef struct td_batch {
    int64_t rows;       /* that are here; 0 for a rank that has none of a short batch */
    int64_t first;      /* the place of the first of them in the batch of all ranks */
    int64_t batch_rows; /* of the batch of all ranks */
    uint64_t epoch;     /* from 0 */
    int64_t index;      /* of the batch in its epoch */
    const void *field[TD_MAX_FIELDS]; /* (rows, shape...) dense, 64-byte aligned */
} td_batch;

/* The next batch, borrowed until the next call on d; NULL after the last. */
TD_NODISCARD TD_API td_status td_dataset_next(td_dataset *d, const td_batch **out);
/* The next call gives batch `index` of `epoch`; repeat counts epochs from there. */
TD_NODISCARD TD_API td_status td_dataset_seek(td_dataset *d, uint64_t epoch, int64_t index);
/* Batches in an epoch, on any rank. */
TD_NODISCARD TD_API td_status td_dataset_batches(td_dataset *d, int64_t *out);

#ifdef __cplusplus
}
#endif
#endif
