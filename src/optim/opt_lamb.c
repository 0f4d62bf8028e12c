/* opt_lamb.c -- LAMB (You 2020, algorithm 2, with bias correction and phi the identity).
 *
 *     m, v as Adam's, of the plain gradient
 *     u = m / (1 - beta1^t) / (sqrt(v) / sqrt(1 - beta2^t) + eps) + weight_decay p
 *     p <- p - lr |p| / |u| u                       ratio 1 where |p| or |u| is 0
 *
 * |.| is the L2 norm of the whole tensor. u is made twice, once for its norm and once to be
 * applied: that costs arithmetic, storing it would cost memory traffic. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "base/check.h"
#include "optim/optimizer.h"

static int states(const td_optim_opts *o, const char *names[TD_OPTIM_MAX_STATE])
{
    (void)o;
    names[0] = "exp_avg";
    names[1] = "exp_avg_sq";
    return 2;
}

static const char *no_rows(const td_optim_opts *o)
{
    (void)o;
    return "its trust ratio is of whole tensors";
}

static void begin(const td__optim_step *st, td__optim_hyper *h)
{
    const td_optim_opts *o = st->opts;

    h->lr = (float)st->lr;
    h->l2 = (float)o->weight_decay;
    h->beta1c = (float)(1 - o->beta1);
    h->beta2 = (float)o->beta2;
    h->beta2c = (float)(1 - o->beta2);
    h->eps = (float)o->eps;
    h->unbias = (float)(1 / (1 - pow(o->beta1, (double)st->t)));
    h->root = (float)(1 / sqrt(1 - pow(o->beta2, (double)st->t)));
}

static void chunk(td_stream *on, const td__optim_hyper *h, const td__optim_slice *s, double sums[2])
{
    td__stream_moments(on, h, s, sums);
}

static float rate(const td_optim_opts *o, const td__optim_hyper *h, const double sums[2])
{
    double w = sqrt(sums[0]), u = sqrt(sums[1]);

    (void)o;
    return w > 0 && u > 0 ? (float)((double)h->lr * w / u) : h->lr;
}

static const td__optim_option OPTIONS[] = {
    {"lr", 0.001}, {"beta1", 0.9}, {"beta2", 0.999}, {"eps", 1e-6}, {"weight_decay", 0.01}};

const td__optim_def td__optim_lamb = {
    .name = "lamb",
    .options = OPTIONS,
    .n_options = TD_LEN(OPTIONS),
    .states = states,
    .no_rows = no_rows,
    .begin = begin,
    .chunk = chunk,
    .rate = rate,
    .update = TD_UPDATE_LAMB,
};
