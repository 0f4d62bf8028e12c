/* model_mlp.c -- a multi-layer perceptron: fc1, act, fc2, act, ..., fcN. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/check.h"
#include "nn/nn_util.h"
#include "ops/node.h"

td_node *td_model_mlp(td_graph *g, td_node *x, const td_mlp_opts *o)
{
    static const int64_t WIDTHS[] = {512, 256, 10};
    td_mlp_opts zero = {.n_widths = 0};

    o = o ? o : &zero;
    if (o->n_widths < 0 || (o->n_widths && !o->widths))
        return td__graph_fail(g, TD_EINVAL, "td_model_mlp", "%d widths, list %s", o->n_widths,
                              o->widths ? "given" : "NULL");
    const int64_t *widths = o->n_widths ? o->widths : WIDTHS;
    int n = o->n_widths ? o->n_widths : TD_LEN(WIDTHS);

    x = td__nn_flatten(g, x);
    for (int i = 0; i < n; i++) {
        td_nn_linear_opts fc = {.act = o->act ? o->act : TD_ACT_RELU};
        if (i == n - 1)
            fc.act = TD_ACT_NONE;
        x = td_nn_linear(g, td__nn_name("fc%d", i + 1).text, x, widths[i], &fc);
        if (i < n - 1)
            x = td_nn_dropout(g, x, o->dropout);
    }
    return x;
}
