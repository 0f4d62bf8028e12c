/* sync.c -- see sync.h: finding a rule, and calling it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/sync.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/nearest.h"
#include "coll/comm.h"

static const td__sync_ops *const RULES[] = {
#define TD_SYNC(id) &td__sync_##id,
#include "parallel/sync.def"
#undef TD_SYNC
    NULL};

/* ---- Finding --------------------------------------------------------------------------------- */

td__sync_world td__sync_world_of(const td_comm *comm, bool elastic)
{
    td__sync_world w = {.ranks = 1, .elastic = elastic};
    if (comm) {
        w.rank = td_comm_rank(comm);
        w.ranks = td_comm_size(comm);
        w.shared = td__comm_shares(comm);
    }
    return w;
}

const td__sync_ops *td__sync_list(const td__sync_config *c, int i)
{
    return (c->rules ? c->rules : RULES)[i];
}

static td_status check_settings(const td__sync_config *c, const td__sync_ops *rule)
{
    for (int i = 0; i < c->n_set; i++) {
        const td__sync_setting *s = &c->set[i];
        const td__sync_option *o = rule->options;
        while (o && o->name && strcmp(o->name, s->name) != 0)
            o++;
        if (!o || !o->name)
            return TD_FAIL(TD_EINVAL, "the sync rule %s has no option '%s'", rule->name, s->name);
        if (!(s->value >= o->least && s->value <= o->most))
            return TD_FAIL(TD_EINVAL, "%s of the sync rule %s is %g: must be %g to %g", o->name,
                           rule->name, s->value, o->least, o->most);
    }
    return TD_OK;
}

td_status td__sync_find(const td__sync_config *c, const td__sync_world *w, const td__sync_ops **out)
{
    td__nearest near = {.word = c->rule};
    const td__sync_ops *rule;
    for (int i = 0; (rule = td__sync_list(c, i)); i++) {
        if (c->rule ? strcmp(c->rule, rule->name) == 0 : rule->fits && rule->fits(c, w)) {
            *out = rule;
            return check_settings(c, rule);
        }
        if (c->rule)
            td__nearest_offer(&near, rule->name);
    }
    *out = NULL;
    return TD_FAIL(TD_EINVAL, "there is no sync rule '%s' for %d rank%s%s%s%s",
                   c->rule ? c->rule : "auto", w->ranks, w->ranks > 1 ? "s" : "",
                   near.best ? "; did you mean '" : "", near.best ? near.best : "",
                   near.best ? "'?" : "");
}

td_status td__sync_check(const td__sync_config *c, const td__sync_job *j, const td__sync_world *w)
{
    const td__sync_ops *rule, *found;
    for (int i = 0; (rule = td__sync_list(c, i)); i++) {
        bool named = c->rule && strcmp(c->rule, rule->name) == 0;
        bool asked = rule->asked && rule->asked(c);
        if (c->rule && !named && asked)
            return TD_FAIL(TD_EINVAL, "the sync rule %s does not go with options of the rule %s",
                           c->rule, rule->name);
        if (rule->check && (named || asked))
            TD_TRY(rule->check(c, j, w));
    }
    return c->rule ? td__sync_find(c, w, &found) : TD_OK;
}

td_status td__sync_resolve(td__sync_config *c, const td__sync_job *j, const td__sync_world *w,
                           td_optim_opts *optim)
{
    const td__sync_ops *rule;
    TD_TRY(td__sync_find(c, w, &rule));
    if (rule->resolve)
        rule->resolve(c, j, optim);
    return TD_OK;
}

static td__sync_traits traits_of(const td__sync_ops *rule, const td__sync_config *c,
                                 const td__sync_world *w)
{
    td__sync_traits t = {.in_flight = 1};
    if (rule && rule->traits)
        rule->traits(c, w, &t);
    return t;
}

td__sync_traits td__sync_traits_of(const td__sync_config *c, const td__sync_world *w)
{
    const td__sync_ops *rule;
    td_status st = td__sync_find(c, w, &rule); /* was checked before */
    return traits_of(st ? NULL : rule, c, w);
}

size_t td__sync_slots(const td__sync_sizes *z)
{
    int slots = 1;
    for (int m = 1; m <= z->accumulate; m++)
        for (int r = 0; r < z->world.ranks; r++) {
            int n = td__rank_partials(m * z->micro_batches, r, z->world.ranks, NULL);
            slots = n > slots ? n : slots;
        }
    return (size_t)slots;
}

size_t td__sync_exchange(const td__sync_sizes *z)
{
    const td__sync_ops *rule;
    td_status st = td__sync_find(z->config, &z->world, &rule);
    return !st && rule->exchange ? rule->exchange(z) : 0;
}

/* ---- A rule ---------------------------------------------------------------------------------- */

static td_status set_up(td__sync *s)
{
    td__step_opts o = s->x.step;
    o.rank = s->x.comm ? td_comm_rank(s->x.comm) : 0;
    o.size = s->x.comm ? td_comm_size(s->x.comm) : 1;
    o.in_flight = s->traits.in_flight;
    o.no_partials = s->traits.no_partials;
    o.update_late = o.update_late || s->x.config->update_late;
    TD_TRY(td__step_engine_create(&o, &s->engine));
    return s->ops->create ? s->ops->create(s) : TD_OK;
}

