/* row_optim.c -- see row_optim.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "optim/row_optim.h"

#include <math.h>
#include <string.h>

#include "base/fail.h"
#include "optim/options.h"

td_status td__row_optim_init(td__row_optim *r, const td_optim_opts *opts)
{
    const char *names[TD_OPTIM_MAX_STATE];
    td_device *host;
    *r = (td__row_optim){.n_states = 0};
    TD_TRY(td__optim_resolve(opts, &r->def, &r->opts));
    const char *why = r->def->no_rows(&r->opts);
    if (why)
        return TD_FAIL(TD_ENOTSUP, "%s: rows of a table cannot be updated: %s", r->def->name, why);
    if (r->opts.clip_norm > 0)
        return TD_FAIL(TD_ENOTSUP,
                       "train.clip.norm: not with tables on servers, whose gradients no "
                       "rank has all of");
    TD_TRY(td__device_open("host", &host));
    r->on = td__device_stream(host);
    r->n_states = r->def->states(&r->opts, names);
    r->first = r->def->first_state ? r->def->first_state(&r->opts) : 0;
    return TD_OK;
}

void td__row_optim_begin(const td__row_optim *r, double lr, uint64_t t, td__optim_hyper *h)
{
    td__optim_step st = {.opts = &r->opts, .lr = lr, .t = t, .rows = true};
    *h = (td__optim_hyper){
        .scale = 1,
        .clip = r->opts.clip_value > 0 ? (float)r->opts.clip_value : INFINITY,
        .shrink = 1,
    };
    r->def->begin(&st, h);
}

void td__row_optim_new(const td__row_optim *r, float *row, size_t width)
{
    memset(row + width, 0, (size_t)r->n_states * width * sizeof *row);
    for (size_t i = 0; r->n_states && i < width; i++)
        row[width + i] = r->first;
}

void td__row_optim_update(const td__row_optim *r, const td__optim_hyper *h, float *row,
                          const float *grad, size_t width)
{
    if (r->def->update == TD_UPDATE_SGD && !r->n_states && h->l2 == 0 && isinf(h->clip)) {
        for (size_t i = 0; i < width; i++) /* the kernel's arithmetic, without the call */
            row[i] -= h->lr * grad[i];
        return;
    }
    td__optim_slice s = {.p = row, .g = grad, .n = width};
    for (int k = 0; k < r->n_states; k++)
        s.s[k] = row + (size_t)(k + 1) * width;
    td__stream_update(r->on, r->def->update, h, &s);
}
