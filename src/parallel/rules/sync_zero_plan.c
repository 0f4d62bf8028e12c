/* sync_zero_plan.c -- the communication plan of a step with shards, in the order in which
 * sync_zero.c makes its calls. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/fail.h"
#include "parallel/rules/sync_zero.h"
#include "parallel/shards.h"

static bool gathered_before(const td__shard_script *s, int at)
{
    for (int i = 0; i < at; i++)
        if (s->ops[i].act == TD__SHARD_GATHER && s->ops[i].bucket == s->ops[at].bucket)
            return true;
    return false;
}

/* A round of stages 2 and 3: params of a bucket are first gathered for forward, its gradients are
 * reduced after its part of backward. */
static void plan_round(td__planner *w, const td__shard_script *script, int micro_batch)
{
    const td__ownership *m = w->at->map;
    bool runs = micro_batch >= 0;
    if (runs && w->at->config->zero == 2)
        td__planner_run(w, TD_RUN_FORWARD, 0, micro_batch);
    for (int i = 0; i < script->n; i++) {
        const td__shard_op *op = &script->ops[i];
        if (op->act == TD__SHARD_GATHER) {
            td__shards_plan_gather(w, m, op->bucket);
            if (runs && !gathered_before(script, i))
                td__planner_run(w, TD_RUN_FORWARD, 1 + op->bucket, micro_batch);
        } else if (op->act == TD__SHARD_REDUCE) {
            if (runs)
                td__planner_run(w, TD_RUN_BACKWARD, 1 + op->bucket, micro_batch);
            td__shards_plan_reduce(w, m, op->bucket, 1);
        }
    }
    td__planner_rows(w, 1);
}

static void plan_rounds(td__planner *w)
{
    const td__plan_case *c = w->at;
    int *run = td__calloc((size_t)w->ranks, sizeof *run);
    td_status st = run ? TD_OK : TD_FAIL(TD_ENOMEM, "no memory for %d ranks", w->ranks);
    for (int b = 0; b < c->batches; b++)
        for (int first = 0; !st && first < c->micro_batches; first += w->ranks) {
            const td__shard_script *script;
            int64_t rows = b + 1 < c->batches ? c->rows : c->last_rows;
            td__zero_deal(first, c->micro_batches, w->ranks, run);
            st = td__round_script(&w->scripts, rows, c->micro_batches, run, &script);
            if (!st)
                plan_round(w, script, run[w->rank] < 0 ? -1 : b * c->micro_batches + run[w->rank]);
        }
    w->st = w->st ? w->st : st;
    td__free(run);
}

/* Sums of the shards that another rank mirrors, in the order of td__zero_mirror_sums. */
static void plan_mirror(td__planner *w)
{
    const td__ownership *m = w->at->map;
    td__mirror_place p;
    size_t own = 0, others = 0;
    if (!w->st)
        w->st = td__mirror_place_of(w->at->host_of, w->rank, w->ranks, &p);
    if (w->st)
        return;
    for (int b = 0; b < m->params; b++) {
        own += td__shard_count(m, b, w->rank) * sizeof(float);
        others += td__shard_count(m, b, p.mirror) * sizeof(float);
    }
    for (int turn = 0; turn < 2; turn++)
        if (turn == p.place % 2 && own)
            td__planner_send(w, TD__PLAN_SUMS, p.mirrored_by, own);
        else if (turn != p.place % 2 && others)
            td__planner_recv(w, TD__PLAN_SUMS, p.mirror, others);
}

static void plan_update(td__planner *w)
{
    const td__plan_case *c = w->at;
    uint64_t chunks = (uint64_t)c->optim.chunks;
    if (c->mirrors)
        plan_mirror(w);
    for (int b = c->map->params; b < c->map->n; b++)
        td__shards_plan_gather(w, c->map, b);
    if (c->optim.clips)
        td__planner_coll(w, TD_PLAN_ALLREDUCE, chunks * sizeof(double), 0);
    if (!c->optim.sliceable)
        td__planner_coll(w, TD_PLAN_ALLREDUCE, 2 * chunks * sizeof(double), 0);
    td__planner_numbers(w);
    td__planner_update(w, 0);
}

void td__zero_plan(td__planner *w)
{
    const td__ownership *m = w->at->map;
    int stage = w->at->config->zero;
    for (int b = 0; b < m->n; b++)
        td__planner_name(w, 1 + b, m->begin[b]);
    if (stage > 1) {
        plan_rounds(w);
    } else {
        td__planner_runs(w);
        for (int b = 0; b < m->n; b++)
            td__shards_plan_reduce(w, m, b, w->tree.rounds);
        td__planner_rows(w, w->tree.slots);
    }
    plan_update(w);
    for (int b = 0; stage < 3 && b < m->params; b++)
        td__shards_plan_gather(w, m, b);
}
