/* check_pipeline.c -- see check_pipeline.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "check_pipeline.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/human.h"
#include "pipeline/chunks.h"
#include "pipeline/pipeline.h"

static void print_chunks(const td__cut *cut, const td__pipeline_shape *shape, const int *slots)
{
    char params[TD__HUMAN], memory[TD__HUMAN], out[TD__HUMAN];
    printf("  %-6s %-6s %12s %14s %12s\n", "chunk", "stage", "parameters", "activations", "sends");
    for (int c = 0; c < cut->n_pieces; c++) {
        const td__piece *p = &cut->pieces[c];
        int64_t count = 0;
        double sent = 0;
        for (int i = 0; i < p->n_params; i++)
            count += (int64_t)(p->params[i].end - p->params[i].begin);
        for (int i = 0; i < p->n_out; i++)
            sent += (double)cut->edges[p->out[i]].nbytes;
        printf(
            "  %-6d %-6d %12s %14s %12s\n", c,
            td__schedule_stage(shape->schedule, shape->stages, c), td__human_count(count, params),
            td__human_bytes((double)p->activations * slots[c], memory), td__human_bytes(sent, out));
    }
}

static td_status write_timeline(const td__plan *p, const td__plan_times *times, const char *path)
{
    td__text text = {0};
    td__file_out f;
    td__plan_trace(p, times, &text);
    td_status st = td__text_status(&text);
    if (!st)
        st = td__file_out_open(&f, path);
    if (!st) {
        td__file_out_write(&f, text.data, text.used);
        st = td__file_out_commit(&f);
    }
    td__text_fini(&text);
    return st;
}

static td_status print_plan(const td__plan *p, const td__plan_times *times)
{
    td__text text = {0};
    td__plan_print(p, times, &text);
    td_status st = td__text_status(&text);
    if (!st)
        printf("\n%s", text.data);
    td__text_fini(&text);
    return st;
}

/* Every phase of a micro-batch through a chunk takes a thousandth of a second, messages nothing. */
static td_status give_costs(td__plan *p)
{
    for (int r = 0; r < p->mesh.size[TD_AXIS_PIPELINE]; r++)
        for (int i = 0; i < p->roles[r].n; i++)
            if (p->roles[r].ops[i].kind == TD_PLAN_RUN)
                p->roles[r].ops[i].seconds = 1e-3;
    return td__plan_check(p);
}

static td_status print_all(td__plan *p, bool whole, const char *file)
{
    td__plan_times times;
    char hex[65];
    TD_TRY(give_costs(p));
    TD_TRY(td__plan_time(p, &(td__plan_link){0}, &times));
    printf("  bubble: %.1f %% of the time, if all phases take the same\n",
           100 * td__plan_bubble(&times));
    td_status st = td__plan_digest(p, hex);
    if (!st)
        printf("  plan sha256:%s, without deadlock\n", hex);
    if (!st && whole)
        st = print_plan(p, &times);
    if (!st && file)
        st = write_timeline(p, &times, file);
    td__plan_times_fini(&times);
    return st;
}

td_status td__check_pipeline(const td__session *s, int ranks, bool whole, const char *file)
{
    td__pipeline_shape shape;
    td__cut *cut;
    td__plan *plan = NULL;
    int *slots = NULL;
    char mesh[TD__RANK_MESH_TEXT];
    TD_TRY(td__pipeline_shape_of(&s->opts.sync, ranks, &shape));
    int batches = td__trainer_micro_batches(s->trainer) / shape.replicas;
    batches = batches ? batches : 1;
    TD_TRY(td__model_cut(td__micro_batch_options(td__trainer_train_set(s->trainer)),
                         td__trainer_micro_batch_rows(s->trainer), shape.chunks, &cut));
    printf("\npipeline, %s, schedule %s, %d micro-batches\n", td__rank_mesh_text(&shape.mesh, mesh),
           shape.schedule->name, batches);
    td_status st =
        td__pipeline_plan_of(cut, &shape.mesh, shape.schedule, batches, false, &plan, &slots);
    if (!st) {
        print_chunks(cut, &shape, slots);
        st = print_all(plan, whole, file);
    }
    td__plan_destroy(plan);
    td__free(slots);
    td__cut_destroy(cut);
    return st;
}
