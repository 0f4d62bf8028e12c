/* pipeline.c -- see pipeline.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/pipeline.h"

#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/log.h"
#include "graph/cost.h"
#include "graph/params.h"
#include "graph/runner.h"
#include "graph/tensor.h"
#include "pipeline/chunks.h"
#include "pipeline/stage_params.h"

static td_status find_chunks(const td__sync_config *c, td__pipeline_shape *out)
{
    out->stages = out->mesh.size[TD_AXIS_PIPELINE];
    out->replicas = out->mesh.size[TD_AXIS_DATA];
    int each = c->chunks ? c->chunks : out->schedule->per_stage ? out->schedule->per_stage : 2;
    if (out->schedule->per_stage ? each != out->schedule->per_stage : each < 2)
        return TD_FAIL(TD_EINVAL,
                       "parallel.chunks: the schedule %s has %s%d per stage, not %d; leave "
                       "parallel.chunks out, or use the schedule %s",
                       out->schedule->name, out->schedule->per_stage ? "" : "at least ",
                       out->schedule->per_stage ? out->schedule->per_stage : 2, each,
                       each < 2 ? "1f1b" : "interleaved");
    out->chunks = each * out->stages;
    out->begins = c->stages && *c->stages ? c->stages : NULL;
    return TD_OK;
}

static int wanted(const td__sync_config *c, td__axis axis)
{
    return c->mesh.size[axis] > 1 ? c->mesh.size[axis] : 1;
}

/* Any number of ranks, in so many stages. As many share the layers of one as the job asks for, or
 * fewer of which those are a multiple. */
static td_status arrange(const td__sync_config *c, int ranks, int stages, td__pipeline_shape *out)
{
    int all = wanted(c, TD_AXIS_TENSOR), lanes = all;
    while (lanes > 1 && (ranks % (stages * lanes) || all % lanes))
        lanes--;
    out->mesh = (td__rank_mesh){{[TD_AXIS_DATA] = ranks / (stages * lanes),
                                 [TD_AXIS_PIPELINE] = stages,
                                 [TD_AXIS_TENSOR] = lanes}};
    TD_TRY(find_chunks(c, out));
    if (stages != wanted(c, TD_AXIS_PIPELINE))
        out->begins = NULL; /* names as many chunks as the job asks for */
    return TD_OK;
}

td_status td__pipeline_shape_of(const td__sync_config *c, int ranks, bool elastic,
                                td__pipeline_shape *out)
{
    int stages = wanted(c, TD_AXIS_PIPELINE);
    *out = (td__pipeline_shape){.mesh = c->mesh};
    TD_TRY(td__schedule_find(c->schedule ? c->schedule : "1f1b", &out->schedule));
    if (elastic)
        return arrange(c, ranks, ranks % stages ? ranks : stages, out);
    if (!out->mesh.size[TD_AXIS_TENSOR])
        out->mesh.size[TD_AXIS_TENSOR] = 1;
    TD_TRY(td__rank_mesh_complete(&out->mesh, ranks));
    return find_chunks(c, out);
}

static td_status cut_model(const td__micro_batch_set *set, int64_t rows, int rank,
                           td__pipeline_shape *shape, td__cut **cut)
{
    shape->lane = rank % shape->mesh.size[TD_AXIS_TENSOR];
    return td__model_cut(td__micro_batch_options(set), rows, rows, shape, cut);
}

td_status td__pipeline_fit(const td__sync_config *c, const td__pipeline_world *w,
                           const td__micro_batch_set *set, int64_t rows, td__pipeline_shape *out,
                           td__cut **cut)
{
    TD_TRY(td__pipeline_shape_of(c, w->ranks, w->elastic, out));
    td_status st = cut_model(set, rows, w->rank, out, cut);
    if (st != TD_EINVAL || !w->elastic || out->stages == wanted(c, TD_AXIS_PIPELINE))
        return st;
    TD_TRY(arrange(c, w->ranks, 1, out));
    return cut_model(set, rows, w->rank, out, cut);
}

/* What the options of a plan point to. */
typedef struct lists {
    td__chunk_edge *edges, *handed, *stats;
    uint64_t *grads, *meets;
    int n_handed, n_stats;
} lists;

static td_status count_handed(void *user, int owner, int reader, td__param_range r)
{
    (void)owner, (void)reader, (void)r;
    ++*(int *)user;
    return TD_OK;
}

static td_status note_handed(void *user, int owner, int reader, td__param_range r)
{
    lists *l = user;
    l->handed[l->n_handed++] =
        (td__chunk_edge){.from = owner, .to = reader, .nbytes = (r.end - r.begin) * sizeof(float)};
    return TD_OK;
}

