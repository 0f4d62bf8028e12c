/* op_normalise.c -- what the normalisations share; see op_normalise.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/op_normalise.h"

#include <math.h>

void td__norm_row_ref(const td__norm_row *r, const double *beta, double eps, double *y,
                      double *mean, double *rstd)
{
    const double *x = r->x;
    double count = r->m > 0 ? (double)r->m : 1, sum = 0, squares = 0;

    for (int64_t i = 0; i < r->m; i++)
        sum += x[i];
    *mean = sum / count;
    for (int64_t i = 0; i < r->m; i++)
        squares += (x[i] - *mean) * (x[i] - *mean);
    *rstd = 1 / sqrt(squares / count + eps);
    for (int64_t i = 0; i < r->m; i++)
        y[i] = r->gamma[i / r->repeat] * (x[i] - *mean) * *rstd + beta[i / r->repeat];
}

void td__norm_row_back_ref(const td__norm_row *r, double mean, double rstd, const double *dy,
                           double *dx, double *dgamma, double *dbeta)
{
    double count = (double)r->m, sum = 0, dot = 0;

    for (int64_t i = 0; i < r->m; i++) {
        double h = r->gamma[i / r->repeat] * dy[i], z = (r->x[i] - mean) * rstd;
        sum += h;
        dot += h * z;
        dgamma[i / r->repeat] += dy[i] * z;
        dbeta[i / r->repeat] += dy[i];
    }
    for (int64_t i = 0; i < r->m; i++) {
        double h = r->gamma[i / r->repeat] * dy[i], z = (r->x[i] - mean) * rstd;
        dx[i] = rstd * (h - sum / count - z * dot / count);
    }
}

td_status td__norm_check_eps(const td_attr_norm *at)
{
    if (!(at->eps >= 0) || !isfinite(at->eps))
        return TD_FAIL(TD_EINVAL, "eps is %g; it must be a number of at least 0", at->eps);
    return TD_OK;
}

td_status td__norm_check_rows(const td_op_args *a, const char *what)
{
    TD_TRY(td__norm_check_eps(a->attr));
    TD_TRY(td__want_float(a, 0, what));
    return td__want_min_ndim(a, 0, what, 1);
}

td_status td__norm_want_channels(const td_op_args *a, int i, const char *what)
{
    return td__want_weight_vector(a, i, what, a->in_desc[0]->shape.dim[1]);
}

void td__norm_grad(const td_grad_args *ga, td_opcode back, int n_stats)
{
    td_node *in[5] = {ga->dy[0], ga->y->in[0], ga->y->in[1]};

    if (!ga->dy[0])
        return; /* the statistics carry no gradient */
    for (int i = 0; i < n_stats; i++)
        in[3 + i] = td__part(ga->g, ga->y, 1 + i);
    td_node *dx = td__node(ga->g, back, ga->y->attr, in, 3 + n_stats);
    for (int i = 0; i < ga->y->n_in; i++)
        if (ga->need[i])
            ga->dx[i] = td__part(ga->g, dx, i);
}
