/* pipeline_plan.c -- see pipeline_plan.h.
 *
 * Messages are put into lanes in the order of the times at which they can be carried out if
 * messages take no time: when their values are made and the slot that takes them is free. Sender
 * and receiver use the same times, so what meets belongs together, and the times themselves are an
 * execution in which nothing waits for what comes later. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/pipeline_plan_impl.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/fail.h"

static td_status merge_edges(td__plan_builder *b)
{
    b->edges = td__calloc((size_t)b->o->n_edges + 1, sizeof *b->edges);
    if (!b->edges)
        return TD_FAIL(TD_ENOMEM, "no memory for the plan of a pipeline");
    for (int i = 0; i < b->o->n_edges; i++) {
        const td__chunk_edge *e = &b->o->edges[i];
        int k = 0;
        while (k < b->n_edges && (b->edges[k].from != e->from || b->edges[k].to != e->to ||
                                  b->edges[k].made != e->made))
            k++;
        if (k == b->n_edges) {
            b->edges[b->n_edges++] = *e;
            continue;
        }
        b->edges[k].nbytes += e->nbytes;
        b->edges[k].needed = e->needed < b->edges[k].needed ? e->needed : b->edges[k].needed;
    }
    return TD_OK;
}

static td_status write_schedule(td__plan_builder *b)
{
    td__schedule_case c = b->o->at;
    b->tied = td__calloc((size_t)c.chunks, sizeof *b->tied);
    if (!b->tied)
        return TD_FAIL(TD_ENOMEM, "no memory for the plan of a pipeline");
    for (int k = 0; k < c.chunks; k++)
        b->tied[k] = -1;
    for (int i = 0; i < b->n_edges; i++) {
        const td__chunk_edge *e = &b->edges[i];
        int *to = &b->tied[e->from];
        if (e->made == TD_RUN_WEIGHT && (*to < 0 || e->to < *to))
            *to = e->to;
    }
    c.tied = b->tied;
    return td__schedule_create(b->o->schedule, &c, &b->s);
}

/* ---- Slots ----------------------------------------------------------------------------------- */

static size_t *leaves_with(const td__plan_builder *b, int chunk, int m)
{
    return &b->leaves[(size_t)chunk * (size_t)b->o->at.micro_batches + (size_t)m];
}

/* The last run that reads what a micro-batch has in its slot. */
static void find_leaves(td__plan_builder *b)
{
    for (int c = 0; c < b->o->at.chunks; c++)
        for (int m = 0; m < b->o->at.micro_batches; m++) {
            size_t *last = leaves_with(b, c, m);
            *last = td__run_of(b, c, TD_RUN_WEIGHT, m);
            for (int i = 0; i < b->n_edges; i++) {
                const td__chunk_edge *e = &b->edges[i];
                size_t reader = td__run_of(b, e->to, e->needed, m);
                if (e->from == c && td__stage_of(b, e->to) == td__stage_of(b, c) &&
                    b->index[reader] > b->index[*last])
                    *last = reader;
            }
        }
}

static bool receives(const td__plan_builder *b, int chunk)
{
    for (int i = 0; i < b->n_edges; i++)
        if (b->edges[i].to == chunk && b->edges[i].made == TD_RUN_FORWARD &&
            td__stage_of(b, b->edges[i].from) != td__stage_of(b, chunk))
            return true;
    return false;
}

/* So many that the micro-batches from the first that has not left to the last that has begun have a
 * slot each; and one where others send to, so that the next can arrive while one is computed. */
static void find_slots(td__plan_builder *b)
{
    for (int c = 0; c < b->o->at.chunks; c++) {
        b->slots[c] = 1;
        for (int m = 0, first = 0; m < b->o->at.micro_batches; m++) {
            int begins = b->index[td__run_of(b, c, TD_RUN_FORWARD, m)];
            while (b->index[*leaves_with(b, c, first)] < begins)
                first++;
            b->slots[c] = m - first + 1 > b->slots[c] ? m - first + 1 : b->slots[c];
        }
        if (receives(b, c) && b->slots[c] < b->o->at.micro_batches)
            b->slots[c]++;
    }
}

/* ---- Times ----------------------------------------------------------------------------------- */

/* When the values of an edge can be in the slot of their reader; -1: not known yet. */
static double arrives(const td__plan_builder *b, const td__chunk_edge *e, int m)
{
    double at = b->ended[td__run_of(b, e->from, e->made, m)];
    if (at >= 0 && td__stage_of(b, e->from) != td__stage_of(b, e->to) && m >= b->slots[e->to]) {
        double free_at = b->ended[*leaves_with(b, e->to, m - b->slots[e->to])];
        return free_at < 0 ? -1 : free_at > at ? free_at : at;
    }
    return at;
}

