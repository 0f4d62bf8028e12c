/* layers_act.c -- activations: as layers, and as the `act` of other layers. One list. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/check.h"
#include "job/layer.h"

/* name, what a linear layer has built in, help */
#define ACT_MAP(X)                                                            \
    X(relu, TD_ACT_RELU, "max(x, 0)")                                         \
    X(gelu, TD_ACT_GELU, "x Phi(x)")                                          \
    X(gelu_tanh, TD_ACT_GELU_TANH, "tanh approximation of gelu, as in GPT-2") \
    X(silu, TD_ACT_NONE, "x sigmoid(x)")                                      \
    X(sigmoid, TD_ACT_NONE, "1 / (1 + exp(-x))")                              \
    X(tanh, TD_ACT_NONE, "hyperbolic tangent")                                \
    X(softplus, TD_ACT_NONE, "ln(1 + exp(x))")                                \
    X(softmax, TD_ACT_NONE, "softmax over the last axis; losses expect logits instead")

typedef struct activation {
    const char *name;
    td_act fused;
    td_node *(*apply)(td_graph *g, td_node *x);
} activation;

static const activation ACTS[] = {{"none", TD_ACT_NONE, NULL},
#define X(name, fused, help) {#name, fused, td_##name},
                                  ACT_MAP(X)
#undef X
};

static const activation *find(const char *name)
{
    for (int i = 0; name && i < TD_LEN(ACTS); i++)
        if (!strcmp(ACTS[i].name, name))
            return &ACTS[i];
    return &ACTS[0];
}

const char *td__act_word(int i)
{
    return i < TD_LEN(ACTS) ? ACTS[i].name : NULL;
}

td_act td__act_fused(const char *name)
{
    return find(name)->fused;
}

td_node *td__act_apply(td_graph *g, const char *name, td_node *x)
{
    const activation *a = find(name);

    return a->apply ? a->apply(g, x) : x;
}

#define X(name, fused, help)                                     \
    static td_node *build_##name(const td__layer *l, td_node *x) \
    {                                                            \
        return td_##name(l->g, x);                               \
    }                                                            \
    const td__layer_def td__layer_##name = {#name, help, {TD_KEYS_END}, build_##name};
ACT_MAP(X)
#undef X

static td_node *leaky_relu(const td__layer *l, td_node *x)
{
    return td_leaky_relu(l->g, x, td__layer_real(l, "slope"));
}
const td__layer_def td__layer_leaky_relu = {
    "leaky_relu",
    "x, or slope * x where x < 0",
    {TD_KEY_ROW("slope", REAL, "Below 0.", .hi = 1, .def = "0.01")},
    leaky_relu};