static td_status list_handed(const td__cut *cut, const td__rank_mesh *mesh, const td__plan_end *end,
                             lists *l)
{
    td__tensor_walk like = {.ps = end->ps, .lanes = mesh->size[TD_AXIS_TENSOR], .lane = end->lane};
    int n = 0;
    TD_TRY(td__each_shared(cut, &like, count_handed, &n));
    l->handed = td__calloc((size_t)n + 1, sizeof *l->handed);
    if (!l->handed)
        return TD_FAIL(TD_ENOMEM, "no memory for a pipeline's plan");
    return td__each_shared(cut, &like, note_handed, l);
}

/* In the order of td__pipeline_tell_statistics(). */
static td_status list_statistics(const td__cut *cut, const td_params *ps, lists *l)
{
    size_t states = td_params_trainable(ps);
    int n = 0;
    for (int c = 0; c < cut->n_pieces; c++)
        n += cut->pieces[c].n_params;
    l->stats = td__calloc((size_t)n + 1, sizeof *l->stats);
    if (!l->stats)
        return TD_FAIL(TD_ENOMEM, "no memory for a pipeline's plan");
    for (int c = 0; c < cut->n_pieces; c++)
        for (int i = 0; i < cut->pieces[c].n_params; i++) {
            td__param_range r = cut->pieces[c].params[i];
            r.begin = r.begin > states ? r.begin : states;
            if (r.begin < r.end)
                l->stats[l->n_stats++] =
                    (td__chunk_edge){.from = c, .nbytes = (r.end - r.begin) * sizeof(float)};
        }
    return TD_OK;
}

static td_status list_all(const td__cut *cut, lists *l)
{
    size_t chunks = (size_t)cut->n_pieces;
    l->edges = td__calloc((size_t)cut->n_edges + 1, sizeof *l->edges);
    l->grads = td__calloc(chunks, sizeof *l->grads);
    l->meets = td__calloc(3 * chunks, sizeof *l->meets);
    if (!l->edges || !l->grads || !l->meets)
        return TD_FAIL(TD_ENOMEM, "no memory for a pipeline's plan");
    for (int i = 0; i < cut->n_edges; i++) {
        const td__edge *e = &cut->edges[i];
        l->edges[i] = (td__chunk_edge){e->from, e->to, e->made, e->needed, e->nbytes};
    }
    for (int c = 0; c < cut->n_pieces; c++) {
        for (int i = 0; i < cut->pieces[c].n_params; i++)
            l->grads[c] += (cut->pieces[c].params[i].end - cut->pieces[c].params[i].begin) * 4;
        for (int phase = 0; phase < TD_RUN_PHASE_COUNT; phase++)
            l->meets[3 * c + phase] =
                td__program_meets(cut->pieces[c].program, (td_run_phase)phase);
    }
    return TD_OK;
}

static td_status name_chunks(const td__cut *cut, td__plan *p)
{
    char name[TD__PIECE_PLACE];
    for (int c = 0; c < cut->n_pieces; c++)
        TD_TRY(td__plan_name_chunk(p, c, td__cut_place(cut, c, name)));
    return TD_OK;
}

td_status td__pipeline_plan_of(const td__cut *cut, const td__rank_mesh *mesh,
                               const td__schedule_def *schedule, int micro_batches,
                               td__plan_end end, const double *cost, td__plan **out, int **slots)
{
    lists l = {0};
    *out = NULL;
    *slots = td__calloc((size_t)cut->n_pieces, sizeof **slots);
    td_status st = *slots ? list_all(cut, &l) : TD_FAIL(TD_ENOMEM, "no memory for a pipeline");
    if (!st && end.ps)
        st = list_handed(cut, mesh, &end, &l);
    if (!st && end.ps && end.held)
        st = list_statistics(cut, end.ps, &l);
    td__pipeline_opts o = {.mesh = *mesh,
                           .schedule = schedule,
                           .at = {.stages = mesh->size[TD_AXIS_PIPELINE],
                                  .chunks = cut->n_pieces,
                                  .micro_batches = micro_batches * td__schedule_window(schedule),
                                  .cost = cost,
                                  .batch = schedule->delay ? micro_batches : 0},
                           .edges = l.edges,
                           .n_edges = cut->n_edges,
                           .handed = l.handed,
                           .n_handed = l.n_handed,
                           .meets = l.meets,
                           .grads = l.grads,
                           .numbers = end.numbers * sizeof(double),
                           .said = TD_REQUESTS * sizeof(double),
                           .norm = end.clips ? (uint64_t)end.params * sizeof(double) : 0,
                           .norm_shared = end.shares && mesh->size[TD_AXIS_DATA] > 1,
                           .gathers = end.shares,
                           .in_order = end.in_order,
                           .held = end.held,
                           .ring = end.ring,
                           .stats = l.stats,
                           .n_stats = l.n_stats,
                           .direct = end.direct};
    if (!st)
        st = td__pipeline_plan(&o, out, *slots);
    if (!st)
        st = name_chunks(cut, *out);
    td__free(l.edges);
    td__free(l.handed);
    td__free(l.stats);
    td__free(l.grads);
    td__free(l.meets);
    if (st) {
        td__plan_destroy(*out);
        td__free(*slots);
        *out = NULL;
        *slots = NULL;
    }
    return st;
}

