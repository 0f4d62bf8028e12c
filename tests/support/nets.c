/* SPDX-License-Identifier: Apache-2.0 */
#include "support/nets.h"

#include <stdlib.h>
#include <string.h>

#include "graph/graph_impl.h"
#include "support/check.h"

static td_node *labels(td_graph *g, td_node *logits, int batch)
{
    return td_softmax_cross_entropy(g, logits, td_input(g, "y", TD_I32, TD_SHAPE(batch)), NULL);
}

static td_node *mlp(td_graph *g)
{
    int64_t widths[] = {33, 17, 5};
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(6, 20));
    return labels(
        g,
        td_model_mlp(
            g, x,
            &(td_mlp_opts){.widths = widths, .n_widths = 3, .act = TD_ACT_GELU, .dropout = 0.1}),
        6);
}

/* Convolutions, batch norm with residual sums, pools: everything that changes layout. */
static td_node *residual_cnn(td_graph *g)
{
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(4, 3, 12, 12));
    return labels(
        g,
        td_model_resnet(
            g, x, &(td_resnet_opts){.depth = 18, .cifar_stem = true, .width = 8, .classes = 5}),
        4);
}

static td_node *cnn(td_graph *g)
{
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(3, 1, 28, 28));
    return labels(g, td_model_cnn(g, x, &(td_cnn_opts){.classes = 5, .dropout = 0.2}), 3);
}

static td_node *lstm(td_graph *g)
{
    td_node *x = td_input(g, "x", TD_I32, TD_SHAPE(7, 3));
    td_node *y = td_input(g, "y", TD_I32, TD_SHAPE(7, 3));
    td_node *logits = td_model_lstm_lm(
        g, x, &(td_lstm_lm_opts){.vocab = 11, .width = 12, .hidden = 20, .layers = 2});
    return td_softmax_cross_entropy(g, logits, y, NULL);
}

static td_node *gpt(td_graph *g)
{
    td_node *x = td_input(g, "x", TD_I32, TD_SHAPE(2, 16));
    td_node *y = td_input(g, "y", TD_I32, TD_SHAPE(2, 16));
    td_node *logits = td_model_gpt2(
        g, x,
        &(td_gpt2_opts){
            .layers = 2, .heads = 2, .width = 32, .vocab = 19, .context = 16, .dropout = 0.1});
    return td_softmax_cross_entropy(g, logits, y, NULL);
}

const net NETS[] = {
    {"mlp", mlp, "sgd", 5},    {"residual cnn", residual_cnn, "sgd", 5},
    {"cnn", cnn, "adamw", 5},  {"lstm", lstm, "adamw", 11},
    {"gpt", gpt, "adamw", 19},
};
const int N_NETS = sizeof NETS / sizeof *NETS;

void net_place(td_graph *g, int n)
{
    int inner = 0, at = 0;
    for (int i = 0; i < g->n_nodes; i++)
        inner += !td__is_leaf(g->nodes[i]);
    for (int i = 0; i < g->n_nodes; i++)
        if (!td__is_leaf(g->nodes[i]))
            g->nodes[i]->place = at++ * n / inner;
    for (int i = g->n_nodes - 1; i >= 0; i--)
        for (int k = 0; k < g->nodes[i]->n_in; k++)
            if (td__is_leaf(g->nodes[i]->in[k]))
                g->nodes[i]->in[k]->place = g->nodes[i]->place;
}

void net_fill(const net *n, td_runner *r, unsigned seed)
{
    static const char *const NAMES[] = {"x", "y"};
    uint32_t random = seed * 2654435761u + 1;
    for (int k = 0; k < 2; k++) {
        size_t nbytes;
        void *at = td_runner_input(r, NAMES[k], &nbytes);
        bool ids = k == 1 || strcmp(n->name, "lstm") == 0 || strcmp(n->name, "gpt") == 0;
        for (size_t i = 0; at && i < nbytes / 4; i++) {
            random = random * 1664525u + 1013904223u;
            if (ids)
                ((int32_t *)at)[i] = (int32_t)((random >> 8) % (uint32_t)n->max_id);
            else
                ((float *)at)[i] = (float)(random >> 8) / (float)(1 << 23) - 1;
        }
    }
}

trained trained_start(td_graph *g, td_node *loss, const td_program_opts *opts, uint64_t seed,
                      const char *optimizer)
{
    trained t = {0};
    CHECK_OK(td_program_create(g, loss, opts, &t.p));
    td_graph_destroy(g);
    CHECK_OK(td_params_create(t.p, seed, &t.ps));
    CHECK_OK(td_runner_create(t.p, t.ps, &t.r));
    if (optimizer)
        CHECK_OK(td_optimizer_create(&(td_optim_opts){.name = optimizer}, t.ps, &t.o));
    return t;
}

void trained_stop(trained *t)
{
    td_optimizer_destroy(t->o);
    td_runner_destroy(t->r);
    td_params_destroy(t->ps);
    td_program_destroy(t->p);
}
