/* check_pipeline.c -- see check_pipeline.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "check_pipeline.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "base/human.h"
#include "check_plan.h"
#include "graph/params.h"
#include "pipeline/chunks.h"
#include "pipeline/mirror_ring.h"
#include "pipeline/pipeline.h"
#include "pipeline/stage_params.h"
#include "step/work_partition.h"

static void print_chunks(const td__cut *cut, const td__pipeline_shape *shape, const int *slots)
{
    char params[TD__HUMAN], out[TD__HUMAN], name[TD__PIECE_NAME];
    printf("  %-6s %-6s %-12s %-12s %-12s %s\n", "chunk", "stage", "parameters", "under way",
           "sends", "layers");
    for (int c = 0; c < cut->n_pieces; c++) {
        const td__piece *p = &cut->pieces[c];
        int64_t count = 0;
        double sent = 0;
        for (int i = 0; i < p->n_params; i++)
            count += (int64_t)(p->params[i].end - p->params[i].begin);
        for (int i = 0; i < p->n_out; i++)
            sent += (double)cut->edges[p->out[i]].nbytes;
        printf("  %-6d %-6d %-12s %-12d %-12s %s\n", c,
               td__schedule_stage(shape->schedule, shape->stages, c),
               td__human_count(count, params), slots[c], td__human_bytes(sent, out),
               td__cut_name(cut, c, name));
    }
}

static td_status print_stages(const td__session *s, const td__cut *cut,
                              const td__pipeline_shape *shape, const int *slots, int batches)
{
    const td_params *ps = td__trainer_params(s->trainer);
    size_t each = td_params_trainable(ps) * sizeof(float);
    int states = each ? (int)(td__trainer_optimizer_nbytes(s->trainer) / each) : 0;
    char b[4][TD__HUMAN];
    td__stage_need *need = td__calloc((size_t)shape->stages, sizeof *need);
    if (!need)
        return TD_FAIL(TD_ENOMEM, "no memory for the sizes of %d stages", shape->stages);
    td__stage_needs(cut, shape, ps, slots, batches, need);
    printf("  %-6s %-12s %-12s %-12s %-12s %s\n", "stage", "parameters", "gradients", "activations",
           "memory", "work");
    for (int i = 0; i < shape->stages; i++)
        printf("  %-6d %-12s %-12s %-12s %-12s %.1f %%\n", i,
               td__human_count((int64_t)need[i].params, b[0]),
               td__human_bytes((double)need[i].grads, b[1]),
               td__human_bytes((double)need[i].activations, b[2]),
               td__human_bytes((double)td__stage_nbytes(&need[i], states), b[3]),
               100 * need[i].work);
    td__free(need);
    return TD_OK;
}

/* cost NULL: all phases take the same, and messages nothing. */
static td_status bubble_of(td__plan *p, const double *cost, const td__plan_link *link, double *out)
{
    td__plan_times times;
    td__pipeline_give_costs(p, cost);
    TD_TRY(td__plan_time(p, link, &times));
    *out = td__plan_bubble(&times);
    td__plan_times_fini(&times);
    return TD_OK;
}

static void print_bubble(double modelled, double even, double formula, bool shared)
{
    printf("  bubble: %.1f %% of the time expected by the stages' work and %s, %.1f %% if all "
           "phases take the same",
           100 * modelled, td__check_link_text(shared), 100 * even);
    if (formula > 0)
        printf("; GPipe's formula (p-1)/(m+p-1) says %.1f %%", 100 * formula);
    putchar('\n');
}

static td_status print_all(td__plan *p, const double *cost, double formula, bool shared, bool whole,
                           const char *file)
{
    td__plan_times times;
    char hex[65];
    double even, modelled;
    const td__plan_link *link = td__check_link(shared);
    TD_TRY(bubble_of(p, NULL, &(td__plan_link){0}, &even));
    TD_TRY(bubble_of(p, cost, link, &modelled));
    if (td__plan_roles(p) > 1) /* one stage waits for no other */
        print_bubble(modelled, even, formula, shared);
    TD_TRY(td__plan_digest(p, hex));
    printf("  plan sha256:%s, without deadlock\n", hex);
    TD_TRY(td__plan_time(p, link, &times));
    td_status st = whole ? td__check_print_plan(p, &times, file) : TD_OK;
    td__plan_times_fini(&times);
    return st;
}

static td_status cut_model(const td__session *s, int ranks, bool elastic, td__pipeline_shape *shape,
                           td__cut **out)
{
    td__pipeline_world w = {.ranks = ranks, .elastic = elastic};
    return td__pipeline_fit(&s->opts.sync, &w, td__trainer_train_set(s->trainer),
                            td__trainer_micro_batch_rows(s->trainer), shape, out);
}

