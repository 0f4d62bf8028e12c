/* op_lstm.c -- the recurrent part of a long short-term memory layer, and its backward.
 *
 * The inputs' share of the gates, gx = x w_ih' + b_ih for all steps at once, is a linear node
 * before this one. Then for each step, with the four gates side by side in 4H:
 *
 *     (i f g o) = gx_t + h w_hh' + b_hh;   i, f, o through the logistic function, g through tanh
 *     c_t = f c + i g,   h_t = o tanh(c_t)
 *
 * Backward, from the last step to the first, with dh = dy_t + what step t+1 sends back:
 *
 *     do = dh tanh(c_t),   dc += dh o (1 - tanh(c_t)^2)
 *     di = dc g,  df = dc c_(t-1),  dg = dc i,   dc_(t-1) = dc f
 *     dgx_t = those, through the derivatives of the gates;   dh_(t-1) = dgx_t w_hh
 *
 * dw_hh and db_hh are one product over all steps: dgx' (h0, y_0 .. y_(T-2)), a linear_back_weight.
 * Gradients enter through y at any step and through c_last, a copy of the last cell state, which is
 * all that td_lstm() hands out; c and gates are kept for the backward and carry none. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "ops/op_check.h"
#include "ops/op_recurrent.h"

static td_status lstm_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    td_dtype t = a->in_desc[0]->dtype;
    td_shape gx = a->in_desc[0]->shape;
    int64_t h;

    TD_TRY(td__recurrent_check(a, 4, &h));
    td_shape state = TD_SHAPE(gx.dim[1], h);
    TD_TRY(td__want_activation(a, 1, "h0", &state));
    TD_TRY(td__want_weight_shape(a, 2, "c0", &state));
    TD_TRY(td__recurrent_check_weight(a, 3, 4, h));
    TD_TRY(td__want_weight_vector(a, 4, "b_hh", 4 * h));
    out[0] = td__desc(t, TD_SHAPE(gx.dim[0], gx.dim[1], h));
    out[1] = td__desc(td__acc_dtype(t), out[0].shape);
    out[2] = td__desc(t, gx);
    out[3] = td__desc(out[1].dtype, state);
    *n_out = 4;
    return TD_OK;
}

static void lstm_ref(const td_op_args *a)
{
    const td_shape *gx_shape = &a->in_desc[0]->shape;
    int64_t steps = gx_shape->dim[0], batch = gx_shape->dim[1], h = gx_shape->dim[2] / 4;
    const double *gx = a->in[0];                         /* (T, B, 4H) */
    const double *h_prev = a->in[1], *c_prev = a->in[2]; /* (B, H) */
    const double *w = a->in[3], *bias = a->in[4];        /* (4H, H), (4H) */
    double *y = a->out[0], *c = a->out[1], *gates = a->out[2];
    double *c_last = a->out[3]; /* (B, H) */

    for (int64_t t = 0; t < steps; t++) {
        td__recurrent_gates(gates, gx, h_prev, w, bias, batch, 4 * h, h);
        for (int64_t b = 0; b < batch; b++) {
            double *i = gates + b * 4 * h, *f = i + h, *g = f + h, *o = g + h;
            for (int64_t j = 0; j < h; j++) {
                i[j] = td__logistic(i[j]);
                f[j] = td__logistic(f[j]);
                g[j] = tanh(g[j]);
                o[j] = td__logistic(o[j]);
                c[b * h + j] = f[j] * c_prev[b * h + j] + i[j] * g[j];
                y[b * h + j] = o[j] * tanh(c[b * h + j]);
            }
        }
        h_prev = y;
        c_prev = c;
        y += batch * h;
        c += batch * h;
        gates += batch * 4 * h;
        gx += batch * 4 * h;
    }
    for (int64_t k = 0; k < batch * h; k++)
        c_last[k] = c_prev[k];
}

static void lstm_grad(const td_grad_args *ga)
{
    td_graph *g = ga->g;
    td_node *y = ga->y, *const *in = y->in;
    td_node *dy = ga->dy[0], *dc_last = ga->dy[3];

    if (!dy && !dc_last)
        return;
    if (!dy)
        dy = td_constant(g, y->out[0].dtype, y->out[0].shape, NULL);
    if (!dc_last)
        dc_last = td_constant(g, y->out[3].dtype, y->out[3].shape, NULL);
    td_node *dgx = TD__NODE(g, TD_OP_LSTM_BACK, NULL, dy, dc_last, td__part(g, y, 2),
                            td__part(g, y, 1), in[2], in[3]);
    for (int i = 0; i < 3; i++)
        if (ga->need[i])
            ga->dx[i] = td__part(g, dgx, i);
    td__recurrent_weight_grad(ga, dgx, in[1], 3);
}

static td_status back_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    td_dtype t = a->in_desc[0]->dtype;
    const td_shape *dy = &a->in_desc[0]->shape;
    td_shape state, gates;

    TD_TRY(td__recurrent_check_back(a, &state, &gates));
    TD_TRY(td__want_weight_shape(a, 1, "dc_last", &state));
    TD_TRY(td__want_activation(a, 2, "gates", &gates));
    TD_TRY(td__want_weight_shape(a, 3, "c", dy));
    TD_TRY(td__want_weight_shape(a, 4, "c0", &state));
    TD_TRY(td__recurrent_check_weight(a, 5, 4, dy->dim[2]));
    out[0] = td__desc(t, gates);
    out[1] = td__desc(t, state);
    out[2] = td__desc(a->in_desc[4]->dtype, state);
    *n_out = 3;
    return TD_OK;
}

