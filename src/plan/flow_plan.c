/* flow_plan.c -- what stages tell each other in each batch of a schedule that flows, beside the
 * values of its micro-batches, and its gradients' sums and update, which are among the runs:
 *
 *     before its first run       params that one stage updates and another reads, of the version
 *                                that the batch is run with: the reader waits for them, and what
 *                                was sent stays until the batch has been applied
 *     after its last forward     losses and requests, which all ranks add up while they go on; they
 *                                are known before the first run of the batch that follows `stages`
 *                                later, those of batch 0 before batch 1
 *
 * So far a stage has run all of its list that comes before the first run of a batch when it hands
 * over that batch's params. A stage makes its hand-overs one after the other. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/fail.h"
#include "plan/pipeline_plan_impl.h"

static size_t place_of(const td__plan_builder *b, int stage, int batch)
{
    return (size_t)stage * (size_t)b->flow.batches + (size_t)batch;
}

static int batch_of(const td__plan_builder *b, uint32_t micro_batch)
{
    return (int)micro_batch / b->o->at.batch;
}

static bool says(const td__plan_builder *b)
{
    return b->o->numbers && b->o->at.stages > 1;
}

td_status td__flow_plan_init(td__plan_builder *b)
{
    const td__schedule_case *c = &b->o->at;
    td__flow_plan *f = &b->flow;
    if (!b->o->schedule->delay || !c->batch)
        return TD_OK;
    f->batches = c->micro_batches / c->batch;
    size_t stages = (size_t)c->stages, n = stages * (size_t)f->batches;
    size_t hands = (size_t)f->batches * (size_t)b->o->n_handed;
    f->first = td__calloc(n, sizeof *f->first);
    f->forward = td__calloc(n, sizeof *f->forward);
    f->said = td__calloc(n, sizeof *f->said);
    f->updates = td__calloc(n, sizeof *f->updates);
    f->handed = td__calloc(hands + 1, sizeof *f->handed);
    f->last = td__calloc(stages, sizeof *f->last);
    if (!f->first || !f->forward || !f->said || !f->updates || !f->handed || !f->last)
        return TD_FAIL(TD_ENOMEM, "no memory for a pipeline's plan");
    for (size_t i = 0; i < n; i++)
        f->first[i] = f->said[i] = f->updates[i] = TD__PLAN_NONE;
    for (size_t i = 0; i < hands; i++)
        f->handed[i] = -1;
    for (int r = 0; r < c->stages; r++) {
        f->last[r] = TD__PLAN_NONE;
        for (int k = 0; k < b->s->n[r]; k++) {
            const td__schedule_run *run = &b->s->runs[r][k];
            size_t at = place_of(b, r, batch_of(b, run->micro_batch));
            if (f->first[at] == TD__PLAN_NONE)
                f->first[at] = k;
            if (run->phase == TD_RUN_FORWARD)
                f->forward[at] = k;
        }
    }
    return TD_OK;
}

void td__flow_plan_fini(td__plan_builder *b)
{
    td__flow_plan *f = &b->flow;
    td__free(f->first);
    td__free(f->forward);
    td__free(f->said);
    td__free(f->updates);
    td__free(f->handed);
    td__free(f->last);
}

/* ---- Times ----------------------------------------------------------------------------------- */

/* The batch whose losses are known before the first run of another; -1: none's. */
static int heard_before(const td__plan_builder *b, int batch)
{
    int behind = b->o->at.stages;
    return !batch || !says(b) ? -1 : batch > behind ? batch - behind : 0;
}

static double run_ended(const td__plan_builder *b, int stage, int k)
{
    const td__schedule_run *r = &b->s->runs[stage][k];
    return b->ended[td__run_of(b, r->chunk, r->phase, (int)r->micro_batch)];
}

/* When all stages have said what they say in a batch; -1: not known yet. */
static double said_at(const td__plan_builder *b, int batch)
{
    double at = 0;
    for (int r = 0; batch >= 0 && r < b->o->at.stages; r++) {
        double end = run_ended(b, r, b->flow.forward[place_of(b, r, batch)]);
        if (end < 0)
            return -1;
        at = end > at ? end : at;
    }
    return at;
}

/* When a stage comes to a batch; -1: not known yet. */
static double comes_to(const td__plan_builder *b, int stage, int batch)
{
    int first = b->flow.first[place_of(b, stage, batch)];
    double heard = said_at(b, heard_before(b, batch));
    double ran = first ? run_ended(b, stage, first - 1) : 0;
    return heard < 0 || ran < 0 ? -1 : heard > ran ? heard : ran;
}

/* A stage's hand-over before number `at` of all, which are those of batch 0, of batch 1, ...; -1:
 * none. */
static int hand_before(const td__plan_builder *b, int stage, int at)
{
    while (--at >= 0) {
        const td__chunk_edge *e = &b->o->handed[at % b->o->n_handed];
        int from = td__stage_of(b, e->from), to = td__stage_of(b, e->to);
        if (from != to && (from == stage || to == stage))
            return at;
    }
    return -1;
}

/* When hand-over number `at` can be made; -1: not known yet. Those before it on the way are asked
 * first, so that this does not go deep. */
