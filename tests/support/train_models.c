/* train_models.c -- see train_models.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "support/train_models.h"

#include <stdlib.h>
#include <string.h>

#include "support/check.h"
#include "tandem/tandem.h"

static void set_nodes(td_graph *g, td_node *logits, td_node *y, td__model_nodes *out)
{
    *out = (td__model_nodes){.loss = td_softmax_cross_entropy(g, logits, y, NULL),
                             .output = logits,
                             .metrics = {{"accuracy", td_accuracy(g, logits, y, 1), true}},
                             .n_metrics = 1,
                             .inputs = {"x", "y"},
                             .n_inputs = 2};
}

static td_status mlp(void *user, td_graph *g, int64_t rows, td__model_nodes *out)
{
    static const int64_t WIDTHS[] = {33, 17, 5};
    (void)user;
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(rows, 20));
    td_node *y = td_input(g, "y", TD_I32, TD_SHAPE(rows));
    td_mlp_opts o = {.widths = WIDTHS, .n_widths = 3};
    set_nodes(g, td_model_mlp(g, x, &o), y, out);
    return TD_OK;
}

static td_status cnn(void *user, td_graph *g, int64_t rows, td__model_nodes *out)
{
    (void)user;
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(rows, 3, 8, 8));
    td_node *y = td_input(g, "y", TD_I32, TD_SHAPE(rows));
    td_node *h = td_nn_conv2d(g, "conv", x, 8, 3, NULL);
    h = td_relu(g, td_nn_batch_norm(g, "norm", h, NULL));
    h = td_nn_dropout(g, td_reshape(g, h, TD_SHAPE(rows, -1)), 0.25);
    set_nodes(g, td_nn_linear(g, "fc", h, 5, NULL), y, out);
    return TD_OK;
}

static td_status gpt(void *user, td_graph *g, int64_t rows, td__model_nodes *out)
{
    (void)user;
    td_node *x = td_input(g, "x", TD_I32, TD_SHAPE(rows, 8));
    td_node *y = td_input(g, "y", TD_I32, TD_SHAPE(rows, 8));
    td_gpt2_opts o = {
        .layers = 2, .heads = 2, .width = 32, .vocab = 19, .context = 8, .dropout = 0.1};
    set_nodes(g, td_model_gpt2(g, x, &o), y, out);
    return TD_OK;
}

/* A row-sparse table. */
static td_status words(void *user, td_graph *g, int64_t rows, td__model_nodes *out)
{
    (void)user;
    td_node *x = td_input(g, "x", TD_I32, TD_SHAPE(rows, 8));
    td_node *y = td_input(g, "y", TD_I32, TD_SHAPE(rows, 8));
    td_nn_embedding_opts o = {.sparse = true};
    td_node *h = td_tanh(g, td_nn_embedding(g, "table", x, 40, 12, &o));
    set_nodes(g, td_nn_linear(g, "fc", h, 19, NULL), y, out);
    return TD_OK;
}

td_status spirals_build(void *user, td_graph *g, int64_t rows, td__model_nodes *out)
{
    static const int64_t WIDTHS[] = {32, 3};
    (void)user;
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(rows, 2));
    td_node *y = td_input(g, "y", TD_I32, TD_SHAPE(rows));
    td_mlp_opts o = {.widths = WIDTHS, .n_widths = 2, .dropout = 0.05};
    set_nodes(g, td_model_mlp(g, x, &o), y, out);
    return TD_OK;
}

const train_model TRAIN_MODELS[] = {
    {"mlp", "sgd", TD_F32, mlp, {1, {20}}, false, 5, true},
    {"mlp bf16", "adamw", TD_BF16, mlp, {1, {20}}, false, 5, true},
    {"mlp lamb", "lamb", TD_F32, mlp, {1, {20}}, false, 5, true},
    {"cnn", "sgd", TD_F32, cnn, {3, {3, 8, 8}}, false, 5, false},
    {"cnn bf16", "adam", TD_BF16, cnn, {3, {3, 8, 8}}, false, 5, false},
    {"gpt", "adamw", TD_F32, gpt, {1, {8}}, true, 19, false},
    {"gpt bf16", "adamw", TD_BF16, gpt, {1, {8}}, true, 19, false},
    {"words", "adam", TD_F32, words, {1, {8}}, true, 19, true},
};
const int N_TRAIN_MODELS = sizeof TRAIN_MODELS / sizeof *TRAIN_MODELS;

/* ---- Data ------------------------------------------------------------------------------------ */

typedef struct memory {
    td__dataset head;
    uint8_t *data[2];
} memory;

static void memory_destroy(td__dataset *d)
{
    free(((memory *)d)->data[0]);
    free(((memory *)d)->data[1]);
    free(d);
}

static td_status memory_read(td__dataset *d, const int64_t *index, int64_t n, const td__draw *draw,
                             void *const *out)
{
    (void)draw;
    for (int f = 0; f < 2; f++) {
        size_t nbytes = td__field_nbytes(&d->fields[f]);
        for (int64_t i = 0; i < n; i++)
            memcpy((char *)out[f] + (size_t)i * nbytes,
                   ((memory *)d)->data[f] + (size_t)index[i] * nbytes, nbytes);
    }
    return TD_OK;
}

static const td__dataset_ops MEMORY = {.destroy = memory_destroy, .read = memory_read};

td__dataset *train_model_data(const train_model *m, int64_t count, unsigned seed)
{
    memory *d = calloc(1, sizeof *d);
    uint32_t random = seed * 2654435761u + 1;

    d->head = (td__dataset){.ops = &MEMORY, .count = count, .n_fields = 2};
    d->head.fields[0] = (td__field){.name = "x", .dtype = m->ids ? TD_I32 : TD_F32, .shape = m->x};
    d->head.fields[1] = (td__field){.name = "y",
                                    .dtype = TD_I32,
                                    .shape = m->ids ? m->x : (td_shape){0},
                                    .classes = m->classes};
    for (int f = 0; f < 2; f++) {
        size_t nbytes = td__field_nbytes(&d->head.fields[f]) * (size_t)count;
        d->data[f] = malloc(nbytes);
        for (size_t i = 0; i < nbytes; i += 4) {
            random = random * 1664525u + 1013904223u;
            int32_t id = (int32_t)((random >> 8) % (uint32_t)m->classes);
            float x = (float)(random >> 8) / (float)(1 << 23) - 1;
            memcpy(d->data[f] + i, m->ids || f ? (void *)&id : (void *)&x, 4);
        }
    }
    return &d->head;
}