/* When run k of a stage can begin, were the stage free; -1: not known yet. */
static double ready_at(td__plan_builder *b, int stage, int k)
{
    const td__schedule_run *r = &b->s->runs[stage][k];
    double at = td__flow_plan_ready(b, stage, k);
    for (int i = 0; at >= 0 && i < b->n_edges; i++) {
        const td__chunk_edge *e = &b->edges[i];
        if (e->to != r->chunk || e->needed != (td_run_phase)r->phase)
            continue;
        double there = arrives(b, e, (int)r->micro_batch);
        if (there < 0)
            return -1;
        at = there > at ? there : at;
    }
    return at;
}

static double cost_of(const td__plan_builder *b, const td__schedule_run *r)
{
    return b->o->at.cost ? b->o->at.cost[3 * r->chunk + r->phase] : 1;
}

/* All runs in the order of their stages. */
static td_status time_runs(td__plan_builder *b)
{
    int stages = b->o->at.stages, moved;
    int *next = td__calloc((size_t)stages, sizeof *next);
    double *free_at = td__calloc((size_t)stages, sizeof *free_at);
    td_status st = next && free_at ? TD_OK : TD_FAIL(TD_ENOMEM, "no memory for a pipeline's plan");
    do {
        moved = 0;
        for (int i = 0; !st && i < stages; i++)
            for (double at; next[i] < b->s->n[i] && (at = ready_at(b, i, next[i])) >= 0;
                 next[i]++, moved++) {
                const td__schedule_run *r = &b->s->runs[i][next[i]];
                free_at[i] = (at > free_at[i] ? at : free_at[i]) + cost_of(b, r);
                b->ended[td__run_of(b, r->chunk, (td_run_phase)r->phase, (int)r->micro_batch)] =
                    free_at[i];
            }
    } while (moved);
    for (int i = 0; !st && i < stages; i++)
        if (next[i] < b->s->n[i])
            st = TD_FAIL(TD_EDEADLOCK,
                         "the schedule %s of %d stages waits for itself: %s of micro-batch %u "
                         "through chunk %d, on stage %d, can never begin",
                         b->o->schedule->name, stages,
                         b->s->runs[i][next[i]].phase == TD_RUN_FORWARD ? "forward" : "backward",
                         b->s->runs[i][next[i]].micro_batch, b->s->runs[i][next[i]].chunk, i);
    td__free(next);
    td__free(free_at);
    return st;
}

/* ---- Operations ------------------------------------------------------------------------------ */

/* The sum of a chunk's gradients over replicas, which waits for a run; there is none of one. */
static td_status add_sum(td__plan_builder *b, int role, int chunk, int after, int *sum)
{
    td__plan_op op = td__plan_blank(TD_PLAN_COLL, TD_LANE_COLL);
    if (b->o->mesh.size[TD_AXIS_DATA] == 1)
        return TD_OK;
    op.axis = TD_AXIS_DATA;
    op.chunk = op.other = (uint16_t)chunk;
    op.nbytes = b->o->grads ? b->o->grads[chunk] : 0;
    op.after[0] = after;
    return td__plan_add(b->p, role, &op, sum);
}

static td_status add_update(td__plan_builder *b, int role, int chunk, int micro_batch, int after,
                            int turn, int *index)
{
    td__plan_op op = td__plan_blank(TD_PLAN_UPDATE, TD_LANE_COMPUTE);
    op.chunk = op.other = (uint16_t)chunk;
    op.micro_batch = (uint32_t)micro_batch;
    op.seconds = b->o->update;
    op.after[0] = after;
    op.after[1] = turn;
    return td__plan_add(b->p, role, &op, index);
}

/* From the stage before, or to the one behind: the turn to update. */
static td_status add_turn(td__plan_builder *b, int role, td__plan_kind kind, int after, int *index)
{
    bool sends = kind == TD_PLAN_SEND;
    td__plan_op op = td__plan_blank(kind, sends ? TD_LANE_SEND_UP : TD_LANE_RECV_UP);
    if (!b->o->in_order || (sends ? role + 1 == b->o->at.stages : !role))
        return TD_OK;
    op.phase = TD__PLAN_TURN;
    op.peer = sends ? 1 : -1;
    op.chunk = (uint16_t)role; /* stages' first chunks are numbered as they are */
    op.other = (uint16_t)(role + op.peer);
    op.after[0] = after;
    return td__plan_add(b->p, role, &op, index);
}

