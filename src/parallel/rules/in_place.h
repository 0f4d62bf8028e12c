/* in_place.h -- what rules share whose threads update the same params while others compute: a
 * micro-batch is run and its gradient applied at once, by plain SGD, with no step in between.
 *
 *     p <- p - lr g        lr: of the step; g: the mean over the micro-batch's rows
 *
 * So the unit of an update is a micro-batch (train.micro_batches; as many as rows: one sample), and
 * a batch only says when numbers are reported. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PARALLEL_RULES_IN_PLACE_H
#define TD_PARALLEL_RULES_IN_PLACE_H

#include "parallel/sync.h"

/* A param with a row-sparse gradient, and the field of the data that says which of its rows a
 * sample reads. */
typedef struct td__row_table {
    int param, field;
    td_dtype dtype;      /* of the field: TD_I32 or TD_I64 */
    int64_t per_sample;  /* ids */
    int64_t rows, width; /* of the param */
    size_t offset;       /* in the params' block */
} td__row_table;

enum { TD__IN_PLACE_TABLES = 32, TD__IN_PLACE_SIZES = 4 };

/* Runners of every thread for micro-batches of so many rows. */
typedef struct td__in_place_size {
    int64_t rows;
    td_runner **runner; /* (threads) */
} td__in_place_size;

/* Every rule's struct begins with this. */
typedef struct td__in_place {
    td__sync base;
    int threads;
    td_params **params; /* (threads) that the runners of each read; of the rule */
    td__row_table table[TD__IN_PLACE_TABLES];
    int n_tables;
    td__in_place_size size[TD__IN_PLACE_SIZES];
    int n_sizes;
    float lr;
    /* The batch that is being run. */
    const td__batch *batch;
    int number; /* in the step */
    double *losses;
} td__in_place;

/* Parts of a td__sync_ops. */
TD_NODISCARD td_status td__in_place_check(const td__sync_config *c, const td__sync_job *j,
                                          const td__sync_world *w);
TD_NODISCARD td_status td__in_place_check_params(const td__sync_config *c, const td_params *ps);
void td__in_place_traits(const td__sync_config *c, const td__sync_world *w, td__sync_traits *out);
TD_NODISCARD td_status td__in_place_begin(td__sync *s, const td__sync_place *at);
TD_NODISCARD td_status td__in_place_step(td__sync *s, double lr, td__step_result *out);

/* own: every thread has a block of params of its own, of which only what is written takes memory;
 * else all have the one of the trainer. */
TD_NODISCARD td_status td__in_place_create(td__in_place *p, bool own);
void td__in_place_destroy(td__in_place *p);

/* A batch begins: what is needed to run its micro-batches is there. */
TD_NODISCARD td_status td__in_place_batch(td__in_place *p, const td__batch *batch, int number,
                                          double *losses);
/* Rows [*begin, *begin + rows) of the batch are micro-batch k; returns how many. */
int64_t td__in_place_rows(const td__in_place *p, int k, int64_t *begin);
/* Run micro-batch k, which is not empty, on a thread; its gradients are in *out. */
TD_NODISCARD td_status td__in_place_run(td__in_place *p, int thread, int k, td_runner **out);

/* The row of a table that id j of row `row` of the batch names; -1: padding, or none. */
static inline int64_t td__in_place_id(const td__row_table *t, const td__batch *b, int64_t row,
                                      int64_t j)
{
    int64_t at = (row - b->here.begin) * t->per_sample + j;
    int64_t id = t->dtype == TD_I32 ? ((const int32_t *)b->field[t->field])[at]
                                    : ((const int64_t *)b->field[t->field])[at];
    return id >= 0 && id < t->rows ? id : -1;
}

#endif
