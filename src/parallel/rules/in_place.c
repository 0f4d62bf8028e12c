/* in_place.c -- see in_place.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/rules/in_place.h"

#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "graph/params.h"
#include "graph/runner.h"

td_status td__in_place_check(const td__sync_config *c, const td__sync_job *j,
                             const td__sync_world *w)
{
    const td_optim_opts *o = j->optim;
    (void)w;
    if (j->verify > 0)
        return TD_FAIL(TD_EINVAL, "train.verify: not with the sync rule %s", c->rule);
    if (o->name && strcmp(o->name, "sgd") != 0)
        return TD_FAIL(TD_EINVAL,
                       "train.optimizer: the sync rule %s updates by plain SGD: set it to sgd, not "
                       "%s",
                       c->rule, o->name);
    if (o->momentum > 0 || o->weight_decay > 0 || o->clip_norm > 0 || o->clip_value > 0)
        return TD_FAIL(TD_EINVAL,
                       "%s: the sync rule %s updates by plain SGD, without it: leave it out",
                       o->momentum > 0       ? "train.optimizer.momentum"
                       : o->weight_decay > 0 ? "train.optimizer.weight_decay"
                                             : "train.clip",
                       c->rule);
    return td__sync_needs_host(j, c->rule);
}

td_status td__in_place_check_params(const td__sync_config *c, const td_params *ps)
{
    for (int i = 0; i < td_params_count(ps); i++)
        if (td_params_info(ps, i).is_state)
            return TD_FAIL(
                TD_EINVAL,
                "train.sync: the sync rule %s cannot train a model with running averages or frozen "
                "params (%s)",
                c->rule, td_params_info(ps, i).name);
    return TD_OK;
}

void td__in_place_traits(const td__sync_config *c, const td__sync_world *w, td__sync_traits *out)
{
    (void)c;
    (void)w;
    out->no_partials = true;
}

td_status td__in_place_begin(td__sync *s, const td__sync_place *at)
{
    ((td__in_place *)s)->lr = (float)at->lr;
    return TD_OK;
}

td_status td__in_place_step(td__sync *s, double lr, td__step_result *out)
{
    (void)lr;
    td_params_touch(s->x.step.params);
    td__step_done(s->engine, out);
    return TD_OK;
}

/* ---- Making ---------------------------------------------------------------------------------- */

static td_status find_table(td__in_place *p, int i)
{
    const td__sync_ctx *x = &p->base.x;
    td__row_table *t = &p->table[i];
    const char *name = td__program_sparse_ids(x->step.program, i);
    td__sparse_shape shape = td__program_sparse(x->step.program, i);
    t->field = name && x->data ? td__dataset_field(x->data, name) : -1;
    if (t->field < 0)
        return TD_FAIL(TD_EINVAL,
                       "train.sync: the sync rule %s needs ids of %s that are a field of the data",
                       p->base.ops->name, shape.name);
    const td__field *f = &x->data->fields[t->field];
    t->param = td_params_find(x->step.params, shape.name);
    td_param_info info = td_params_info(x->step.params, t->param);
    t->dtype = f->dtype;
    t->per_sample = td_shape_count(&f->shape);
    t->rows = info.shape.dim[0];
    t->width = shape.width;
    t->offset = info.offset;
    return TD_OK;
}

td_status td__in_place_create(td__in_place *p, bool own)
{
    const td__step_opts *o = &p->base.x.step;
    p->threads = td__pool_threads(o->pool);
    p->n_tables = td__program_sparse_count(o->program);
    if (p->n_tables > TD__IN_PLACE_TABLES)
        return TD_FAIL(TD_EINVAL, "train.sync: the sync rule %s is for up to %d tables, not %d",
                       p->base.ops->name, TD__IN_PLACE_TABLES, p->n_tables);
    for (int i = 0; i < p->n_tables; i++)
        TD_TRY(find_table(p, i));
    p->params = td__calloc((size_t)p->threads, sizeof *p->params);
    if (!p->params)
        return TD_FAIL(TD_ENOMEM, "no memory for params of %d threads", p->threads);
    for (int t = 0; own && t < p->threads; t++)
        TD_TRY(td__params_create(o->program, NULL, &p->params[t]));
    return TD_OK;
}

void td__in_place_destroy(td__in_place *p)
{
    for (int i = 0; i < p->n_sizes; i++) {
        for (int t = 0; p->size[i].runner && t < p->threads; t++)
            td_runner_destroy(p->size[i].runner[t]);
        td__free(p->size[i].runner);
    }
    for (int t = 0; p->params && t < p->threads; t++)
        td_params_destroy(p->params[t]);
    td__free(p->params);
}

/* A batch has micro-batches of two sizes at most, and a short last batch of two more. */
static td_status make_size(td__in_place *p, int64_t rows)
{
    const td__step_opts *o = &p->base.x.step;
    const td_program *program;
    for (int i = 0; i < p->n_sizes; i++)
        if (p->size[i].rows == rows)
            return TD_OK;
    TD_ASSERT(p->n_sizes < TD__IN_PLACE_SIZES, "more than %d sizes of micro-batches", p->n_sizes);
    TD_TRY(td__micro_batch_program(o->set, rows, &program, NULL));
    td__in_place_size *z = &p->size[p->n_sizes++];
    *z = (td__in_place_size){rows, td__calloc((size_t)p->threads, sizeof *z->runner)};
    if (!z->runner)
        return TD_FAIL(TD_ENOMEM, "no memory for %d runners", p->threads);
    for (int t = 0; t < p->threads; t++)
        TD_TRY(td_runner_create(program, p->params[t] ? p->params[t] : o->params, &z->runner[t]));
    return TD_OK;
}

/* ---- A batch --------------------------------------------------------------------------------- */

int64_t td__in_place_rows(const td__in_place *p, int k, int64_t *begin)
{
    int v = p->base.x.step.micro_batches;
    *begin = td__micro_batch_begin(p->batch->rows, v, k);
    return td__micro_batch_begin(p->batch->rows, v, k + 1) - *begin;
}

td_status td__in_place_batch(td__in_place *p, const td__batch *batch, int number, double *losses)
{
    int v = p->base.x.step.micro_batches;
    p->batch = batch;
    p->number = number;
    p->losses = losses;
    if (batch->rows / v)
        TD_TRY(make_size(p, batch->rows / v));
    return batch->rows % v ? make_size(p, batch->rows / v + 1) : TD_OK;
}

td_status td__in_place_run(td__in_place *p, int thread, int k, td_runner **out)
{
    const td__step_opts *o = &p->base.x.step;
    int64_t begin, rows = td__in_place_rows(p, k, &begin);
    td_runner *r = NULL;
    for (int i = 0; i < p->n_sizes; i++)
        r = p->size[i].rows == rows ? p->size[i].runner[thread] : r;
    TD_ASSERT(r, "no runner for %lld rows", (long long)rows);
    *out = r;
    TD_TRY(td__micro_batch_feed(o->set, r, p->batch, begin - p->batch->here.begin, rows));
    uint32_t number = (uint32_t)(p->number * o->micro_batches + k);
    TD_TRY(td_runner_run(r, (td_run_key){.seed = td__micro_batch_options(o->set)->seed,
                                         .step = td__step_number(p->base.engine),
                                         .micro_batch = number}));
    p->losses[k] =
        td__step_share(p->base.engine, p->number, begin, rows) * (double)td_runner_loss(r);
    return TD_OK;
}
