/* What is checked is what runs: calls of a step are held against its communication plan. A call
 * that is not the next one there, a step that leaves one out, a plan that waits for itself and
 * ranks with different plans are errors that name both sides; every sync rule has a plan or says
 * why not. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "parallel/plan_follow.h"
#include "support/check.h"
#include "support/step_rig.h"

/* ---- Rules ----------------------------------------------------------------------------------- */

static void plan_two(td__planner *w)
{
    td__planner_runs(w);
    td__planner_coll(w, TD_PLAN_ALLREDUCE, sizeof(double), 0);
    td__planner_coll(w, TD_PLAN_BARRIER, 0, 0);
    td__planner_update(w, 0);
}
static const td__sync_ops TWO = {.name = "two", .plan = plan_two};

static void plan_numbers(td__planner *w)
{
    td__planner_numbers(w);
}
static const td__sync_ops NUMBERS = {.name = "numbers", .plan = plan_numbers};

/* Both send before they receive. */
static void plan_crossed(td__planner *w)
{
    td__planner_send(w, TD__PLAN_PARAMS, 1 - w->rank, 4096);
    td__planner_recv(w, TD__PLAN_PARAMS, 1 - w->rank, 4096);
}
static const td__sync_ops CROSSED = {.name = "crossed", .plan = plan_crossed};

static void plan_half(td__planner *w)
{
    if (w->rank == 0)
        td__planner_coll(w, TD_PLAN_BARRIER, 0, 0);
}
static const td__sync_ops HALF = {.name = "half", .plan = plan_half};

/* ---- Ranks ----------------------------------------------------------------------------------- */

typedef struct part {
    step_rig rig;
    td__plan_case at;
    td__plan_follower *f;
} part;

static td_status begin(part *p, ranks_ctx *r, const td__sync_ops *rule, int micro_batches)
{
    const step_case c = {.m = &TRAIN_MODELS[0], .micro_batches = 4, .accumulate = 1};
    td_status st = step_rig_make(&c, NULL, &p->rig);
    if (st)
        return st;
    p->at = (td__plan_case){.config = &p->rig.config,
                            .world = td__sync_world_of(r->comm, false),
                            .params = p->rig.ps,
                            .optim = td__plan_optim_of(p->rig.o, p->rig.ps),
                            .set = p->rig.set,
                            .micro_batches = micro_batches,
                            .accumulate = 1,
                            .step = 3,
                            .batches = 1,
                            .rows = 8,
                            .last_rows = 8};
    return td__plan_follower_create(rule, r->comm, &p->at, &p->f);
}

static void end(part *p)
{
    td__plan_follower_destroy(p->f);
    step_rig_drop(&p->rig);
}

static td_status add_one(ranks_ctx *r)
{
    double one = 1;
    return td_allreduce(r->comm, &one, &one, 1, TD_F64, TD_REDUCE_SUM, NULL);
}

/* What the text of the last error must contain. */
static bool says(const char *text)
{
    return strstr(td_last_error(), text) != NULL;
}

static void as_planned_body(ranks_ctx *r)
{
    part p = {0};
    RANK_OK(r, begin(&p, r, &TWO, 4));
    for (int step = 0; step < 3; step++) {
        RANK_OK(r, td__plan_follow(p.f, &p.at));
        RANK_OK(r, add_one(r));
        RANK_OK(r, td_barrier(r->comm, NULL));
        RANK_OK(r, td__plan_followed(p.f));
        RANK_OK(r, add_one(r)); /* between steps any call may be made */
    }
    end(&p);
}

static void calls_in_the_order_of_the_plan_pass(void **state)
{
    (void)state;
    ranks_run(2, NULL, as_planned_body, NULL);
    ranks_run(3, &(ranks_opts){.transport = "tcp"}, as_planned_body, NULL);
}

/* Steps that are not as planned, up to the first call that fails. The rank that is refused first
 * ends the comm: the other one may learn of it in an earlier call. */
static td_status barrier_first(ranks_ctx *r)
{
    return td_barrier(r->comm, NULL);
}

static td_status sum_of_two(ranks_ctx *r)
{
    double two[2] = {1, 2};
    return td_allreduce(r->comm, two, two, 2, TD_F64, TD_REDUCE_SUM, NULL);
}

