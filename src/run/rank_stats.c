/* rank_stats.c -- see rank_stats.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "run/rank_stats.h"

#include <math.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "base/memory.h"

enum { FIELDS = sizeof(td__rank_times) / sizeof(double), MOST_GROWTH = 8 };
static const double EVERY_SECONDS = 0.5;

_Static_assert(sizeof(td__rank_times) == 10 * sizeof(double), "sent as doubles");

struct td__rank_stats {
    td_comm *comm;
    int rank, size;
    td__rank_times own; /* since the last exchange */
    uint64_t steps;     /* likewise */
    uint64_t every;     /* steps until the next */
    td__rank_times *all;
    td__rank_times *put,
        *told;             /* (size) without a comm: the others' since the start; told before */
    double *before;        /* (size) td_comm_blame at the last exchange */
    double *since, *blame; /* (size) since then: this rank's, all ranks' */
};

td_status td__rank_stats_create(td_comm *comm, int size, td__rank_stats **out)
{
    td__rank_stats *s = td__calloc(1, sizeof *s);

    *out = NULL;
    if (!s)
        return TD_FAIL(TD_ENOMEM, "no memory for the times of ranks");
    s->comm = comm;
    s->rank = comm ? td_comm_rank(comm) : 0;
    s->size = comm ? td_comm_size(comm) : size;
    s->every = 1;
    size_t n = (size_t)s->size;
    s->all = td__calloc(n, sizeof *s->all);
    s->put = td__calloc(n, sizeof *s->put);
    s->told = td__calloc(n, sizeof *s->told);
    s->before = td__calloc(n, sizeof *s->before);
    s->since = td__calloc(n, sizeof *s->since);
    s->blame = td__calloc(n, sizeof *s->blame);
    if (!s->all || !s->put || !s->told || !s->before || !s->since || !s->blame) {
        td__rank_stats_destroy(s);
        return TD_FAIL(TD_ENOMEM, "no memory for the times of %zu ranks", n);
    }
    if (comm)
        td_comm_blame(comm, s->before);
    *out = s;
    return TD_OK;
}

void td__rank_stats_destroy(td__rank_stats *s)
{
    if (!s)
        return;
    td__free(s->all);
    td__free(s->put);
    td__free(s->told);
    td__free(s->before);
    td__free(s->since);
    td__free(s->blame);
    td__free(s);
}

void td__rank_stats_add(td__rank_stats *s, const td__rank_times *step)
{
    s->own.seconds += step->seconds;
    s->own.compute += step->compute;
    s->own.update += step->update;
    s->own.comm += step->comm;
    s->own.busy += step->busy;
    s->own.wait += step->wait;
    s->own.data += step->data;
    s->own.nbytes += step->nbytes;
    s->own.plain += step->plain;
    s->steps++;
}

void td__rank_stats_put(td__rank_stats *s, int rank, const td__rank_times *total)
{
    s->put[rank] = *total;
}

void td__rank_stats_blame(td__rank_stats *s, int rank, double seconds)
{
    s->since[rank] += seconds;
}

/* The others' by what was put. */
static void collect(td__rank_stats *s)
{
    s->all[0] = s->own;
    s->blame[0] = s->since[0];
    s->since[0] = 0;
    for (int r = 1; r < s->size; r++) {
        const double *now = (const double *)&s->put[r], *told = (const double *)&s->told[r];
        for (int k = 0; k < FIELDS; k++)
            ((double *)&s->all[r])[k] = now[k] - told[k];
        s->all[r].memory = s->put[r].memory;
        s->told[r] = s->put[r];
        s->blame[r] = s->since[r];
        s->since[r] = 0;
    }
}

static td_status exchange(td__rank_stats *s)
{
    size_t n = (size_t)s->size;

    td_comm_blame(s->comm, s->since);
    for (int r = 0; r < s->size; r++) {
        double now = s->since[r];
        s->since[r] = now - s->before[r];
        s->before[r] = now;
    }
    TD_TRY(td_all_gather(s->comm, &s->own, s->all, FIELDS, TD_F64, NULL));
    return td_allreduce(s->comm, s->since, s->blame, n, TD_F64, TD_REDUCE_SUM, NULL);
}

/* From what all ranks have: the slowest one's steps decide. */
static uint64_t next_every(const td__rank_stats *s)
{
    double slowest = 0;
    for (int r = 0; r < s->size; r++)
        slowest = fmax(slowest, s->all[r].seconds);
    double steps = slowest > 0 ? EVERY_SECONDS * (double)s->steps / slowest : (double)INFINITY;
    steps = fmin(steps, (double)(MOST_GROWTH * s->every));
    return steps > 1 ? (uint64_t)steps : 1;
}

td_status td__rank_stats_tell(td__rank_stats *s, uint64_t step, bool end, td__ranks_event *e)
{
    *e = (td__ranks_event){.step = step};
    bool alone = !s->comm && s->size == 1;
    if (!s->steps || (!end && (alone || s->steps < s->every)))
        return TD_OK;
    s->own.memory = (double)td__memory_read().peak;
    if (s->comm)
        TD_TRY(exchange(s));
    else
        collect(s);
    *e = (td__ranks_event){.step = step,
                           .steps = s->steps,
                           .n = s->size,
                           .rank = s->all,
                           .blame = alone ? NULL : s->blame};
    s->every = next_every(s);
    s->own = (td__rank_times){0};
    s->steps = 0;
    return TD_OK;
}
