/* layers_sequence.c -- layers over sequences. Data is always (rows, time, ...): recurrent layers,
 * which want time first, turn it themselves. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "job/build.h"
#include "optim/row_optim.h"

/* What tables of embedding and bag have in common; init lives as long as the options. */
static td_nn_embedding_opts table_opts(const td__layer *l, td_init *init)
{
    *init = (td_init){.kind = TD_INIT_NORMAL, .b = td__layer_real(l, "std")};
    return (td_nn_embedding_opts){.sparse = td__layer_bool(l, "sparse"), .weight_init = init};
}
#define SPARSE                                                                                \
    TD_KEY_ROW("sparse", BOOL,                                                                \
               "Row-sparse gradient: a step costs what the rows that it reads cost, not the " \
               "whole table.",                                                                \
               .def = "false", .flags = TD_KEY_LATER)
#define STD                                                                         \
    TD_KEY_ROW("std", REAL, "Standard deviation of the initial values.", .hi = 1e6, \
               .flags = TD_KEY_LATER, .def = "1")

/* A table of which only the rows of a batch come to this rank (ps/tables.h). */
static td_node *on_servers(const td__layer *l, td_node *x, int64_t vocab)
{
    const td__train_opts *o = &l->b->job->train;
    td__model_nodes *out = l->b->out;
    const td__field *f = td__layer_field(l, x);
    td_init zeros = {.kind = TD_INIT_ZEROS};
    td_nn_embedding_opts e = {.sparse = true, .weight_init = &zeros};
    td__row_optim optim;

    if (!o->sync.servers)
        return td__layer_fail(l, "on: servers needs parameter servers: set parallel.servers "
                                 "(--servers) and train.sync");
    if (!f || (f->dtype != TD_I32 && f->dtype != TD_I64))
        return td__layer_fail(l, "on: servers needs ids that are a data field");
    if (td__row_optim_init(&optim, &o->optim))
        return td__layer_fail(l, "on: servers: %s", td_last_error());
    if (o->batch_per_rank)
        return td__layer_fail(l, "on: servers needs to know how many ids a batch has: set "
                                 "train.batch, not train.batch_per_rank");
    if (out->n_tables == TD__MAX_TABLES)
        return td__layer_fail(l, "at most %d tables can be on servers", TD__MAX_TABLES);
    int64_t batch = o->eval_batch > o->batch ? o->eval_batch : o->batch;
    int64_t most = batch * td_shape_count(&f->shape);
    td__model_table *t = &out->table[out->n_tables++];
    *t = (td__model_table){.vocab = vocab,
                           .std = td__layer_real(l, "std"),
                           .min_count = td__layer_int(l, "min_count"),
                           .expire = td__layer_int(l, "expire"),
                           .ahead = td__layer_bool(l, "ahead"),
                           .memory = (size_t)(td__layer_real(l, "memory_mb") * (1 << 20))};
    snprintf(t->param, sizeof t->param, "%s.weight", l->name);
    snprintf(t->ids, sizeof t->ids, "%s", f->name);
    return td_nn_embedding(l->g, l->name, x, most < vocab ? most : vocab, td__layer_int(l, "width"),
                           &e);
}

static td_node *embedding(const td__layer *l, td_node *x)
{
    int64_t rows = td__layer_size(l, "vocab");
    td_init init;
    td_nn_embedding_opts o = table_opts(l, &init);

    if (!rows)
        return NULL;
    if (!strcmp(td__keys_text(l->attrs, "on"), "servers"))
        return on_servers(l, x, rows);
    return td_nn_embedding(l->g, l->name, x, rows, td__layer_int(l, "width"), &o);
}
#define WIDTH \
    TD_KEY_ROW("width", INT, "Embedding dimension.", .lo = 1, .hi = 1e9, .flags = TD_KEY_REQUIRED)
