/* opt_rmsprop.c -- RMSprop (Hinton 2012), as torch.optim.RMSprop.
 *
 *     g <- g + weight_decay p
 *     s <- alpha s + (1 - alpha) g^2
 *     d = sqrt(s) + eps                             centered: m <- m + (1 - alpha) (g - m),
 *                                                   d = sqrt(s - m^2) + eps
 *     p <- p - lr g / d                         momentum: b <- momentum b + g / d, p <- p - lr b */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/check.h"
#include "optim/optimizer.h"

static int states(const td_optim_opts *o, const char *names[TD_OPTIM_MAX_STATE])
{
    int n = 0;

    names[n++] = "square_avg";
    if (o->centered)
        names[n++] = "grad_avg";
    if (o->momentum > 0)
        names[n++] = "momentum_buffer";
    return n;
}

static const char *no_rows(const td_optim_opts *o)
{
    (void)o;
    return "its averages move rows that have no gradient";
}

static void begin(const td__optim_step *st, td__optim_hyper *h)
{
    h->lr = (float)st->lr;
    h->l2 = (float)st->opts->weight_decay;
    h->beta2 = (float)st->opts->alpha;
    h->beta2c = (float)(1 - st->opts->alpha);
    h->eps = (float)st->opts->eps;
    h->momentum = (float)st->opts->momentum;
    h->centered = st->opts->centered;
}

static const td__optim_option OPTIONS[] = {
    {"lr", 0.01}, {"alpha", 0.99}, {"eps", 1e-8}, {"weight_decay", 0}, {"momentum", 0}};

const td__optim_def td__optim_rmsprop = {
    .name = "rmsprop",
    .options = OPTIONS,
    .n_options = TD_LEN(OPTIONS),
    .has_centered = true,
    .states = states,
    .no_rows = no_rows,
    .begin = begin,
    .update = TD_UPDATE_RMSPROP,
};