td_status td__check_cut(const td__session *s, int ranks, bool elastic)
{
    td__pipeline_shape shape;
    td__cut *cut;
    TD_TRY(cut_model(s, ranks, elastic, &shape, &cut));
    td__cut_destroy(cut);
    return TD_OK;
}

/* Of the first replica, which has the most micro-batches. */
static int batches_of(const td__session *s, const td__pipeline_shape *shape)
{
    td__micro_batch_range own =
        td__rank_micro_batches(td__trainer_micro_batches(s->trainer), 0, shape->replicas);
    return own.end > own.begin ? own.end - own.begin : 1;
}

/* What books say of a pipeline with one chunk per stage that is emptied in each step; 0: of
 * another. */
static double gpipe_formula(const td__pipeline_shape *shape, int batches)
{
    bool plain = shape->chunks == shape->stages && !shape->schedule->delay;
    return plain ? (shape->stages - 1.0) / (batches + shape->stages - 1.0) : 0;
}

/* Which sums elastic stages send to those that mirror them, on one host. */
static td_status find_ring(const td__session *s, const td__memory_case *c,
                           const td__pipeline_shape *shape, const td__plan_end *end,
                           td__plan_ring **out)
{
    td__ownership map = {0};
    td__sync_hold h = {.config = &s->opts.sync,
                       .elastic = c->elastic,
                       .params = td__trainer_params(s->trainer),
                       .set = td__trainer_train_set(s->trainer),
                       .rows = td__trainer_micro_batch_rows(s->trainer),
                       .micro_batches = td__trainer_micro_batches(s->trainer),
                       .accumulate = s->opts.accumulate > 1 ? s->opts.accumulate : 1};
    if (!end->held || shape->replicas > 1 || shape->mesh.size[TD_AXIS_TENSOR] > 1 || c->ranks < 2)
        return TD_OK;
    td_status st = td__stage_map(&h, c->ranks, &map, NULL);
    if (!st)
        st = td__ring_of(&map, NULL, out);
    td__ownership_fini(&map);
    return st;
}

static td_status print_pipeline(const td__session *s, const td__memory_case *c, const td__cut *cut,
                                const td__pipeline_shape *shape, const double *cost, bool whole,
                                const char *file)
{
    td__plan *plan = NULL;
    int *slots = NULL, batches = batches_of(s, shape), all = td__trainer_micro_batches(s->trainer);
    const td_params *ps = td__trainer_params(s->trainer);
    td_device *device = td__params_device(ps);
    int accumulate = s->opts.accumulate > 1 ? s->opts.accumulate : 1;
    td__plan_end end = {
        .ps = ps,
        .numbers = td__pipeline_numbers(shape->schedule, shape->replicas, false, all * accumulate),
        .clips = s->opts.optim.clip_norm > 0,
        .shares = s->opts.sync.zero > 0,
        .params = td_params_count(ps),
        .in_order = s->opts.sync.in_order != 0,
        .held = td__stage_holds_steps(c->elastic, ps)};
    end.direct =
        c->shared && td__direct_opens(device) &&
        td__pipeline_may_be_direct(shape, cut, td__device_host_reads(device),
                                   td__trainer_micro_batch_rows(s->trainer), all, s->opts.batch);
    td__plan_ring *ring = NULL;
    td_status st = find_ring(s, c, shape, &end, &ring);
    end.ring = ring;
    if (!st)
        st = td__pipeline_plan_checked(cut, &shape->mesh, shape->schedule, batches, &end, cost,
                                       &plan, &slots);
    td__ring_free(ring, c->ranks);
    if (!st) {
        print_chunks(cut, shape, slots);
        st = print_stages(s, cut, shape, slots, batches);
    }
    if (!st)
        st = print_all(plan, cost, gpipe_formula(shape, batches), c->shared, whole, file);
    td__plan_destroy(plan);
    td__free(slots);
    return st;
}

td_status td__check_pipeline(const td__session *s, const td__memory_case *c, bool whole,
                             const char *file)
{
    td__pipeline_shape shape;
    td__cut *cut;
    char mesh[TD__RANK_MESH_TEXT];
    TD_TRY(cut_model(s, c->ranks, c->elastic, &shape, &cut));
    printf("\npipeline, %s, schedule %s, %d micro-batches\n", td__rank_mesh_text(&shape.mesh, mesh),
           shape.schedule->name, batches_of(s, &shape));
    double *cost = td__calloc(3 * (size_t)cut->n_pieces, sizeof *cost);
    td_status st = cost ? TD_OK : TD_FAIL(TD_ENOMEM, "no memory for %d chunks", cut->n_pieces);
    if (!st) {
        td__pipeline_costs(cut, cost);
        st = print_pipeline(s, c, cut, &shape, cost, whole, file);
    }
    td__free(cost);
    td__cut_destroy(cut);
    return st;
}
