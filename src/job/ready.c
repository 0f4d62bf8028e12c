/* ready.c -- ready-made models by name: `model: {name: gpt2, layers: 4}`. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "job/layer.h"

enum { MAX_WIDTHS = 64 };

static td_node *mlp(const td__layer *l, td_node *x)
{
    const int64_t *hidden;
    int n = td__keys_ints(l->arena, l->attrs, "hidden", &hidden);
    int64_t widths[MAX_WIDTHS + 1];
    const char *act = td__keys_text(l->attrs, "act");

    if (n < 0 || n > MAX_WIDTHS)
        return td__layer_fail(l, "expected at most %d hidden layers", MAX_WIDTHS);
    for (int i = 0; i < n; i++)
        widths[i] = hidden[i];
    widths[n] = td__layer_size(l, "classes");
    td_mlp_opts o = {.widths = widths,
                     .n_widths = n + 1,
                     .act = td__act_fused(act),
                     .dropout = td__layer_real(l, "dropout")};
    return widths[n] ? td_model_mlp(l->g, x, &o) : NULL;
}
#define CLASSES TD_KEY_CLASSES("classes", "Output features.")
const td__layer_def td__ready_mlp = {
    "mlp",
    "multi-layer perceptron: linear layers with activations between them",
    {TD_KEY_ROW("hidden", INTS, "Widths of the hidden layers.", .lo = 1, .hi = 1e12,
                .def = "[512, 256]"),
     CLASSES,
     TD_KEY_ROW("act", WORD, "Activation between layers.", .words = "relu gelu gelu_tanh",
                .def = "relu"),
     TD_KEY_DROPOUT},
    mlp};

/* (rows, H, W) is an image of one channel. */
static td_node *image(td_graph *g, td_node *x)
{
    td_shape s = x ? td_node_shape(x) : TD_SCALAR;

    return s.ndim == 3 ? td_reshape(g, x, TD_SHAPE(s.dim[0], 1, s.dim[1], s.dim[2])) : x;
}

static td_node *cnn(const td__layer *l, td_node *x)
{
    td_cnn_opts o = {.classes = td__layer_size(l, "classes"),
                     .dropout = td__layer_real(l, "dropout")};

    return o.classes ? td_model_cnn(l->g, image(l->g, x), &o) : NULL;
}
const td__layer_def td__ready_cnn = {
    "cnn",
    "two 3x3 convolutions, a pool, two linear layers; for small images",
    {CLASSES,
     TD_KEY_ROW("dropout", REAL, "Dropout after the pooling; twice that after the linear layer.",
                .hi = 1, .flags = TD_KEY_BELOW, .def = "0")},
    cnn};

static td_node *lenet5(const td__layer *l, td_node *x)
{
    td_cnn_opts o = {.classes = td__layer_size(l, "classes")};

    return o.classes ? td_model_lenet5(l->g, image(l->g, x), &o) : NULL;
}
const td__layer_def td__ready_lenet5 = {
    "lenet5", "LeCun 1998, for 28x28 images", {CLASSES}, lenet5};

static td_node *resnet(const td__layer *l, td_node *x)
{
    td_resnet_opts o = {.depth = (int)td__layer_int(l, "depth"),
                        .classes = td__layer_size(l, "classes"),
                        .cifar_stem = td__layer_bool(l, "cifar_stem"),
                        .zero_init_residual = td__layer_bool(l, "zero_init_residual"),
                        .width = td__layer_int(l, "width")};

    return o.classes ? td_model_resnet(l->g, image(l->g, x), &o) : NULL;
}
const td__layer_def td__ready_resnet = {
    "resnet",
    "ResNet (He et al. 2015), with torchvision's names and weight initialization",
    {TD_KEY_ROW("depth", INT, "18, 34 or 50.", .lo = 18, .hi = 50, .def = "18"), CLASSES,
     TD_KEY_ROW("width", INT, "Channels of the first stage.", .lo = 1, .hi = 65536, .def = "64"),
     TD_KEY_ROW("cifar_stem", BOOL, "Stem for small images: a 3x3 convolution, no pooling.",
                .def = "false"),
     TD_KEY_ROW("zero_init_residual", BOOL, "The last norm of each block starts at 0.",
                .def = "false")},
    resnet};

