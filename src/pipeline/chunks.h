/* chunks.h -- the chunks of a model that a rank of a pipeline has: the model cut by cost after all
 * rewrites, one cut per number of rows of a micro-batch, and a runner for every slot, in which a
 * micro-batch is under way. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PIPELINE_CHUNKS_H
#define TD_PIPELINE_CHUNKS_H

#include "graph/cut.h"
#include "pipeline/direct.h"
#include "pipeline/pipeline.h"
#include "step/micro_batches.h"

typedef struct td__chunks_opts {
    td__micro_batch_set *set; /* whose model it is; borrowed */
    td_params *params;        /* of the whole model; borrowed */
    int64_t usual;            /* rows of most micro-batches: those of others are cut alike */
    const td__pipeline_shape *shape;
    const bool *own;          /* (chunks) which of them this rank has; borrowed */
    int slots;                /* the most that a chunk has */
    const td__direct *direct; /* where inputs lie; NULL: in memory of the runners; borrowed */
    td_comm *peers; /* that have the other pieces of the stage's layers; NULL: none; borrowed */
} td__chunks_opts;

typedef struct td__chunks td__chunks;
TD_NODISCARD td_status td__chunks_create(const td__chunks_opts *o, td__chunks **out);
void td__chunks_destroy(td__chunks *c); /* NULL is allowed */

/* The model of micro-batches of `rows`, cut; valid until others are asked for. */
TD_NODISCARD td_status td__chunks_cut(td__chunks *c, int64_t rows, const td__cut **out);
/* The runner of a chunk that this rank has. */
TD_NODISCARD td_status td__chunks_runner(td__chunks *c, int64_t rows, int chunk, int slot,
                                         td_runner **out);
bool td__chunks_own(const td__chunks *c, int chunk); /* does this rank have it? */
/* Runners that were made, of a chunk: any of them; NULL: none yet. */
td_runner *td__chunks_any_runner(const td__chunks *c, int chunk);

/* Cut a model for micro-batches of `rows`, to be destroyed by the caller. Which layers a chunk has
 * is decided for those of `usual` rows, by the job, by nodes' wishes or by cost, so that it updates
 * the same params for any number. */
TD_NODISCARD td_status td__model_cut(const td__micro_batch_set_opts *o, int64_t rows, int64_t usual,
                                     const td__pipeline_shape *shape, td__cut **out);

#endif
