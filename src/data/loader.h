/* loader.h -- batches of a dataset, in an order that is a pure function of (seed, epoch,
 * position).
 *
 * Epoch e visits all samples once in the order order(seed, e) (a keyed permutation, computed per
 * position without a table), or in the dataset's order without shuffle. Batch k of an epoch is
 * positions [k*batch, (k+1)*batch) of it; the last one may be short. Nothing is stored between
 * batches, so seek() costs nothing and resume in mid-epoch is exact.
 *
 * Workers that share one order may each read some rows of every batch only (td__loader_rows): what
 * a row holds does not depend on who reads it.
 *
 * Partition modes (for workers that do not share one global order) choose which positions a
 * worker sees: see td__partition. Prefetching threads fill batches ahead of time; the result
 * does not depend on how many there are.
 *
 * Threads   A loader is used by one thread. Batches may be read by any. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_DATA_LOADER_H
#define TD_DATA_LOADER_H

#include "data/dataset.h"

typedef enum td__partition_mode {
    TD_PARTITION_EVEN,        /* contiguous ranges of equal size */
    TD_PARTITION_WEIGHTED,    /* contiguous ranges in proportion to the workers' speeds */
    TD_PARTITION_REPLACEMENT, /* each worker draws at random, with replacement */
    TD_PARTITION_SHUFFLED,    /* one permutation, dealt out: without replacement */
    TD_PARTITION_FEATURES,    /* every worker sees every sample, but only its range of features */
    TD_PARTITION_COUNT
} td__partition_mode;

typedef struct td__partition {
    td__partition_mode mode;
    int worker, workers;   /* 0 workers: no partition */
    const double *weights; /* WEIGHTED: one per worker */
    int field;             /* FEATURES: the field that is cut along its last axis */
} td__partition;

/* Rows [begin, end) of a batch. */
typedef struct td__row_range {
    int64_t begin, end;
} td__row_range;

/* Which rows of batch `index` of an epoch, which has `rows` of them, are read: always the same
 * answer to the same question; from any thread. */
typedef td__row_range td__loader_rows(const void *user, int64_t index, int64_t rows);
/* The same of another worker, with in_step. */
typedef td__row_range td__loader_others(const void *user, int worker, int64_t index, int64_t rows);
/* The same for rows that are no range: their numbers, rising, into out (NULL: only count them);
 * returns how many. They lie in the batch one after the other, and `here` counts them from 0. */
typedef int64_t td__loader_pick(const void *user, int64_t index, int64_t rows, int64_t *out);

/* Who keeps samples from one epoch to the next (step/kept_samples.h), so that they are not read
 * again. The functions are called by the threads that fill batches, each with what open() has made
 * for its batch. */
typedef struct td__kept_rows td__kept_rows;
typedef struct td__sample_keeper {
    void *user; /* borrowed */
    td_status (*open)(void *user, int64_t room, td__kept_rows **out);
    void (*close)(td__kept_rows *k); /* NULL is allowed */
    /* Samples index[0..n) become the rows: absent[i] says which are to be read. The rows before
     * them are given back. */
    td_status (*find)(td__kept_rows *k, const int64_t *index, int64_t n, bool *absent);
    /* Those were read into their rows of the fields. */
    td_status (*keep)(td__kept_rows *k, void *const *field);
} td__sample_keeper;

typedef struct td__loader_opts {
    int64_t batch;
    bool shuffle, drop_last;
    bool uniform;    /* shuffle: all orders are equally likely (permute.h) */
    uint64_t epochs; /* from the first, or from the last seek; 0: without end */
    bool augment;    /* apply the stages that draw */
    uint64_t seed;
    int prefetch; /* batches ahead; 0: default 2; -1: none, read in next() */
    int threads;  /* that prefetch; 0: default 1 */
    td__partition partition;
    /* Batches are those of all workers together, of which each reads its rows from samples of its
     * own: row j that it reads in an epoch is position j of its share, again from the first after
     * the last. By features: all columns are there, those of others are zero. */
    bool in_step;
    td__loader_rows *rows;           /* NULL: all */
    td__loader_others *others;       /* (optional) with in_step, for td__loader_sample() */
    td__loader_pick *pick;           /* instead of rows: not one range, but these */
    const void *rows_user;           /* borrowed */
    const td__sample_keeper *keeper; /* NULL: none; not with TD_PARTITION_FEATURES. Borrowed */
} td__loader_opts;

typedef struct td__batch {
    int64_t rows;
    td__row_range here; /* of them: those that were read */
    uint64_t epoch;
    int64_t index;               /* of the batch in its epoch */
    void *field[TD__MAX_FIELDS]; /* (rows here, shape...) dense, 64-byte aligned */
    td__kept_rows *kept;         /* NULL: none; else rows that the keeper has are only there */
} td__batch;

typedef struct td__loader td__loader;
TD_NODISCARD td_status td__loader_create(td__dataset *d, const td__loader_opts *opts,
                                         td__loader **out);
void td__loader_destroy(td__loader *l); /* NULL is allowed */
/* Field f as batches hold it: the dataset's, narrower under TD_PARTITION_FEATURES. */
const td__field *td__loader_field(const td__loader *l, int f);
int64_t td__loader_batches(const td__loader *l); /* in an epoch */
/* The next call of next() gives batch `index` of `epoch`. by: and each one after it the batch so
 * many further on, which is what is read ahead; at least 1. */
void td__loader_seek(td__loader *l, uint64_t epoch, int64_t index);
void td__loader_seek_by(td__loader *l, uint64_t epoch, int64_t index, int64_t by);
/* Is that the batch that next() gives? */
bool td__loader_is_at(td__loader *l, uint64_t epoch, int64_t index);
/* The next batch, borrowed until the next call on this loader; NULL after the last. */
TD_NODISCARD td_status td__loader_next(td__loader *l, const td__batch **out);
/* The sample at a position of an epoch: what next() will read; with in_step, what the worker that
 * has that row reads (`others`). */
int64_t td__loader_sample(const td__loader *l, uint64_t epoch, int64_t position);

#endif
