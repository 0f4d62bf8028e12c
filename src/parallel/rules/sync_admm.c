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

static const td__key OPTIONS[] = {TD__LOCAL_TAU("8"), TD__ADMM_RHO, TD_KEYS_END};

void td__admm_merge(td__sync_local *l, float *x)
{
    td__admm *a = (td__admm *)l;
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

void td__admm_settle(td__sync_local *l, float *x)
{
    td__admm *a = (td__admm *)l;
    memset(a->u, 0, l->count * sizeof *a->u);
    td__local_take_centre(l, x);
}

td_status td__admm_create(td__sync *s, const td__local_ops *ops)
{
    td__admm *a = (td__admm *)s;
    TD_TRY(td__sync_local_create(s, ops));
    a->u = td__calloc(a->base.count + 1, sizeof *a->u);
    a->primal = a->dual = (double)NAN;
    return a->u ? TD_OK : TD_FAIL(TD_ENOMEM, "no memory for the duals of a rank");
}

void td__admm_destroy(td__sync *s)
{
    td__free(((td__admm *)s)->u);
    td__sync_local_destroy(s);
}

td_status td__admm_pull(td__sync *s, double lr)
{
    td__admm *a = (td__admm *)s;
    td_params *params = s->x.step.params;
    float pull = (float)(lr * td__sync_value(s, "rho")), keep = 1 / (1 + pull);
    td__mapping map;
    TD_TRY(td__params_map(params, 0, a->base.count, TD_MAP_BOTH, &map));
    float *x = map.at;
    for (int p = 0; p < td_params_count(params); p++) {
        td_param_info info = td_params_info(params, p);
        for (size_t i = info.offset; !info.is_state && i < info.offset + info.count; i++)
            x[i] = keep * (x[i] + pull * (a->base.centre[i] - a->u[i]));
    }
    TD_TRY(td__mem_unmap(&map));
    td_params_touch(params);
    return TD_OK;
}

int td__admm_notes(td__sync *s, td__step_note *out)
{
    td__admm *a = (td__admm *)s;
    if (isnan(a->primal))
        return 0;
    out[0] = (td__step_note){"primal", a->primal};
    out[1] = (td__step_note){"dual", a->dual};
    return 2;
}

size_t td__admm_exchange(const td__sync_sizes *z)
{
    return td__sync_local_exchange(z) + z->params;
}

static td_status create(td__sync *s)
{
    static const td__local_ops OPS = {
        .blocks = 1, .merge = td__admm_merge, .settle = td__admm_settle};
    return td__admm_create(s, &OPS);
}

static td_status step(td__sync *s, double lr, td__step_result *out)
{
    TD_TRY(td__sync_local_step(s, lr, out));
    return td__admm_pull(s, lr);
}

static td_status gather(td__sync *s)
{
    td__admm *a = (td__admm *)s;
    TD_TRY(td__sync_local_gather(s));
    if (a->base.merged != a->base.step)
        return TD_OK;
    double sum = a->primal2;
    if (s->x.comm)
        TD_TRY(td_allreduce(s->x.comm, &sum, &sum, 1, TD_F64, TD_REDUCE_SUM, NULL));
    a->primal = sqrt(sum);
    return TD_OK;
}

const td__sync_ops td__sync_admm = {
    .name = "admm",
    .help = "consensus ADMM: ranks minimize their own loss near a centre, with prices for being "
            "off it",
    .promise = "a function of the number of ranks, the seed, and when ranks meet",
    .options = OPTIONS,
    .size = sizeof(td__admm),
    .check = td__sync_local_check,
    .traits = td__sync_local_traits,
    .exchange = td__admm_exchange,
    .create = create,
    .destroy = td__admm_destroy,
    .begin = td__sync_local_begin,
    .step = step,
    .gather = gather,
    .meet = td__sync_local_meet,
    .states = td__sync_local_states,
    .notes = td__admm_notes,
};
