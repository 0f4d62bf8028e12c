/* sync_cyclades.c -- Cyclades (Pan and others, 2016): threads of one process update shared params
 * without locks and without collisions. The micro-batches of a batch that read a row in common,
 * directly or by way of others, are a connected component (parallel/components.h); a thread gets
 * whole components and runs each in the order of the batch. What a micro-batch reads, only those
 * before it in its component have written: the result is that of one thread which runs all of them
 * in order, bit for bit.
 *
 * It needs a model whose params are all tables with row-sparse gradients: a param that every update
 * touches makes all of them one component. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fail.h"
#include "graph/params.h"
#include "parallel/components.h"
#include "parallel/rules/in_place.h"

typedef struct cyclades {
    td__in_place base;
    td__components *parts;
    float *shared;
    int components, largest; /* of the last batch */
} cyclades;

static td_status check_params(const td__sync_config *c, const td_params *ps)
{
    TD_TRY(td__in_place_check_params(c, ps));
    for (int i = 0; i < td_params_count(ps); i++)
        if (!td_params_info(ps, i).sparse)
            return TD_FAIL(TD_EINVAL,
                           "train.sync: the sync rule cyclades needs a model of embeddings with "
                           "`sparse: true` alone; every update touches %s",
                           td_params_info(ps, i).name);
    return TD_OK;
}

static void update(const cyclades *c, td_runner *r)
{
    for (int i = 0; i < td_runner_sparse_count(r); i++) {
        td_sparse_grad g = td_runner_sparse_grad(r, i);
        size_t offset = td_params_info(c->base.base.x.step.params, g.param).offset;
        for (int64_t k = 0; k < g.n_rows; k++) {
            float *to = c->shared + offset + (size_t)(g.rows[k] * g.width);
            const float *from = g.values + k * g.width;
            for (int64_t j = 0; j < g.width; j++)
                to[j] -= c->base.lr * from[j];
        }
    }
}

/* Rows of all tables are numbered through. */
static void find_components(cyclades *c)
{
    td__in_place *p = &c->base;
    int v = p->base.x.step.micro_batches;
    td__components_begin(c->parts, v);
    for (int k = 0; k < v; k++) {
        int64_t begin, rows = td__in_place_rows(p, k, &begin);
        size_t first = 0;
        for (int i = 0; i < p->n_tables; first += (size_t)p->table[i++].rows)
            for (int64_t r = begin; r < begin + rows; r++)
                for (int64_t j = 0; j < p->table[i].per_sample; j++) {
                    int64_t id = td__in_place_id(&p->table[i], p->batch, r, j);
                    if (id >= 0)
                        td__components_touch(c->parts, k, first + (size_t)id);
                }
    }
    c->components = td__components_deal(c->parts, &c->largest);
}

static td_status run(void *user, int thread)
{
    cyclades *c = user;
    int n;
    const int *mine = td__components_of(c->parts, thread, &n);
    for (int i = 0; i < n; i++) {
        int64_t begin;
        td_runner *r;
        if (!td__in_place_rows(&c->base, mine[i], &begin))
            continue;
        TD_TRY(td__in_place_run(&c->base, thread, mine[i], &r));
        update(c, r);
    }
    return TD_OK;
}

static td_status run_batch(void *user, const td__batch *batch, int number, double *losses)
{
    cyclades *c = user;
    TD_TRY(td__in_place_batch(&c->base, batch, number, losses));
    c->shared = td_params_block(c->base.base.x.step.params, NULL);
    find_components(c);
    return td__pool_run(c->base.base.x.step.pool, run, c);
}

static td_status batch(td__sync *s, const td__batch *b)
{
    return td__step_batch_by(s->engine, b, run_batch, s);
}

static td_status create(td__sync *s)
{
    cyclades *c = (cyclades *)s;
    size_t rows = 0;
    TD_TRY(td__in_place_create(&c->base, false));
    for (int i = 0; i < c->base.n_tables; i++)
        rows += (size_t)c->base.table[i].rows;
    return td__components_create(s->x.step.micro_batches, rows, c->base.threads, &c->parts);
}

static void destroy(td__sync *s)
{
    td__components_destroy(((cyclades *)s)->parts);
    td__in_place_destroy((td__in_place *)s);
}

/* How well a batch falls apart. */
static int notes(td__sync *s, td__step_note *out)
{
    const cyclades *c = (const cyclades *)s;
    out[0] = (td__step_note){"components", c->components};
    out[1] = (td__step_note){"largest", (double)c->largest / (double)s->x.step.micro_batches};
    return c->components ? 2 : 0;
}

const td__sync_ops td__sync_cyclades = {
    .name = "cyclades",
    .help = "threads of one process update rows of shared tables in parts without conflicts",
    .promise = "the bits of SGD on micro-batches in turn, for any number of threads",
    .unplanned = "its threads exchange nothing but params in the memory of one process",
    .size = sizeof(cyclades),
    .one_process = true,
    .reads_batches = true,
    .check = td__in_place_check,
    .check_params = check_params,
    .traits = td__in_place_traits,
    .create = create,
    .destroy = destroy,
    .begin = td__in_place_begin,
    .batch = batch,
    .step = td__in_place_step,
    .notes = notes,
};
