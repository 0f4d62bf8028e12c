/* op_gru.c -- the recurrent part of a gated recurrent unit, and its backward.
 *
 * gx = x w_ih' + b_ih for all steps comes from a linear node. For each step, with gates r z n side
 * by side in 3H and gh = h w_hh' + b_hh:
 *
 *     r = logistic(gx_r + gh_r),  z = logistic(gx_z + gh_z),  n = tanh(gx_n + r gh_n)
 *     h_t = (1 - z) n + z h
 *
 * `gates` keeps r, z, n and gh_n of every step in rows of 4H. Backward, with dh = dy_t + what step
 * t+1 sends back:
 *
 *     dn = dh (1 - z) (1 - n^2),   dz = dh (h_(t-1) - n) z (1 - z),   dr = dn gh_n r (1 - r)
 *     dgx_t = (dr dz dn),  dgh_t = (dr dz dn r),   dh_(t-1) = dh z + dgh_t w_hh
 *
 * dw_hh and db_hh are one product over all steps: dgh' (h0, y_0 .. y_(T-2)). */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "ops/op_check.h"
#include "ops/op_recurrent.h"

static td_status gru_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    td_dtype t = a->in_desc[0]->dtype;
    const td_shape *gx = &a->in_desc[0]->shape;
    int64_t h;

    TD_TRY(td__recurrent_check(a, 3, &h));
    if (h > INT64_MAX / 4)
        return TD_FAIL(TD_EINVAL, "a state of %lld features is too large", (long long)h);
    td_shape state = TD_SHAPE(gx->dim[1], h);
    TD_TRY(td__want_activation(a, 1, "h0", &state));
    TD_TRY(td__recurrent_check_weight(a, 2, 3, h));
    TD_TRY(td__want_weight_vector(a, 3, "b_hh", 3 * h));
    out[0] = td__desc(t, TD_SHAPE(gx->dim[0], gx->dim[1], h));
    out[1] = td__desc(t, TD_SHAPE(gx->dim[0], gx->dim[1], 4 * h));
    TD_TRY(td__want_count(&out[1].shape, "gates"));
    *n_out = 2;
    return TD_OK;
}

static void gru_ref(const td_op_args *a)
{
    const td_shape *s = &a->in_desc[0]->shape;
    int64_t steps = s->dim[0], batch = s->dim[1], h = s->dim[2] / 3;
    const double *gx = a->in[0], *h_prev = a->in[1]; /* (T, B, 3H), (B, H) */
    const double *w = a->in[2], *bias = a->in[3];    /* (3H, H), (3H) */
    double *y = a->out[0], *gates = a->out[1];       /* (T, B, H), (T, B, 4H) */

    for (int64_t t = 0; t < steps; t++) {
        for (int64_t b = 0; b < batch; b++) {
            double *r = gates + b * 4 * h, *z = r + h, *n = z + h, *gh_n = n + h;
            const double *in = gx + b * 3 * h, *before = h_prev + b * h;
            /* gh_r, gh_z and gh_n into r, z and n, then gh_n to its own place */
            td__recurrent_gates(r, NULL, before, w, bias, 1, 3 * h, h);
            for (int64_t j = 0; j < h; j++) {
                gh_n[j] = n[j];
                r[j] = td__logistic(in[j] + r[j]);
                z[j] = td__logistic(in[h + j] + z[j]);
                n[j] = tanh(in[2 * h + j] + r[j] * gh_n[j]);
                y[b * h + j] = (1 - z[j]) * n[j] + z[j] * before[j];
            }
        }
        h_prev = y;
        y += batch * h;
        gates += batch * 4 * h;
        gx += batch * 3 * h;
    }
}

static void gru_grad(const td_grad_args *ga)
{
    td_graph *g = ga->g;
    td_node *y = ga->y, *const *in = y->in;

    if (!ga->dy[0])
        return; /* the gates carry no gradient */
    td_node *dgx = TD__NODE(g, TD_OP_GRU_BACK, NULL, ga->dy[0], td__part(g, y, 1), y, in[1], in[2]);
    if (ga->need[0])
        ga->dx[0] = dgx;
    if (ga->need[1])
        ga->dx[1] = td__part(g, dgx, 2);
    if (ga->need[2] || ga->need[3])
        td__recurrent_weight_grad(ga, td__part(g, dgx, 1), in[1], 2);
}

static td_status back_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    td_dtype t = a->in_desc[0]->dtype;
    const td_shape *dy = &a->in_desc[0]->shape;
    td_shape state, gates;

    TD_TRY(td__recurrent_check_back(a, &state, &gates));
    TD_TRY(td__want_activation(a, 1, "gates", &gates));
    TD_TRY(td__want_activation(a, 2, "y", dy));
    TD_TRY(td__want_activation(a, 3, "h0", &state));
    TD_TRY(td__recurrent_check_weight(a, 4, 3, dy->dim[2]));
    out[0] = out[1] = td__desc(t, TD_SHAPE(dy->dim[0], dy->dim[1], 3 * dy->dim[2]));
    out[2] = td__desc(t, state);
    *n_out = 3;
    return TD_OK;
}

