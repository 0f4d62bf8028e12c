/* sync.c -- see sync.h: finding a rule, and calling it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/sync.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/nearest.h"
#include "coll/comm.h"
#include "coll/nccl/nccl.h"
#include "graph/backend_auto.h"
#include "graph/params.h"
#include "parallel/plan_follow.h"

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

const td__sync_ops *td__sync_named(const char *name)
{
    for (const td__sync_ops *const *r = td__sync_rules; *r; r++)
        if (strcmp(name, (*r)->name) == 0)
            return *r;
    return NULL;
}

static const td__key *option_of(const td__sync_ops *rule, const char *name)
{
    for (const td__key *k = rule->options; k && k->path; k++)
        if (strcmp(k->path, name) == 0)
            return k;
    return NULL;
}

static td_status check_settings(const td__sync_config *c, const td__sync_ops *rule)
{
    for (int i = 0; i < c->n_set; i++) {
        const td__sync_setting *s = &c->set[i];
        const td__key *k = option_of(rule, s->name);
        if (!k)
            return TD_FAIL(TD_EINVAL, "train.sync.%s: the sync rule %s has no such option", s->name,
                           rule->name);
        if (!td__key_in_range(k, s->value))
            return TD_FAIL(TD_EINVAL, "train.sync.%s: %g is out of range for the sync rule %s",
                           s->name, s->value, rule->name);
    }
    return TD_OK;
}

static td_status unknown_rule(const char *name)
{
    td__nearest near = {.word = name};
    for (const td__sync_ops *const *r = td__sync_rules; *r; r++)
        td__nearest_offer(&near, (*r)->name);
    return TD_FAIL(TD_EINVAL, "train.sync: unknown sync rule '%s'; %s%s%s", name,
                   near.best ? "did you mean '" : "see `tandem help job sync`",
                   near.best ? near.best : "", near.best ? "'?" : "");
}

td_status td__sync_find(const td__sync_config *c, const td__sync_world *w, const td__sync_ops **out)
{
    *out = NULL;
    if (c->rule) {
        const td__sync_ops *rule = td__sync_named(c->rule);
        TD_TRY(rule ? check_settings(c, rule) : unknown_rule(c->rule));
        *out = rule;
        return TD_OK;
    }
    for (const td__sync_ops *const *r = td__sync_rules; !*out && *r; r++)
        if ((*r)->fits && (*r)->fits(c, w))
            *out = *r;
    return *out ? TD_OK : TD_FAIL(TD_EINVAL, "no sync rule fits %d ranks", w->ranks);
}

/* Can the rule, which the job names, be the one of these ranks? One rank that does not start may
 * evaluate what several have trained. */
static td_status check_named(const td__sync_ops *rule, const td__sync_config *c,
                             const td__sync_world *w)
{
    td__sync_world shared = *w;
    shared.shared = w->shared || !w->starts;
    if (rule->asked && !rule->asked(c))
        return TD_FAIL(TD_EINVAL, "train.sync: the sync rule %s needs %s", rule->name, rule->key);
    if (rule->one_process && (w->ranks > 1 || w->elastic))
        return TD_FAIL(TD_EINVAL,
                       "train.sync: the sync rule %s trains with threads of one process: start one "
                       "rank (-n 1), with more threads (--threads)",
                       rule->name);
    if (!rule->fits || (w->ranks == 1 && !w->starts && !w->elastic))
        return TD_OK;
    if (w->elastic)
        return TD_FAIL(TD_EINVAL,
                       "train.sync: %s cannot be fixed for an elastic run, whose world size "
                       "changes: remove train.sync, and each generation gets the rule that fits "
                       "it",
                       rule->name);
    if (!rule->fits(c, w) && !rule->fits(c, &shared))
        return TD_FAIL(TD_EINVAL, "train.sync: the sync rule %s is not for %d rank%s%s", rule->name,
                       w->ranks, w->ranks > 1 ? "s" : "",
                       !w->starts || w->ranks == 1 ? ""
                       : w->shared                 ? " that share memory"
                                                   : " that share no memory");
    return TD_OK;
}