/* Of a schedule that flows: is it the last of a batch? */
static bool ends_batch(const td__plan_builder *b, const td__schedule_run *r)
{
    return b->o->schedule->delay && b->o->at.batch && r->phase == TD_RUN_WEIGHT &&
           (int)(r->micro_batch + 1) % b->o->at.batch == 0;
}

static td_status add_runs(td__plan_builder *b)
{
    for (int i = 0; i < b->o->at.stages; i++)
        for (int k = 0; k < b->s->n[i]; k++) {
            int sum = TD__PLAN_NONE, *index;
            const td__schedule_run *r = &b->s->runs[i][k];
            td__plan_op op = td__plan_blank(TD_PLAN_RUN, TD_LANE_COMPUTE);
            op.chunk = op.other = r->chunk;
            op.phase = r->phase;
            op.micro_batch = r->micro_batch;
            op.seconds = b->o->at.cost ? cost_of(b, r) : 0;
            op.nbytes = b->o->meets ? b->o->meets[3 * r->chunk + r->phase] : 0;
            index = &b->index[td__run_of(b, r->chunk, (td_run_phase)r->phase, (int)r->micro_batch)];
            TD_TRY(td__plan_add(b->p, i, &op, index));
            TD_TRY(td__flow_plan_say(b, i, k, *index));
            if (!ends_batch(b, r))
                continue;
            TD_TRY(add_sum(b, i, r->chunk, *index, &sum));
            TD_TRY(add_update(b, i, r->chunk, (int)r->micro_batch, sum, TD__PLAN_NONE,
                              td__flow_plan_update(b, i, r->micro_batch)));
        }
    return TD_OK;
}

/* What goes forward in a pipeline that flows comes batch by batch: messages of a batch are posted
 * when it is given (executor.h), and those of the one before may not wait for that. */
static int by_time(const void *x, const void *y)
{
    const td__plan_message *a = x, *b = y;
    if (a->batch != b->batch)
        return a->batch - b->batch;
    if (a->at != b->at)
        return a->at < b->at ? -1 : 1;
    if (a->micro_batch != b->micro_batch)
        return a->micro_batch < b->micro_batch ? -1 : 1;
    if (a->made != b->made)
        return a->made < b->made ? -1 : 1;
    return a->from != b->from ? (a->from < b->from ? -1 : 1) : (a->to > b->to) - (a->to < b->to);
}

static int batch_of(const td__plan_builder *b, const td__chunk_edge *e, int m)
{
    return b->flow.batches && e->made == TD_RUN_FORWARD ? m / b->o->at.batch : 0;
}

static td_status list_messages(td__plan_builder *b)
{
    int batches = b->o->at.micro_batches;
    b->messages = td__calloc((size_t)b->n_edges * (size_t)batches + 1, sizeof *b->messages);
    if (!b->messages)
        return TD_FAIL(TD_ENOMEM, "no memory for the messages of a pipeline");
    for (int i = 0; i < b->n_edges; i++) {
        const td__chunk_edge *e = &b->edges[i];
        for (int m = 0; m < batches && td__stage_of(b, e->from) != td__stage_of(b, e->to); m++)
            b->messages[b->n_messages++] = (td__plan_message){.from = e->from,
                                                              .to = e->to,
                                                              .micro_batch = m,
                                                              .made = e->made,
                                                              .needed = e->needed,
                                                              .nbytes = e->nbytes,
                                                              .at = arrives(b, e, m),
                                                              .batch = batch_of(b, e, m)};
    }
    qsort(b->messages, (size_t)b->n_messages, sizeof *b->messages, by_time);
    return TD_OK;
}

td_status td__plan_wait_in_lane(td__plan_builder *b, int role, int run, int op)
{
    td__plan_op *ops = b->p->roles[role].ops;
    for (int k = 0; k < TD__PLAN_AFTER; k++) {
        int old = ops[run].after[k];
        if (old != TD__PLAN_NONE && ops[old].lane == ops[op].lane) {
            ops[run].after[k] = op > old ? op : old;
            return TD_OK;
        }
    }
    return td__plan_wait_for(b->p, role, run, op);
}

