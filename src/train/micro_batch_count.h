/* micro_batch_count.h -- how many micro-batches a step's batch is cut in when the job does not say.
 *
 * More micro-batches serve more ranks and threads; each one costs a pass over all gradients, and
 * reads all weights once more. What a micro-batch must have so that this does not show is uses of
 * each weight: rows for a linear layer, rows times positions for a convolution or a transformer.
 * Measured on one thread, a micro-batch of u uses costs about 12/u more than its share of a large
 * one: 35 % at 32, 19 % at 64, 2 % at 512. So a batch is halved
 *
 *     while a half has 64 rows, as training with 64 rows a rank is then one micro-batch a rank,
 *     or    while a half has 512 uses of each weight,
 *     and   at least once, so that two ranks have something to do,
 *
 * which is a function of model and batch: never of who computes.
 *
 * A GPU needs more work at once: GPT-2 124M on an H200 takes 18 % longer with 8,192 tokens a
 * micro-batch than with 65,536, with 32,768 less than 1 %. There a batch is halved while a half has
 * 32,768 uses, and at least once. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TRAIN_MICRO_BATCH_COUNT_H
#define TD_TRAIN_MICRO_BATCH_COUNT_H

#include "step/model.h"

enum {
    TD__MICRO_BATCH_ROWS = 64,
    TD__MICRO_BATCH_USES = 512,
    TD__MICRO_BATCH_GPU_USES = 32768,
    TD__MICRO_BATCHES_MOST = 64
};

/* For a model whose weights are used `uses` times by each row; gpu: it runs on backend cuda. */
int td__micro_batch_count(int64_t batch, double uses, bool gpu);
TD_NODISCARD td_status td__micro_batch_count_of(const td__model *m, int64_t batch, bool gpu,
                                                int *out);
/* Where ranks do not share their gradients: at least `count`, of equal size, the same number for
 * each rank, as far as the batch can be cut so. */
int td__micro_batches_for(int64_t batch, int count, int ranks);

#endif
