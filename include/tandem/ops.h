/* tandem/ops.h -- the operators: each call adds one node (or a few) to a graph and returns it.
 *
 * Shapes    Row-major. Images are (N, C, H, W), sequences (B, T, ...) unless said otherwise.
 * Types     Floating inputs of one call have one dtype, except that weights may be f32 beside bf16
 *           activations. Indices are i32 or i64.
 * Errors    As in tandem/graph.h: NULL, and the graph keeps the first error. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_OPS_H
#define TD_OPS_H

#include "tandem/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Elementwise with NumPy broadcasting. Comparisons give bool. */
TD_API td_node *td_add(td_graph *g, td_node *a, td_node *b);
TD_API td_node *td_sub(td_graph *g, td_node *a, td_node *b);
TD_API td_node *td_mul(td_graph *g, td_node *a, td_node *b);
TD_API td_node *td_div(td_graph *g, td_node *a, td_node *b);
TD_API td_node *td_pow(td_graph *g, td_node *a, td_node *b); /* a > 0 for the gradient to b */
TD_API td_node *td_maximum(td_graph *g, td_node *a, td_node *b);
TD_API td_node *td_minimum(td_graph *g, td_node *a, td_node *b);
TD_API td_node *td_equal(td_graph *g, td_node *a, td_node *b);
TD_API td_node *td_less(td_graph *g, td_node *a, td_node *b);
TD_API td_node *td_less_equal(td_graph *g, td_node *a, td_node *b);
TD_API td_node *td_where(td_graph *g, td_node *cond, td_node *a, td_node *b);
/* scale*x + shift */
TD_API td_node *td_affine(td_graph *g, td_node *x, double scale, double shift);

/* Elementwise, one input. */
TD_API td_node *td_neg(td_graph *g, td_node *x);
TD_API td_node *td_abs(td_graph *g, td_node *x);
TD_API td_node *td_exp(td_graph *g, td_node *x);
TD_API td_node *td_log(td_graph *g, td_node *x);
TD_API td_node *td_sqrt(td_graph *g, td_node *x);
TD_API td_node *td_rsqrt(td_graph *g, td_node *x);
TD_API td_node *td_square(td_graph *g, td_node *x);
TD_API td_node *td_reciprocal(td_graph *g, td_node *x);
TD_API td_node *td_sin(td_graph *g, td_node *x);
TD_API td_node *td_cos(td_graph *g, td_node *x);
TD_API td_node *td_erf(td_graph *g, td_node *x);
TD_API td_node *td_sign(td_graph *g, td_node *x);  /* gradient 0 */
TD_API td_node *td_floor(td_graph *g, td_node *x); /* gradient 0 */
TD_API td_node *td_clamp(td_graph *g, td_node *x, double lo, double hi);
TD_API td_node *td_relu(td_graph *g, td_node *x);
TD_API td_node *td_leaky_relu(td_graph *g, td_node *x, double slope);
TD_API td_node *td_gelu(td_graph *g, td_node *x);      /* x Phi(x), by erf */
TD_API td_node *td_gelu_tanh(td_graph *g, td_node *x); /* the tanh approximation, as GPT-2 */
TD_API td_node *td_silu(td_graph *g, td_node *x);
TD_API td_node *td_sigmoid(td_graph *g, td_node *x);
TD_API td_node *td_tanh(td_graph *g, td_node *x);
TD_API td_node *td_softplus(td_graph *g, td_node *x);
TD_API td_node *td_cast(td_graph *g, td_node *x, td_dtype to);

/* Linear algebra. matmul: batch sizes broadcast; ta/tb transpose the last two axes.
 * linear: x (..., K), w (N, K), b (N) or NULL; act is fused. */
typedef enum td_act {
    TD_ACT_NONE,
    TD_ACT_RELU,
    TD_ACT_GELU,
    TD_ACT_GELU_TANH,
    TD_ACT_COUNT
} td_act;
TD_API td_node *td_matmul(td_graph *g, td_node *a, td_node *b, bool ta, bool tb);
TD_API td_node *td_linear(td_graph *g, td_node *x, td_node *w, td_node *b, td_act act);

