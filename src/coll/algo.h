/* algo.h -- an algorithm for one collective: a row {name, can, cost, run} in algos.def, and how
 * one is chosen.
 *
 * A call asks each row of its collective whether it can serve it, takes the lowest predicted
 * cost among the order-safe ones (or the one that was asked for), and logs name and cost. cost()
 * uses the alpha-beta-gamma model of docs/algorithms.md and must give the same answer on every
 * rank: it looks only at its arguments and at what ranks agreed on at set-up; not at where the
 * buffers lie, in which ranks may differ. The same holds for can(). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_COLL_ALGO_H
#define TD_COLL_ALGO_H

#include "net/mesh.h"
#include "tandem/coll.h"

#define TD_COLL_MAP(X)                  \
    X(ALLREDUCE, "allreduce")           \
    X(REDUCE, "reduce")                 \
    X(BROADCAST, "broadcast")           \
    X(REDUCE_SCATTER, "reduce_scatter") \
    X(ALL_GATHER, "all_gather")         \
    X(ALL_TO_ALL, "all_to_all")         \
    X(GATHER, "gather") X(SCATTER, "scatter") X(BARRIER, "barrier") X(SEND, "send") X(RECV, "recv")
typedef enum td__coll {
#define X(id, name) TD_COLL_##id,
    TD_COLL_MAP(X)
#undef X
        TD_COLL_COUNT
} td__coll;
const char *td__coll_name(td__coll kind);

/* One call, as all layers below the public functions see it. */
typedef struct td__coll_call {
    td__coll kind;
    const void *in;
    void *out;
    size_t count; /* as in tandem/coll.h: elements per rank for scatter-like calls */
    td_dtype dtype;
    td_reduce_op op;
    int root; /* or the peer of send and recv */
    const char *algo;
    size_t segment;
    td__deadline deadline;
    uint64_t sequence; /* number of the call on this comm */
} td__coll_call;

/* What algorithms run on: the comm's meshes and its tools. */
typedef struct td__coll_ctx {
    td__mesh *mesh;     /* all ranks */
    td__mesh *local;    /* ranks of this host (shm), NULL when all are or none is shared */
    td__mesh *hosts;    /* one rank per host (leaders only), with `local` */
    const int *host_of; /* by rank: number of its host, 0, 1, ... in order of first rank */
    int n_hosts;        /* 1 without host_of */
    double gamma;       /* seconds per byte reduced */
    double local_alpha, local_beta; /* of `local`, agreed by all ranks */
    double hosts_alpha, hosts_beta; /* of `hosts` */
    void *scratch;                  /* grows; owned by the comm */
    size_t scratch_nbytes;
    td__xfer *xfers;    /* TD_COLL_XFERS(size) of them, for one call at a time */
    const void **parts; /* (size) for td__reduce_tree, for one call at a time */
    uint32_t tag;       /* of the call that runs: a digest of all that ranks must agree about */
    td__deadline deadline;
    td_comm *comm;
} td__coll_ctx;
#define TD_COLL_XFERS(size) (8 * (size) + 160)

typedef struct td__algo {
    td__coll kind;
    const char *name;
    bool order_safe; /* sums in the rank tree */
    bool (*can)(const td__coll_ctx *x, const td__coll_call *c);
    double (*cost)(const td__coll_ctx *x, const td__coll_call *c); /* seconds */
    td_status (*run)(td__coll_ctx *x, const td__coll_call *c);
} td__algo;

#define TD_ALGO(collective, name) extern const td__algo td__algo_##collective##_##name;
#include "coll/algos.def"
#undef TD_ALGO

const td__algo *td__algo_at(int i); /* choose.c: row i of the table; NULL past its end */

/* Scratch of at least nbytes; NULL when out of memory. */
void *td__coll_scratch(td__coll_ctx *x, size_t nbytes);

/* out[i] = a[i] op b[i]; out may be a or b. AVG is SUM here; td__reduce_finish divides at the
 * end. */
void td__reduce(void *out, const void *a, const void *b, size_t count, td_dtype dtype,
                td_reduce_op op);
/* out[i] = op over part[0..n)[i] in the rank tree, one pass over memory. */
void td__reduce_tree(void *out, const void *const *part, int n, size_t count, td_dtype dtype,
                     td_reduce_op op);
void td__reduce_finish(void *out, size_t count, td_dtype dtype, td_reduce_op op, int size);

#endif