td_status td__sync_check(const td__sync_config *c, const td__sync_job *j, const td__sync_world *w)
{
    const td__sync_ops *named = NULL;
    int pieces = c->tensor_pieces;
    TD_TRY(td__sync_check_mesh(c, w));
    if (pieces < 0 || pieces > TD__MOST_PIECES || (pieces & (pieces - 1)))
        return TD_FAIL(TD_EINVAL, "parallel.tensor_pieces: %d is not 2, 4 or 8", pieces);
    if (c->sequence && pieces < 2 && c->mesh.size[TD_AXIS_TENSOR] < 2)
        return TD_FAIL(TD_EINVAL, "parallel.sequence: nothing is in pieces: set "
                                  "parallel.tensor_pieces or parallel.tensor, or leave it out");
    if (c->rule) {
        TD_TRY(td__sync_find(c, w, &named));
        TD_TRY(check_named(named, c, w));
    }
    for (const td__sync_ops *const *r = td__sync_rules; *r; r++) {
        bool asked = (*r)->asked && (*r)->asked(c);
        bool same = asked && named && named->key && strcmp(named->key, (*r)->key) == 0;
        if (asked && named && *r != named && !same)
            return TD_FAIL(TD_EINVAL,
                           "train.sync: the sync rule %s cannot be combined with %s, which is of "
                           "the rule %s; leave one of them out",
                           named->name, (*r)->key, (*r)->name);
        if ((*r)->check && ((asked && !same) || *r == named))
            TD_TRY((*r)->check(c, j, w));
    }
    return TD_OK;
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

td_status td__sync_check_params(const td__sync_config *c, const td__sync_world *w,
                                const td_params *ps)
{
    const td__sync_ops *rule;
    TD_TRY(td__sync_find(c, w, &rule));
    return rule->check_params ? rule->check_params(c, ps) : TD_OK;
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

/* What values of all micro-batches cannot be combined with; NULL: nothing. */
static const char *against_values(const td__sync_config *c, const td__sync_ops *rule,
                                  const td__sync_traits *t, const td__sync_shared *v)
{
    const int *size = c->mesh.size;
    return size[TD_AXIS_PIPELINE] > 1 ? "parallel.pipeline"
           : size[TD_AXIS_TENSOR] > 1 ? "parallel.tensor"
           : c->tensor_pieces > 1     ? "parallel.tensor_pieces"
           : c->zero > 1              ? "parallel.zero above 1"
           : !t->in_step              ? rule->name
           : v->verified              ? "train.verify"
           : v->far                   ? "a train.backend with memory of its own"
                                      : NULL;
}

td_status td__sync_check_shared(const td__sync_config *c, const td__sync_world *w,
                                const td__sync_shared *v)
{
    const td__sync_ops *rule;
    TD_TRY(td__sync_find(c, w, &rule));
    td__sync_traits t = traits_of(rule, c, w);
    const char *against = against_values(c, rule, &t, v);
    /* With accumulation a rank may have a whole batch of a step. */
    int own = v->accumulate > 1 ? v->micro_batches : (v->micro_batches + w->ranks - 1) / w->ranks;
    int each = (own + v->threads - 1) / v->threads, most = TD__GRAD_STACK / 2 / v->threads;
    most = most < TD__PLACES ? most : TD__PLACES;
    if (against)
        return TD_FAIL(TD_EINVAL,
                       "batch_norm with sync: true cannot be combined with %s: leave one of them "
                       "out",
                       against);
    if (each > most)
        return TD_FAIL(TD_EINVAL,
                       "batch_norm with sync: true: a thread would hold %d micro-batches at once, "
                       "at most %d are possible: lower train.micro_batches (%d), or use more "
                       "threads or ranks",
                       each, most, v->micro_batches);
    return TD_OK;
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

td_status td__sync_needs(const td__sync_sizes *z, td__sync_need *out, bool *parts)
{
    const td__sync_ops *rule;
    TD_TRY(td__sync_find(z->config, &z->world, &rule));
    *parts = rule->need != NULL;
    return rule->need ? rule->need(z, out) : TD_OK;
}

td_status td__sync_hold_shards(const td__sync_hold *h, td__shards **out)
{
    td__sync_world w = td__sync_world_of(h->comm, h->elastic);
    const td__sync_ops *rule;
    *out = NULL;
    TD_TRY(td__sync_find(h->config, &w, &rule));
    return rule->hold ? rule->hold(h, out) : TD_OK;
}

size_t td__sync_bucket_nbytes(const td__sync_config *c, const td__sync_world *w,
                              const td_params *ps)
{
    const td__sync_ops *rule;
    bool own = !td__sync_find(c, w, &rule) && rule->bucket_nbytes;
    return own ? rule->bucket_nbytes(c, ps) : c->bucket_nbytes;
}

static const td__sync_ops *rule_of_elastic(const td__sync_config *c, int ranks)
{
    const td__sync_ops *rule;
    td_status st = td__sync_find(c, &(td__sync_world){.ranks = ranks, .elastic = true}, &rule);
    return st ? NULL : rule; /* was checked before */
}

bool td__sync_maps(const td__sync_config *c)
{
    const td__sync_ops *rule = rule_of_elastic(c, 2);
    return rule && rule->map;
}

td_status td__sync_map(const td__sync_hold *h, int ranks, td__ownership *out, td__holding *holdings)
{
    return rule_of_elastic(h->config, ranks)->map(h, ranks, out, holdings);
}

/* ---- A rule ---------------------------------------------------------------------------------- */

/* Batch norms over all micro-batches: they go in step (step/sync_values.h). */
static td_status share_values(td__sync *s, td__step_opts *o)
{
    o->in_flight = TD__PLACES;
    if (s->x.comm)
        TD_TRY(td_comm_split(s->x.comm, 0, 0, &s->peers));
    TD_TRY(td__sync_values_create(o->program, o->micro_batches, s->peers, &s->values));
    return td__micro_batch_set_values(o->set, s->values);
}

/* Of a step of so many batches, of which the first has `rows` rows and the last last_rows. */
static td__plan_case plan_case(const td__sync *s, uint64_t step, int batches, int64_t rows,
                               int64_t last_rows)
{
    const td__step_opts *o = td__step_opts_of(s->engine);
    return (td__plan_case){.config = s->x.config,
                           .world = td__sync_world_of(s->x.comm, s->x.elastic),
                           .host_of = td__comm_host_of(s->x.comm),
                           .params = o->params,
                           .optim = td__plan_optim_of(o->optimizer, o->params),
                           .set = o->set,
                           .micro_batches = o->micro_batches,
                           .accumulate = o->accumulate,
                           .bounds = o->bounds,
                           .map = s->x.shards ? td__shards_ownership(s->x.shards) : NULL,
                           .mirrors = s->x.shards && td__shards_mirror(s->x.shards) >= 0,
                           .watched = o->watch != NULL,
                           .update_late = o->update_late,
                           .host_reads = td__device_host_reads(td__params_device(o->params)),
                           .own = o->stage ? o->stage->own : NULL,
                           .n_own = o->stage ? o->stage->n_own : 0,
                           .squares = o->stage && o->stage->updates && !o->taker
                                          ? (size_t)td_params_count(o->params)
                                          : 0,
                           .steps = s->x.steps,
                           .step = step,
                           .batches = batches,
                           .rows = rows,
                           .last_rows = last_rows};
}

/* The plan of a usual step is made, checked and compared on all ranks before the first one. Ranks
 * on a GPU that share its memory make fewer calls than it has; where some ranks are on processors
 * and others on GPUs, they compare that of GPUs: none of these is held to it, nor are rules whose
 * messages have links of their own. */
static td_status make_follower(td__sync *s)
{
    const td__step_opts *o = td__step_opts_of(s->engine);
    int64_t rows = s->x.batch > 0 ? s->x.batch : o->micro_batches;
    int32_t reads = td__device_host_reads(td__params_device(o->params));
    if (!s->ops->plan || !s->x.comm || td_comm_size(s->x.comm) == 1)
        return TD_OK;
    TD_TRY(td_allreduce(s->x.comm, &reads, &reads, 1, TD_I32, TD_REDUCE_MIN, NULL));
    td__plan_case usual = plan_case(s, 1, o->accumulate, rows, rows);
    usual.host_reads = reads;
    TD_TRY(td__plan_follower_create(s->ops, s->x.comm, &usual, &s->follower));
    if (!reads || s->ops->apart) {
        td__plan_follower_destroy(s->follower);
        s->follower = NULL;
    }
    return TD_OK;
}

/* The step under way makes its first call after this. */
static td_status follow(td__sync *s, int64_t rows, int64_t last_rows)
{
    if (!s->follower)
        return TD_OK;
    td__plan_case at =
        plan_case(s, td__step_number(s->engine), td__step_batches(s->engine), rows, last_rows);
    return td__plan_follow(s->follower, &at);
}

static td_status followed(td__sync *s)
{
    return s->follower ? td__plan_followed(s->follower) : TD_OK;
}

static td_status set_up(td__sync *s)
{
    td__step_opts o = s->x.step;
    o.rank = s->traits.parts ? s->traits.part : s->x.comm ? td_comm_rank(s->x.comm) : 0;
    o.size = s->traits.parts ? s->traits.parts : s->x.comm ? td_comm_size(s->x.comm) : 1;
    o.in_flight = s->traits.in_flight;
    o.no_partials = s->traits.no_partials;
    o.update_late = o.update_late || s->x.config->update_late;
    if (td__program_syncs(o.program))
        TD_TRY(share_values(s, &o));
    TD_TRY(td__step_engine_create(&o, &s->engine));
    if (s->ops->create)
        TD_TRY(s->ops->create(s));
    if (s->x.comm)
        TD_TRY(td__nccl_is_used(s->x.comm, s->ops->name,
                                td__device_name(td__params_device(o.params))));
    return make_follower(s);
}

td_status td__sync_create(const td__sync_ctx *x, td__sync **out)
{
    td__sync_world w = td__sync_world_of(x->comm, x->elastic);
    const td__sync_ops *rule;

    *out = NULL;
    w.watched = x->step.watch != NULL;
    TD_TRY(td__sync_find(x->config, &w, &rule));
    w.starts = true;
    if (x->config->rule)
        TD_TRY(check_named(rule, x->config, &w));
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
    td__plan_follower_destroy(s->follower);
    td__step_engine_destroy(s->engine);
    td__micro_batch_drop_values(s->x.step.set);
    td__sync_values_destroy(s->values);
    td_comm_destroy(s->peers);
    td__free(s);
}

td_status td__sync_needs_host(const td__sync_job *j, const char *key)
{
    if (!td__backend_traits(j->backend).host_reads)
        return TD_FAIL(TD_EINVAL,
                       "train.backend %s: %s needs memory that the host reads; set train.backend "
                       "to cpu",
                       j->backend, key);
    return TD_OK;
}

double td__sync_setting_of(const td__sync_config *c, const td__key *option)
{
    for (int i = 0; i < c->n_set; i++)
        if (strcmp(c->set[i].name, option->path) == 0)
            return c->set[i].value;
    return td__key_real(option, option->def);
}

double td__sync_option(const td__sync_config *c, const char *option)
{
    const td__sync_ops *rule = td__sync_named(c->rule);
    const td__key *k = rule ? option_of(rule, option) : NULL;
    TD_ASSERT(k, "%s has no option %s", c->rule, option);
    return td__sync_setting_of(c, k);
}

double td__sync_value(const td__sync *s, const char *option)
{
    const td__key *k = option_of(s->ops, option);
    TD_ASSERT(k, "%s has no option %s", s->ops->name, option);
    return td__sync_setting_of(s->x.config, k);
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
    return td__sync_inner_begin(s, at);
}

td_status td__sync_batch(td__sync *s, const td__batch *batch)
{
    int64_t before = (int64_t)(td__step_batches(s->engine) - 1) * batch->rows;
    if (!s->begun) /* the first batch tells what the last one will have */
        TD_TRY(follow(s, batch->rows, td__step_rows(s->engine) - before));
    s->begun = true;
    return s->ops->batch ? s->ops->batch(s, batch) : td__step_batch(s->engine, batch);
}

td_status td__sync_end(td__sync *s, double lr, td__step_say say, td__step_result *out)
{
    s->met = false;
    td__step_say_so(s->engine, say);
    return td__sync_inner_step(s, lr, out);
}

int td__sync_kind(const td__sync *s)
{
    return s->ops->kind ? s->ops->kind(s->x.config, td__step_number(s->engine), s->x.steps) : 0;
}

td_status td__sync_inner_begin(td__sync *inner, const td__sync_place *at)
{
    inner->begun = false;
    return inner->ops->begin ? inner->ops->begin(inner, at) : TD_OK;
}

td_status td__sync_hand_in(td__sync *inner)
{
    int64_t rows = td__step_rows(inner->engine), last = td__step_last_rows(inner->engine);
    int batches = td__step_batches(inner->engine);
    TD_TRY(follow(inner, batches > 1 ? (rows - last) / (batches - 1) : rows, last));
    return td__step_hand_in(inner->engine);
}

td_status td__sync_inner_step(td__sync *inner, double lr, td__step_result *out)
{
    TD_TRY(inner->ops->step(inner, lr, out));
    return inner->ops->gather ? TD_OK : followed(inner);
}

static td_status inner_gather(td__sync *inner)
{
    if (!inner->ops->gather)
        return TD_OK;
    TD_TRY(inner->ops->gather(inner));
    return followed(inner);
}

td_status td__sync_gather(td__sync *s, td__step_times *times)
{
    uint64_t begin = td__clock_ns();
    if (!s->ops->gather)
        return TD_OK;
    TD_TRY(inner_gather(s));
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
    if (s->follower)
        td__plan_leave(s->follower);
    td__step_abandon(s->engine);
}

/* ---- Between steps --------------------------------------------------------------------------- */

td_status td__sync_meet_for(td__sync *s, td__sync_meet why)
{
    if (!s)
        return TD_OK;
    bool told =
        why == TD_MEET_RESIZE && s->traits.leads; /* the others wait for the leader's word */
    if (s->ops->meet && (!s->met || told || why == TD_MEET_BEGIN || why == TD_MEET_END))
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
    s->ended = !s->resized;
    return TD_OK;
}

void td__sync_note(td__sync *s, td__rank_stats *stats)
{
    if (s->ops->note)
        s->ops->note(s, stats);
}

int td__sync_notes(td__sync *s, td__step_note out[TD__STEP_NOTES])
{
    return s->ops->notes ? s->ops->notes(s, out) : 0;
}

void td__sync_report(td__sync *s, td__train_result *out)
{
    if (s && s->ops->report)
        s->ops->report(s, out);
}

bool td__sync_leads(const td__sync *s)
{
    return s && s->traits.leads && (!s->ended || s->alone);
}