/* Convolution: x (N, C, H, W), w (O, C/groups, KH, KW), b (O) or NULL. Zero means 1 for stride,
 * dilation and groups; groups == C is depthwise. */
typedef struct td_conv2d_opts {
    int stride[2], pad[2], dilation[2];
    int groups;
} td_conv2d_opts;
TD_API td_node *td_conv2d(td_graph *g, td_node *x, td_node *w, td_node *b, const td_conv2d_opts *o);

/* Pools; stride zero means the window's size. avg divides by the full window (padding counts). */
typedef struct td_pool2d_opts {
    int size[2], stride[2], pad[2];
} td_pool2d_opts;
TD_API td_node *td_max_pool2d(td_graph *g, td_node *x, const td_pool2d_opts *o);
TD_API td_node *td_avg_pool2d(td_graph *g, td_node *x, const td_pool2d_opts *o);
TD_API td_node *td_global_avg_pool(td_graph *g, td_node *x); /* (N, C, H, W) -> (N, C, 1, 1) */

/* Normalisation. batch_norm: per channel of (N, C, ...); trains with the statistics of the batch it
 * is given and folds them into running_mean and running_var (states; may be NULL) with weight
 * `momentum`; an evaluation program uses the running ones. layer_norm, rms_norm: last axis. */
TD_API td_node *td_batch_norm(td_graph *g, td_node *x, td_node *gamma, td_node *beta,
                              td_node *running_mean, td_node *running_var, double momentum,
                              double eps);
TD_API td_node *td_layer_norm(td_graph *g, td_node *x, td_node *gamma, td_node *beta, double eps);
TD_API td_node *td_rms_norm(td_graph *g, td_node *x, td_node *gamma, double eps);
TD_API td_node *td_group_norm(td_graph *g, td_node *x, td_node *gamma, td_node *beta, int groups,
                              double eps);

/* Softmax over the last axis, and losses. Losses give one f32 number: the mean over the samples. */
TD_API td_node *td_softmax(td_graph *g, td_node *x);
TD_API td_node *td_log_softmax(td_graph *g, td_node *x);
typedef struct td_xent_opts {
    bool use_ignore; /* positions whose target is ignore_index do not count */
    int64_t ignore_index;
    double smoothing; /* label smoothing, 0..1 */
} td_xent_opts;
/* logits (..., C), target (...) of class indices. */
TD_API td_node *td_softmax_cross_entropy(td_graph *g, td_node *logits, td_node *target,
                                         const td_xent_opts *o);
TD_API td_node *td_bce_with_logits(td_graph *g, td_node *x, td_node *target);
TD_API td_node *td_mse(td_graph *g, td_node *x, td_node *target);
TD_API td_node *td_l1(td_graph *g, td_node *x, td_node *target);
TD_API td_node *td_huber(td_graph *g, td_node *x, td_node *target, double delta);
TD_API td_node *td_nll(td_graph *g, td_node *logp, td_node *target); /* (..., C), (...) */
/* Mean over rows ("batchmean"). */
TD_API td_node *td_kl_div(td_graph *g, td_node *logp, td_node *p);

/* Look-up. embedding: ids (...), table (V, D) -> (..., D). embedding_bag: bag b holds
 * ids[offsets[b] .. offsets[b+1]), the last one up to the end; ids below 0 are padding.
 * `sparse` makes the table's gradient row-sparse: only rows that were looked up are updated. */
typedef enum td_bag_mode { TD_BAG_SUM, TD_BAG_MEAN } td_bag_mode;
TD_API td_node *td_embedding(td_graph *g, td_node *ids, td_node *table, bool sparse);
TD_API td_node *td_embedding_bag(td_graph *g, td_node *ids, td_node *offsets, td_node *table,
                                 td_bag_mode mode, bool sparse);

