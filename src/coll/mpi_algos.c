/* mpi_algos.c -- "mpi": the collectives of MPI's own, on an MPI mesh, for those who trust their
 * cluster's tuning more than ours. Sums are in MPI's order, so they must be asked for.
 *
 * MPI does not compare what ranks ask for: a mismatch hangs or corrupts. So the call's digest goes
 * first, as a minimum and a maximum over ranks in one small allreduce. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <limits.h>
#include <string.h>

#include "base/fail.h"
#include "coll/algo.h"
#include "coll/mpi_mesh.h"

static bool reduces(td__coll kind)
{
    return kind == TD_COLL_ALLREDUCE || kind == TD_COLL_REDUCE || kind == TD_COLL_REDUCE_SCATTER;
}

static bool can(const td__coll_ctx *x, const td__coll_call *c)
{
    bool half = c->dtype == TD_BF16 || c->dtype == TD_F16;
    return td__mesh_is_mpi(x->mesh) && c->count <= INT_MAX && !(reduces(c->kind) && half);
}

/* MPI's choice is its own: taken as the best there is, recursive doubling or ring. */
static double cost(const td__coll_ctx *x, const td__coll_call *c)
{
    double bytes = (double)c->count * (double)td_dtype_size(c->dtype);
    double n = x->mesh->size, rounds = 0;
    while ((1 << (int)rounds) < x->mesh->size)
        rounds++;
    return 2 * rounds * x->mesh->alpha + 2 * (n - 1) / n * bytes * (x->mesh->beta + x->gamma / 2);
}

static td_status run(td__coll_ctx *x, const td__coll_call *c)
{
    int64_t digest = x->tag, both[2] = {digest, -digest};
    td__mpi_call agree = {
        .kind = TD_COLL_ALLREDUCE,
        .in = both,
        .out = both,
        .count = 2,
        .dtype = TD_I64,
        .op = TD_REDUCE_MAX,
    };

    TD_TRY(td__mesh_mpi_collective(x->mesh, &agree, c->deadline));
    if (both[0] != digest || both[1] != -digest)
        return TD_FAIL(TD_EMISMATCH,
                       "mpi: rank %d calls %s with %zu %s, but other ranks make another call",
                       x->mesh->rank, td__coll_name(c->kind), c->count, td_dtype_name(c->dtype));
    td__mpi_call call = {
        .kind = c->kind,
        .in = c->in,
        .out = c->out,
        .count = c->count,
        .dtype = c->dtype,
        .op = (int)(c->op == TD_REDUCE_AVG ? TD_REDUCE_SUM : c->op),
        .root = c->root,
    };
    TD_TRY(td__mesh_mpi_collective(x->mesh, &call, c->deadline));
    if (reduces(c->kind) && (c->kind != TD_COLL_REDUCE || x->mesh->rank == c->root))
        td__reduce_finish(c->out, c->count, c->dtype, c->op, x->mesh->size);
    return TD_OK;
}

#define ROW(KIND, id)                      \
    const td__algo td__algo_##id##_mpi = { \
        .kind = TD_COLL_##KIND,            \
        .name = "mpi",                     \
        .can = can,                        \
        .cost = cost,                      \
        .run = run,                        \
    };
ROW(ALLREDUCE, allreduce)
ROW(REDUCE, reduce)
ROW(BROADCAST, broadcast)
ROW(REDUCE_SCATTER, reduce_scatter)
ROW(ALL_GATHER, all_gather)
ROW(ALL_TO_ALL, all_to_all)
ROW(GATHER, gather)
ROW(SCATTER, scatter)
ROW(BARRIER, barrier)
