/* lr_range.c -- see lr_range.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "train/lr_range.h"

#include <math.h>

#include "base/alloc.h"
#include "base/fail.h"

static const double KEEP = 0.9;      /* of the moving average of losses, */
enum { BEHIND = 9 };                 /* which is KEEP / (1 - KEEP) steps behind them */
static const double TOO_MUCH = 4;    /* times the first loss, or the smallest */
static const double WORTH_IT = 0.05; /* share of the first loss by which it has to fall */

td_status td__lr_range_init(td__lr_range *r, int steps)
{
    *r = (td__lr_range){.room = steps, .least = INFINITY};
    r->lr = td__calloc((size_t)steps, sizeof *r->lr);
    r->loss = td__calloc((size_t)steps, sizeof *r->loss);
    if (r->lr && r->loss)
        return TD_OK;
    td__lr_range_fini(r);
    return TD_FAIL(TD_ENOMEM, "no memory for %d steps", steps);
}

void td__lr_range_fini(td__lr_range *r)
{
    td__free(r->lr);
    td__free(r->loss);
    *r = (td__lr_range){0};
}

bool td__lr_range_step(td__lr_range *r, double lr, double loss)
{
    if (r->n == r->room || !isfinite(loss))
        return true;
    r->mean = KEEP * r->mean + (1 - KEEP) * loss;
    r->sum = KEEP * r->sum + (1 - KEEP); /* its start corrected as in Adam */
    double smooth = r->mean / r->sum;
    r->lr[r->n] = lr;
    r->loss[r->n++] = smooth;
    r->least = fmin(r->least, smooth);
    return smooth > TOO_MUCH * fmax(r->loss[0], r->least);
}

/* The rate that the i-th average is about. */
static double rate_at(const td__lr_range *r, int i)
{
    return r->lr[i > BEHIND ? i - BEHIND : 0];
}

td__lr_advice td__lr_range_advice(const td__lr_range *r)
{
    td__lr_advice a = {.lr = NAN, .least_at = NAN, .grows_at = NAN};
    int least = 0;
    double steepest = 0;

    for (int i = 1; i < r->n; i++)
        least = r->loss[i] < r->loss[least] ? i : least;
    if (!r->n || r->loss[least] > r->loss[0] - WORTH_IT * fabs(r->loss[0]))
        return a;
    a.least_at = rate_at(r, least);
    for (int i = least; i < r->n && isnan(a.grows_at); i++)
        if (r->loss[i] > r->loss[0])
            a.grows_at = rate_at(r, i);
    /* The slope over five steps: single ones are noise. */
    for (int i = 2; i + 2 <= least; i++) {
        double slope = (r->loss[i + 2] - r->loss[i - 2]) / log(r->lr[i + 2] / r->lr[i - 2]);
        if (slope < steepest) {
            steepest = slope;
            a.lr = rate_at(r, i);
        }
    }
    if (isnan(a.lr)) /* the smallest loss came within few steps */
        a.lr = a.least_at / 10;
    return a;
}
