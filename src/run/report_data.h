/* report_data.h -- metrics.jsonl read back as columns. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_RUN_REPORT_DATA_H
#define TD_RUN_REPORT_DATA_H

#include "run/result.h"
#include "run/run_dir.h"

typedef struct td__column {
    double *v;
    int n, room;
} td__column;

typedef struct td__report_metric { /* one metric of one part over the run */
    char part[16], name[48];
    td__column step, value;
} td__report_metric;

typedef struct td__report_rank { /* sums over the run */
    td__rank_times times;
    double blame; /* seconds that all ranks waited because of it */
} td__report_rank;

enum { TD__REPORT_METRICS = 3 * (TD__MAX_METRICS + 1) };

/* Ages 0, 1, 2, 3 to 4, 5 to 8, 9 to 16, 17 to 32, and more. */
enum { TD__AGE_BUCKETS = 8 };
int td__age_bucket(double age);

typedef struct td__report_data {
    /* One entry per step. Missing numbers are NaN. */
    td__column step, loss, lr, grad_norm, rate, seconds, data_wait;
    td__column time; /* unix time of its end, from the begin before it */
    td__report_metric metric[TD__REPORT_METRICS];
    int n_metrics;
    double eval_seconds;
    int n_evals;
    double best_step; /* of the last validation that was the best so far; NaN: none */
    int n_checkpoints;
    double checkpoint_step;                                          /* of the last; NaN: none */
    double checkpoint_bytes, checkpoint_seconds, checkpoint_stalled; /* bytes: of the last */
    /* From the last begin and end. */
    double params, batch, micro_batches, threads, ranks, steps;
    double samples; /* seen in all steps */
    /* Of what arrived from other ranks, where a rule tells it: sum and number of steps' means, the
     * largest. */
    double age_sum, ages, age_most;
    double age_count[TD__AGE_BUCKETS]; /* steps by their mean age, rounded (td__age_bucket) */
    char precision[16], end[16], digest[80];
    double end_seconds;
    char dropped[160]; /* of backup workers: "12 shares late: rank 1 8, rank 2 4"; "" */
    double memory_planned, memory_peak, memory_rank;        /* bytes of the rank that had most */
    char device[16];                                        /* "": not known */
    double device_requests, device_reused, device_released; /* blocks */
    double device_idle, device_peak;                        /* bytes */
    bool keeps_samples;                                     /* as blocks: */
    td__block_counters kept;
    int n_begins; /* more than one: the run was resumed */
    char job[80]; /* the job's digest */
    /* From the lines about ranks since the last begin. */
    td__report_rank *rank;
    int n_ranks;                  /* 0: there are no such lines */
    double ranked_steps;          /* that they speak of */
    td__pipeline_report pipeline; /* of the last end; stages 0: there is none */
    double began;                 /* unix time of the first begin; NaN: not known */
    double begin_time, origin;    /* of the last begin; of the clock that steps are timed by */
    uint64_t n_read;              /* bytes of metrics.jsonl so far */
} td__report_data;

TD_NODISCARD td_status td__report_data_read(const char *dir, td__report_data *d);
/* The same step by step, for a run that goes on: a struct without data, and the whole lines that
 * were added since the last time. After a failure fini is due. */
void td__report_data_init(td__report_data *d);
TD_NODISCARD td_status td__report_data_more(const char *dir, td__report_data *d);
void td__report_data_fini(td__report_data *d);

/* report.html with these data, for a page that is about to be written again. */
TD_NODISCARD td_status td__report_write_live(const td__report_opts *o, const td__report_data *d);

/* out[i]: the value that a share q[i] of the finite ones are below; NaN where there are none. */
TD_NODISCARD td_status td__column_quantiles(const td__column *c, const double *q, int n,
                                            double *out);

#endif
