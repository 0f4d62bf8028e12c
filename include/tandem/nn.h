/* tandem/nn.h -- layers and ready-made models: functions that add nodes and named params.
 *
 * Names     A layer called "fc1" has params "fc1.weight", "fc1.bias": PyTorch's names, so that
 *           weights can be exchanged. Layers push no scope around their params; a caller who does
 *           gets "scope/fc1.weight". Nodes are named "fc1/linear".
 * Init      The defaults of the PyTorch layer of the same name, unless an option says otherwise.
 * Options   May be NULL; zero means default.
 * Errors    As in tandem/graph.h: NULL, and the graph keeps the first error. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_NN_H
#define TD_NN_H

#include "tandem/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* x (..., K) -> (..., out). Params weight (out, K), bias (out). */
typedef struct td_nn_linear_opts {
    bool no_bias;
    td_act act;
    const td_init *weight_init, *bias_init; /* NULL: uniform within 1/sqrt(K) */
} td_nn_linear_opts;
TD_API td_node *td_nn_linear(td_graph *g, const char *name, td_node *x, int64_t out,
                             const td_nn_linear_opts *o);

/* x (N, C, H, W) -> (N, out, H', W') with a kernel of size x size. Params weight, bias. */
typedef struct td_nn_conv2d_opts {
    td_conv2d_opts conv;
    bool no_bias;
    int width; /* the kernel is size x width; 0: size x size */
    bool same; /* pad so that H' = H and W' = W; strides are 1, conv.pad is not read */
    const td_init *weight_init, *bias_init; /* NULL: uniform within 1/sqrt(C/groups size^2) */
} td_nn_conv2d_opts;
TD_API td_node *td_nn_conv2d(td_graph *g, const char *name, td_node *x, int64_t out, int size,
                             const td_nn_conv2d_opts *o);
/* x (N, T, C) -> (N, T', out), over time. Of the options the second number of stride, pad and
 * dilation is read. Params as of torch.nn.Conv1d: weight (out, C/groups, size), bias. */
TD_API td_node *td_nn_conv1d(td_graph *g, const char *name, td_node *x, int64_t out, int size,
                             const td_nn_conv2d_opts *o);

/* Norms. Params weight (ones) and bias (zeros); batch_norm: states running_mean, running_var. */
typedef struct td_nn_norm_opts {
    double eps;      /* 1e-5 (rms_norm 1e-6) */
    double momentum; /* batch_norm: 0.1 */
    const td_init *weight_init;
    bool sync; /* batch_norm: a trainer takes the statistics of the whole batch, over micro-batches,
                * threads and ranks; a program alone has those of what it is given */
} td_nn_norm_opts;
TD_API td_node *td_nn_batch_norm(td_graph *g, const char *name, td_node *x,
                                 const td_nn_norm_opts *o);
TD_API td_node *td_nn_layer_norm(td_graph *g, const char *name, td_node *x,
                                 const td_nn_norm_opts *o);
TD_API td_node *td_nn_rms_norm(td_graph *g, const char *name, td_node *x, const td_nn_norm_opts *o);
TD_API td_node *td_nn_group_norm(td_graph *g, const char *name, td_node *x, int groups,
                                 const td_nn_norm_opts *o);

/* Table weight (rows, width), normal(0, 1). */
typedef struct td_nn_embedding_opts {
    bool sparse;      /* row-sparse gradient */
    td_bag_mode mode; /* embedding_bag */
    const td_init *weight_init;
    td_node **table; /* if not NULL, receives the table: for weight tying */
} td_nn_embedding_opts;
TD_API td_node *td_nn_embedding(td_graph *g, const char *name, td_node *ids, int64_t rows,
                                int64_t width, const td_nn_embedding_opts *o);
TD_API td_node *td_nn_embedding_bag(td_graph *g, const char *name, td_node *ids, td_node *offsets,
                                    int64_t rows, int64_t width, const td_nn_embedding_opts *o);

