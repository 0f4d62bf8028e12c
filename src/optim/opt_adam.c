/* opt_adam.c -- Adam (Kingma 2015) and AdamW (Loshchilov 2019), as in torch.optim.
 *
 *     adam:  g <- g + weight_decay p                adamw: p <- p (1 - lr weight_decay)
 *     m <- m + (1 - beta1) (g - m)
 *     v <- beta2 v + (1 - beta2) g^2
 *     p <- p - lr / (1 - beta1^t) m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
 *
 * Row-sparse gradients: the same on the rows that have one, with eps beside the uncorrected root as
 * in torch.optim.SparseAdam: lr sqrt(1 - beta2^t) / (1 - beta1^t) m / (sqrt(v) + eps). */
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

static const char *adam_no_rows(const td_optim_opts *o)
{
    return o->weight_decay > 0 ? "weight_decay moves rows that have no gradient" : NULL;
}

static const char *adamw_no_rows(const td_optim_opts *o)
{
    (void)o;
    return NULL;
}

static void adam_begin(const td__optim_step *st, td__optim_hyper *h)
{
    const td_optim_opts *o = st->opts;
    double correction1 = 1 - pow(o->beta1, (double)st->t);
    double root = 1 / sqrt(1 - pow(o->beta2, (double)st->t));

    h->lr = (float)(st->lr / correction1);
    h->l2 = (float)o->weight_decay;
    h->beta1c = (float)(1 - o->beta1);
    h->beta2 = (float)o->beta2;
    h->beta2c = (float)(1 - o->beta2);
    h->root = (float)root;
    h->eps = (float)(st->rows ? o->eps * root : o->eps);
}

static void adamw_begin(const td__optim_step *st, td__optim_hyper *h)
{
    adam_begin(st, h);
    h->l2 = 0;
    h->shrink = (float)(1 - st->lr * st->opts->weight_decay);
}

static const td__optim_option ADAM[] = {
    {"lr", 0.001}, {"beta1", 0.9}, {"beta2", 0.999}, {"eps", 1e-8}, {"weight_decay", 0}};
static const td__optim_option ADAMW[] = {
    {"lr", 0.001}, {"beta1", 0.9}, {"beta2", 0.999}, {"eps", 1e-8}, {"weight_decay", 0.01}};

const td__optim_def td__optim_adam = {
    .name = "adam",
    .options = ADAM,
    .n_options = TD_LEN(ADAM),
    .states = states,
    .no_rows = adam_no_rows,
    .begin = adam_begin,
    .update = TD_UPDATE_ADAM,
};

const td__optim_def td__optim_adamw = {
    .name = "adamw",
    .options = ADAMW,
    .n_options = TD_LEN(ADAMW),
    .states = states,
    .no_rows = adamw_no_rows,
    .begin = adamw_begin,
    .update = TD_UPDATE_ADAM,
};
