/* schedule_time.c -- what a schedule takes, with the costs of its case. See schedule_write.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "plan/schedule_write.h"

typedef struct clock_of {
    const td__schedule *s;
    double *ended;   /* (3 chunks micro-batches) -1: not yet */
    double *free_at; /* by stage */
    int *next;       /* by stage */
} clock_of;

static double *ended(const clock_of *k, int chunk, int phase, uint32_t m)
{
    return &k->ended[((size_t)chunk * 3 + (size_t)phase) * (size_t)k->s->of.micro_batches + m];
}

static double later(double a, double b)
{
    return a < 0 || b < 0 ? -1 : a > b ? a : b;
}

/* When all that it reads is there; -1: not known yet. */
static double begins_at(const clock_of *k, const td__schedule_run *r)
{
    int c = r->chunk;
    switch (r->phase) {
    case TD_RUN_FORWARD: return c ? *ended(k, c - 1, TD_RUN_FORWARD, r->micro_batch) : 0;
    case TD_RUN_BACKWARD: {
        double own = *ended(k, c, TD_RUN_FORWARD, r->micro_batch);
        return c + 1 == k->s->of.chunks
                   ? own
                   : later(own, *ended(k, c + 1, TD_RUN_BACKWARD, r->micro_batch));
    }
    default: break;
    }
    double at = *ended(k, c, TD_RUN_BACKWARD, r->micro_batch);
    for (int t = 0; k->s->of.tied && t < k->s->of.chunks; t++)
        if (k->s->of.tied[t] == c)
            at = later(at, *ended(k, t, TD_RUN_WEIGHT, r->micro_batch));
    return at;
}

/* All runs of a stage that can be carried out; how many. */
static int advance(clock_of *k, int stage)
{
    int moved = 0;
    for (double at; k->next[stage] < k->s->n[stage]; k->next[stage]++, moved++) {
        const td__schedule_run *r = &k->s->runs[stage][k->next[stage]];
        if ((at = begins_at(k, r)) < 0)
            break;
        k->free_at[stage] = later(at, k->free_at[stage]) +
                            (k->s->of.cost ? k->s->of.cost[3 * r->chunk + r->phase] : 1);
        *ended(k, r->chunk, r->phase, r->micro_batch) = k->free_at[stage];
    }
    return moved;
}

td_status td__schedule_seconds(const td__schedule *s, double *out)
{
    size_t stages = (size_t)s->of.stages;
    size_t all = 3 * (size_t)s->of.chunks * (size_t)s->of.micro_batches;
    clock_of k = {.s = s,
                  .ended = td__calloc(all, sizeof *k.ended),
                  .free_at = td__calloc(stages, sizeof *k.free_at),
                  .next = td__calloc(stages, sizeof *k.next)};
    td_status st = k.ended && k.free_at && k.next
                       ? TD_OK
                       : TD_FAIL(TD_ENOMEM, "no memory for the times of a pipeline schedule");
    for (size_t i = 0; !st && i < all; i++)
        k.ended[i] = -1;
    for (int moved = 1; !st && moved;) {
        moved = 0;
        for (int i = 0; i < s->of.stages; i++)
            moved += advance(&k, i);
    }
    *out = 0;
    for (int i = 0; !st && i < s->of.stages; i++)
        *out = k.next[i] < s->n[i] ? HUGE_VAL : later(*out, k.free_at[i]);
    td__free(k.ended);
    td__free(k.free_at);
    td__free(k.next);
    return st;
}
