/* opt_lars.c -- LARS (You 2017, algorithm 1).
 *
 *     ratio = trust |p| / (|g| + weight_decay |p| + eps)    1 where |p| or |g| is 0
 *     b <- momentum b + lr ratio (g + weight_decay p)
 *     p <- p - b
 *
 * |.| is the L2 norm of the whole tensor, g the gradient after clipping. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "base/check.h"
#include "optim/optimizer.h"

static int states(const td_optim_opts *o, const char *names[TD_OPTIM_MAX_STATE])
{
    (void)o;
    names[0] = "momentum_buffer";
    return 1;
}

static const char *no_rows(const td_optim_opts *o)
{
    (void)o;
    return "its trust ratio is of whole tensors";
}

static void begin(const td__optim_step *st, td__optim_hyper *h)
{
    h->lr = (float)st->lr;
    h->l2 = (float)st->opts->weight_decay;
    h->momentum = (float)st->opts->momentum;
}

static void chunk(td_stream *on, const td__optim_hyper *h, const td__optim_slice *s, double sums[2])
{
    td__stream_squares(on, s->p, s->n, 1.0f, INFINITY, &sums[0]);
    td__stream_squares(on, s->g, s->n, h->scale, h->clip, &sums[1]);
}

static float rate(const td_optim_opts *o, const td__optim_hyper *h, const double sums[2])
{
    double w = sqrt(sums[0]), g = sqrt(sums[1]);

    return w > 0 && g > 0
               ? (float)((double)h->lr * o->trust * w / (g + o->weight_decay * w + o->eps))
               : h->lr;
}

static const td__optim_option OPTIONS[] = {
    {"lr", 0.1}, {"momentum", 0.9}, {"weight_decay", 1e-4}, {"trust", 0.001}, {"eps", 1e-8}};

const td__optim_def td__optim_lars = {
    .name = "lars",
    .options = OPTIONS,
    .n_options = TD_LEN(OPTIONS),
    .states = states,
    .no_rows = no_rows,
    .begin = begin,
    .chunk = chunk,
    .rate = rate,
    .update = TD_UPDATE_LARS,
};