/* Recurrent layers over (T, B, I) -> (T, B, hidden), stacked. Params weight_ih_l0, weight_hh_l0,
 * bias_ih_l0, bias_hh_l0, then ..._l1: uniform within 1/sqrt(hidden). First states are zeros unless
 * h0, c0 (arrays of `layers` nodes (B, hidden)) are given; h_last, c_last, if not NULL, are arrays
 * of `layers` that receive the last ones. bidirectional: each layer also runs from the last step to
 * the first, with params ..._l0_reverse; the result is (T, B, 2 hidden), and the arrays have two
 * nodes for each layer, forward and reverse. */
typedef struct td_nn_rnn_opts {
    int layers;     /* 1 */
    double dropout; /* between layers */
    td_node *const *h0, *const *c0;
    td_node **h_last, **c_last;
    bool bidirectional;
} td_nn_rnn_opts;
TD_API td_node *td_nn_lstm(td_graph *g, const char *name, td_node *x, int64_t hidden,
                           const td_nn_rnn_opts *o);
TD_API td_node *td_nn_gru(td_graph *g, const char *name, td_node *x, int64_t hidden,
                          const td_nn_rnn_opts *o);

/* Self-attention over x (B, T, E) in `heads` heads: torch.nn.MultiheadAttention with batch_first.
 * Params in_proj_weight (3E, E), in_proj_bias, out_proj.weight, out_proj.bias. */
typedef struct td_nn_attention_opts {
    bool causal;
    td_node *mask; /* added to the scores: f32 (T, T) or (B, T, T) */
    bool no_bias;
} td_nn_attention_opts;
TD_API td_node *td_nn_multi_head_attention(td_graph *g, const char *name, td_node *x, int heads,
                                           const td_nn_attention_opts *o);

/* Attention, then a two-layer network, each with a residual and a layer norm:
 * torch.nn.TransformerEncoderLayer with batch_first. Params self_attn.*, linear1, linear2, norm1,
 * norm2. */
typedef struct td_nn_transformer_opts {
    int64_t ff;     /* width of the inner layer; 4E */
    td_act act;     /* NONE means relu */
    double dropout; /* after attention, after the activation, after linear2; 0 */
    double eps;     /* 1e-5 */
    bool pre_norm;  /* norm before rather than after ("norm_first") */
    td_nn_attention_opts attention;
} td_nn_transformer_opts;
TD_API td_node *td_nn_transformer_block(td_graph *g, const char *name, td_node *x, int heads,
                                        const td_nn_transformer_opts *o);

/* td_dropout, or x itself when p is 0. */
TD_API td_node *td_nn_dropout(td_graph *g, td_node *x, double p);

/* Models. Each adds a whole network to g and returns its logits. They take inputs that the caller
 * made (td_input), so the caller chooses batch size and types. */

/* x (B, ...) flattened -> fc1, act, ..., fcN -> (B, widths[n - 1]). */
typedef struct td_mlp_opts {
    const int64_t *widths; /* of all layers, the last one the number of classes */
    int n_widths;          /* 0: 512, 256, 10 */
    td_act act;            /* NONE means relu */
    double dropout;        /* after each activation */
} td_mlp_opts;
TD_API td_node *td_model_mlp(td_graph *g, td_node *x, const td_mlp_opts *o);

/* x (B, C, 28, 28) or the like -> conv1 3x3 32, conv2 3x3 64, max pool 2, fc1 128, fc2. */
typedef struct td_cnn_opts {
    int64_t classes; /* 10 */
    double dropout;  /* after the pool (p) and after fc1 (2p, at most 0.9); 0 */
} td_cnn_opts;
TD_API td_node *td_model_cnn(td_graph *g, td_node *x, const td_cnn_opts *o);

