/* grad_tree.h -- adding up the gradients of micro-batches in the micro-batch tree
 * (micro_batch_tree.h).
 *
 * Words: a partial is the sum of the weighted gradients of one sub-tree. Its dense part is one
 * block: the gradients, then the statistics of the states, as td_runner_grads() lays them out.
 * Row-sparse gradients lie beside it as lists of (row, values), sorted by row. A stack is what one
 * worker has added up so far: partials in rising order of micro-batches.
 *
 * A stack works like a binary counter: a new leaf joins its left sibling if that is there, the pair
 * joins its own, and so on; so a worker holds at most one partial per level and side. The last
 * leaves, which may be run side by side, are left where the runners put them ("lent") with their
 * weights still to be applied: the final sum then reads them in place, which saves a pass over
 * memory.
 *
 * The final sum is a list of blends (dst = a dst + b src) over whole blocks. Blends work
 * element by element, so any number of threads may carry them out slice by slice.
 *
 * A micro-batch without rows is absent: its sibling is passed up as it is.
 *
 * Threads   A pool of blocks may be used by several threads; a stack belongs to one. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_STEP_GRAD_TREE_H
#define TD_STEP_GRAD_TREE_H

#include "base/check.h"
#include "device/device.h"
#include "graph/cut.h"
#include "step/micro_batch_tree.h"
#include "tandem/program.h"

enum {
    /* Partials of a range of micro-batches: one per level and side, and those that are lent. */
    TD__GRAD_RANGE = 96,
    /* Of all compute threads of a rank together: see td__step_threads(). Too many for a stack. */
    TD__GRAD_STACK = 2048,
    TD__MAX_SPARSE = 16
};

/* A block with its lists. */
typedef struct td__grad_block td__grad_block;

/* Row-sparse gradient k of a partial. */
typedef struct td__grad_rows {
    int64_t n;
    int32_t *rows;
    float *values;
} td__grad_rows;

typedef struct td__partial {
    td__subtree tree;
    float weight;          /* still to be applied to the dense part */
    float *dense;          /* NULL: absent */
    td__grad_block *block; /* NULL: absent, or lent by a runner */
} td__partial;

/* What one rank has added up of a step, where ranks' sums are added as they are. */
typedef struct td__grad_share {
    int64_t rows;
    double weight;               /* in the mean of shares (td__step_own_weight) */
    double loss;                 /* weighted by the rows' share of the step, as the gradients */
    const float *grads;          /* the dense part; NULL: no rows */
    const td_sparse_grad *lists; /* (td__grad_sparse_count) */
} td__grad_share;

typedef struct td__grad_pool td__grad_pool;
/* Blocks for gradients of p on ps; a step has at most `micro-batches` micro-batches of p's shapes.
 * */
TD_NODISCARD td_status td__grad_pool_create(const td_program *p, const td_params *ps,
                                            int micro_batches, td__grad_pool **out);
void td__grad_pool_destroy(td__grad_pool *g); /* NULL is allowed; all blocks are back */
/* Have at least `blocks` blocks, so that steps allocate nothing. */
TD_NODISCARD td_status td__grad_pool_reserve(td__grad_pool *g, int blocks);
/* Of the device in whose memory the dense parts lie; row-sparse lists are the host's. */
td_stream *td__grad_stream(const td__grad_pool *g);
size_t td__grad_dense(const td__grad_pool *g); /* floats of the dense part */
int td__grad_sparse_count(const td__grad_pool *g);
int64_t td__grad_sparse_width(const td__grad_pool *g, int k); /* values in a row */
/* A pool whose blocks have the lists of g's alone, no dense part. */
TD_NODISCARD td_status td__grad_pool_like(const td__grad_pool *g, td__grad_pool **out);

/* `at`, room for so many, is the owner's: td__grad_stack s = TD__GRAD_STACK_IN(array). */
typedef struct td__grad_stack {
    int n, room;
    td__partial *at;
    /* (n_limit) What is pushed is added up in these elements of the dense part alone, the rest is
     * never written. Borrowed; NULL: in all elements. */
    const td__param_range *limit;
    int n_limit;
} td__grad_stack;
#define TD__GRAD_STACK_IN(array)           \
    {                                      \
        .room = TD_LEN(array), .at = array \
    }

/* The most blocks that a worker's stack holds while it adds up micro-batches [begin, end), of which
 * it lends the last `lent`. */
