/* schedule_greedy.c -- schedules made by simulation. See schedule_write.h.
 *
 * Which rule of thumb is best depends on what phases cost beside each other: of several the one is
 * taken that ends first if runs take what the case says. The first is for phases that all take the
 * same, and the only one where nothing is known; of equal ones it stays. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/fail.h"
#include "plan/schedule_write.h"

/* How a stage picks what it runs next. */
typedef struct thumb {
    bool costs;      /* by the costs of the case, instead of all alike */
    bool first;      /* forward of the earliest chunk, instead of the latest */
    double patience; /* rather wait so long, in runs of weight, than begin one */
} thumb;

static const thumb THUMBS[] = {
    {.costs = false},
    {.costs = true},
    {.costs = true, .patience = 0.5},
    {.costs = true, .patience = 0.9},
    {.costs = true, .first = true},
    {.costs = true, .first = true, .patience = 0.5},
};

typedef struct simulation {
    td__schedule *s;
    const thumb *by;
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
    return x->by->costs && x->s->of.cost ? x->s->of.cost[3 * chunk + (int)phase] : 1;
}

/* Its own backward is over, and the gradients of its weights' other uses are there. */
static double weight_ready_at(simulation *x, int chunk, int m)
{
    const td__schedule_case *of = &x->s->of;
    double at = *done(x, chunk, TD_RUN_BACKWARD, m);
    for (int c = 0; of->tied && at >= 0 && c < of->chunks; c++) {
        double there = of->tied[c] == chunk ? *done(x, c, TD_RUN_WEIGHT, m) : at;
        at = there < 0 ? -1 : there > at ? there : at;
    }
    return at;
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
    default: return weight_ready_at(x, chunk, m);
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
    int chunks = x->s->of.chunks;
    for (int p = 0; p < 3; p++)
        for (int i = 0; i < chunks; i++) {
            int c = ORDER[p] == TD_RUN_FORWARD && x->by->first ? i : chunks - 1 - i;
            if (td__schedule_stage(x->d, x->s->of.stages, c) != stage)
                continue;
            double at = ready_at(x, c, ORDER[p]), late = 0;
            if (at < 0 || (ORDER[p] == TD_RUN_FORWARD && !has_room(x, stage, c)))
                continue;
            at = at > x->free_at[stage] ? at : x->free_at[stage];
            if (ORDER[p] == TD_RUN_WEIGHT && found && out->phase != TD_RUN_WEIGHT)
                late = x->by->patience * cost_of(x, c, TD_RUN_WEIGHT);
            if (!found || at + late < out->at)
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

static td_status simulate(td__schedule *s, const td__schedule_def *d, const td__schedule_greedy *g,
                          const thumb *by)
{
    simulation x = {.s = s, .by = by, .d = d, .g = g};
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

td_status td__write_greedy(td__schedule *s, const td__schedule_def *d, const td__schedule_greedy *g)
{
    double best = -1;
    if (!s->of.cost && !s->n[0])
        return simulate(s, d, g, &THUMBS[0]);
    if (s->n[0]) /* there is one already, by a pattern */
        TD_TRY(td__schedule_seconds(s, &best));
    for (size_t i = 0; s->of.cost && i < sizeof THUMBS / sizeof *THUMBS; i++) {
        td__schedule *other;
        double seconds = 0;
        TD_TRY(td__schedule_blank(&s->of, &other));
        td_status st = simulate(other, d, g, &THUMBS[i]);
        if (!st)
            st = td__schedule_seconds(other, &seconds);
        if (!st && (best < 0 || seconds < best * (1 - 1e-9))) {
            best = seconds;
            td__schedule_swap(s, other);
        }
        td__schedule_destroy(other);
        TD_TRY(st);
    }
    return TD_OK;
}