/* Embeddings, heads and positions that the models of sequences share. */
#define VOCAB TD_KEY_VOCAB("vocab", "Number of ids.")
#define CONTEXT                                                                             \
    TD_KEY_ROW("context", INT, "Longest sequence.", .lo = 1, .hi = 1e9, .words = "data=-3", \
               .def = "data")
#define LAYERS(n) TD_KEY_ROW("layers", INT, "Blocks.", .lo = 1, .hi = 1000, .def = n)
#define HEADS(n)                                                                             \
    TD_KEY_ROW("heads", INT, "Attention heads; must divide the width.", .lo = 1, .hi = 4096, \
               .def = n)
#define WIDTH(n) TD_KEY_ROW("width", INT, "Model dimension.", .lo = 1, .hi = 1e9, .def = n)

static td_node *lstm_lm(const td__layer *l, td_node *x)
{
    td_lstm_lm_opts o = {.vocab = td__layer_size(l, "vocab"),
                         .width = td__layer_int(l, "width"),
                         .hidden = td__layer_int(l, "hidden"),
                         .layers = (int)td__layer_int(l, "layers"),
                         .dropout = td__layer_real(l, "dropout"),
                         .tied = td__layer_bool(l, "tied")};

    if (!x || !o.vocab)
        return NULL;
    if (td_node_shape(x).ndim != 2)
        return td__layer_fail(l, "expected ids (time), found %d axes", td_node_shape(x).ndim - 1);
    td_node *time_first = td_permute(l->g, x, (const int[]){1, 0});
    return td_permute(l->g, td_model_lstm_lm(l->g, time_first, &o), (const int[]){1, 0, 2});
}
const td__layer_def td__ready_lstm_lm = {
    "lstm_lm",
    "LSTM language model: ids (time) to (time, vocab)",
    {TD_KEY_ROW("hidden", INT, "Hidden state size.", .lo = 1, .hi = 1e6, .def = "256"),
     WIDTH("256"), TD_KEY_ROW("layers", INT, "Stacked.", .lo = 1, .hi = 1000, .def = "2"), VOCAB,
     TD_KEY_DROPOUT,
     TD_KEY_ROW("tied", BOOL, "Tie input and output embeddings; needs width = hidden.",
                .def = "false")},
    lstm_lm};

static td_node *gpt2(const td__layer *l, td_node *x)
{
    td_gpt2_opts o = {.layers = (int)td__layer_int(l, "layers"),
                      .heads = (int)td__layer_int(l, "heads"),
                      .width = td__layer_int(l, "width"),
                      .vocab = td__layer_size(l, "vocab"),
                      .context = td__layer_size(l, "context"),
                      .dropout = td__layer_real(l, "dropout"),
                      .untied = !td__layer_bool(l, "tied")};

    return o.vocab && o.context ? td_model_gpt2(l->g, x, &o) : NULL;
}
const td__layer_def td__ready_gpt2 = {
    "gpt2",
    "GPT-2 (Radford et al. 2019); the defaults are the 124M model: ids (time) to (time, vocab)",
    {LAYERS("12"), HEADS("12"), WIDTH("768"), VOCAB, CONTEXT, TD_KEY_DROPOUT,
     TD_KEY_ROW("tied", BOOL, "Tie input and output embeddings.", .def = "true")},
    gpt2};

/* (rows, time): `there` where padding is, else `elsewhere` */
static td_node *by_padding(td_graph *g, td_node *ids, int64_t padding, float there, float elsewhere)
{
    td_dtype t = td_node_dtype(ids);
    int32_t pad32 = (int32_t)padding;
    const void *pad = t == TD_I32 ? (const void *)&pad32 : &padding;
    td_node *is_pad = td_equal(g, ids, td_constant(g, t, TD_SCALAR, pad));

    return td_where(g, is_pad, td_constant(g, TD_F32, TD_SCALAR, &there),
                    td_constant(g, TD_F32, TD_SCALAR, &elsewhere));
}

