/* schedule_greedy.c -- schedules made by simulation. See schedule_write.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/fail.h"
#include "plan/schedule_write.h"

typedef struct simulation {
    td__schedule *s;
    const td__schedule_def *d;
    const td__schedule_greedy *g;
    double *free_at; /* by stage */
    int *under_way;  /* by stage: micro-batches that have begun and not ended */
    int *next;       /* (3 chunks) by chunk and phase: the next micro-batch */
    double *done_at; /* (3 chunks micro-batches) when a phase is over */
} simulation;

static double *done(simulation *x, int chunk, td_run_phase phase, int m)
{
    return &x->done_at[((size_t)chunk * 3 + (size_t)phase) * (size_t)x->s->of.micro_batches +
                       (size_t)m];
}

static double cost_of(const simulation *x, int chunk, td_run_phase phase)
{
    return x->s->of.cost ? x->s->of.cost[3 * chunk + (int)phase] : 1;
}

/* When the next micro-batch of a phase of a chunk could begin; -1: not known yet, or none left. */
static double ready_at(simulation *x, int chunk, td_run_phase phase)
{
    int m = x->next[3 * chunk + (int)phase];
    if (m == x->s->of.micro_batches)
        return -1;
    switch (phase) {
    case TD_RUN_FORWARD: return chunk ? *done(x, chunk - 1, TD_RUN_FORWARD, m) : 0;
    case TD_RUN_BACKWARD: {
        bool last = chunk == x->s->of.chunks - 1;
        double own = *done(x, chunk, TD_RUN_FORWARD, m);
        double above = last ? own : *done(x, chunk + 1, TD_RUN_BACKWARD, m);
        return own < 0 || above < 0 ? -1 : above > own ? above : own;
    }
    default: return *done(x, chunk, TD_RUN_BACKWARD, m);
    }
}

/* Forward may only take the last place of a stage if its chunk is the stage's last: a micro-batch
 * that is under way must be able to end. */
static bool has_room(const simulation *x, int stage, int chunk)
{
    int each = x->s->of.chunks / x->s->of.stages, later = 0;
    for (int c = chunk + 1; c < x->s->of.chunks; c++)
        later += td__schedule_stage(x->d, x->s->of.stages, c) == stage;
    TD_ASSERT(later < each, "chunk %d of stage %d", chunk, stage);
    return x->under_way[stage] + later < x->g->in_flight(&x->s->of, stage);
}

typedef struct choice {
    int chunk;
    td_run_phase phase;
    double at;
} choice;

/* What the stage would run next, and when: what is ready first; of what is ready when the stage is
 * free, in the order of phases and chunks. */
static bool choose(simulation *x, int stage, choice *out)
{
    static const td_run_phase ORDER[] = {TD_RUN_BACKWARD, TD_RUN_FORWARD, TD_RUN_WEIGHT};
    bool found = false;
    for (int p = 0; p < 3; p++)
        for (int c = x->s->of.chunks; c-- > 0;) {
            if (td__schedule_stage(x->d, x->s->of.stages, c) != stage)
                continue;
            double at = ready_at(x, c, ORDER[p]);
            if (at < 0 || (ORDER[p] == TD_RUN_FORWARD && !has_room(x, stage, c)))
                continue;
            at = at > x->free_at[stage] ? at : x->free_at[stage];
            if (!found || at < out->at)
                *out = (choice){.chunk = c, .phase = ORDER[p], .at = at};
            found = true;
        }
    return found;
}

static void carry_out(simulation *x, int stage, const choice *c)
{
    int m = x->next[3 * c->chunk + (int)c->phase]++;
    x->free_at[stage] = c->at + cost_of(x, c->chunk, c->phase);
    *done(x, c->chunk, c->phase, m) = x->free_at[stage];
    x->under_way[stage] += (c->phase == TD_RUN_FORWARD) - (c->phase == TD_RUN_WEIGHT);
    td__write_phase(x->s, stage, c->chunk, c->phase);
    if (c->phase == TD_RUN_BACKWARD && x->g->weight_at_once)
        carry_out(x, stage,
                  &(choice){.chunk = c->chunk, .phase = TD_RUN_WEIGHT, .at = x->free_at[stage]});
}

static td_status allocate(simulation *x)
{
    size_t chunks = (size_t)x->s->of.chunks, stages = (size_t)x->s->of.stages;
    size_t all = 3 * chunks * (size_t)x->s->of.micro_batches;
    x->free_at = td__calloc(stages, sizeof *x->free_at);
    x->under_way = td__calloc(stages, sizeof *x->under_way);
    x->next = td__calloc(3 * chunks, sizeof *x->next);
    x->done_at = td__calloc(all, sizeof *x->done_at);
    if (!x->free_at || !x->under_way || !x->next || !x->done_at)
        return TD_FAIL(TD_ENOMEM, "no memory for a pipeline schedule");
    for (size_t i = 0; i < all; i++)
        x->done_at[i] = -1;
    return TD_OK;
}

td_status td__write_greedy(td__schedule *s, const td__schedule_def *d, const td__schedule_greedy *g)
{
    simulation x = {.s = s, .d = d, .g = g};
    td_status st = allocate(&x);
    int runs = g->weight_at_once ? 2 : 3, left = runs * s->of.chunks * s->of.micro_batches;
    while (!st && left) {
        /* The stage whose next run begins first: nothing that others do can come before it. */
        choice first = {0}, c;
        int stage = -1;
        for (int i = 0; i < s->of.stages; i++)
            if (choose(&x, i, &c) && (stage < 0 || c.at < first.at)) {
                first = c;
                stage = i;
            }
        TD_ASSERT(stage >= 0, "no stage can run anything, and %d runs are left", left);
        carry_out(&x, stage, &first);
        left--;
    }
    td__free(x.free_at);
    td__free(x.under_way);
    td__free(x.next);
    td__free(x.done_at);
    return st;
}
