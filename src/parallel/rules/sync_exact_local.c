/* sync_exact_local.c -- one rank alone: its gradients are all there are, and what is left of the
 * micro-batch tree is added up while updating. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fail.h"
#include "parallel/step_plan.h"

static bool fits(const td__sync_config *c, const td__sync_world *w)
{
    (void)c;
    return w->ranks == 1;
}

static void traits(const td__sync_config *c, const td__sync_world *w, td__sync_traits *out)
{
    (void)c;
    (void)w;
    out->any_partition = true;
    out->in_step = true;
}

static td_status step(td__sync *s, double lr, td__step_result *out)
{
    TD_TRY(td__step_update(s->engine, lr, NULL));
    td__step_done(s->engine, out);
    return TD_OK;
}

static void plan(td__planner *w)
{
    td__planner_runs(w);
    td__planner_update(w, 0);
}

const td__sync_ops td__sync_exact_local = {
    .name = "exact-local",
    .help = "one rank alone",
    .promise = "the bits of one rank",
    .size = sizeof(td__sync),
    .fits = fits,
    .traits = traits,
    .plan = plan,
    .step = step,
};