static td_status one_too_many(ranks_ctx *r)
{
    td_status st = add_one(r);
    st = st ? st : td_barrier(r->comm, NULL);
    return st ? st : add_one(r);
}

static const struct {
    td_status (*calls)(ranks_ctx *r);
    const char *made, *planned;
} WRONG[] = {{barrier_first, "barrier of 0 B", "allreduce of 8 B along data"},
             {sum_of_two, "allreduce of 16 B", "allreduce of 8 B along data"},
             {one_too_many, "allreduce of 8 B", "no further call"}};

static void wrong_body(ranks_ctx *r)
{
    int k = *(int *)r->arg;
    part p = {0};
    td_status st = begin(&p, r, &TWO, 4);
    st = st ? st : td__plan_follow(p.f, &p.at);
    st = st ? st : WRONG[k].calls(r);
    RANK_CHECK(
        r, st == TD_EMISMATCH && says("in step 3") && says(WRONG[k].made) && says(WRONG[k].planned),
        "%s", td_last_error());
    end(&p);
}

static void a_call_out_of_plan_is_refused(void **state)
{
    (void)state;
    for (int k = 0; k < (int)(sizeof WRONG / sizeof *WRONG); k++)
        ranks_run(2, NULL, wrong_body, &k);
}

static void left_out_body(ranks_ctx *r)
{
    part p = {0};
    RANK_OK(r, begin(&p, r, &TWO, 4));
    RANK_OK(r, td__plan_follow(p.f, &p.at));
    RANK_OK(r, add_one(r));
    RANK_STATUS(r, td__plan_followed(p.f), TD_EMISMATCH);
    RANK_CHECK(r, says("barrier along data"), "%s", td_last_error());
    RANK_OK(r, td__plan_follow(p.f, &p.at)); /* a step that is given up owes nothing */
    td__plan_leave(p.f);
    RANK_OK(r, td__plan_followed(p.f));
    end(&p);
}

static void a_step_without_a_call_of_the_plan_is_an_error(void **state)
{
    (void)state;
    ranks_run(2, NULL, left_out_body, NULL);
}

static void crossed_body(ranks_ctx *r)
{
    part p = {0};
    RANK_STATUS(r, begin(&p, r, &CROSSED, 4), TD_EDEADLOCK);
    RANK_CHECK(r, says("rank 0: send 4.10 kB of params") && says("rank 1: "), "%s",
               td_last_error());
    end(&p);
}

static void half_body(ranks_ctx *r)
{
    part p = {0};
    RANK_STATUS(r, begin(&p, r, &HALF, 4), TD_EDEADLOCK);
    RANK_CHECK(r, says("rank 0: barrier") && says("rank 1 never calls it"), "%s", td_last_error());
    end(&p);
}

static void a_plan_that_waits_for_itself_is_refused_before_step_0(void **state)
{
    (void)state;
    ranks_run(2, NULL, crossed_body, NULL);
    ranks_run(2, NULL, half_body, NULL);
}

static void different_body(ranks_ctx *r)
{
    part p = {0};
    td_status st = begin(&p, r, &NUMBERS, r->rank ? 8 : 4);
    RANK_CHECK(r, st == (r->rank ? TD_EMISMATCH : TD_OK), "%s", td_last_error());
    end(&p);
}

static void ranks_compare_their_plans(void **state)
{
    (void)state;
    ranks_run(2, NULL, different_body, NULL);
}

/* ---- All rules ------------------------------------------------------------------------------- */

static void every_rule_has_a_plan_or_says_why_not(void **state)
{
    (void)state;
    for (const td__sync_ops *const *r = td__sync_rules; *r; r++) {
        bool groups = !strcmp((*r)->name, "pipeline") || !strcmp((*r)->name, "tensor");
        CHECK(groups ? !(*r)->plan && !(*r)->unplanned : !(*r)->plan != !(*r)->unplanned,
              "%s: a plan, or why there is none", (*r)->name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_in_the_order_of_the_plan_pass),
        cmocka_unit_test(a_call_out_of_plan_is_refused),
        cmocka_unit_test(a_step_without_a_call_of_the_plan_is_an_error),
        cmocka_unit_test(a_plan_that_waits_for_itself_is_refused_before_step_0),
        cmocka_unit_test(ranks_compare_their_plans),
        cmocka_unit_test(every_rule_has_a_plan_or_says_why_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