/* Scaled dot-product attention. q (B, T, H, D), k and v (B, S, Hkv, D), Hkv divides H; mask, if not
 * NULL, is added to the scores: f32, (T, S) or (B, T, S). scale 0 means 1/sqrt(D). -> (B, T, H, D).
 * Computed in blocks: no (T, S) matrix is ever kept. */
typedef struct td_attention_opts {
    bool causal;
    double scale;
} td_attention_opts;
TD_API td_node *td_attention(td_graph *g, td_node *q, td_node *k, td_node *v, td_node *mask,
                             const td_attention_opts *o);
/* Rotary embedding of x (B, T, H, D), D even, halves rotated (as GPT-NeoX); base 0 means 1e4. */
TD_API td_node *td_rope(td_graph *g, td_node *x, double base, int first_position);

/* Recurrent layers over (T, B, I), weights as in PyTorch: w_ih (4H, I), w_hh (4H, H), gates i f g o
 * (gru: 3H, gates r z n). h0, c0 (B, H) or NULL for zeros. Returns (T, B, H); the last states
 * through *h_last, *c_last where not NULL. */
TD_API td_node *td_lstm(td_graph *g, td_node *x, td_node *h0, td_node *c0, td_node *w_ih,
                        td_node *w_hh, td_node *b_ih, td_node *b_hh, td_node **h_last,
                        td_node **c_last);
TD_API td_node *td_gru(td_graph *g, td_node *x, td_node *h0, td_node *w_ih, td_node *w_hh,
                       td_node *b_ih, td_node *b_hh, td_node **h_last);

/* Zero with probability p, scale the rest by 1/(1-p); identity in evaluation programs. */
TD_API td_node *td_dropout(td_graph *g, td_node *x, double p);

/* Reductions over `axes` (n_axes == 0: all). keep leaves axes of size 1. Sums of bf16 are f32. */
TD_API td_node *td_sum(td_graph *g, td_node *x, const int *axes, int n_axes, bool keep);
TD_API td_node *td_mean(td_graph *g, td_node *x, const int *axes, int n_axes, bool keep);
TD_API td_node *td_max(td_graph *g, td_node *x, const int *axes, int n_axes, bool keep);
TD_API td_node *td_norm(td_graph *g, td_node *x, const int *axes, int n_axes, bool keep); /* L2 */
TD_API td_node *td_argmax(td_graph *g, td_node *x, int axis);                             /* i32 */

/* Shape and indices. A size of -1 in reshape is worked out. Negative axes count from the end. */
TD_API td_node *td_reshape(td_graph *g, td_node *x, td_shape shape);
TD_API td_node *td_permute(td_graph *g, td_node *x, const int *axes); /* x's ndim of them */
TD_API td_node *td_slice(td_graph *g, td_node *x, int axis, int64_t start, int64_t stop,
                         int64_t step);
TD_API td_node *td_concat(td_graph *g, td_node *const *xs, int n, int axis);
/* Cut in n equal parts along axis; out[n]. Returns out[0]. */
TD_API td_node *td_split(td_graph *g, td_node *x, int axis, int n, td_node **out);
TD_API td_node *td_gather(td_graph *g, td_node *x, td_node *index, int axis); /* torch.gather */
TD_API td_node *td_pad(td_graph *g, td_node *x, const int64_t *before, const int64_t *after,
                       double value);
TD_API td_node *td_one_hot(td_graph *g, td_node *ids, int64_t depth, td_dtype dtype);
TD_API td_node *td_expand(td_graph *g, td_node *x, td_shape shape); /* broadcast to shape */

/* Metrics; not differentiable. accuracy: share of rows whose target is among the k largest.
 * top_k: values (returned) and indices (i32) of the k largest of the last axis, largest first. */
TD_API td_node *td_accuracy(td_graph *g, td_node *logits, td_node *target, int k);
/* The same of the rows whose target is not *ignore; NULL: of all. */
TD_API td_node *td_accuracy_of(td_graph *g, td_node *logits, td_node *target, int k,
                               const int64_t *ignore);
TD_API td_node *td_top_k(td_graph *g, td_node *x, int k, td_node **indices);

#ifdef __cplusplus
}
#endif
#endif
