/* sync_exact_shm.c -- exact data parallel over shared memory: after backward each rank publishes
 * its partials, the owner of a slice of the gradient block adds up the slice of all ranks in the
 * order of the micro-batch tree, and every rank makes the same update (data_parallel.h).
 *
 * The sum of two partials, one of each of two ranks, is made block by block while updating; on a
 * device, where a block is a launch, it is made before. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/fail.h"
#include "graph/params.h"
#include "optim/optimizer.h"
#include "parallel/data_parallel.h"
#include "parallel/step_plan.h"

typedef struct shm {
    td__sync base;
    td__dp *dp;
} shm;

static bool fits(const td__sync_config *c, const td__sync_world *w)
{
    (void)c;
    return w->ranks > 1 && w->shared;
}

static void traits(const td__sync_config *c, const td__sync_world *w, td__sync_traits *out)
{
    (void)c;
    (void)w;
    out->any_partition = true;
    out->in_step = true;
}

/* Slots of all ranks, in two sets. */
static size_t exchange(const td__sync_sizes *z)
{
    enum { SETS = 2 };
    size_t sets = SETS * td__sync_slots(z) * z->grads;
    return z->own ? sets + z->grads : (size_t)z->world.ranks * sets; /* own: beside them the sum */
}

static td_status create(td__sync *s)
{
    const td__step_opts *o = td__step_opts_of(s->engine);
    return td__dp_create(s->x.comm, td__params_device(o->params), td__step_grads(s->engine),
                         o->bounds, o->micro_batches, o->accumulate, &((shm *)s)->dp);
}

static td_status leave(td__sync *s)
{
    return td__dp_leave(((shm *)s)->dp);
}

static void destroy(td__sync *s)
{
    td__dp_destroy(((shm *)s)->dp);
}

static void publish(void *user, const td__grad_stack *partials, size_t begin, size_t count)
{
    td__dp_publish(user, partials, begin, count);
}

static void sum_slice(void *user, size_t begin, size_t count)
{
    td__dp_sum(user, begin, count);
}

static td_sparse_grad rows(void *user, int k)
{
    return td__dp_sparse(((shm *)user)->dp, k);
}

static void block(void *user, size_t begin, size_t count, float *to)
{
    shm *m = user;
    td__dp_total(m->dp, td__step_partials(m->base.engine), begin, count, to);
}

/* May the sum be made while updating? Then it is not there before. */
static bool sums_late(bool simple, bool sliceable, bool clips, bool host_reads)
{
    return simple && sliceable && !clips && host_reads;
}

/* The exchange of numbers is the moment at which all have published. */
static void plan(td__planner *w)
{
    const td__plan_case *c = w->at;
    uint64_t slice = w->floats * sizeof(float) / (uint64_t)w->ranks;
    td__planner_runs(w);
    td__planner_copy(w, w->floats * sizeof(float));
    td__planner_numbers(w);
    td__planner_rows(w, w->tree.slots);
    if (!sums_late(td__dp_simple_tree(&w->tree), c->optim.sliceable, c->optim.clips,
                   c->host_reads)) {
        td__planner_copy(w, slice);
        td__planner_coll(w, TD_PLAN_BARRIER, 0, 0);
    }
    td__planner_squares(w);
    td__planner_update(w, 0);
}

static td_status sum_up(shm *m, td__step_sum *out)
{
    td__step_engine *e = m->base.engine;
    const td_optimizer *o = m->base.x.step.optimizer;
    uint64_t at[5] = {td__clock_ns()};
    size_t n_numbers;
    double *numbers = td__step_numbers(e, &n_numbers);
    int n = 2;

    *out = (td__step_sum){.user = m, .rows = rows};
    TD_TRY(td__dp_begin(m->dp, td__step_batches(e), td__step_last_rows(e)));
    TD_TRY(td__step_join(e, publish, m->dp));
    at[1] = td__clock_ns();
    TD_TRY(td__dp_exchange(m->dp, td__step_partials(e), numbers, n_numbers));
    at[2] = at[3] = at[4] = td__clock_ns();
    if (sums_late(td__dp_simple(m->dp), td__optim_sliceable(o), td__optim_clips(o),
                  td__device_host_reads(td__params_device(td__step_opts_of(e)->params)))) {
        out->block = block;
    } else {
        TD_TRY(td__step_in_ranges(e, td__dp_slice(m->dp), sum_slice, m->dp));
        at[3] = td__clock_ns();
        TD_TRY(td__dp_gather(m->dp, &out->grads));
        at[4] = td__clock_ns();
        n = 4;
    }
    td__step_times *times = td__step_times_of(e);
    times->reduce = 1e-9 * (double)(at[1] - at[0] + at[3] - at[2]);
    times->wait = 1e-9 * (double)(at[2] - at[1] + at[4] - at[3]);
    times->sent_nbytes = times->plain_nbytes = td__dp_nbytes(m->dp);
    for (int i = 0; i < n; i++)
        td__step_span(e, i % 2 ? TD_SPAN_WAIT : TD_SPAN_REDUCE, at[i], at[i + 1], 0, 0);
    return TD_OK;
}

static td_status step(td__sync *s, double lr, td__step_result *out)
{
    td__step_sum sum;
    TD_TRY(sum_up((shm *)s, &sum));
    TD_TRY(td__step_update(s->engine, lr, &sum));
    td__step_done(s->engine, out);
    return TD_OK;
}

const td__sync_ops td__sync_exact_shm = {
    .name = "exact-shm",
    .help = "data parallel, gradients added up in shared memory",
    .promise = "the bits of one rank",
    .size = sizeof(shm),
    .fits = fits,
    .traits = traits,
    .plan = plan,
    .exchange = exchange,
    .create = create,
    .leave = leave,
    .destroy = destroy,
    .step = step,
};