int td__grad_blocks_needed(const td__grad_pool *g, int begin, int end, int borrowed);

/* Before r runs micro-batch `micro-batch`, the next one of stack s: give it a block to write to,
 * unless what it writes to its own can be added to the left sibling at once. r NULL: the
 * micro-batch is absent. */
TD_NODISCARD td_status td__grad_bind(td__grad_pool *g, const td__grad_stack *s, int micro_batch,
                                     td_runner *r, float weight, td__partial *leaf);
/* After it has run: add the leaf. */
void td__grad_push(td__grad_pool *g, td__grad_stack *s, const td__partial *leaf, td_runner *r);
/* If it has failed instead: give the block back. */
void td__grad_unbind(td__grad_pool *g, td__partial *leaf);
/* Instead of both, before r runs: its gradients stay where they are, in its own block or (`held`)
 * in one that it is given, and r must not run again before the stack is summed or cleared. Nothing
 * is pushed on top of it. After the run td__grad_borrowed() copies the row-sparse ones, which is
 * nothing to do where there are none. */
TD_NODISCARD td_status td__grad_lend(td__grad_pool *g, td__grad_stack *s, int micro_batch,
                                     td_runner *r, float weight, bool held);
void td__grad_borrowed(const td__grad_pool *g, td__grad_block *b, td_runner *r, float weight);
/* Give the blocks back. */
void td__grad_clear(td__grad_pool *g, td__grad_stack *s);

/* The arrays are the owner's: TD__GRAD_JOINS(n) j; td__grad_sum sum = TD__GRAD_SUM_IN(j). */
typedef struct td__grad_sum {
    int n_ops, room;
    td__blend_op *op;
    /* The row-sparse merges that go with them, and the blocks that are free afterwards. */
    td__grad_block **dst_block, **src_block;
} td__grad_sum;
#define TD__GRAD_JOINS(n)                \
    struct {                             \
        td__blend_op op[n];              \
        td__grad_block *dst[n], *src[n]; \
    }
#define TD__GRAD_SUM_IN(joins)                                                  \
    {                                                                           \
        .room = TD_LEN((joins).op), .op = (joins).op, .dst_block = (joins).dst, \
        .src_block = (joins).src                                                \
    }

/* What is to be done so that siblings in s become one; `all`: also what a full tree of that many
 * micro-batches passes up, so that one partial is left. The stack is as it will be afterwards. */
void td__grad_plan(td__grad_stack *s, bool all, td__grad_sum *sum);
/* Carry out the dense part for elements [begin, begin + count). `on`: the stream of the device in
 * whose memory the dense parts lie, td__grad_stream() for blocks of a pool; NULL: the host's. The
 * call returns when it is done; if the device fails, the next wait for the stream says so. */
void td__grad_blend(td_stream *on, const td__grad_sum *sum, size_t begin, size_t count);
void td__grad_blend_ops(td_stream *on, const td__blend_op *op, int n_ops, size_t begin,
                        size_t count);
/* One of them, with the result in `to`, of the host, and dst as it was. */
void td__grad_blended(td_stream *on, const td__blend_op *op, size_t begin, size_t count, float *to);
/* Elements of a partial, weighted, to the host. */
void td__grad_publish(td_stream *on, const td__partial *p, size_t begin, size_t count, float *to);
/* Carry out the row-sparse part and give back blocks. After all blends. */
void td__grad_finish(td__grad_pool *g, td__grad_sum *sum);
/* Instead: it will not be carried out. */
void td__grad_drop(td__grad_pool *g, td__grad_sum *sum);

/* Row-sparse gradient k of a summed partial. */
td_sparse_grad td__grad_sparse(const td__grad_pool *g, const td__partial *p, int k);
/* Give p, which came from elsewhere, a block of g's, and list k in it. */
TD_NODISCARD td_status td__grad_hold(td__grad_pool *g, td__partial *p);
void td__grad_set_rows(const td__grad_pool *g, td__partial *p, int k, int64_t n,
                       const int32_t *rows, const float *values);
/* Rows of `from` are added to those of `to`. */
void td__grad_merge_rows(const td__grad_pool *g, td__partial *to, const td__partial *from);
void td__grad_no_rows(td__partial *p, int k); /* an empty list k */
/* Multiply the values of all its lists. */
void td__grad_scale_rows(const td__grad_pool *g, td__partial *p, float by);

#endif
