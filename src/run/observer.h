/* observer.h -- who watches a run: the progress line, metrics.jsonl, TensorBoard files, the report.
 * Each is one td__observer; the trainer calls them on its own thread, between steps. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_RUN_OBSERVER_H
#define TD_RUN_OBSERVER_H

#include "tandem/status.h"
#include "run/result.h"
#include "run/span_log.h"
#include "run/step_times.h"

typedef struct td__train_info { /* known before the first step */
    const char *name;
    uint64_t first_step, steps,
        steps_per_epoch; /* steps: the last one, as far as known; 0: unknown */
    int64_t batch, params;
    int micro_batches, threads, ranks; /* threads: of each rank */
    const char *precision;
    const char *job_digest; /* of the job; "" if there is none */
} td__train_info;

/* A number that the sync rule tells of a step; plain data, so that it can travel. */
enum { TD__STEP_NOTES = 4 };
typedef struct td__step_note {
    char name[16]; /* a key of JSON */
    double value;
} td__step_note;

typedef struct td__step_event {
    uint64_t step, epoch;       /* step counts from 1; epoch from 0 */
    double loss, lr, grad_norm; /* grad_norm < 0: not known */
    int64_t samples;            /* in this step */
    uint64_t begin_ns;          /* td__clock_ns(); 0: not known */
    double seconds;             /* of this step */
    double data_wait;           /* of them, waiting for data */
    double elapsed;             /* since the run began */
    td__step_times times;       /* of `seconds` */
    const int *counted;         /* with backup workers: the ranks whose work counts */
    int n_counted;
    td__step_note note[TD__STEP_NOTES];
    int n_notes;
} td__step_event;

/* In which order a rank that is not in step with the others has applied messages: the ranks that
 * they were of, in groups whose meaning is the sync rule's, and meetings of all ranks. */
enum { TD__ORDER_END = -1 /* of a group */, TD__ORDER_MET = -2 /* followed by the step */ };
typedef struct td__order_event {
    uint64_t step; /* of rank 0, when it is told */
    const char *rule;
    int rank;
    const int32_t *words; /* (n) whole groups; a meeting comes last */
    size_t n;
} td__order_event;

typedef struct td__eval_event {
    uint64_t step, epoch;
    const char *part; /* "valid" */
    int n;
    const char *const *name;
    const double *value;
    bool best; /* the best so far by the watched metric */
    double seconds;
} td__eval_event;

typedef struct td__checkpoint_event {
    uint64_t step;
    const char *path;
    size_t nbytes;
    double seconds; /* in the background */
    double stalled; /* of training */
} td__checkpoint_event;

/* A part of a tensor of a checkpoint's file, and the rank that holds it. */
typedef struct td__shard_row {
    int rank;
    const char *file, *tensor;
    uint64_t first, count; /* elements of 4 bytes */
} td__shard_row;

/* Where ranks hold optimizer state or params in shards: a checkpoint that rank 0 has just written
 * from them. Told on rank 0, with the rows of all others: *token is what sets the files of this
 * one apart from those of another attempt, if the others are to send what they hold; then they are
 * told too, each with its own rows, which stay as they are until it returns. */
typedef struct td__shards_event {
    uint64_t step, generation;
    int rank, ranks;
    bool last;       /* no other will follow */
    uint32_t *token; /* at most INT32_MAX; 0: nothing is sent */
    const td__shard_row *row;
    int n;
    /* Elements [first, first + count) of a row, on its rank. */
    td_status (*read)(void *user, int row, uint64_t first, uint64_t count, float *to);
    void *user;
} td__shards_event;

/* Where the time of a rank's steps went since the last such event, in seconds. What is missing of
 * `seconds` is comm that no compute was beside. */
typedef struct td__rank_times {
    double seconds; /* of steps */
    double compute; /* micro-batches */
    double update;  /* of the params */
    double comm;    /* adding up over ranks; beside compute where there is a thread for it */
    double busy;    /* of comm: what that thread had a processor for */
    double wait;    /* after compute, for other ranks or their bytes */
    double data;    /* for samples */
    double nbytes;  /* sent to other ranks */
    double plain;   /* what plain f32 would have been */
    double memory;  /* bytes: the most that the process has had at once so far */
} td__rank_times;

typedef struct td__ranks_event {
    uint64_t step, steps; /* the last step, and how many */
    int n;
    const td__rank_times *rank; /* (n) */
    const double *blame; /* (n) seconds that all ranks waited because of each; NULL: n is 1 */
} td__ranks_event;

/* What one rank did when, on rank 0's clock: at the end, if the run is traced. */
typedef struct td__spans_event {
    int rank, n;
    const td__span *span;
    uint64_t lost; /* older ones that are not there any more */
} td__spans_event;

typedef struct td__observer td__observer;
struct td__observer {
    /* All optional. A failure of an observer ends the run. */
    td_status (*begin)(td__observer *o, const td__train_info *info);
    td_status (*step)(td__observer *o, const td__step_event *e);
    td_status (*eval)(td__observer *o, const td__eval_event *e);
    td_status (*checkpoint)(td__observer *o, const td__checkpoint_event *e);
    td_status (*end)(td__observer *o, const td__train_result *r);
    /* Now and then, and at the end. */
    td_status (*ranks)(td__observer *o, const td__ranks_event *e);
    td_status (*spans)(td__observer *o, const td__spans_event *e);
    td_status (*shards)(td__observer *o, const td__shards_event *e); /* before checkpoint */
    td_status (*order)(td__observer *o,
                       const td__order_event *e); /* now and then, and at the end */
};

#endif