/* Added to the scores: nobody looks at padding. (rows, time, time) */
static td_node *padding_mask(td_graph *g, td_node *ids, int64_t padding)
{
    td_shape s = td_node_shape(ids);
    td_node *mask = by_padding(g, ids, padding, -1e9F, 0);

    return td_expand(g, td_reshape(g, mask, TD_SHAPE(s.dim[0], 1, s.dim[1])),
                     TD_SHAPE(s.dim[0], s.dim[1], s.dim[1]));
}

#define PADDING                                                                   \
    TD_KEY_ROW("padding", INT, "Padding id, which is ignored.", .hi = 2147483647, \
               .words = "none=-1", .def = "none")

static td_node *encoder(const td__layer *l, td_node *x)
{
    const char *act = td__keys_text(l->attrs, "act"), *pool = td__keys_text(l->attrs, "pool");
    td_encoder_opts o = {.layers = (int)td__layer_int(l, "layers"),
                         .heads = (int)td__layer_int(l, "heads"),
                         .width = td__layer_int(l, "width"),
                         .ff = td__layer_int(l, "ff"),
                         .vocab = td__layer_size(l, "vocab"),
                         .context = td__layer_size(l, "context"),
                         .classes = td__layer_size(l, "classes"),
                         .dropout = td__layer_real(l, "dropout"),
                         .act = td__act_fused(act),
                         .pre_norm = td__layer_bool(l, "pre_norm"),
                         .pool = pool[0] == 'm' ? TD_POOL_MEAN : TD_POOL_CLS};
    int64_t padding = td__layer_int(l, "padding");

    if (!x || !o.vocab || !o.classes || !o.context)
        return NULL;
    if (padding >= 0 && td_node_shape(x).ndim == 2)
        o.mask = padding_mask(l->g, x, padding);
    if (padding >= 0 && td_node_shape(x).ndim == 2 && o.pool == TD_POOL_MEAN)
        o.real = by_padding(l->g, x, padding, 0, 1);
    return td_model_encoder(l->g, x, &o);
}
const td__layer_def td__ready_encoder = {
    "encoder",
    "transformer encoder that classifies sequences: ids (time) to (classes)",
    {LAYERS("6"), HEADS("8"), WIDTH("512"),
     TD_KEY_ROW("ff", INT, "Feed-forward width; 0: 4 times the width.", .hi = 1e6, .def = "0"),
     VOCAB, CONTEXT, CLASSES, TD_KEY_DROPOUT,
     TD_KEY_ROW("act", WORD, "Feed-forward activation.", .words = "relu gelu gelu_tanh",
                .def = "gelu"),
     TD_KEY_ROW("pre_norm", BOOL, "Normalize before each sublayer instead of after it.",
                .def = "true"),
     TD_KEY_ROW("pool", WORD, "Pooling: the first position, or the mean of all but padding.",
                .words = "first mean", .def = "mean"),
     PADDING},
    encoder};

static td_node *text_classifier(const td__layer *l, td_node *x)
{
    td__layer bag = *l, fc = *l;

    bag.name = "embedding";
    fc.name = "fc";
    td_node *y = td__layer_bag.build(&bag, x);
    y = td_nn_dropout(l->g, y, td__layer_real(l, "dropout"));
    int64_t out = td__layer_size(l, "classes");
    return out ? td_nn_linear(l->g, fc.name, y, out, NULL) : NULL;
}
const td__layer_def td__ready_text_classifier = {
    "text_classifier",
    "bag of words: mean of the embeddings, then a linear layer: ids (length) to (classes)",
    {WIDTH("64"), VOCAB, CLASSES, PADDING,
     TD_KEY_ROW("sum", BOOL, "Sum instead of mean.", .def = "false"), TD_KEY_DROPOUT},
    text_classifier};
