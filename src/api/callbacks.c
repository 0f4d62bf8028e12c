/* callbacks.c -- a program's callbacks as an observer of a run: each event in public words, and the
 * answer into the run's stop flag. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "api/callbacks.h"

#include <stdio.h>

_Static_assert((int)TD_MAX_METRICS == (int)TD__MAX_METRICS, "one limit");
_Static_assert((int)TD_RUN_DONE == (int)TD_TRAIN_DONE && (int)TD_RUN_EARLY == (int)TD_TRAIN_EARLY &&
                   (int)TD_RUN_STOPPED == (int)TD_TRAIN_INTERRUPTED,
               "one order");

static void take(td__callbacks *c, td_answer answer)
{
    if (answer == TD_STOP)
        atomic_store(c->stop, 1);
}

static td_status tell_begin(td__observer *o, const td__train_info *i)
{
    td__callbacks *c = (td__callbacks *)o;
    td_run_info info = {.name = i->name,
                        .run_dir = c->run_dir,
                        .first_step = i->first_step,
                        .steps = i->steps,
                        .steps_per_epoch = i->steps_per_epoch,
                        .batch = i->batch,
                        .params = i->params,
                        .micro_batches = i->micro_batches,
                        .threads = i->threads,
                        .rank = c->rank,
                        .ranks = i->ranks};

    if (c->to.begin)
        take(c, c->to.begin(c->to.user, &info));
    return TD_OK;
}

static td_status tell_step(td__observer *o, const td__step_event *e)
{
    td__callbacks *c = (td__callbacks *)o;
    td_step_info info = {.step = e->step,
                         .epoch = e->epoch,
                         .loss = e->loss,
                         .lr = e->lr,
                         .grad_norm = e->grad_norm,
                         .samples = e->samples,
                         .seconds = e->seconds,
                         .elapsed = e->elapsed};

    if (c->to.step)
        take(c, c->to.step(c->to.user, &info));
    return TD_OK;
}

static td_status tell_eval(td__observer *o, const td__eval_event *e)
{
    td__callbacks *c = (td__callbacks *)o;
    td_eval_info info = {.step = e->step,
                         .epoch = e->epoch,
                         .part = e->part,
                         .metrics = {.n = e->n, .seconds = e->seconds},
                         .best = e->best};

    for (int i = 0; i < e->n; i++) {
        info.metrics.name[i] = e->name[i];
        info.metrics.value[i] = e->value[i];
    }
    if (c->to.eval)
        take(c, c->to.eval(c->to.user, &info));
    return TD_OK;
}

static td_status tell_checkpoint(td__observer *o, const td__checkpoint_event *e)
{
    td__callbacks *c = (td__callbacks *)o;
    td_checkpoint_info info = {
        .step = e->step, .path = e->path, .nbytes = e->nbytes, .seconds = e->seconds};

    if (c->to.checkpoint)
        take(c, c->to.checkpoint(c->to.user, &info));
    return TD_OK;
}

void td__callbacks_init(td__callbacks *c, const td_callbacks *to, atomic_int *stop,
                        const char *run_dir, int rank)
{
    *c = (td__callbacks){.observer = {.begin = tell_begin,
                                      .step = tell_step,
                                      .eval = tell_eval,
                                      .checkpoint = tell_checkpoint},
                         .to = *to,
                         .stop = stop,
                         .run_dir = run_dir,
                         .rank = rank};
}

void td__metrics_fill(td_metrics *out, const td__eval_result *r)
{
    *out = (td_metrics){.n = r->n, .samples = r->samples, .seconds = r->seconds};
    for (int i = 0; i < r->n; i++) {
        out->name[i] = r->name[i];
        out->value[i] = r->value[i];
    }
}

void td__run_result_fill(td_run_result *out, const td__train_result *r, const char *run_dir)
{
    *out = (td_run_result){.end = (td_run_end)r->end,
                           .step = r->step,
                           .epoch = r->epoch,
                           .seconds = r->seconds,
                           .samples_per_second = r->samples_per_second,
                           .train_loss = r->train_loss,
                           .best = r->best,
                           .best_step = r->best_step};
    snprintf(out->digest, sizeof out->digest, "%s", r->digest);
    snprintf(out->run_dir, sizeof out->run_dir, "%s", run_dir);
}
