/* op_recurrent.c -- what lstm and gru share; see op_recurrent.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/op_recurrent.h"

#include <string.h>

td_status td__recurrent_check(const td_op_args *a, int gates, int64_t *h)
{
    const td_shape *gx = &a->in_desc[0]->shape;

    TD_TRY(td__want_float(a, 0, "gx"));
    TD_TRY(td__want_ndim(a, 0, "gx", 3));
    if (gx->dim[0] < 1)
        return TD_FAIL(TD_EINVAL, "the sequence is empty; at least one step is needed");
    if (gx->dim[2] % gates != 0)
        return TD_FAIL(TD_EINVAL, "%lld features do not split in %d gates", (long long)gx->dim[2],
                       gates);
    *h = gx->dim[2] / gates;
    return TD_OK;
}

td_status td__recurrent_check_weight(const td_op_args *a, int i, int gates, int64_t h)
{
    td_shape w = TD_SHAPE(gates * h, h);

    return td__want_weight_shape(a, i, "w_hh", &w);
}

td_status td__recurrent_check_back(const td_op_args *a, td_shape *state, td_shape *gates)
{
    const int64_t *dim = a->in_desc[0]->shape.dim;

    TD_TRY(td__want_float(a, 0, "dy"));
    TD_TRY(td__want_ndim(a, 0, "dy", 3));
    if (dim[2] > INT64_MAX / 4)
        return TD_FAIL(TD_EINVAL, "a state of %lld features is too large", (long long)dim[2]);
    *state = TD_SHAPE(dim[1], dim[2]);
    *gates = TD_SHAPE(dim[0], dim[1], 4 * dim[2]);
    return TD_OK;
}

void td__recurrent_gates(double *out, const double *add, const double *h, const double *w,
                         const double *bias, int64_t batch, int64_t rows, int64_t width)
{
    for (int64_t b = 0; b < batch; b++)
        for (int64_t r = 0; r < rows; r++) {
            double sum = bias[r] + (add ? add[b * rows + r] : 0);
            for (int64_t j = 0; j < width; j++)
                sum += h[b * width + j] * w[r * width + j];
            out[b * rows + r] = sum;
        }
}

void td__recurrent_back(double *dh, const double *d, const double *w, int64_t batch, int64_t rows,
                        int64_t width)
{
    for (int64_t b = 0; b < batch; b++)
        for (int64_t j = 0; j < width; j++) {
            double sum = 0;
            for (int64_t r = 0; r < rows; r++)
                sum += d[b * rows + r] * w[r * width + j];
            dh[b * width + j] = sum;
        }
}

td_node *td__recurrent_state(td_graph *g, const char *call, td_node *state, td_node *gx,
                             td_node *w_hh)
{
    if (state || !gx || !w_hh)
        return state;
    if (gx->out[0].shape.ndim != 3 || w_hh->out[0].shape.ndim != 2) {
        char x[128], w[128];
        return td__graph_fail(g, TD_EINVAL, call,
                              "x must have 3 axes (T, B, I) and w_hh 2; x w_ih' is %s, w_hh %s",
                              td_shape_text(&gx->out[0].shape, x, sizeof x),
                              td_shape_text(&w_hh->out[0].shape, w, sizeof w));
    }
    return td_constant(g, gx->out[0].dtype,
                       TD_SHAPE(gx->out[0].shape.dim[1], w_hh->out[0].shape.dim[1]), NULL);
}

td_node *td__recurrent_bias(td_graph *g, td_node *b_hh, td_node *w_hh)
{
    if (b_hh || !w_hh)
        return b_hh;
    return td_constant(g, w_hh->out[0].dtype, TD_SHAPE(w_hh->out[0].shape.dim[0]), NULL);
}

td_node *td__recurrent_last(td_graph *g, td_node *y)
{
    if (!y)
        return NULL;
    const td_shape *s = &y->out[0].shape;
    return td_reshape(g, td_slice(g, y, 0, s->dim[0] - 1, s->dim[0], 1),
                      TD_SHAPE(s->dim[1], s->dim[2]));
}

void td__recurrent_weight_grad(const td_grad_args *ga, td_node *dgates, td_node *h0, int w)
{
    td_graph *g = ga->g;
    const td_shape *s = &ga->y->out[0].shape; /* (T, B, H) */
    td_attr_linear at;

    if (!ga->need[w] && !ga->need[w + 1])
        return;
    td_node *before = td_reshape(g, h0, TD_SHAPE(1, s->dim[1], s->dim[2]));
    if (s->dim[0] > 1)
        before =
            td_concat(g, (td_node *[]){before, td_slice(g, ga->y, 0, 0, s->dim[0] - 1, 1)}, 2, 0);
    memset(&at, 0, sizeof at);
    at.out_dtype = ga->y->in[w]->out[0].dtype;
    at.has_bias = ga->need[w + 1];
    td_node *dw = TD__NODE(g, TD_OP_LINEAR_BACK_WEIGHT, &at, dgates, before);
    if (ga->need[w])
        ga->dx[w] = dw;
    if (ga->need[w + 1])
        ga->dx[w + 1] = td__part(g, dw, 1);
}
