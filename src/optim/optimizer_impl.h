/* optimizer_impl.h -- the inside of an optimizer: optimizer.c is its state and its steps,
 * optim_chunks.c the sums over chunks of its params. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_OPTIM_OPTIMIZER_IMPL_H
#define TD_OPTIM_OPTIMIZER_IMPL_H

#include "optim/optimizer.h"

typedef struct segment {
    size_t begin, end; /* elements of the params block */
    bool decay;        /* weight decay and trust ratio apply */
    int chunk;         /* its first one */
    float rate;        /* of whole tensors: the step's learning rate, once it is known */
} segment;

/* Elements [begin, end) are held, from `at` of the state on. */
typedef struct held {
    size_t begin, end, at;
} held;

struct td_optimizer {
    const td__optim_def *def;
    td_optim_opts opts; /* resolved */
    td_params *params;
    td_stream *on;     /* of the params' device */
    segment *segments; /* in rising order */
    int n_segments;
    size_t dense; /* elements of the params block that have dense gradients */
    int *chunks;  /* by param, and one more: its first chunk */
    held *own;    /* NULL: all */
    int n_own;
    /* Where the host does not read the device's memory: the chunks, and the sums that the device
     * makes of them; pinned, made when gradients are clipped by their norm. */
    td_mem chunk_list, chunk_sums;
    bool rates;   /* of this step are known */
    td_mem mem;   /* of the state */
    float *state; /* (n_states, stride) */
    size_t stride, count;
    const char *state_names[TD_OPTIM_MAX_STATE];
    int n_states;
    uint64_t t;
    double grad_norm;
    td__optim_hyper now, now_rows; /* of the step under way */
};

/* Once the chunks are numbered. */
TD_NODISCARD td_status td__optim_make_chunks(td_optimizer *o);
/* Where chunk_list is there: the sums of all dense params, in order. */
void td__optim_add_all_squares(const td_optimizer *o, const float *grads, td__tree_sum *sum);

#endif
