/* attr.h -- the attributes of operators: the named structs behind td_node.attr.
 *
 * Builders, reference kernels, gradients and backends all read these, and nothing else, to know
 * which variant of an operator a node is. Attributes are plain bytes: comparable with memcmp and
 * copyable with memcpy, so builders zero them first (padding included). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_OPS_ATTR_H
#define TD_OPS_ATTR_H

#include "tandem/ops.h"

typedef struct td_attr_leaf { /* input, param, state, constant */
    td_dtype dtype;
    td_shape shape;
    int layout;       /* td_layout; PLAIN but for inputs that another program makes */
    td_init init;     /* param, state */
    const void *data; /* constant: bytes in the graph's arena, NULL for zeros */
    size_t nbytes;    /* constant: how many */
} td_attr_leaf;

typedef struct td_attr_part {
    int index;
} td_attr_part; /* part: which output */
typedef struct td_attr_affine {
    double scale, shift;
} td_attr_affine;
typedef struct td_attr_clamp {
    double lo, hi;
} td_attr_clamp; /* clamp, clamp_back */
typedef struct td_attr_slope {
    double slope;
} td_attr_slope; /* leaky_relu(_back), huber delta */
typedef struct td_attr_cast {
    td_dtype dtype;
} td_attr_cast;

typedef struct td_attr_matmul {
    td_dtype out_dtype; /* dtype of the result: products are summed in f32 (f64 for f64) first */
    bool ta, tb;
} td_attr_matmul;

typedef struct td_attr_linear { /* linear, linear_back_data, linear_back_weight */
    td_act act; /* linear; back_data: NONE, or GELU_TANH, whose slope at in[2] multiplies dx */
    td_dtype out_dtype; /* back_weight: dtype of dw and db; back_data: dtype of dx; linear: of y */
    bool has_bias;      /* linear: in[2] is there; back_weight: db is wanted */
    bool has_residual;  /* linear with a bias: in[3] is added to y; act is NONE */
    int64_t rows;       /* a product for so many rows at a time, which tells the order of sums; 0:
                           one for all (rewrites/rewrite_classifier.c) */
} td_attr_linear;

typedef struct td_attr_conv2d { /* conv2d, conv2d_back_data, conv2d_back_weight */
    int stride[2], pad[2], dilation[2], groups;
    td_act act; /* conv2d: NONE or RELU */
    bool has_bias;
    td_dtype out_dtype;
    td_shape other; /* back_data: shape of x; back_weight: shape of w */
} td_attr_conv2d;

typedef struct td_attr_pool2d {
    int size[2], stride[2], pad[2];
    td_shape input; /* backs: shape of x */
} td_attr_pool2d;

typedef struct td_attr_norm { /* batch_norm, layer_norm, rms_norm, group_norm and their backs */
    double eps;
    double momentum;   /* batch_norm: weight of the new value in running averages */
    int groups;        /* group_norm */
    td_act act;        /* batch_norm: NONE or RELU */
    bool has_residual; /* batch_norm: in[5] is added before act; the back gives its gradient;
                          layer_norm_back: in[5] is added to dx */
    bool has_running;  /* batch_norm: in[3], in[4] are running mean and variance */
    bool sync;         /* batch_norm: statistics of all micro-batches (rewrite_sync_norm.c) */
    bool by_beta;      /* batch_norm_back of relu alone: in[5] is beta instead of y, whose sign
                          x tells with it */
    bool has_more;     /* batch_norm_back: the last input is added to dy */
} td_attr_norm;

typedef struct td_attr_sync_mean {
    int64_t count; /* elements that each number is a mean of; 0: output 1 is not wanted */
} td_attr_sync_mean;

typedef struct td_attr_xent {
    bool use_ignore;
    int64_t ignore_index;
    double smoothing;
} td_attr_xent;

typedef struct td_attr_linear_xent {
    td_attr_xent loss;
    td_dtype out_dtype; /* of dw */
    int64_t rows;       /* whose logits are there at a time */
} td_attr_linear_xent;

/* xent_piece(_back), xent_join(_back): logits that are cut by classes. */
typedef struct td_attr_xent_piece {
    td_attr_xent loss;
    int64_t first;   /* xent_piece: class of the first logit */
    int64_t classes; /* of all pieces */
} td_attr_xent_piece;

