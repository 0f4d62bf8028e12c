/* sync_eamsgd.c -- elastic averaging with momentum (EAMSGD: Zhang, Choromanska and LeCun, 2015):
 * as easgd, but a rank steps with Nesterov momentum, its gradient taken where the momentum leads:
 *
 *     v_i <- delta v_i - rate grad f_i(x_i + delta v_i);   x_i <- x_i + v_i      in every step
 *     x_i <- x_i - alpha (x_i - c);   c <- c + beta (mean - c)                   every tau steps
 *
 * with alpha = beta / n. The update after the look ahead is the job's optimizer's, whatever it is:
 * of plain SGD it is the formula. Running averages have no momentum. At a meeting ranks take the
 * centre and are at rest. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "graph/params.h"
#include "parallel/rules/sync_local.h"

typedef struct eamsgd {
    td__sync_local base;
    float *v, *from; /* (count) momentum; params before the look ahead, */
    bool ahead;      /* which a step that fails goes back to */
} eamsgd;

static const td__key OPTIONS[] = {
    TD__LOCAL_TAU("10"),
    TD_KEY_ROW("beta", REAL, "How far the centre moves to the mean; alpha is beta / n.", .hi = 1,
               .flags = TD_KEY_ABOVE, .def = "0.9"),
    TD_KEY_ROW("momentum", REAL, "delta: Nesterov momentum of a rank's steps.", .hi = 1,
               .flags = TD_KEY_BELOW, .def = "0.9"),
    TD_KEYS_END};

static void settle(td__sync_local *l, float *x)
{
    eamsgd *e = (eamsgd *)l;
    memset(e->v, 0, l->count * sizeof *e->v);
    td__local_take_centre(l, x);
}

static td_status create(td__sync *s)
{
    static const td__local_ops OPS = {.blocks = 1, .merge = td__local_elastic, .settle = settle};
    eamsgd *e = (eamsgd *)s;
    TD_TRY(td__sync_local_create(s, &OPS));
    e->v = td__calloc(e->base.count + 1, sizeof *e->v);
    e->from = td__calloc(e->base.count + 1, sizeof *e->from);
    return e->v && e->from ? TD_OK : TD_FAIL(TD_ENOMEM, "no memory for the momentum of a rank");
}

/* After a rank is lost, the others go on in mid-block. */
static int states(td__sync *s, td__sync_block *out)
{
    int n = td__sync_local_states(s, out);
    out[n] = (td__sync_block){
        .name = "velocity", .data = ((eamsgd *)s)->v, .count = ((eamsgd *)s)->base.count};
    return n + 1;
}

static void destroy(td__sync *s)
{
    td__free(((eamsgd *)s)->v);
    td__free(((eamsgd *)s)->from);
    td__sync_local_destroy(s);
}

/* Params to look ahead, and back. */
static td_status begin(td__sync *s, const td__sync_place *at)
{
    eamsgd *e = (eamsgd *)s;
    float delta = (float)td__sync_value(s, "momentum");
    td__mapping map;
    TD_TRY(td__sync_local_begin(s, at));
    TD_TRY(td__params_map(s->x.step.params, 0, e->base.count, TD_MAP_BOTH, &map));
    float *x = map.at;
    memcpy(e->from, x, map.nbytes);
    for (size_t i = 0; i < e->base.count; i++)
        x[i] += delta * e->v[i];
    TD_TRY(td__mem_unmap(&map));
    td_params_touch(s->x.step.params);
    e->ahead = true;
    return TD_OK;
}

static void abandon(td__sync *s, const char *why)
{
    eamsgd *e = (eamsgd *)s;
    td_params *params = s->x.step.params;
    (void)why;
    if (!e->ahead || td__mem_write(td__params_device(params), td_params_block(params, NULL),
                                   e->from, e->base.count * sizeof *e->from))
        return;
    td_params_touch(params);
    e->ahead = false;
}

static td_status step(td__sync *s, double lr, td__step_result *out)
{
    eamsgd *e = (eamsgd *)s;
    const td_params *params = s->x.step.params;
    td__mapping map;
    TD_TRY(td__sync_local_step(s, lr, out));
    TD_TRY(td__params_map(params, 0, e->base.count, TD_MAP_READ, &map));
    const float *x = map.at;
    for (size_t i = 0; i < e->base.count; i++)
        e->v[i] = x[i] - e->from[i];
    td__mem_map_drop(&map);
    for (int p = 0; p < td_params_count(params); p++) {
        td_param_info info = td_params_info(params, p);
        if (info.is_state)
            memset(e->v + info.offset, 0, info.count * sizeof *e->v);
    }
    e->ahead = false;
    return TD_OK;
}

static size_t exchange(const td__sync_sizes *z)
{
    return td__sync_local_exchange(z) + 2 * z->params;
}

const td__sync_ops td__sync_eamsgd = {
    .name = "eamsgd",
    .help = "elastic averaging as easgd, of ranks whose steps have Nesterov momentum",
    .promise = "a function of the number of ranks, the seed, and when ranks meet",
    .options = OPTIONS,
    .size = sizeof(eamsgd),
    .check = td__sync_local_check,
    .traits = td__sync_local_traits,
    .exchange = exchange,
    .create = create,
    .destroy = destroy,
    .begin = begin,
    .step = step,
    .gather = td__sync_local_gather,
    .meet = td__sync_local_meet,
    .plan = td__sync_local_plan,
    .kind = td__sync_local_kind,
    .states = states,
    .abandon = abandon,
};
