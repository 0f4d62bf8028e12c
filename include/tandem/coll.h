/* tandem/coll.h -- collectives over a communicator: what ranks do together.
 *
 * Threads   A td_comm is used by one thread at a time; td_comm_abort() by any thread at any
 *           time.
 *           Communicators are independent of one another.
 * Order     Every rank issues the same calls in the same order. When ranks disagree (order, count,
 *           dtype, op, root) all of them get TD_EMISMATCH with both sides named; a disagreement is
 *           never a hang. One that shows in no message (a rank whose count is 0 exchanges nothing)
 *           is found by asking, after stall_ms; if that rank has made 16 more calls by then, the
 *           deadline ends the call.
 * Buffers   Borrowed until the call returns, or until td_work_wait() for asynchronous ones. in ==
 *           out is allowed, any other overlap is not. Buffers from td_comm_alloc() are reduced
 *           straight from the peers' memory where ranks share a host.
 * Failure   After TD_EPEER, TD_ETIMEDOUT, TD_EMISMATCH or TD_EABORTED the contents of `out` are
 *           undefined and the communicator is poisoned, on all ranks: every later call returns the
 *           same status with the first cause. Destroy it.
 * Bits      Sums are taken in one fixed tree over ranks (0+1, 2+3, then pairs of pairs) by the
 *           algorithms that say "order-safe" in docs/algorithms.md, which are the default; the
 *           others, the rings, must be asked for and depend on the number of ranks. bf16 and f16
 *           are added in f32 and rounded after each addition. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_COLL_H
#define TD_COLL_H

#include "tandem/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct td_comm td_comm;
typedef struct td_work td_work;

#define TD_REDUCE_MAP(X) X(SUM, "sum") X(PROD, "prod") X(MIN, "min") X(MAX, "max") X(AVG, "avg")
typedef enum td_reduce_op {
#define X(id, name) TD_REDUCE_##id,
    TD_REDUCE_MAP(X)
#undef X
        TD_REDUCE_COUNT
} td_reduce_op;
TD_API const char *td_reduce_name(td_reduce_op op); /* "sum"; "?" for an unknown value */

/* Zero-initialise, then set what you need: zero always means "default". */
typedef struct td_comm_opts {
    const char *engine;    /* "native", "mpi"; NULL: mpi inside mpirun, else native. "nccl": as
                              native; gradients of ranks with a GPU each go through NCCL, or
                              training fails, which gives the reason */
    const char *transport; /* "shm", "tcp"; NULL picks by reach */
    const char *algo;    /* for all calls that do not name one; NULL: the cheapest order-safe one */
    const char *name;    /* for texts; "world" */
    uint32_t setup_ms;   /* to find the others; 30,000 */
    uint32_t timeout_ms; /* of a call; 300,000 */
    uint32_t stall_ms;   /* until a waiting call reports who is missing; 3,000 */
    const char *faults;  /* a fault schedule for tests: "seed=7,drop=0.01,delay=5ms,..." */
    int streams;         /* tcp connections per pair of ranks; 2 */
    bool checksum;       /* crc32c on tcp payloads */
} td_comm_opts;

/* The world, as the launcher's environment describes it (tandem launch, mpirun, srun, torchrun);
 * without one, a world of one rank. Blocks until all ranks have met. */
TD_NODISCARD TD_API td_status td_comm_world(const td_comm_opts *opts, td_comm **out);
/* A world of threads in this process: out[0..size). */
TD_NODISCARD TD_API td_status td_comm_threads(int size, const td_comm_opts *opts, td_comm **out);
/* Sub-groups: ranks that give the same color (>= 0) form one, ordered by (key, rank); color -1
 * joins none and gets NULL. Collective over `parent`. */
TD_NODISCARD TD_API td_status td_comm_split(td_comm *parent, int color, int key, td_comm **out);
TD_API void td_comm_destroy(td_comm *c); /* NULL is allowed; local, waits for nobody */
/* Wake every call in `c` with TD_EABORTED, here and, as TD_EPEER, on the other ranks. */
TD_API void td_comm_abort(td_comm *c, const char *why);