/* LeCun 1998 on (B, C, 28, 28): conv1 5x5 6 pad 2, conv2 5x5 16, fc1 120, fc2 84, fc3; tanh and
 * average pools. Only classes is read from the options. */
TD_API td_node *td_model_lenet5(td_graph *g, td_node *x, const td_cnn_opts *o);

/* He 2015 with torchvision's names and initialisation. x (B, 3, H, W). */
typedef struct td_resnet_opts {
    int depth;               /* 18 (default), 34, 50 */
    int64_t classes;         /* 1000; 10 with the CIFAR stem */
    bool cifar_stem;         /* conv 3x3 stride 1, no max pool; else conv 7x7 stride 2, max pool */
    bool zero_init_residual; /* the last norm of each block starts at 0 */
    int64_t width;           /* channels of the first stage: 64 */
} td_resnet_opts;
TD_API td_node *td_model_resnet(td_graph *g, td_node *x, const td_resnet_opts *o);

/* ids (T, B), time first -> (T, B, vocab). Params encoder, rnn, decoder, as in PyTorch's
 * word_language_model example. */
typedef struct td_lstm_lm_opts {
    int64_t vocab;         /* 256 */
    int64_t width, hidden; /* 256 */
    int layers;            /* 2 */
    double dropout;
    bool tied; /* decoder.weight is encoder.weight; needs width == hidden */
} td_lstm_lm_opts;
TD_API td_node *td_model_lstm_lm(td_graph *g, td_node *ids, const td_lstm_lm_opts *o);

/* ids (n), offsets (B): the bags' starts -> (B, classes). Params embedding, fc. */
typedef struct td_text_classifier_opts {
    int64_t vocab;   /* 20000 */
    int64_t width;   /* 64 */
    int64_t classes; /* 4 */
    bool sum;        /* of the words' vectors, rather than their mean */
    bool sparse;     /* row-sparse gradient of the table */
} td_text_classifier_opts;
TD_API td_node *td_model_text_classifier(td_graph *g, td_node *ids, td_node *offsets,
                                         const td_text_classifier_opts *o);

/* Radford 2019. ids (B, T), T <= context -> (B, T, vocab). Names as in HuggingFace and nanoGPT
 * ("transformer.h.0.attn.c_attn.weight"); all matrices are (out, in), as nanoGPT's, which is the
 * transpose of HuggingFace's Conv1D. The defaults are the 124M model. */
typedef struct td_gpt2_opts {
    int layers;      /* 12 */
    int heads;       /* 12 */
    int64_t width;   /* 768 */
    int64_t vocab;   /* 50257 */
    int64_t context; /* 1024: rows of the position table */
    double dropout;
    bool untied; /* lm_head.weight of its own rather than the token table */
} td_gpt2_opts;
TD_API td_node *td_model_gpt2(td_graph *g, td_node *ids, const td_gpt2_opts *o);

/* Transformer encoder with a classification head. ids (B, T), T <= context -> (B, classes).
 * Params embed, position, layers.0 ..., norm (pre_norm only), head. */
typedef enum td_pool_mode { TD_POOL_CLS, TD_POOL_MEAN } td_pool_mode; /* first position; mean */
typedef struct td_encoder_opts {
    int layers;      /* 6 */
    int heads;       /* 8 */
    int64_t width;   /* 512 */
    int64_t ff;      /* 4 width */
    int64_t vocab;   /* 30522 */
    int64_t context; /* 512 */
    int64_t classes; /* 2 */
    double dropout;
    td_act act; /* NONE means gelu */
    bool pre_norm;
    td_pool_mode pool;
    td_node *mask; /* as in td_nn_attention_opts: for padded batches */
    td_node
        *real; /* f32 (B, T): 1 for tokens, 0 for padding, which the mean leaves out; NULL: all */
} td_encoder_opts;
TD_API td_node *td_model_encoder(td_graph *g, td_node *ids, const td_encoder_opts *o);

#ifdef __cplusplus
}
#endif
#endif