static td_status add_receive(td__plan_builder *b, const td__plan_message *x)
{
    int role = td__stage_of(b, x->to), at, slots = b->slots[x->to];
    td__plan_op op = td__plan_blank(TD_PLAN_RECV, x->made == TD_RUN_FORWARD ? TD_LANE_RECV_UP
                                                                            : TD_LANE_RECV_DOWN);
    op.chunk = (uint16_t)x->to;
    op.other = (uint16_t)x->from;
    op.peer = (int16_t)(td__stage_of(b, x->from) - role);
    op.phase = (uint8_t)x->made;
    op.micro_batch = (uint32_t)x->micro_batch;
    op.nbytes = x->nbytes;
    if (x->micro_batch >= slots)
        op.after[0] = b->index[*leaves_with(b, x->to, x->micro_batch - slots)];
    TD_TRY(td__plan_add(b->p, role, &op, &at));
    return td__plan_wait_in_lane(b, role, b->index[td__run_of(b, x->to, x->needed, x->micro_batch)],
                                 at);
}

static td_status add_send(td__plan_builder *b, const td__plan_message *x)
{
    int role = td__stage_of(b, x->from), at, slots = b->slots[x->from];
    td__plan_op op = td__plan_blank(TD_PLAN_SEND, x->made == TD_RUN_FORWARD ? TD_LANE_SEND_UP
                                                                            : TD_LANE_SEND_DOWN);
    op.chunk = (uint16_t)x->from;
    op.other = (uint16_t)x->to;
    op.peer = (int16_t)(td__stage_of(b, x->to) - role);
    op.phase = (uint8_t)x->made;
    op.micro_batch = (uint32_t)x->micro_batch;
    op.nbytes = x->nbytes;
    op.after[0] = b->index[td__run_of(b, x->from, x->made, x->micro_batch)];
    TD_TRY(td__plan_add(b->p, role, &op, &at));
    if (b->o->direct && op.after[0] + 1 < b->s->n[role])
        TD_TRY(td__plan_wait_in_lane(b, role, op.after[0] + 1, at));
    if (x->micro_batch + slots >= b->o->at.micro_batches)
        return TD_OK;
    return td__plan_wait_in_lane(
        b, role, b->index[td__run_of(b, x->from, TD_RUN_FORWARD, x->micro_batch + slots)], at);
}

td_status td__plan_add_hand(td__plan_builder *b, const td__chunk_edge *e, bool sends, int *last)
{
    int role = td__stage_of(b, sends ? e->from : e->to);
    int to = td__stage_of(b, sends ? e->to : e->from);
    bool up = sends ? to > role : role > to;
    td__plan_op op = sends ? td__plan_blank(TD_PLAN_SEND, up ? TD_LANE_SEND_UP : TD_LANE_SEND_DOWN)
                           : td__plan_blank(TD_PLAN_RECV, up ? TD_LANE_RECV_UP : TD_LANE_RECV_DOWN);
    op.phase = TD__PLAN_PARAMS;
    op.peer = (int16_t)(to - role);
    op.chunk = (uint16_t)(sends ? e->from : e->to);
    op.other = (uint16_t)(sends ? e->to : e->from);
    op.nbytes = e->nbytes;
    op.after[0] = last[role];
    return td__plan_add(b->p, role, &op, &last[role]);
}

/* Before the first run, where the pipeline is emptied in each step. */
static td_status add_handed(td__plan_builder *b)
{
    int stages = b->o->at.stages;
    td_status st = TD_OK;
    int *last = td__calloc((size_t)stages, sizeof *last);
    if (!last)
        return TD_FAIL(TD_ENOMEM, "no memory for the plan of a pipeline");
    for (int r = 0; r < stages; r++)
        last[r] = TD__PLAN_NONE;
    for (int i = 0; i < b->o->n_handed && !b->flow.batches && !st; i++) {
        const td__chunk_edge *e = &b->o->handed[i];
        if (td__stage_of(b, e->from) == td__stage_of(b, e->to))
            continue;
        st = td__plan_add_hand(b, e, true, last);
        if (!st)
            st = td__plan_add_hand(b, e, false, last);
    }
    for (int r = 0; r < stages && !st; r++)
        if (last[r] != TD__PLAN_NONE && b->s->n[r])
            st = td__plan_wait_in_lane(b, r, 0, last[r]);
    td__free(last);
    return st;
}

static td_status add_messages(td__plan_builder *b)
{
    TD_TRY(add_handed(b));
    for (int i = 0; i < b->n_messages; i++) {
        TD_TRY(add_receive(b, &b->messages[i]));
        TD_TRY(add_send(b, &b->messages[i]));
    }
    return td__flow_plan_hand(b);
}

