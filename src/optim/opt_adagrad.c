/* opt_adagrad.c -- Adagrad (Duchi 2011), as torch.optim.Adagrad.
 *
 *     g <- g + weight_decay p
 *     s <- s + g^2                                  s starts at initial_accumulator
 *     p <- p - lr / (1 + (t - 1) lr_decay) g / (sqrt(s) + eps) */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/check.h"
#include "optim/optimizer.h"

static int states(const td_optim_opts *o, const char *names[TD_OPTIM_MAX_STATE])
{
    (void)o;
    names[0] = "sum";
    return 1;
}

static float first_state(const td_optim_opts *o)
{
    return (float)o->initial_accumulator;
}

static const char *no_rows(const td_optim_opts *o)
{
    return o->weight_decay > 0 ? "weight_decay moves rows that have no gradient" : NULL;
}

static void begin(const td__optim_step *st, td__optim_hyper *h)
{
    h->lr = (float)(st->lr / (1 + (double)(st->t - 1) * st->opts->lr_decay));
    h->l2 = (float)st->opts->weight_decay;
    h->eps = (float)st->opts->eps;
}

static const td__optim_option OPTIONS[] = {
    {"lr", 0.01}, {"lr_decay", 0}, {"weight_decay", 0}, {"initial_accumulator", 0}, {"eps", 1e-10}};

const td__optim_def td__optim_adagrad = {
    .name = "adagrad",
    .options = OPTIONS,
    .n_options = TD_LEN(OPTIONS),
    .states = states,
    .first_state = first_state,
    .no_rows = no_rows,
    .begin = begin,
    .update = TD_UPDATE_ADAGRAD,
};