const td__layer_def td__layer_embedding = {
    "embedding",
    "embedding table, one trained vector per id: (...) to (..., width)",
    {WIDTH, TD_KEY_VOCAB("vocab", "Number of ids."), SPARSE, STD,
     TD_KEY_ROW("on", WORD,
                "Where the table is: on every rank; or on parameter servers (parallel.servers), "
                "whose rows are made when an id is first used: a table may be larger than a "
                "rank's memory. See docs/algorithms-training.md.",
                .words = "ranks servers", .def = "ranks", .flags = TD_KEY_LATER),
     TD_KEY_ROW("min_count", INT,
                "on servers: batches that an id is in until it has a row; before, it reads as "
                "zeros.",
                .lo = 1, .hi = 1e9, .def = "1", .flags = TD_KEY_LATER),
     TD_KEY_ROW("expire", INT,
                "on servers: steps without a gradient after which a row is dropped, when ranks "
                "meet.",
                .words = "never=0", .hi = 1e12, .def = "never", .flags = TD_KEY_LATER),
     TD_KEY_ROW("memory_mb", REAL,
                "on servers: MiB of rows that a server has in memory; the others are in a file. "
                "0: no limit.",
                .hi = 1e9, .def = "0", .flags = TD_KEY_LATER),
     TD_KEY_ROW("ahead", BOOL,
                "on servers, but for the sync rule sync: pull the rows of the batch that is "
                "probably the next while this one computes; they are then a batch older.",
                .def = "false", .flags = TD_KEY_LATER)},
    embedding};

static td_node *bag(const td__layer *l, td_node *x)
{
    td_shape s = x ? td_node_shape(x) : TD_SCALAR;
    td_dtype t = x ? td_node_dtype(x) : TD_I32;
    int64_t vocab = td__layer_size(l, "vocab"), padding = td__layer_int(l, "padding");

    if (!x || !vocab)
        return NULL;
    if (s.ndim != 2 || (t != TD_I32 && t != TD_I64)) {
        char text[128];
        return td__layer_fail(l, "expected ids (length), found %s%s", td_dtype_name(t),
                              td_shape_text(&s, text, sizeof text));
    }
    int32_t *starts = td__arena_alloc(l->arena, (size_t)(s.dim[0] + 1) * sizeof *starts);
    if (!starts)
        return td__layer_fail(l, "out of memory");
    for (int64_t i = 0; i < s.dim[0]; i++)
        starts[i] = (int32_t)(i * s.dim[1]);
    td_node *offsets = td_constant(l->g, TD_I32, TD_SHAPE(s.dim[0]), starts);
    if (padding >= 0) { /* ids below 0 are left out */
        int32_t pad32 = (int32_t)padding, none32 = -1;
        int64_t none64 = -1;
        const void *pad = t == TD_I32 ? (const void *)&pad32 : &padding;
        const void *none = t == TD_I32 ? (const void *)&none32 : &none64;
        x = td_where(l->g, td_equal(l->g, x, td_constant(l->g, t, TD_SCALAR, pad)),
                     td_constant(l->g, t, TD_SCALAR, none), x);
    }
    td_init init;
    td_nn_embedding_opts o = table_opts(l, &init);
    o.mode = td__layer_bool(l, "sum") ? TD_BAG_SUM : TD_BAG_MEAN;
    return td_nn_embedding_bag(l->g, l->name, td_reshape(l->g, x, TD_SHAPE(-1)), offsets, vocab,
                               td__layer_int(l, "width"), &o);
}
const td__layer_def td__layer_bag = {
    "bag",
    "mean of the embeddings of a sample's ids: (length) to (width)",
    {WIDTH, TD_KEY_VOCAB("vocab", "Number of ids."),
     TD_KEY_ROW("padding", INT, "Padding id, which is ignored.", .hi = 2147483647,
                .words = "none=-1", .def = "none"),
     TD_KEY_ROW("sum", BOOL, "Sum instead of mean.", .def = "false"), SPARSE, STD},
    bag};

static td_node *position(const td__layer *l, td_node *x)
{
    td_shape s = x ? td_node_shape(x) : TD_SCALAR;

    if (!x)
        return NULL;
    if (s.ndim != 3)
        return td__layer_fail(l, "expected (time, width), found %d axes", s.ndim - 1);
    char *name = td__arena_printf(l->arena, "%s.weight", l->name);
    td_init init = {.kind = TD_INIT_NORMAL, .b = 0.02};
    return name ? td_add(l->g, x, td_param(l->g, name, TD_SHAPE(s.dim[1], s.dim[2]), init))
                : td__layer_fail(l, "out of memory");
}
const td__layer_def td__layer_position = {
    "position", "adds a trained vector per position", {TD_KEYS_END}, position};