/* Losses, and what ranks say, are added up once all micro-batches are through. */
static td_status add_numbers(td__plan_builder *b, int role)
{
    td__plan_op op = td__plan_blank(TD_PLAN_COLL, TD_LANE_COLL);
    op.phase = TD__PLAN_NUMBERS;
    op.after[0] = b->s->n[role] ? b->s->n[role] - 1 : TD__PLAN_NONE;
    op.nbytes = b->o->said;
    op.axis = TD_AXIS_TENSOR;
    if (b->o->mesh.size[TD_AXIS_TENSOR] > 1)
        TD_TRY(td__plan_add(b->p, role, &op, NULL));
    op.nbytes = b->o->numbers;
    op.axis = TD_AXIS_PIPELINE;
    return b->o->at.stages > 1 && b->o->numbers ? td__plan_add(b->p, role, &op, NULL) : TD_OK;
}

/* The replicas of a chunk hand each other what each has updated of it. */
static td_status add_gather(td__plan_builder *b, int role, int chunk, int updated)
{
    td__plan_op op = td__plan_blank(TD_PLAN_COLL, TD_LANE_COLL);
    op.coll = TD_PLAN_ALL_GATHER;
    op.axis = TD_AXIS_DATA;
    op.chunk = op.other = (uint16_t)chunk;
    op.nbytes = b->o->grads ? b->o->grads[chunk] : 0;
    op.after[0] = updated;
    return b->o->gathers && b->o->mesh.size[TD_AXIS_DATA] > 1 ? td__plan_add(b->p, role, &op, NULL)
                                                              : TD_OK;
}

/* Sums to the role that mirrors this one, or from the one that it mirrors. */
static td_status add_mirrored(td__plan_builder *b, int role, bool sends, int *after)
{
    const td__plan_ring *r = &b->o->ring[role], *from = sends ? r : &b->o->ring[r->from];
    int other = sends ? r->to : r->from;
    bool up = sends ? other > role : role > other;
    td__plan_op op = sends ? td__plan_blank(TD_PLAN_SEND, up ? TD_LANE_SEND_UP : TD_LANE_SEND_DOWN)
                           : td__plan_blank(TD_PLAN_RECV, up ? TD_LANE_RECV_UP : TD_LANE_RECV_DOWN);
    op.phase = TD__PLAN_SUMS;
    op.peer = (int16_t)(other - role);
    op.chunk = (uint16_t)role; /* stages' first chunks are numbered as they are */
    op.other = (uint16_t)other;
    for (int i = 0; i < from->n; i++) {
        op.nbytes = from->nbytes[i];
        op.after[0] = *after;
        TD_TRY(td__plan_add(b->p, role, &op, after));
    }
    return TD_OK;
}

static td_status add_mirrors(td__plan_builder *b, int role, int *after)
{
    td__plan_op op = td__plan_blank(TD_PLAN_COLL, TD_LANE_COLL);
    if (b->o->mesh.size[TD_AXIS_DATA] > 1)
        return TD_OK;
    if (b->o->ring) {
        bool first = b->o->ring[role].sends_first;
        TD_TRY(add_mirrored(b, role, first, after));
        return add_mirrored(b, role, !first, after);
    }
    op.axis = TD__AXIS_ALL;
    op.coll = TD_PLAN_ALL_TO_ALL;
    op.after[0] = *after;
    for (int c = 0; b->o->grads && c < b->o->at.chunks; c++)
        op.nbytes += b->o->grads[c];
    return td__plan_add(b->p, role, &op, after);
}

/* Sums to the ranks that mirror them, where a stage has no other replica, statistics of all stages,
 * and the moment at which all ranks are known to have theirs. */
static td_status add_held(td__plan_builder *b, int role, int *after)
{
    td__plan_op op = td__plan_blank(TD_PLAN_COLL, TD_LANE_COLL);
    *after = *after != TD__PLAN_NONE ? *after : b->s->n[role] - 1;
    TD_TRY(add_mirrors(b, role, after));
    for (int i = 0; b->o->at.stages > 1 && i < b->o->n_stats; i++) {
        op.coll = TD_PLAN_BROADCAST;
        op.chunk = op.other = (uint16_t)b->o->stats[i].from;
        op.nbytes = b->o->stats[i].nbytes;
        op.after[0] = *after;
        TD_TRY(td__plan_add(b->p, role, &op, after));
    }
    op = td__plan_blank(TD_PLAN_COLL, TD_LANE_COLL);
    op.axis = TD__AXIS_ALL;
    op.coll = TD_PLAN_BARRIER;
    op.after[0] = *after;
    return td__plan_add(b->p, role, &op, after);
}

