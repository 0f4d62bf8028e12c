/* chunks.c -- see chunks.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/chunks.h"

#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "graph/phases.h"
#include "graph/place_by_cost.h"
#include "graph/place_by_hand.h"
#include "graph/runner.h"
#include "graph/tensor.h"
#include "step/row_cache.h"

typedef struct sized {
    td__cut *cut;
    td_runner **runners; /* (chunks, slots) NULL until needed */
} sized;

struct td__chunks {
    td__chunks_opts o;
    sized sizes[TD__ROW_PLACES];
    td__row_cache cache;
};

static td_status build(const td__micro_batch_set_opts *o, td_graph *g, int64_t rows,
                       td__model_nodes *nodes)
{
    TD_TRY(o->model.build(o->model.user, g, rows, nodes));
    return td_graph_status(g) ? TD_FAIL(td_graph_status(g), "%s", td_graph_error(g)) : TD_OK;
}

static int stage_of(void *user, int chunk)
{
    const td__pipeline_shape *shape = user;
    return td__schedule_stage(shape->schedule, shape->stages, chunk);
}

/* Which layers a chunk has. */
static td_status place(td_graph *g, const td_node *loss, const td__pipeline_shape *shape)
{
    if (shape->begins)
        return td__graph_place_by_layers(g, shape->begins, shape->chunks, "parallel.stages");
    if (shape->stages > 1 && td__graph_last_wish(g) >= 0) {
        td__wishes w = {.places = shape->chunks, .wish_of = stage_of, .user = (void *)shape};
        TD_TRY(td__graph_place_by_wish(g, &w));
        return td__graph_check_places(g, &w);
    }
    return td__graph_place_by_cost(
        g, loss,
        &(td__stages){.places = shape->chunks, .stage_of = stage_of, .user = (void *)shape});
}

static td_status place_as_usual(const td__micro_batch_set_opts *o, td_graph *g, int64_t usual,
                                const td__pipeline_shape *shape)
{
    td__model_nodes nodes = {0};
    td_graph *model;
    TD_TRY(td_graph_create(&model));
    td_status st = build(o, model, usual, &nodes);
    if (!st)
        st = place(model, nodes.loss, shape);
    if (!st)
        st = td__graph_place_as(g, model);
    td_graph_destroy(model);
    return st;
}

static td_status cut_graph(const td__micro_batch_set_opts *o, td_graph *g, int64_t rows,
                           int64_t usual, const td__pipeline_shape *shape, td__cut **out)
{
    td__model_nodes nodes = {0};
    td__tensor_cut tensor = o->tensor;
    td_program *p;
    tensor.ranks = shape->mesh.size[TD_AXIS_TENSOR];
    tensor.rank = shape->lane;
    TD_TRY(build(o, g, rows, &nodes));
    TD_TRY(rows == usual ? place(g, nodes.loss, shape) : place_as_usual(o, g, usual, shape));
    TD_TRY(td__program_create_tensor(
        g, nodes.loss, &(td_program_opts){.backend = o->backend, .precision = o->precision}, true,
        &tensor, &p));
    td_status st = td__program_cut(p, out);
    td_program_destroy(p);
    TD_TRY(st);
    if ((*out)->n_pieces == shape->chunks)
        return TD_OK;
    st =
        TD_FAIL(TD_EINVAL, "the model can be cut into %d chunks, not %d: use fewer stages%s",
                (*out)->n_pieces, shape->chunks, shape->begins ? ", or other parallel.stages" : "");
    td__cut_destroy(*out);
    *out = NULL;
    return st;
}

td_status td__model_cut(const td__micro_batch_set_opts *o, int64_t rows, int64_t usual,
                        const td__pipeline_shape *shape, td__cut **out)
{
    td_graph *g;
    TD_TRY(td_graph_create(&g));
    td_status st = cut_graph(o, g, rows, usual, shape, out);
    td_graph_destroy(g);
    return st;
}

td_status td__chunks_create(const td__chunks_opts *o, td__chunks **out)
{
    *out = td__calloc(1, sizeof **out);
    if (!*out)
        return TD_FAIL(TD_ENOMEM, "no memory for the chunks of a pipeline");
    (*out)->o = *o;
    return TD_OK;
}

static void drop(td__chunks *c, sized *z)
{
    for (int i = c->o.shape->chunks * c->o.slots; z->runners && i-- > 0;) /* borrowers first */
        td_runner_destroy(z->runners[i]);
    td__free(z->runners);
    td__cut_destroy(z->cut);
    memset(z, 0, sizeof *z);
}

void td__chunks_destroy(td__chunks *c)
{
    if (!c)
        return;
    for (int i = 0; i < TD__ROW_PLACES; i++)
        drop(c, &c->sizes[i]);
    td__free(c);
}

static td_status make(td__chunks *c, int64_t rows, sized *z)
{
    TD_TRY(td__model_cut(td__micro_batch_options(c->o.set), rows, c->o.usual, c->o.shape, &z->cut));
    z->runners = td__calloc((size_t)c->o.shape->chunks * (size_t)c->o.slots, sizeof(td_runner *));
    return z->runners ? TD_OK : TD_FAIL(TD_ENOMEM, "no memory for the runners of a pipeline");
}

static td_status find(td__chunks *c, int64_t rows, sized **out)
{
    bool found;
    int place = td__row_cache_find(&c->cache, rows, &found);
    *out = &c->sizes[place];
    if (found)
        return TD_OK;
    drop(c, *out);
    td_status st = make(c, rows, *out);
    if (st) {
        drop(c, *out);
        td__row_cache_forget(&c->cache, place);
    }
    return st;
}

td_status td__chunks_cut(td__chunks *c, int64_t rows, const td__cut **out)
{
    sized *z;
    TD_TRY(find(c, rows, &z));
    *out = z->cut;
    return TD_OK;
}

td_status td__chunks_runner(td__chunks *c, int64_t rows, int chunk, int slot, td_runner **out)
{
    sized *z;
    TD_TRY(find(c, rows, &z));
    TD_ASSERT(c->o.own[chunk] && slot < c->o.slots, "slot %d of chunk %d", slot, chunk);
    td_runner **all = &z->runners[chunk * c->o.slots];
    const td_program *p = z->cut->pieces[chunk].program;
    for (int i = 0; i <= slot; i++) {
        if (all[i])
            continue;
        void *inputs =
            c->o.direct ? td__direct_inputs(c->o.direct, chunk, i, td__program_inputs(p)) : NULL;
        TD_TRY(td__runner_create_with(p, c->o.params, i ? all[0] : NULL, inputs, &all[i]));
        td__runner_set_comm(all[i], c->o.peers);
    }
    *out = all[slot];
    return TD_OK;
}

bool td__chunks_own(const td__chunks *c, int chunk)
{
    return c->o.own[chunk];
}

td_runner *td__chunks_any_runner(const td__chunks *c, int chunk)
{
    for (int i = 0; i < TD__ROW_PLACES; i++)
        if (c->sizes[i].runners && c->sizes[i].runners[chunk * c->o.slots])
            return c->sizes[i].runners[chunk * c->o.slots];
    return NULL;
}
