/* compressor.h -- how the gradients of several ranks become one gradient.
 *
 * The gradient block is cut in buckets, front to back in the order in which backward makes them
 * final. As soon as this rank's part of a bucket is final the bucket is posted; a thread of its own
 * (bucket_queue.h) takes buckets in order and calls the compressor's reduce(), which may block: so
 * a compressor is a plain function of a bucket, and overlaps with backward for nothing.
 *
 * The tree of data_parallel.h is the default and keeps the bits of one rank. A compressor gives
 * them up for something else: any algorithm (allreduce), fewer bytes on the wire (bf16, f16, top-k,
 * PowerSGD, 1-bit). What it gets is the sum of this rank's micro-batches, each weighted by its
 * share of the step's rows; what it returns is the sum over ranks, the same bits on all of them.
 *
 * A compressor is one file (compressor_*.c) and one line in compressors.def.
 *
 * Threads   create and destroy: the owner's; step and reduce: the queue's thread, one at a time.
 * Failure   As of the collectives: TD_EPEER and so on; the comm is then of no use. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PARALLEL_COMPRESSOR_H
#define TD_PARALLEL_COMPRESSOR_H

#include "coll/nccl/nccl.h"
#include "tandem/coll.h"
#include "tandem/program.h"

/* Elements [begin, begin + count) of the gradient block. Buckets end where a param ends, unless
 * a param alone is larger than a bucket. */
typedef struct td__bucket {
    size_t begin, count;
    bool exact; /* statistics of states, not gradients: to be added up as they are */
} td__bucket;

enum { TD__WARMUP_AUTO = -1 }; /* warmup_steps: of topk a tenth of the run, of others none */

typedef struct td__compressor_opts {
    td_comm *comm; /* borrowed, all of them */
    const td_params *params;
    const td__bucket *buckets;
    int n_buckets;
    uint64_t seed;
    const char *algo;     /* of collectives; NULL: the comm's choice */
    double ratio;         /* topk: share of elements sent, 0.001 */
    int rank;             /* powersgd: 2 */
    int64_t warmup_steps; /* topk: the share falls from 25 % to ratio over these; powersgd: plain */
    double momentum;      /* topk, onebit: of the optimizer, which then must not apply it itself */
    bool nesterov;
    double clip_norm; /* topk, onebit: local clipping, to clip_norm / sqrt(ranks); 0: none */
    td__nccl *nccl;   /* allreduce: data is memory of GPUs, which this adds up; NULL: the host's */
} td__compressor_opts;

struct td__planner;

typedef struct td__compressor td__compressor;
typedef struct td__compressor_ops {
    const char *name, *help;
    bool compresses;
    bool sgd_only;       /* feeds errors back, which only updates linear in gradients make up for */
    bool takes_momentum; /* the optimizer's momentum is applied here, before the sum */
    bool whole;          /* buckets are posted after backward only: it looks at all of them first */
    int kept; /* blocks of all gradients that it keeps from step to step; momentum aside */
    TD_NODISCARD td_status (*create)(const td__compressor_opts *o, td__compressor **out);
    void (*destroy)(td__compressor *r);
    /* (optional) Step `step` (from 1) begins; local: the whole gradient block if `whole`. */
    TD_NODISCARD td_status (*step)(td__compressor *r, uint64_t step, const float *local);
    /* data: this rank's part of bucket k; becomes the sum over all ranks. */
    TD_NODISCARD td_status (*reduce)(td__compressor *r, int k, float *data);
    /* (optional) The calls that reduce makes for bucket k, which is not exact (step_plan.h); o has
     * no comm. NULL: one sum, of all of it. */
    void (*plan)(struct td__planner *w, const td__compressor_opts *o, int k);
} td__compressor_ops;

/* Every compressor begins with this. */
struct td__compressor {
    const td__compressor_ops *ops;
    td__compressor_opts o;
    /* What this rank sent to others so far, and what the plain sum in f32 would have been. Messages
     * between ranks are counted: of a sum of b bytes over n ranks 2 b (n-1)/n, the least possible;
     * of an all-gather n-1 times this rank's part; of an all-to-all the parts of the others. */
    uint64_t sent_nbytes, plain_nbytes;
};

/* The plain sum of bucket k, as exact ones are; counted. */
TD_NODISCARD td_status td__reduce_plain(td__compressor *r, int k, float *data);
/* Local clipping: what to multiply the gradients of this rank with, so that their norm is at most
 * clip_norm / sqrt(ranks). 1 if it is not finite: that is to be seen. */
float td__reduce_clip(const td__compressor *r, const float *local, size_t count);
/* Bytes that a rank sends in a sum of count f32. */
uint64_t td__reduce_sum_nbytes(const td__compressor *r, size_t count);

#define TD_COMPRESSOR(name) extern const td__compressor_ops td__compressor_##name;
#include "parallel/compress/compressors.def"
#undef TD_COMPRESSOR

/* NULL: there is none of that name. */
const td__compressor_ops *td__compressor_find(const char *name);
/* "none" and the names of all that compress, i = 0, 1, ...; NULL after the last. */
const char *td__compress_word(int i);
const char *td__compressor_list(int i); /* the names, i = 0, 1, ...; NULL after the last */

#endif