/* What comes after the last micro-batch: losses, sums along the data axis, the norm, updates. */
static td_status add_end(td__plan_builder *b, int role)
{
    int last = b->o->at.micro_batches - 1, norm = TD__PLAN_NONE, turn = TD__PLAN_NONE;
    int updated = TD__PLAN_NONE;
    if (b->flow.batches) /* they are among the runs */
        return TD_OK;
    TD_TRY(add_numbers(b, role));
    for (int c = 0; c < b->o->at.chunks; c++)
        if (td__stage_of(b, c) == role)
            TD_TRY(add_sum(b, role, c, b->index[td__run_of(b, c, TD_RUN_WEIGHT, last)], &norm));
    if (b->o->norm && b->o->at.stages > 1) {
        td__plan_op op = td__plan_blank(TD_PLAN_COLL, TD_LANE_COLL);
        op.nbytes = b->o->norm;
        op.after[0] = b->p->roles[role].ops ? b->s->n[role] - 1 : TD__PLAN_NONE;
        TD_TRY(td__plan_add(b->p, role, &op, &norm));
        op.axis = TD_AXIS_DATA;
        op.after[0] = norm;
        if (b->o->norm_shared)
            TD_TRY(td__plan_add(b->p, role, &op, &norm));
    }
    if (b->o->held)
        TD_TRY(add_held(b, role, &norm));
    TD_TRY(add_turn(b, role, TD_PLAN_RECV, TD__PLAN_NONE, &turn));
    for (int c = 0; c < b->o->at.chunks; c++)
        if (td__stage_of(b, c) == role)
            TD_TRY(add_update(b, role, c, 0, norm, turn, &updated));
    TD_TRY(add_turn(b, role, TD_PLAN_SEND, updated, NULL));
    for (int c = 0; c < b->o->at.chunks; c++)
        if (td__stage_of(b, c) == role)
            TD_TRY(add_gather(b, role, c, updated));
    return TD_OK;
}

static td_status build(td__plan_builder *b)
{
    const td__schedule_case *c = &b->o->at;
    size_t runs = 3 * (size_t)c->chunks * (size_t)c->micro_batches;
    TD_TRY(merge_edges(b));
    TD_TRY(write_schedule(b));
    TD_TRY(td__flow_plan_init(b));
    TD_TRY(td__plan_create(&b->o->mesh, TD_AXIS_PIPELINE, c->chunks, &b->p));
    b->slots = td__calloc((size_t)c->chunks, sizeof *b->slots);
    b->ended = td__calloc(runs, sizeof *b->ended);
    b->index = td__calloc(runs, sizeof *b->index);
    b->leaves = td__calloc(runs / 3, sizeof *b->leaves);
    if (!b->slots || !b->ended || !b->index || !b->leaves)
        return TD_FAIL(TD_ENOMEM, "no memory for a pipeline's plan");
    for (size_t i = 0; i < runs; i++)
        b->ended[i] = -1;
    TD_TRY(add_runs(b));
    find_leaves(b);
    find_slots(b);
    TD_TRY(time_runs(b));
    TD_TRY(list_messages(b));
    TD_TRY(add_messages(b));
    for (int r = 0; r < c->stages; r++)
        TD_TRY(add_end(b, r));
    return TD_OK;
}

td_status td__pipeline_plan(const td__pipeline_opts *o, td__plan **out, int *slots)
{
    td__plan_builder b = {.o = o};
    TD_ASSERT(o->mesh.size[TD_AXIS_PIPELINE] == o->at.stages, "%d stages on %d ranks", o->at.stages,
              o->mesh.size[TD_AXIS_PIPELINE]);
    td_status st = build(&b);
    if (!st) {
        *out = b.p;
        for (int c = 0; slots && c < o->at.chunks; c++)
            slots[c] = b.slots[c];
        b.p = NULL;
    }
    td__plan_destroy(b.p);
    td__flow_plan_fini(&b);
    td__schedule_destroy(b.s);
    td__free(b.edges);
    td__free(b.tied);
    td__free(b.slots);
    td__free(b.ended);
    td__free(b.index);
    td__free(b.leaves);
    td__free(b.messages);
    return st;
}
