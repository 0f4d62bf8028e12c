/* balance.c -- see balance.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "train/balance.h"

#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"

enum { WINDOW = 8, WINDOWS = 3 }; /* steps; windows in a row that ask for a change */
static const double GAIN = 0.75; /* of the slowest rank's time, that a new deal must come down to */
static const double FORGET =
    0.98; /* a window: how slow a rank was that has no micro-batches any more */

struct td__balance {
    int micro_batches, ranks, most;
    int steps, asked; /* in this window; windows that asked for a change */
    int *bounds;      /* (ranks + 1) */
    int *counts;      /* (ranks) of a new deal */
    double *seconds;  /* (ranks) in this window */
    double *each;     /* (ranks) of a micro-batch */
    bool changed;
};

td_status td__balance_create(int micro_batches, int ranks, int most, td__balance **out)
{
    *out = NULL;
    td__balance *b = td__calloc(1, sizeof *b);
    if (!b)
        return TD_FAIL(TD_ENOMEM, "no memory for the shares of %d ranks", ranks);
    b->micro_batches = micro_batches;
    b->ranks = ranks;
    b->most = most;
    b->bounds = td__calloc((size_t)ranks + 1, sizeof *b->bounds);
    b->counts = td__calloc((size_t)ranks, sizeof *b->counts);
    b->seconds = td__calloc((size_t)ranks, sizeof *b->seconds);
    b->each = td__calloc((size_t)ranks, sizeof *b->each);
    if (!b->bounds || !b->counts || !b->seconds || !b->each) {
        td__balance_destroy(b);
        return TD_FAIL(TD_ENOMEM, "no memory for the shares of %d ranks", ranks);
    }
    for (int r = 0; r <= ranks; r++)
        b->bounds[r] = (int)((int64_t)micro_batches * r / ranks);
    *out = b;
    return TD_OK;
}

void td__balance_destroy(td__balance *b)
{
    if (!b)
        return;
    td__free(b->bounds);
    td__free(b->counts);
    td__free(b->seconds);
    td__free(b->each);
    td__free(b);
}

const int *td__balance_bounds(const td__balance *b)
{
    return b->changed ? b->bounds : NULL;
}

static int width(const td__balance *b, int rank)
{
    return b->bounds[rank + 1] - b->bounds[rank];
}

/* Seconds of a micro-batch on each rank: as in this window; of a rank that had none, the mean of
 * the others, or more if it was slower when it last had some: a little less each time, so that it
 * is tried again. Returns those of the slowest rank. */
static double per_micro_batch(td__balance *b)
{
    double sum = 0, slowest = 0;
    int busy = 0;
    for (int r = 0; r < b->ranks; r++) {
        slowest = b->seconds[r] > slowest ? b->seconds[r] : slowest;
        if (!width(b, r))
            continue;
        b->each[r] = b->seconds[r] / width(b, r);
        sum += b->each[r];
        busy++;
    }
    for (int r = 0; r < b->ranks; r++)
        if (!width(b, r)) {
            double was = b->each[r] * FORGET, mean = sum / busy;
            b->each[r] = was > mean ? was : mean;
        }
    return slowest;
}

/* The best deal for these seconds; what its slowest rank will take. Ties go to the lower rank. */
static double repartition(td__balance *b)
{
    double slowest = 0;
    TD_ASSERT((int64_t)b->most * b->ranks >= b->micro_batches, "%d micro-batches have no rank",
              b->micro_batches);
    memset(b->counts, 0, (size_t)b->ranks * sizeof *b->counts);
    for (int s = 0; s < b->micro_batches; s++) {
        int best = -1;
        for (int r = 0; r < b->ranks; r++)
            if (b->counts[r] < b->most && (best < 0 || (b->counts[r] + 1) * b->each[r] <
                                                           (b->counts[best] + 1) * b->each[best]))
                best = r;
        b->counts[best]++;
    }
    for (int r = 0; r < b->ranks; r++) {
        double mine = b->counts[r] * b->each[r];
        slowest = mine > slowest ? mine : slowest;
    }
    return slowest;
}

bool td__balance_add(td__balance *b, const double *seconds)
{
    if (b->ranks < 2)
        return false;
    for (int r = 0; r < b->ranks; r++)
        b->seconds[r] += seconds[r];
    if (++b->steps < WINDOW)
        return false;
    double now = per_micro_batch(b);
    bool gains = repartition(b) < GAIN * now;
    memset(b->seconds, 0, (size_t)b->ranks * sizeof *b->seconds);
    b->steps = 0;
    b->asked = gains ? b->asked + 1 : 0;
    if (b->asked < WINDOWS)
        return false;
    b->asked = 0;
    return true;
}

void td__balance_change(td__balance *b)
{
    b->changed = true;
    for (int r = 0; r < b->ranks; r++)
        b->bounds[r + 1] = b->bounds[r] + b->counts[r];
}
