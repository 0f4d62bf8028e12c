/* result.h -- how a run or an evaluation ended: what the trainer returns and observers are told. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_RUN_RESULT_H
#define TD_RUN_RESULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/block_cache.h"
#include "device/device.h"
#include "run/pipeline_report.h"

enum { TD__MAX_METRICS = 8 };

typedef enum td__train_end {
    TD_TRAIN_DONE,        /* all steps */
    TD_TRAIN_EARLY,       /* stopped by patience */
    TD_TRAIN_INTERRUPTED, /* asked to stop; a checkpoint was written */
} td__train_end;

typedef struct td__train_result {
    td__train_end end;
    uint64_t step, epoch;
    double seconds; /* of its steps: without set-up, validation and checkpoints */
    double samples_per_second, train_loss, best;
    uint64_t sent_nbytes, plain_nbytes; /* gradients sent by this rank; as plain f32 */
    double last_ratio;                  /* plain to sent, in the last step alone; 0: none sent */
    uint64_t best_step;
    char digest[65]; /* of the weights */
    /* On rank 0: why what was to be written at the end is not there, as when the disk is full; "":
     * it is. Everything else is as it would be. */
    char unsaved[512];
    /* Bytes of the rank that had most at once: as memory.h says beforehand, and as it was; 0: not
     * known. */
    size_t memory_planned, memory_peak;
    int memory_rank;
    const char *device; /* that rank 0 trained on, and its memory; NULL: not known */
    td__device_counters device_memory;
    bool keeps_samples; /* data.blocks, on this rank: */
    td__block_counters kept;
    /* With backup workers, on rank 0: shares of steps that were late, by rank; as long as the
     * trainer. */
    const uint64_t *dropped;
    int n_dropped;
    /* Of ranks in a pipeline; as long as the trainer. NULL: there is none. */
    const td__pipeline_report *pipeline;
} td__train_result;

/* How good predictions are, over all samples of a part at once. */
typedef struct td__class_score {
    int64_t samples;              /* whose true class it is */
    double precision, recall, f1; /* 0 where nothing was predicted, or is there */
    double auc; /* of this class against the others; NaN: all samples are on one side */
} td__class_score;

/* One sample of a part, by its number there: a class, or a number. */
typedef struct td__scored_sample {
    int64_t index;
    double truth, said;
    double score;     /* of a class: the probability of the true one */
    const char *name; /* the file that it is, the dataset's; NULL: it is none */
} td__scored_sample;

enum { TD__WORST_SAMPLES = 12, TD__SCORE_POINTS = 600 };

typedef struct td__scores {
    int64_t samples; /* that counted */
    /* The samples that the model is most wrong about, the worst first. */
    td__scored_sample worst[TD__WORST_SAMPLES];
    int n_worst;
    /* Of numbers: predicted against true, of all samples or of some at equal distances; own. */
    td__scored_sample *points;
    int n_points;
    /* Classes; 0: the target is a number. */
    int64_t classes;
    int64_t *confusion;                          /* (true, predicted); own */
    td__class_score *by_class;                   /* (classes); own */
    double accuracy, precision, recall, f1, auc; /* the last four: means over classes */
    /* Numbers, over all their elements. */
    double mae, rmse, r2;
} td__scores;

/* Metrics of a whole part: loss first, then the model's metrics. */
typedef struct td__eval_result {
    int n;
    const char *name[TD__MAX_METRICS + 1];
    double value[TD__MAX_METRICS + 1];
    bool higher_is_better[TD__MAX_METRICS + 1];
    int64_t samples;
    double seconds;
} td__eval_result;

#endif
