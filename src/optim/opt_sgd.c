/* opt_sgd.c -- stochastic gradient descent, as torch.optim.SGD.
 *
 *     g <- g + weight_decay p
 *     b <- momentum b + (1 - dampening) g          the first step: b <- g
 *     p <- p - lr b                                nesterov: p <- p - lr (g + momentum b)
 *
 * Without momentum there is no b, and p <- p - lr g. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/check.h"
#include "base/fail.h"
#include "optim/optimizer.h"

static td_status check(const td_optim_opts *o)
{
    if (o->nesterov && (o->momentum <= 0 || o->dampening != 0))
        return TD_FAIL(TD_EINVAL,
                       "sgd: nesterov needs momentum > 0 and dampening 0, not momentum %g, "
                       "dampening %g",
                       o->momentum, o->dampening);
    return TD_OK;
}

static int states(const td_optim_opts *o, const char *names[TD_OPTIM_MAX_STATE])
{
    names[0] = "momentum_buffer";
    return o->momentum > 0 ? 1 : 0;
}

static const char *no_rows(const td_optim_opts *o)
{
    if (o->momentum > 0)
        return "momentum moves rows that have no gradient";
    return o->weight_decay > 0 ? "weight_decay moves rows that have no gradient" : NULL;
}

static void begin(const td__optim_step *st, td__optim_hyper *h)
{
    h->lr = (float)st->lr;
    h->l2 = (float)st->opts->weight_decay;
    h->momentum = (float)st->opts->momentum;
    h->undamped = st->t == 1 ? 1.0f : (float)(1 - st->opts->dampening);
    h->nesterov = st->opts->nesterov;
}

static const td__optim_option OPTIONS[] = {
    {"lr", 0.001}, {"momentum", 0}, {"dampening", 0}, {"weight_decay", 0}};

const td__optim_def td__optim_sgd = {
    .name = "sgd",
    .options = OPTIONS,
    .n_options = TD_LEN(OPTIONS),
    .has_nesterov = true,
    .check = check,
    .states = states,
    .no_rows = no_rows,
    .begin = begin,
    .update = TD_UPDATE_SGD,
};