static void back_ref(const td_op_args *a)
{
    const td_shape *s = &a->in_desc[0]->shape;
    int64_t steps = s->dim[0], batch = s->dim[1], h = s->dim[2];
    const double *dy = a->in[0], *gates = a->in[1], *y = a->in[2], *h0 = a->in[3], *w = a->in[4];
    double *dgx = a->out[0], *dgh = a->out[1]; /* (T, B, 3H) */
    double *dh = a->out[2];                    /* (B, H): what the later step sends back */

    for (int64_t i = 0; i < batch * h; i++)
        dh[i] = 0;
    for (int64_t t = steps - 1; t >= 0; t--) {
        const double *before = t > 0 ? y + (t - 1) * batch * h : h0;
        for (int64_t b = 0; b < batch; b++) {
            int64_t row = t * batch + b;
            const double *r = gates + row * 4 * h, *z = r + h, *n = z + h, *gh_n = n + h;
            double *dx = dgx + row * 3 * h, *dg = dgh + row * 3 * h;
            for (int64_t j = 0; j < h; j++) {
                double through = dh[b * h + j] + dy[row * h + j];
                double dn = through * (1 - z[j]) * (1 - n[j] * n[j]);
                double dz = through * (before[b * h + j] - n[j]) * z[j] * (1 - z[j]);
                double dr = dn * gh_n[j] * r[j] * (1 - r[j]);
                dx[j] = dg[j] = dr;
                dx[h + j] = dg[h + j] = dz;
                dx[2 * h + j] = dn;
                dg[2 * h + j] = dn * r[j];
            }
            for (int64_t j = 0; j < h; j++) {
                double sum = (dh[b * h + j] + dy[row * h + j]) * z[j];
                for (int64_t k = 0; k < 3 * h; k++)
                    sum += dg[k] * w[k * h + j];
                dh[b * h + j] = sum;
            }
        }
    }
}

TD_API td_node *td_gru(td_graph *g, td_node *x, td_node *h0, td_node *w_ih, td_node *w_hh,
                       td_node *b_ih, td_node *b_hh, td_node **h_last)
{
    td_node *gx = td_linear(g, x, w_ih, b_ih, TD_ACT_NONE);

    h0 = td__recurrent_state(g, "td_gru", h0, gx, w_hh);
    b_hh = td__recurrent_bias(g, b_hh, w_hh);
    td_node *y = TD__NODE(g, TD_OP_GRU, NULL, gx, h0, w_hh, b_hh);
    if (h_last)
        *h_last = td__recurrent_last(g, y);
    return y;
}

#define FORWARD(t, b, h)                                                                   \
    .n_in = 4, .in = {TD__FLOATS(t, b, 3 * (h)), TD__FLOATS(b, h), TD__FLOATS(3 * (h), h), \
                      TD__FLOATS(3 * (h))}
static const td_op_sample SAMPLES[] = {
    {FORWARD(3, 2, 3)},
    {FORWARD(1, 1, 1)},
    {FORWARD(1, 3, 2)},
    {FORWARD(5, 1, 4)},
    {FORWARD(2, 0, 3)},
    {FORWARD(4, 9, 33), .no_grad = TD__ALL_INPUTS, .tol = 2},
    /* Small weights: with large ones the rounding of h grows from step to step. */
    {FORWARD(7, 16, 64), .lo = -0.25, .hi = 0.25, .no_grad = TD__ALL_INPUTS, .tol = 4},
};

#define BACK(t, b, h)                                                               \
    {                                                                               \
        .n_in = 5,                                                                  \
        .in = {TD__FLOATS(t, b, h), TD__FLOATS(t, b, 4 * (h)), TD__FLOATS(t, b, h), \
               TD__FLOATS(b, h), TD__FLOATS(3 * (h), h)},                           \
        .lo = 0, .hi = 0.5, .tol = 4                                                \
    }
static const td_op_sample BACK_SAMPLES[] = {
    BACK(3, 2, 3), BACK(1, 1, 1), BACK(5, 1, 4), BACK(2, 0, 3), BACK(4, 9, 33), BACK(3, 16, 64),
};

const td_op_def td__op_gru = {
    .name = "gru",
    .n_in_min = 4,
    .n_in_max = 4,
    .infer = gru_infer,
    .ref = gru_ref,
    .grad = gru_grad,
    .weights = TD__BIT(2) | TD__BIT(3),
    .bf16 = TD_BF16_COMPUTE,
    .layout = TD_LAYOUT_RULE_PLAIN,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

const td_op_def td__op_gru_back = {
    .name = "gru_back",
    .n_in_min = 5,
    .n_in_max = 5,
    .infer = back_infer,
    .ref = back_ref,
    .grad = NULL,
    .weights = TD__BIT(4),
    .bf16 = TD_BF16_COMPUTE,
    .layout = TD_LAYOUT_RULE_PLAIN,
    .samples = BACK_SAMPLES,
    .n_samples = TD_LEN(BACK_SAMPLES),
};