TD_API int td_comm_rank(const td_comm *c);
TD_API int td_comm_size(const td_comm *c);
TD_API const char *td_comm_transport(const td_comm *c); /* "shm" */

/* Registered memory: on one host, shared with the peers. Collective, same nbytes on all ranks;
 * zero-filled, page-aligned. Freed by td_comm_free (collective) or with the comm. */
TD_NODISCARD TD_API td_status td_comm_alloc(td_comm *c, size_t nbytes, void **out);
TD_API void td_comm_free(td_comm *c, void *p);

typedef struct td_coll_opts {
    const char *algo;    /* "direct", "ring", ...; NULL: the comm's, or the cheapest */
    size_t segment;      /* pipelining unit in bytes; tests make it tiny */
    uint32_t timeout_ms; /* 0: the comm's */
    td_work **work;      /* not NULL: start only; *work is owned by the caller until waited for */
} td_coll_opts;

/* opts may be NULL everywhere. Counts are elements. */
TD_NODISCARD TD_API td_status td_allreduce(td_comm *c, const void *in, void *out, size_t count,
                                           td_dtype dtype, td_reduce_op op,
                                           const td_coll_opts *opts);
TD_NODISCARD TD_API td_status td_reduce(td_comm *c, const void *in, void *out, size_t count,
                                        td_dtype dtype, td_reduce_op op, int root,
                                        const td_coll_opts *opts);
TD_NODISCARD TD_API td_status td_broadcast(td_comm *c, void *data, size_t count, td_dtype dtype,
                                           int root, const td_coll_opts *opts);
/* in has size * count elements; out gets this rank's count. */
TD_NODISCARD TD_API td_status td_reduce_scatter(td_comm *c, const void *in, void *out, size_t count,
                                                td_dtype dtype, td_reduce_op op,
                                                const td_coll_opts *opts);
/* out has size * count elements, in the order of ranks; in may lie in its place in out. */
TD_NODISCARD TD_API td_status td_all_gather(td_comm *c, const void *in, void *out, size_t count,
                                            td_dtype dtype, const td_coll_opts *opts);
/* Both have size * count elements; block i of in goes to rank i. Not in place. */
TD_NODISCARD TD_API td_status td_all_to_all(td_comm *c, const void *in, void *out, size_t count,
                                            td_dtype dtype, const td_coll_opts *opts);
TD_NODISCARD TD_API td_status td_coll_gather(td_comm *c, const void *in, void *out, size_t count,
                                             td_dtype dtype, int root, const td_coll_opts *opts);
TD_NODISCARD TD_API td_status td_coll_scatter(td_comm *c, const void *in, void *out, size_t count,
                                              td_dtype dtype, int root, const td_coll_opts *opts);
TD_NODISCARD TD_API td_status td_barrier(td_comm *c, const td_coll_opts *opts);
/* One message between two ranks. A send may have to wait for its receive: of two ranks that
 * exchange messages one must receive first, or both wait until the deadline. (That they run
 * asynchronously does not help: the calls of a comm run one after the other.) */
TD_NODISCARD TD_API td_status td_send(td_comm *c, const void *data, size_t count, td_dtype dtype,
                                      int peer, const td_coll_opts *opts);
TD_NODISCARD TD_API td_status td_recv(td_comm *c, void *data, size_t count, td_dtype dtype,
                                      int peer, const td_coll_opts *opts);

/* Wait for an asynchronous call and release it; its status. */
TD_NODISCARD TD_API td_status td_work_wait(td_work *w);
TD_API bool td_work_done(const td_work *w);

/* Who was last, and what it cost: seconds that this rank waited in collectives because of each
 * rank, by arrival times. out has td_comm_size() elements. */
TD_API void td_comm_blame(const td_comm *c, double *out);

#ifdef __cplusplus
}
#endif
#endif
