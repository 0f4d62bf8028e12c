/* sync_values.c -- see sync_values.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "step/sync_values.h"

#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"

struct td__sync_values {
    td_comm *comm;
    int micro_batches, points;
    td__work_partition dealt;
    int batches, batch; /* of the step; the one being run */
    size_t *count;      /* (points) numbers in each value */
    size_t n;           /* of the one under way */
    int64_t rows;       /* of its batch */
    float *slots;       /* (micro_batches, n) */
    double *mean;       /* (n) */
};

static td_status make(td__sync_values *v, const td_program *p)
{
    size_t most = 1, total;
    v->count = td__calloc((size_t)v->points + 1, sizeof *v->count);
    for (int i = 0; v->count && i < v->points; i++) {
        v->count[i] = td__program_sync_count(p, i);
        most = v->count[i] > most ? v->count[i] : most;
    }
    if (!td__size_mul(most, (size_t)v->micro_batches, &total))
        return TD_FAIL(TD_ENOMEM, "no memory for values of %d micro-batches", v->micro_batches);
    v->slots = td__calloc(total, sizeof *v->slots);
    v->mean = td__calloc(most, sizeof *v->mean);
    if (!v->count || !v->slots || !v->mean)
        return TD_FAIL(TD_ENOMEM, "no memory for values of %d micro-batches", v->micro_batches);
    return TD_OK;
}

td_status td__sync_values_create(const td_program *p, int micro_batches, td_comm *comm,
                                 td__sync_values **out)
{
    *out = NULL;
    td__sync_values *v = td__calloc(1, sizeof *v);
    if (!v)
        return TD_FAIL(TD_ENOMEM, "no memory for values of %d micro-batches", micro_batches);
    *v = (td__sync_values){
        .comm = comm, .micro_batches = micro_batches, .points = td__program_syncs(p), .batches = 1};
    td_status st = make(v, p);
    if (st) {
        td__sync_values_destroy(v);
        return st;
    }
    *out = v;
    return TD_OK;
}

void td__sync_values_destroy(td__sync_values *v)
{
    if (!v)
        return;
    td__free(v->count);
    td__free(v->slots);
    td__free(v->mean);
    td__free(v);
}

int td__sync_values_points(const td__sync_values *v)
{
    return v->points;
}

void td__sync_values_deal(td__sync_values *v, td__work_partition d, int batches, int batch)
{
    v->dealt = d;
    v->batches = batches;
    v->batch = batch;
}

bool td__sync_values_of_all(const td__sync_values *v)
{
    return v->batches == 1;
}

void td__sync_values_begin(td__sync_values *v, int point)
{
    v->n = v->count[point];
    memset(v->slots, 0, v->n * (size_t)v->micro_batches * sizeof *v->slots);
}

void td__sync_values_put(td__sync_values *v, int micro_batch, const td__synced *from)
{
    TD_ASSERT(from->n == v->n, "%zu numbers, not %zu", from->n, v->n);
    memcpy(v->slots + v->n * (size_t)micro_batch, from->y, v->n * sizeof *v->slots);
}

/* ---- Between ranks --------------------------------------------------------------------------- */

static float *slots_of(const td__sync_values *v, int rank, size_t *count)
{
    td__micro_batch_range r = td__work_cut(v->dealt, v->micro_batches, v->batches, v->batch, rank);
    *count = v->n * (size_t)(r.end - r.begin);
    return v->slots + v->n * (size_t)r.begin;
}

/* The first rank with micro-batches in the batch gathers all slots; the others get them from it. */
static td_status exchange_some(td__sync_values *v)
{
    int me = td_comm_rank(v->comm), ranks = td_comm_size(v->comm), first = 0;
    size_t all = v->n * (size_t)v->micro_batches, count;
    float *own = slots_of(v, me, &count);

    if (!count)
        return TD_OK;
    for (size_t n = 0; slots_of(v, first, &n), !n;)
        first++;
    if (me != first) {
        TD_TRY(td_send(v->comm, own, count, TD_F32, first, NULL));
        return td_recv(v->comm, v->slots, all, TD_F32, first, NULL);
    }
    for (int r = first + 1; r < ranks; r++) {
        float *at = slots_of(v, r, &count);
        if (count)
            TD_TRY(td_recv(v->comm, at, count, TD_F32, r, NULL));
    }
    for (int r = first + 1; r < ranks; r++) {
        slots_of(v, r, &count);
        if (count)
            TD_TRY(td_send(v->comm, v->slots, all, TD_F32, r, NULL));
    }
    return TD_OK;
}

static td_status exchange(td__sync_values *v)
{
    if (!v->comm)
        return TD_OK;
    if (!td__sync_values_of_all(v))
        return exchange_some(v);
    return td_allreduce(v->comm, v->slots, v->slots, v->n * (size_t)v->micro_batches, TD_F32,
                        TD_REDUCE_SUM, NULL);
}

td_status td__sync_values_exchange(td__sync_values *v, const int64_t *begins)
{
    double all = (double)begins[v->micro_batches];
    v->rows = begins[v->micro_batches];
    TD_TRY(exchange(v));
    memset(v->mean, 0, v->n * sizeof *v->mean);
    for (int i = 0; i < v->micro_batches; i++) {
        const float *slot = v->slots + v->n * (size_t)i;
        double share = (double)(begins[i + 1] - begins[i]) / all;
        for (size_t k = 0; share > 0 && k < v->n; k++)
            v->mean[k] += share * (double)slot[k];
    }
    return TD_OK;
}

void td__sync_values_take(const td__sync_values *v, int64_t rows, td__synced *to)
{
    double m = (double)to->count / (double)rows * (double)v->rows;
    double by = m > 1 ? m / (m - 1) : 1;
    for (size_t k = 0; k < v->n; k++) {
        to->y[k] = (float)v->mean[k];
        to->u[k] = (float)(v->mean[k] * by);
    }
}