td_status td__sync_create(const td__sync_ctx *x, td__sync **out)
{
    td__sync_world w = td__sync_world_of(x->comm, x->elastic);
    const td__sync_ops *rule;

    *out = NULL;
    w.watched = x->step.watch != NULL;
    TD_TRY(td__sync_find(x->config, &w, &rule));
    td__sync *s = td__calloc(1, rule->size);
    if (!s)
        return TD_FAIL(TD_ENOMEM, "no memory for the sync rule %s", rule->name);
    *s = (td__sync){.ops = rule, .x = *x, .traits = traits_of(rule, x->config, &w)};
    td_status st = set_up(s);
    if (st) {
        td__sync_destroy(s);
        return st;
    }
    *out = s;
    return TD_OK;
}

void td__sync_destroy(td__sync *s)
{
    if (!s)
        return;
    if (s->ops->destroy)
        s->ops->destroy(s);
    td__step_engine_destroy(s->engine);
    td__free(s);
}

td_status td__sync_needs_host(const td__sync_job *j, const char *key)
{
    if (j->backend && strcmp(j->backend, "far") == 0)
        return TD_FAIL(TD_EINVAL,
                       "train.backend far: %s needs memory that the host reads; set train.backend "
                       "to cpu",
                       key);
    return TD_OK;
}

double td__sync_value(const td__sync *s, const char *option)
{
    const td__sync_config *c = s->x.config;
    for (int i = 0; i < c->n_set; i++)
        if (strcmp(c->set[i].name, option) == 0)
            return c->set[i].value;
    const td__sync_option *o = s->ops->options;
    while (o->name && strcmp(o->name, option) != 0)
        o++;
    TD_ASSERT(o->name, "%s has no option %s", s->ops->name, option);
    return o->initial;
}

td_status td__sync_sum_numbers(td__sync *s)
{
    size_t n;
    double *numbers = td__step_numbers(s->engine, &n);
    if (!s->x.comm)
        return TD_OK;
    return td_allreduce(s->x.comm, numbers, numbers, n, TD_F64, TD_REDUCE_SUM, NULL);
}

/* ---- A step ---------------------------------------------------------------------------------- */

td_status td__sync_begin(td__sync *s, const td__sync_place *at, int batches, int64_t rows)
{
    td__step_begin(s->engine, (uint32_t)at->step, batches, rows);
    return s->ops->begin ? s->ops->begin(s, at) : TD_OK;
}

td_status td__sync_batch(td__sync *s, const td__batch *batch)
{
    return s->ops->batch ? s->ops->batch(s, batch) : td__step_batch(s->engine, batch);
}

td_status td__sync_end(td__sync *s, double lr, td__step_say say, td__step_result *out)
{
    s->met = false;
    td__step_say_so(s->engine, say);
    return s->ops->step(s, lr, out);
}

td_status td__sync_gather(td__sync *s, td__step_times *times)
{
    uint64_t begin = td__clock_ns();
    if (!s->ops->gather)
        return TD_OK;
    TD_TRY(s->ops->gather(s));
    const td__step_times *all = td__step_times_of(s->engine);
    times->update += 1e-9 * (double)(td__clock_ns() - begin);
    times->sent_nbytes = all->sent_nbytes;
    times->plain_nbytes = all->plain_nbytes;
    return TD_OK;
}

bool td__sync_prepared(const td__sync *s)
{
    return s && s->ops->prepared && s->ops->prepared(s);
}

td_status td__sync_forward(td__sync *s)
{
    return s->ops->forward(s);
}

void td__sync_abandon(td__sync *s, const char *why)
{
    if (!s)
        return;
    if (s->ops->abandon)
        s->ops->abandon(s, why);
    td__step_abandon(s->engine);
}

/* ---- Between steps --------------------------------------------------------------------------- */

td_status td__sync_meet_for(td__sync *s, td__sync_meet why)
{
    if (!s)
        return TD_OK;
    if (s->ops->meet && (!s->met || why == TD_MEET_BEGIN || why == TD_MEET_END))
        TD_TRY(s->ops->meet(s, why));
    s->met = true;
    s->ended = s->ended || why == TD_MEET_END;
    return TD_OK;
}

int td__sync_states(td__sync *s, td__sync_block out[TD__SYNC_BLOCKS])
{
    return s && s->ops->states ? s->ops->states(s, out) : 0;
}

td_status td__sync_serve(td__sync *s)
{
    TD_TRY(s->ops->serve(s));
    s->ended = true;
    return TD_OK;
}

void td__sync_note(td__sync *s, td__rank_stats *stats)
{
    if (s->ops->note)
        s->ops->note(s, stats);
}

void td__sync_report(td__sync *s, td__train_result *out)
{
    if (s && s->ops->report)
        s->ops->report(s, out);
}

bool td__sync_leads(const td__sync *s)
{
    return s && s->traits.leads && !s->ended;
}