typedef struct td_attr_embedding { /* embedding(_bag) and their backs */
    td_dtype out_dtype;
    bool sparse;
    td_bag_mode mode;
    int64_t rows; /* backs: V */
} td_attr_embedding;

typedef struct td_attr_attention {
    bool causal;
    bool has_mask;
    double scale;        /* never 0 here */
    int heads, kv_heads; /* attention_joined(_back) */
} td_attr_attention;

typedef struct td_attr_rope {
    double base;
    int first_position;
    bool inverse; /* rotate backwards: the gradient */
} td_attr_rope;

typedef struct td_attr_dropout {
    double p;
    uint32_t stream; /* the node's random stream: mask of element i is a function of it */
} td_attr_dropout;

typedef struct td_attr_reduce { /* sum, mean, max and max_back, argmax */
    unsigned axes;              /* bit i: axis i is reduced */
    bool keep;
    td_dtype out_dtype;
} td_attr_reduce;

typedef struct td_attr_shape {
    td_shape shape;
} td_attr_shape; /* reshape, expand */
typedef struct td_attr_permute {
    int axes[TD_MAX_DIMS];
} td_attr_permute;

typedef struct td_attr_slice { /* slice; slice_back pads dy back into zeros of `input` */
    int axis;
    int64_t start, stop, step;
    td_shape input;
} td_attr_slice;

typedef struct td_attr_axis { /* concat, gather, gather_back */
    int axis;
    td_shape input; /* gather_back: shape of x */
} td_attr_axis;

typedef struct td_attr_pad {
    int64_t before[TD_MAX_DIMS], after[TD_MAX_DIMS];
    double value;
} td_attr_pad;

typedef struct td_attr_one_hot {
    int64_t depth;
    td_dtype dtype;
} td_attr_one_hot;

typedef struct td_attr_topk {
    int k;
} td_attr_topk;

typedef struct td_attr_accuracy {
    int k;
    bool use_ignore; /* rows whose target is `ignore` do not count */
    int64_t ignore;
} td_attr_accuracy;

/* fused: a straight-line program of elementwise operators over broadcast inputs, made by rewriting.
 * Operand r < n_in is input r; operand n_in + j is the result of instruction j. */
enum { TD_FUSED_MAX_INSTR = 24, TD_FUSED_MAX_OUT = 4, TD_FUSED_MAX_IN = 10 };
typedef struct td_fused_instr {
    int op; /* a td_opcode whose definition has `scalar` */
    int src[3];
    double attr[2]; /* the operator's attributes as numbers: affine scale/shift, clamp lo/hi,
                               slope; cast is no instruction (types are converted at the edges) */
} td_fused_instr;
typedef struct td_attr_fused {
    int n_instr, n_out;
    td_fused_instr instr[TD_FUSED_MAX_INSTR];
    int result[TD_FUSED_MAX_OUT];     /* operands that are outputs */
    td_dtype dtype[TD_FUSED_MAX_OUT]; /* their types; all have the broadcast shape */
} td_attr_fused;

/* pieces_*: a tensor, or a sum, in pieces. Of the axis, which is `groups` parts of equal size (q, k
 * and v of one projection), piece w has elements [n w / pieces, n (w + 1) / pieces) of each part of
 * n. Pieces [first, first + n) are here; with several ranks the others are with their neighbours,
 * and the runner asks for them (graph/runner_meet.c). */
typedef struct td_attr_pieces {
    int axis, groups;
    int pieces, first, n;
    int ranks;      /* that have pieces; 1: all are here, or the rest stays zero */
    int packed;     /* cut, join: the whole lies piece by piece; what is not here is not touched */
    td_shape whole; /* join: of the result; sum that is scattered: likewise */
    int scatter;    /* sum: only the rows of pieces that are here are needed */
} td_attr_pieces;

/* piece_ids */
typedef struct td_attr_piece_ids {
    int64_t first, rows;
    bool last;
} td_attr_piece_ids;

/* reorder: change the memory order of an image tensor; the shape stays. */
typedef struct td_attr_reorder {
    int to; /* td_layout */
} td_attr_reorder;

#endif
