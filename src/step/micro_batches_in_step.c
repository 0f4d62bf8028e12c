/* micro_batches_in_step.c -- micro-batches that have values in common: all of a thread are begun,
 * then run up to the next such value, which ranks exchange (sync_values.h), and on from there. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/fail.h"
#include "step/micro_batches_impl.h"

td_status td__micro_batch_set_values(td__micro_batch_set *s, td__sync_values *values)
{
    enum { MOST = 4096 }; /* micro-batches of a batch */
    size_t n = (size_t)td__micro_batch_runners(s);
    if (!s->in_step)
        s->in_step = td__calloc(n, sizeof *s->in_step);
    if (!s->begins)
        s->begins = td__calloc(MOST + 1, sizeof *s->begins);
    if (!s->in_step || !s->begins)
        return TD_FAIL(TD_ENOMEM, "no memory for %zu micro-batches side by side", n);
    s->values = values;
    return TD_OK;
}

td__sync_values *td__micro_batch_values(const td__micro_batch_set *s)
{
    return s->values;
}

void td__micro_batch_drop_values(td__micro_batch_set *s)
{
    s->values = NULL;
}

static td__in_step *in_step_of(const td__micro_batch_set *s, int thread)
{
    return s->in_step + thread * TD__PLACES;
}

/* Micro-batches of a thread. */
static int own_of(const td__micro_batch_set *s, int thread)
{
    return td__micro_batch_first(s, thread + 1) - td__micro_batch_first(s, thread);
}

static td_status begin_in_step(void *user, int thread)
{
    td__micro_batch_set *s = user;
    td__micro_batch at[TD__PLACES];
    int first = td__micro_batch_first(s, thread), n = 0;
    if (own_of(s, thread))
        TD_TRY(td__micro_batch_take(s, thread, first, at, &n));
    for (int i = 0; i < n; i++) {
        in_step_of(s, thread)[i].at = at[i];
        TD_TRY(td__micro_batch_start(s, &at[i]));
    }
    return TD_OK;
}

static td_status next_in_step(void *user, int thread)
{
    const td__micro_batch_set *s = user;
    for (int i = 0, n = own_of(s, thread); i < n; i++) {
        td__in_step *m = &in_step_of(s, thread)[i];
        if (m->at.rows)
            m->value = td__runner_until_sync(m->at.runner);
    }
    return TD_OK;
}

static td_status end_in_step(void *user, int thread)
{
    const td__micro_batch_set *s = user;
    const td__micro_batch_calls *c = &s->now.calls;
    const td__in_step *m = in_step_of(s, thread);
    int n = own_of(s, thread);
    for (int i = 0; i < n; i++)
        if (m[i].at.rows)
            TD_TRY(td__runner_end(m[i].at.runner));
    for (int i = n; i-- > 0;)
        TD_TRY(c->after(c->user, &m[i].at));
    if (c->passed && n)
        c->passed(c->user, thread, SIZE_MAX);
    return TD_OK;
}

static td_status exchange(td__micro_batch_set *s, int point)
{
    td__sync_values_begin(s->values, point);
    for (int t = 0; t < s->threads; t++)
        for (int i = 0, n = own_of(s, t); i < n; i++)
            if (in_step_of(s, t)[i].at.rows)
                td__sync_values_put(s->values, in_step_of(s, t)[i].at.index,
                                    &in_step_of(s, t)[i].value);
    TD_TRY(td__sync_values_exchange(s->values, s->begins));
    for (int t = 0; t < s->threads; t++)
        for (int i = 0, n = own_of(s, t); i < n; i++)
            if (in_step_of(s, t)[i].at.rows)
                td__sync_values_take(s->values, in_step_of(s, t)[i].at.rows,
                                     &in_step_of(s, t)[i].value);
    return TD_OK;
}

td_status td__micro_batches_in_step(td__micro_batch_set *s)
{
    const td__micro_batch_cut *cut = &s->now.cut;
    for (int i = 0; i <= cut->micro_batches; i++)
        s->begins[i] = td__micro_batch_begin(s->now.batch->rows, cut->micro_batches, i);
    TD_TRY(td__pool_run(s->o.pool, begin_in_step, s));
    for (int p = 0; p < td__sync_values_points(s->values); p++) {
        TD_TRY(td__pool_run(s->o.pool, next_in_step, s));
        TD_TRY(exchange(s, p));
    }
    return td__pool_run(s->o.pool, end_in_step, s);
}