static td_node *swap_time(td_graph *g, td_node *x)
{
    return td_permute(g, x, (const int[]){1, 0, 2});
}

/* lstm and gru, which differ in the call. */
static td_node *recurrent(const td__layer *l, td_node *x,
                          td_node *(*call)(td_graph *, const char *, td_node *, int64_t,
                                           const td_nn_rnn_opts *))
{
    td_nn_rnn_opts o = {.layers = (int)td__layer_int(l, "layers"),
                        .dropout = td__layer_real(l, "dropout"),
                        .bidirectional = td__layer_bool(l, "bidirectional")};

    if (x && td_node_shape(x).ndim != 3)
        return td__layer_fail(l, "expected (time, width), found %d axes",
                              td_node_shape(x).ndim - 1);
    return swap_time(l->g, call(l->g, l->name, swap_time(l->g, x), td__layer_int(l, "hidden"), &o));
}
static td_node *lstm(const td__layer *l, td_node *x)
{
    return recurrent(l, x, td_nn_lstm);
}
static td_node *gru(const td__layer *l, td_node *x)
{
    return recurrent(l, x, td_nn_gru);
}
#define RECURRENT_KEYS                                                                            \
    {                                                                                             \
        TD_KEY_ROW("hidden", INT, "Hidden state size.", .lo = 1, .hi = 1e6,                       \
                   .flags = TD_KEY_REQUIRED),                                                     \
            TD_KEY_ROW("layers", INT, "Stacked.", .lo = 1, .hi = 1000, .def = "1"),               \
            TD_KEY_DROPOUT,                                                                       \
            TD_KEY_ROW("bidirectional", BOOL,                                                     \
                       "Also from the last step to the first: (time, 2 hidden).", .def = "false", \
                       .flags = TD_KEY_LATER)                                                     \
    }
const td__layer_def td__layer_lstm = {
    "lstm", "long short-term memory: (time, width) to (time, hidden)", RECURRENT_KEYS, lstm};
const td__layer_def td__layer_gru = {
    "gru", "gated recurrent units: (time, width) to (time, hidden)", RECURRENT_KEYS, gru};

#define HEADS                                                                                \
    TD_KEY_ROW("heads", INT, "Attention heads; must divide the width.", .lo = 1, .hi = 4096, \
               .flags = TD_KEY_REQUIRED)
#define CAUSAL \
    TD_KEY_ROW("causal", BOOL, "Causal mask: attend to earlier positions only.", .def = "false")

static td_node *attention(const td__layer *l, td_node *x)
{
    td_nn_attention_opts o = {.causal = td__layer_bool(l, "causal"),
                              .no_bias = !td__layer_bool(l, "bias")};

    return td_nn_multi_head_attention(l->g, l->name, x, (int)td__layer_int(l, "heads"), &o);
}
const td__layer_def td__layer_attention = {
    "attention",
    "multi-head self-attention: (time, width) to the same",
    {HEADS, CAUSAL, TD_KEY_ROW("bias", BOOL, "Add biases.", .def = "true")},
    attention};

static td_node *transformer_block(const td__layer *l, td_node *x)
{
    td_nn_transformer_opts o = {.ff = td__layer_int(l, "ff"),
                                .act = td__act_fused(td__keys_text(l->attrs, "act")),
                                .dropout = td__layer_real(l, "dropout"),
                                .pre_norm = td__layer_bool(l, "pre_norm"),
                                .attention = {.causal = td__layer_bool(l, "causal")}};

    return td_nn_transformer_block(l->g, l->name, x, (int)td__layer_int(l, "heads"), &o);
}
const td__layer_def td__layer_transformer_block = {
    "transformer_block",
    "transformer block: attention and feed-forward layers, each with a residual and a norm",
    {HEADS,
     TD_KEY_ROW("ff", INT, "Feed-forward width; 0: 4 times the width.", .hi = 1e6, .def = "0"),
     CAUSAL,
     TD_KEY_ROW("act", WORD, "Feed-forward activation.", .words = "relu gelu gelu_tanh",
                .def = "gelu"),
     TD_KEY_DROPOUT,
     TD_KEY_ROW("pre_norm", BOOL, "Normalize before each sublayer instead of after it.",
                .def = "true")},
    transformer_block};
