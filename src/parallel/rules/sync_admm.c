/* sync_admm.c -- consensus ADMM (Boyd and others, 2011, section 7.1): minimize the sum over ranks
 * of f_i(x_i) where all x_i are z. With scaled duals u_i, every tau steps:
 *
 *     x_i <- about argmin f_i(x) + rho/2 |x - z + u_i|^2
 *     z   <- mean of x_i + u_i
 *     u_i <- u_i + x_i - z
 *
 * The first is tau steps of the job's optimizer on f_i, each followed by the proximal step of the
 * other term, x <- (x + rate rho (z - u_i)) / (1 + rate rho), whose fixed point of SGD is the
 * minimum whatever the rate. The duals of all ranks add up to zero, so z is the mean of x_i.
 *
 * Residuals: primal, the root of the sum over ranks of |x_i - z|^2; dual, rho sqrt(n) times the
 * length of z's last step. Running averages are averaged and have no duals. At a meeting ranks take
 * z, and the duals are zero: they are a rank's own, and a checkpoint is for any number of ranks. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "graph/params.h"
#include "parallel/rules/sync_admm.h"

typedef struct admm {
    td__sync_local base; /* whose centre is z */
    float *u;            /* (count) scaled duals */
    double primal2;      /* this rank's part of the primal residual, squared */
    double primal, dual; /* NaN before the first exchange */
} admm;

static const td__key OPTIONS[] = {TD__LOCAL_TAU("8"), TD__ADMM_RHO, TD_KEYS_END};

static void merge(td__sync_local *l, float *x)
{
    admm *a = (admm *)l;
    const td_params *params = l->base.x.step.params;
    double primal = 0, dual = 0;
    for (int p = 0; p < td_params_count(params); p++) {
        td_param_info info = td_params_info(params, p);
        for (size_t i = info.offset; i < info.offset + info.count; i++) {
            float z = l->mean[i], moved = z - l->centre[i], off = x[i] - z;
            l->centre[i] = z;
            if (info.is_state) {
                x[i] = z;
                continue;
            }
            a->u[i] += off;
            primal += (double)off * (double)off;
            dual += (double)moved * (double)moved;
        }
    }
    a->primal2 = primal;
    a->dual = td__sync_value(&l->base, "rho") * sqrt(l->ranks * dual);
}

static void settle(td__sync_local *l, float *x)
{
    admm *a = (admm *)l;
    memset(a->u, 0, l->count * sizeof *a->u);
    td__local_take_centre(l, x);
}

static void destroy(td__sync *s)
{
    td__free(((admm *)s)->u);
    td__sync_local_destroy(s);
}

td_status td__admm_pull(td__sync_local *l, const float *u, double lr)
{
    td_params *params = l->base.x.step.params;
    float pull = (float)(lr * td__sync_value(&l->base, "rho")), keep = 1 / (1 + pull);
    td__mapping map;
    TD_TRY(td__params_map(params, 0, l->count, TD_MAP_BOTH, &map));
    float *x = map.at;
    for (int p = 0; p < td_params_count(params); p++) {
        td_param_info info = td_params_info(params, p);
        for (size_t i = info.offset; !info.is_state && i < info.offset + info.count; i++)
            x[i] = keep * (x[i] + pull * (l->centre[i] - u[i]));
    }
    TD_TRY(td__mem_unmap(&map));
    td_params_touch(params);
    return TD_OK;
}

static int notes(td__sync *s, td__step_note *out)
{
    admm *a = (admm *)s;
    if (isnan(a->primal))
        return 0;
    out[0] = (td__step_note){"primal", a->primal};
    out[1] = (td__step_note){"dual", a->dual};
    return 2;
}

static size_t exchange(const td__sync_sizes *z)
{
    return td__sync_local_exchange(z) + z->params;
}

static td_status create(td__sync *s)
{
    static const td__local_ops OPS = {.blocks = 1, .merge = merge, .settle = settle};
    admm *a = (admm *)s;
    TD_TRY(td__sync_local_create(s, &OPS));
    a->u = td__calloc(a->base.count + 1, sizeof *a->u);
    a->primal = a->dual = (double)NAN;
    return a->u ? TD_OK : TD_FAIL(TD_ENOMEM, "no memory for the duals of a rank");
}

static td_status step(td__sync *s, double lr, td__step_result *out)
{
    TD_TRY(td__sync_local_step(s, lr, out));
    return td__admm_pull((td__sync_local *)s, ((admm *)s)->u, lr);
}

static td_status gather(td__sync *s)
{
    admm *a = (admm *)s;
    TD_TRY(td__sync_local_gather(s));
    if (a->base.merged != a->base.step)
        return TD_OK;
    double sum = a->primal2;
    if (s->x.comm)
        TD_TRY(td_allreduce(s->x.comm, &sum, &sum, 1, TD_F64, TD_REDUCE_SUM, NULL));
    a->primal = sqrt(sum);
    return TD_OK;
}

static void plan(td__planner *w)
{
    td__sync_local_plan(w);
    if (td__planner_kind(w))
        td__planner_coll(w, TD_PLAN_ALLREDUCE, sizeof(double), 0);
}

const td__sync_ops td__sync_admm = {
    .name = "admm",
    .help = "consensus ADMM: ranks minimize their own loss near a centre, with prices for being "
            "off it",
    .promise = "a function of the number of ranks, the seed, and when ranks meet",
    .options = OPTIONS,
    .size = sizeof(admm),
    .check = td__sync_local_check,
    .traits = td__sync_local_traits,
    .exchange = exchange,
    .create = create,
    .destroy = destroy,
    .begin = td__sync_local_begin,
    .step = step,
    .gather = gather,
    .meet = td__sync_local_meet,
    .plan = plan,
    .kind = td__sync_local_kind,
    .states = td__sync_local_states,
    .notes = notes,
};