td_status td__pipeline_agree(td_comm *world, const td__rank_mesh *mesh, const td__plan *plan)
{
    enum { HEX = 65 };
    int peers = mesh->size[TD_AXIS_TENSOR], rank = td_comm_rank(world), place = rank % peers;
    char mine[HEX], told[HEX], first[HEX];
    TD_TRY(td__plan_digest(plan, mine));
    if (!rank)
        TD_LOG(DEBUG, TRAIN, "communication plan sha256:%s", mine);
    for (int k = 0; k < peers; k++) {
        memcpy(told, mine, HEX);
        TD_TRY(td_broadcast(world, told, HEX, TD_U8, k, NULL));
        if (k == place)
            memcpy(first, told, HEX);
    }
    if (strcmp(first, mine) != 0)
        return TD_FAIL(TD_EMISMATCH,
                       "rank %d has another communication plan than rank %d: the ranks have "
                       "different job files or versions",
                       rank, place);
    return TD_OK;
}

td_status td__pipeline_plan_checked(const td__cut *cut, const td__rank_mesh *mesh,
                                    const td__schedule_def *schedule, int micro_batches,
                                    td__plan_end *end, const double *cost, td__plan **out,
                                    int **slots)
{
    for (;;) {
        TD_TRY(td__pipeline_plan_of(cut, mesh, schedule, micro_batches, *end, cost, out, slots));
        td_status st = td__plan_check(*out);
        if (!st)
            return TD_OK;
        td__plan_destroy(*out);
        td__free(*slots);
        *out = NULL;
        *slots = NULL;
        if (st != TD_EDEADLOCK || !end->direct)
            return st;
        end->direct = false;
    }
}

bool td__pipeline_may_be_direct(const td__pipeline_shape *shape, const td__cut *cut,
                                bool host_reads, int64_t rows, int micro_batches, int64_t batch)
{
    for (int c = 0; !host_reads && c < cut->n_pieces; c++)
        if (!td__program_keeps_edges(cut->pieces[c].program))
            return false;
    return shape->stages > 1 && !shape->schedule->delay && rows * micro_batches >= batch;
}

size_t td__pipeline_numbers(const td__schedule_def *schedule, int replicas, bool watched,
                            int micro_batches)
{
    return schedule->delay ? TD_REQUESTS + (size_t)micro_batches
                           : td__step_numbers_of(replicas, watched, micro_batches);
}

void td__pipeline_costs(const td__cut *cut, double *cost)
{
    static const double FLOPS = 20e9;
    for (int c = 0; c < cut->n_pieces; c++) {
        double work[TD_RUN_PHASE_COUNT];
        td__program_work(cut->pieces[c].program, work);
        for (int phase = 0; phase < TD_RUN_PHASE_COUNT; phase++)
            cost[3 * c + phase] = work[phase] / FLOPS;
    }
}

void td__pipeline_give_costs(td__plan *p, const double *cost)
{
    static const double EACH = 1e-3;
    for (int r = 0; r < p->mesh.size[TD_AXIS_PIPELINE]; r++)
        for (int i = 0; i < p->roles[r].n; i++) {
            td__plan_op *o = &p->roles[r].ops[i];
            if (o->kind == TD_PLAN_RUN)
                o->seconds = cost ? cost[3 * o->chunk + o->phase] : EACH;
        }
}

td__param_range td__pipeline_grads_of(const td_params *ps, td__param_range r)
{
    size_t dense = td__params_dense(ps), trainable = td_params_trainable(ps);
    if (r.begin >= trainable) /* states: row-sparse params lie before them */
        return (td__param_range){r.begin - (trainable - dense), r.end - (trainable - dense)};
    TD_ASSERT(r.end <= trainable, "params and states in one range, %zu to %zu", r.begin, r.end);
    return (td__param_range){r.begin < dense ? r.begin : dense, r.end < dense ? r.end : dense};
}

void td__pipeline_merge(td__grad_pool *blocks, const td__param_range *grads, int n, td__partial *to,
                        const td__partial *from)
{
    td_stream *on = td__grad_stream(blocks);
    if (!from->dense)
        return;
    TD_ASSERT(to->dense && to->weight == from->weight, "partials of weights %g and %g",
              (double)to->weight, (double)from->weight);
    for (int i = 0; i < n; i++)
        td__stream_copy(on, to->dense + grads[i].begin, from->dense + grads[i].begin,
                        (grads[i].end - grads[i].begin) * sizeof(float));
    td__stream_drain(on);
    td__grad_merge_rows(blocks, to, from);
}
