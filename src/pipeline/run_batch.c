/* run_batch.c -- the batches of a step through the pipeline.
 *
 * Batches that are accumulated follow each other without emptying the pipeline in between, in one
 * list of operations, where that takes no more room than one batch: a stage has one chunk, so that
 * a batch's samples are used up when the next one comes; there is one replica, so that all batches
 * have the same micro-batches here; and no more of them are under way than in one batch. Otherwise
 * each batch is run alone. The gradients are added in the same tree. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fail.h"
#include "pipeline/sync_pipeline_impl.h"
#include "step/work_partition.h"

td_status td__pipeline_plan_through(td__pipeline_rule *p, int each, int batches,
                                    const td__pipeline_planned **out)
{
    const td__pipeline_planned *one, *all;
    *out = NULL;
    if (batches < 2 || p->shape.replicas > 1 || p->chunks > p->shape.stages)
        return TD_OK;
    TD_TRY(td__pipeline_plan_for(p, each, &one));
    TD_TRY(td__pipeline_plan_for(p, each * batches, &all));
    for (int c = 0; c < p->chunks; c++)
        if (all->slots[c] > one->slots[c])
            return TD_OK;
    *out = all;
    return TD_OK;
}

static td__executor_list list_of(const td__pipeline_rule *p, const td__pipeline_planned *n,
                                 int each)
{
    return (td__executor_list){.plan = n->plan,
                               .slots = n->slots,
                               .direct = n->direct ? &p->direct : NULL,
                               .each = each,
                               .batches = n->micro_batches / each,
                               .step = td__step_number(p->base.engine)};
}

static void count(td__pipeline_rule *p, const td__executor_list *l)
{
    p->lists++;
    p->direct_lists += l->direct != NULL;
}

/* The next batch of the step's one list. */
static td_status run_through(td__pipeline_rule *p, const td__executor_batch *b)
{
    td__executor_list l = list_of(p, p->through, b->end - b->begin);
    if (b->number == 0) {
        count(p, &l);
        TD_TRY(td__executor_open(p->executor, &l));
    }
    TD_TRY(td__executor_feed(p->executor, b));
    return b->number + 1 == l.batches ? td__executor_close(p->executor) : TD_OK;
}

static td_status run_alone(td__pipeline_rule *p, const td__executor_batch *b)
{
    const td__pipeline_planned *n;
    TD_TRY(td__pipeline_plan_for(p, b->end - b->begin, &n));
    td__executor_list l = list_of(p, n, b->end - b->begin);
    count(p, &l);
    return td__executor_run(p->executor, &l, b);
}

td_status td__pipeline_run_batch(void *user, const td__batch *batch, int number, double *losses)
{
    td__pipeline_rule *p = user;
    const td__step_opts *o = td__step_opts_of(p->base.engine);
    td__micro_batch_range own =
        td__rank_cut(o->micro_batches, td__step_batches(p->base.engine), number, o->rank, o->size);
    td__executor_batch b = {.batch = batch,
                            .micro_batches = o->micro_batches,
                            .begin = own.begin,
                            .end = own.end,
                            .number = number,
                            .engine = p->base.engine,
                            .losses = losses};
    if (own.begin == own.end)
        return TD_OK;
    if (number == 0 || o->size > 1)
        TD_TRY(td__pipeline_plan_through(p, own.end - own.begin, td__step_batches(p->base.engine),
                                         &p->through));
    if (p->through) /* that of a full step is compared when the rule is made */
        TD_TRY(td__pipeline_agree_through(p, p->through, td__step_batches(p->base.engine)));
    p->ran = p->through ? p->through->micro_batches : own.end - own.begin;
    td_status st = p->through ? run_through(p, &b) : run_alone(p, &b);
    double wait;
    uint64_t sent;
    td__executor_spent(p->executor, &wait, &sent);
    p->wait += wait;
    p->sent += sent;
    return st;
}