static void back_ref(const td_op_args *a)
{
    const td_shape *s = &a->in_desc[0]->shape;
    int64_t steps = s->dim[0], batch = s->dim[1], h = s->dim[2];
    const double *dy = a->in[0], *dc_last = a->in[1], *gates = a->in[2];
    const double *c = a->in[3], *c0 = a->in[4], *w = a->in[5];
    double *dgx = a->out[0];                 /* (T, B, 4H) */
    double *dh = a->out[1], *dc = a->out[2]; /* (B, H): what the later step sends back */

    for (int64_t i = 0; i < batch * h; i++) {
        dh[i] = 0;
        dc[i] = dc_last[i];
    }
    for (int64_t t = steps - 1; t >= 0; t--) {
        const double *c_t = c + t * batch * h, *c_prev = t > 0 ? c_t - batch * h : c0;
        for (int64_t b = 0; b < batch; b++) {
            const double *i = gates + (t * batch + b) * 4 * h, *f = i + h, *g = f + h, *o = g + h;
            double *di = dgx + (t * batch + b) * 4 * h, *df = di + h, *dg = df + h, *d_o = dg + h;
            for (int64_t j = 0; j < h; j++) {
                int64_t k = b * h + j;
                double through = dh[k] + dy[t * batch * h + k], tc = tanh(c_t[k]);
                double carry = dc[k] + through * o[j] * (1 - tc * tc);
                di[j] = carry * g[j] * i[j] * (1 - i[j]);
                df[j] = carry * c_prev[k] * f[j] * (1 - f[j]);
                dg[j] = carry * i[j] * (1 - g[j] * g[j]);
                d_o[j] = through * tc * o[j] * (1 - o[j]);
                dc[k] = carry * f[j];
            }
        }
        td__recurrent_back(dh, dgx + t * batch * 4 * h, w, batch, 4 * h, h);
    }
}

TD_API td_node *td_lstm(td_graph *g, td_node *x, td_node *h0, td_node *c0, td_node *w_ih,
                        td_node *w_hh, td_node *b_ih, td_node *b_hh, td_node **h_last,
                        td_node **c_last)
{
    td_node *gx = td_linear(g, x, w_ih, b_ih, TD_ACT_NONE);

    h0 = td__recurrent_state(g, "td_lstm", h0, gx, w_hh);
    c0 = td__recurrent_state(g, "td_lstm", c0, gx, w_hh);
    b_hh = td__recurrent_bias(g, b_hh, w_hh);
    td_node *y = TD__NODE(g, TD_OP_LSTM, NULL, gx, h0, c0, w_hh, b_hh);
    if (h_last)
        *h_last = td__recurrent_last(g, y);
    if (c_last)
        *c_last = td__part(g, y, 3);
    return y;
}

#define FORWARD(t, b, h)                                                             \
    .n_in = 5, .in = {TD__FLOATS(t, b, 4 * (h)), TD__FLOATS(b, h), TD__FLOATS(b, h), \
                      TD__FLOATS(4 * (h), h), TD__FLOATS(4 * (h))}
static const td_op_sample SAMPLES[] = {
    {FORWARD(3, 2, 3)},
    {FORWARD(1, 1, 1)},
    {FORWARD(1, 3, 2)},
    {FORWARD(5, 1, 4)},
    {FORWARD(2, 0, 3)},
    {FORWARD(4, 9, 33), .no_grad = TD__ALL_INPUTS, .tol = 2},
    {FORWARD(7, 16, 64), .no_grad = TD__ALL_INPUTS, .tol = 4},
};

#define BACK(t, b, h)                                                                       \
    {                                                                                       \
        .n_in = 6, .in = {TD__FLOATS(t, b, h), TD__FLOATS(b, h), TD__FLOATS(t, b, 4 * (h)), \
                          TD__FLOATS(t, b, h), TD__FLOATS(b, h), TD__FLOATS(4 * (h), h)},   \
        .lo = 0, .hi = 0.5, .tol = 4                                                        \
    }
static const td_op_sample BACK_SAMPLES[] = {
    BACK(3, 2, 3), BACK(1, 1, 1), BACK(5, 1, 4), BACK(2, 0, 3), BACK(4, 9, 33), BACK(3, 16, 64),
};

const td_op_def td__op_lstm = {
    .name = "lstm",
    .n_in_min = 5,
    .n_in_max = 5,
    .infer = lstm_infer,
    .ref = lstm_ref,
    .grad = lstm_grad,
    .grad_out = TD__BIT(3),
    .weights = TD__BIT(2) | TD__BIT(3) | TD__BIT(4),
    .bf16 = TD_BF16_COMPUTE,
    .layout = TD_LAYOUT_RULE_PLAIN,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

const td_op_def td__op_lstm_back = {
    .name = "lstm_back",
    .n_in_min = 6,
    .n_in_max = 6,
    .infer = back_infer,
    .ref = back_ref,
    .grad = NULL,
    .weights = TD__BIT(1) | TD__BIT(3) | TD__BIT(4) | TD__BIT(5),
    .bf16 = TD_BF16_COMPUTE,
    .layout = TD_LAYOUT_RULE_PLAIN,
    .samples = BACK_SAMPLES,
    .n_samples = TD_LEN(BACK_SAMPLES),
};