static double hand_at(td__plan_builder *b, int at)
{
    double *known = &b->flow.handed[at], when = 0;
    const td__chunk_edge *e = &b->o->handed[at % b->o->n_handed];
    const int ends[2] = {td__stage_of(b, e->from), td__stage_of(b, e->to)};
    if (*known >= 0)
        return *known;
    for (int k = 0; k < 2; k++) {
        int before = hand_before(b, ends[k], at);
        double come = comes_to(b, ends[k], at / b->o->n_handed);
        double made = come < 0 || before < 0 ? 0 : hand_at(b, before);
        if (come < 0 || made < 0)
            return -1;
        when = come > when ? come : when;
        when = made > when ? made : when;
    }
    return *known = when;
}

double td__flow_plan_ready(td__plan_builder *b, int stage, int k)
{
    if (!b->flow.batches)
        return 0;
    int batch = batch_of(b, b->s->runs[stage][k].micro_batch);
    if (b->flow.first[place_of(b, stage, batch)] != k)
        return 0;
    double at = said_at(b, heard_before(b, batch));
    for (int i = 0; at >= 0 && i < b->o->n_handed; i++) {
        const td__chunk_edge *e = &b->o->handed[i];
        if (td__stage_of(b, e->to) != stage || td__stage_of(b, e->from) == stage)
            continue;
        double there = hand_at(b, batch * b->o->n_handed + i);
        at = there < 0 ? -1 : there > at ? there : at;
    }
    return at;
}

/* ---- Operations ------------------------------------------------------------------------------ */

td_status td__flow_plan_say(td__plan_builder *b, int stage, int k, int op)
{
    if (!b->flow.batches || !says(b))
        return TD_OK;
    uint32_t m = b->s->runs[stage][k].micro_batch;
    size_t at = place_of(b, stage, batch_of(b, m));
    if (b->flow.forward[at] != k)
        return TD_OK;
    td__plan_op said = td__plan_blank(TD_PLAN_COLL, TD_LANE_NUMBERS);
    said.phase = TD__PLAN_NUMBERS;
    said.axis = TD__AXIS_ALL;
    said.micro_batch = m - m % (uint32_t)b->o->at.batch;
    said.nbytes = b->o->numbers;
    said.after[0] = op;
    return td__plan_add(b->p, stage, &said, &b->flow.said[at]);
}

int *td__flow_plan_update(td__plan_builder *b, int stage, uint32_t micro_batch)
{
    return b->flow.batches ? &b->flow.updates[place_of(b, stage, batch_of(b, micro_batch))] : NULL;
}

/* The run of a batch that is the first, in the plan's list. */
static int first_run(const td__plan_builder *b, int stage, int batch)
{
    const td__schedule_run *r = &b->s->runs[stage][b->flow.first[place_of(b, stage, batch)]];
    return b->index[td__run_of(b, r->chunk, r->phase, (int)r->micro_batch)];
}

/* After all that the stage has computed before, updates among it, and heard. */
static td_status follow(td__plan_builder *b, int stage, int batch, int op)
{
    const td__plan_op *ops = b->p->roles[stage].ops;
    int before = first_run(b, stage, batch), heard = heard_before(b, batch);
    while (--before >= 0 && ops[before].lane != TD_LANE_COMPUTE)
        continue;
    if (before >= 0)
        TD_TRY(td__plan_wait_for(b->p, stage, op, before));
    return heard < 0 ? TD_OK
                     : td__plan_wait_for(b->p, stage, op, b->flow.said[place_of(b, stage, heard)]);
}

/* One of a batch. */
static td_status hand(td__plan_builder *b, const td__chunk_edge *e, int batch)
{
    int ends[2] = {td__stage_of(b, e->from), td__stage_of(b, e->to)};
    for (int k = 0; k < 2; k++) {
        int role = ends[k];
        TD_TRY(td__plan_add_hand(b, e, k == 0, b->flow.last));
        td__plan_op *op = &b->p->roles[role].ops[b->flow.last[role]];
        op->lane = k ? TD_LANE_RECV_AHEAD : TD_LANE_SEND_AHEAD;
        op->micro_batch = (uint32_t)(batch * b->o->at.batch);
        TD_TRY(follow(b, role, batch, b->flow.last[role]));
        int waits = k ? first_run(b, role, batch) : b->flow.updates[place_of(b, role, batch)];
        TD_TRY(td__plan_wait_in_lane(b, role, waits, b->flow.last[role]));
    }
    return TD_OK;
}

/* Does a stage read params that others update? Then it hears before it gets them. */
static bool is_handed(const td__plan_builder *b, int stage)
{
    for (int i = 0; i < b->o->n_handed; i++)
        if (td__stage_of(b, b->o->handed[i].to) == stage &&
            td__stage_of(b, b->o->handed[i].from) != stage)
            return true;
    return false;
}

td_status td__flow_plan_hand(td__plan_builder *b)
{
    for (int batch = 0; batch < b->flow.batches; batch++) {
        for (int i = 0; i < b->o->n_handed; i++)
            if (td__stage_of(b, b->o->handed[i].from) != td__stage_of(b, b->o->handed[i].to))
                TD_TRY(hand(b, &b->o->handed[i], batch));
        int heard = heard_before(b, batch);
        for (int r = 0; heard >= 0 && r < b->o->at.stages; r++)
            if (!is_handed(b, r))
                TD_TRY(td__plan_wait_for(b->p, r, first_run(b, r, batch),
                                         b->flow.said[place_of(b, r, heard)]));
    }
    return TD_OK;
}
