/* comm_impl.h -- what a communicator is, for the files of this layer: those that make one from
 * meshes (comm_threads.c, comm_setup.c, the MPI module), that watch it (watchdog.c), and that carry
 * out its calls.
 *
 * A comm owns its meshes. Beside them ranks have a side channel, used only when something is wrong:
 * `tell` sends a line to all other ranks, and who receives one calls td__comm_told. Four
 * lines belong to the comm itself:
 *
 *     poison STATUS TEXT                 the sender's comm failed; this is the first cause
 *     ask SEQUENCE DIGEST PEER CALL      the sender waits in this call; are you in another?
 *     differ SEQUENCE DIGEST PEER CALL   the same, after a message that did not fit
 *     probe ...                          does a circle of ranks wait? (crossed.h)
 *
 * PEER is the other rank of a send or receive, else -1.
 *
 * Threads   Calls run on one thread at a time: the caller's, or the comm's worker once there is
 *           asynchronous work. poison, told and activity may come from any thread. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_COLL_COMM_IMPL_H
#define TD_COLL_COMM_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "coll/comm.h"
#include "coll/crossed.h"
#include "net/poison.h"

struct td__comm_parts;

/* What the maker of a comm does for it; all but `user` are optional. */
typedef struct td__comm_hooks {
    void *user;
    /* Send a line (at most TD_COMM_LINE bytes) to all other ranks. Any thread; must not block for
     * long, and may call td__comm_told of comms in this process. */
    void (*tell)(void *user, const char *line);
    /* Return when all that other ranks told before this call, and the news of those that died
     * before it, has come; or when time is up. */
    void (*settle)(void *user, td__deadline until);
    /* The comm is made: td__comm_told and td__comm_poison may be called from now on. */
    void (*attach)(void *user, td_comm *c);
    /* The comm is going: stop calling td__comm_told and td__comm_poison before returning. Called
     * before the meshes are destroyed. */
    void (*detach)(void *user);
    /* Meshes (and hooks) for the sub-group of ranks[0..n) of the parent, of which this rank is
     * member `me`. Collective over the members; `key` is the same on all of them and new each
     * time. */
    td_status (*split)(void *user, td_comm *parent, const int *ranks, int n, int me,
                       const char *key, td__deadline until, struct td__comm_parts *out);
    /* The comm is poisoned: end a split of it that is under way. Any thread, not for long. */
    void (*interrupt)(void *user, td_status st, const char *text);
    /* Another engine: carries out a call instead of the algorithms of algos.def. */
    td_status (*run)(void *user, td_comm *c, const td__coll_call *call);
} td__comm_hooks;

typedef struct td__comm_parts {
    int rank, size;
    td__mesh *mesh, *local, *hosts; /* as in td__coll_ctx; all NULL for an engine of its own */
    const int *host_of;             /* (size), copied; NULL: one host */
    double gamma; /* seconds per byte reduced; 0: measured, which is collective over mesh */
    const char *transport; /* NULL: the name of mesh */
    bool tls;              /* what leaves a host is encrypted */
    td__comm_hooks hooks;
} td__comm_parts;

/* A comm from ready meshes. With gamma == 0 and more than one rank this is collective: the numbers
 * of the cost model are those of rank 0. Takes the meshes and hooks on success; on failure they
 * stay the caller's. opts may be NULL. */
TD_NODISCARD td_status td__comm_assemble(const td__comm_parts *parts, const td_comm_opts *opts,
                                         td_comm **out);
/* Seconds per byte of a sum in cache on this processor; takes a fraction of a millisecond. */
double td__reduce_measure(void);

enum { TD_COMM_LINE = 512 };

/* A line from rank `from`; false if it is none of the comm's own. Any thread. */
bool td__comm_told(td_comm *c, int from, const char *line);

/* What this rank is doing. */
enum { TD_COMM_WAITING = 8 };
typedef struct td__comm_activity {
    bool in_call;      /* false: computing since since_ns, after the call described */
    uint64_t since_ns; /* td__clock_ns() */
    uint64_t sequence; /* 0: no call yet */
    uint32_t digest;
    td__coll kind;
    size_t count;
    td_dtype dtype;
    td_reduce_op op;
    int root;
    const char *algo;             /* a name of algos.def; "" for another engine */
    int n_waiting;                /* ranks that have been waited for since a while; may be more */
    int waiting[TD_COMM_WAITING]; /* the first of them */
    unsigned looks;               /* in this call that found nothing of them (TD_COMM_LOOK_MS) */
} td__comm_activity;

/* A consistent snapshot, without a lock. Any thread, as long as the comm lives. */
void td__comm_activity_get(const td_comm *c, td__comm_activity *out);
/* "allreduce #7 (1024 f32 sum, direct)" */
char *td__comm_activity_text(const td__comm_activity *a, char *buf, size_t nbytes);

/* What the program that uses the comm says of itself, for the stall report. Atomic, so that any
 * thread may look; texts are constants, or live as long as the comm. */
typedef struct td__comm_note {
    atomic_uint phase;               /* td__phase */
    _Atomic uint64_t step, since_ns; /* since_ns 0: nothing was said */
    _Atomic(const char *) what;
    atomic_int bucket;            /* of the calls that follow, from 1; 0: none */
    _Atomic(const char *) tensor; /* the first in it */
} td__comm_note;

/* One call of the recent past; fields are atomic so that any thread may look (activity.c). */
typedef struct td__comm_slot {
    atomic_uint version; /* odd while being written */
    atomic_bool in_call;
    atomic_int kind, dtype, op, root, n_waiting, waiting[TD_COMM_WAITING];
    atomic_uint digest, looks;
    _Atomic uint64_t since_ns, sequence, count;
    _Atomic(const char *) algo;
} td__comm_slot;
enum { TD_COMM_HISTORY = 16 };

/* Memory of td_comm_alloc. */
typedef struct td__region {
    struct td__region *next;
    td__mesh *mesh; /* that shares it; NULL: private */
    void *mine;
    void **base; /* (mesh->size); of private memory, the block that `mine` lies in */
    size_t nbytes;
    uint64_t id;
} td__region;

/* The region, shared with peers, that holds [p, p + nbytes); NULL: the memory is private. */
const td__region *td__comm_region(const td_comm *c, const void *p, size_t nbytes);

/* The last choice for a collective: training makes the same calls over and over. */
typedef struct td__choice {
    const td__algo *algo; /* NULL: none yet */
    size_t count, segment;
    td_dtype dtype;
    td_reduce_op op;
    int root;
} td__choice;

typedef struct td__queue td__queue; /* asynchronous work (work.c) */

enum { TD_VIGIL_NONE, TD_VIGIL_CALLS }; /* vigil.h */

struct td_comm {
    int rank, size;
    td__coll_ctx ctx;
    td__comm_hooks hooks;
    char name[48], transport[16];
    char engine[8]; /* asked for; "" */
    bool tls, nccl; /* nccl: it was asked whether its ranks can have NCCL (nccl/nccl.h) */
    char algo[256]; /* of calls that name none: "ring" or "allreduce=ring,broadcast=chain"; "" */
    uint32_t timeout_ms, stall_ms;
    int *host_of;            /* (size) or NULL */
    _Atomic double *blame_s; /* (size) seconds; written by the thread that runs calls */
    td__xfer *xfers;         /* TD_COLL_XFERS(size), for the algorithms */
    const void **parts;      /* (size), for the algorithms */
    uint64_t *p2p;           /* (2 * size) messages so far: sent to, received from each rank */
    uint64_t sequence;
    uint64_t splits;
    td__choice choices[TD_COLL_COUNT]; /* (choose.c) */
    td__region *regions;
    td__queue *queue;
    td__points *points;    /* NULL: nobody counts calls */
    td__comm_guard *guard; /* NULL: any call may be made */

    td__crossed crossed;
    td__poison poison;
    pthread_mutex_t lock; /* with `poisoned`: waiting for the first cause; protects told_* */
    pthread_cond_t poisoned;
    atomic_bool told; /* told_* hold a call that this rank has not reached yet */
    int told_from;
    uint64_t told_sequence;
    uint32_t told_digest;
    char told_text[160];

    _Atomic uint64_t vigil; /* TD_VIGIL_*, or since when this rank waits outside of calls */
    atomic_bool unanswered; /* it has ended by that */
    td__comm_note note;
    atomic_uint slot; /* of the current or last call */
    td__comm_slot slots[TD_COMM_HISTORY];
};

/* "data at step 17 since 3.1 s: samples"; "" if nothing was said. */
char *td__comm_note_text(const td_comm *c, char *buf, size_t nbytes);

/* activity.c: used by the thread that runs calls. */
void td__comm_enter(td_comm *c, const td__coll_call *call, const char *algo, uint32_t digest,
                    uint64_t now_ns);
void td__comm_leave(td_comm *c, uint64_t now_ns);
/* The last call goes on: something more is done for it. */
void td__comm_reenter(td_comm *c, uint64_t now_ns);
/* This rank waits for the peers of the transfers that are not done; n == 0: for nobody. */
void td__comm_waiting(td_comm *c, const td__mesh *m, const td__xfer *x, int n);
/* This rank waits for all others that m joins, one of which it cannot name. */
void td__comm_waiting_all(td_comm *c, const td__mesh *m);
/* It looked for what they send, waited for TD_COMM_LOOK_MS (or the stall time, if that is less),
 * and nothing came. Called after each look. */
void td__comm_looked(td_comm *c);
enum { TD_COMM_LOOK_MS = 100 };
static inline uint64_t td__comm_look_ns(const td_comm *c)
{
    return 1000000u * (uint64_t)(c->stall_ms < TD_COMM_LOOK_MS ? c->stall_ms : TD_COMM_LOOK_MS);
}
/* The call in the history with this sequence; false: too old or not reached. Any thread. */
bool td__comm_history(const td_comm *c, uint64_t sequence, td__comm_activity *out);
/* The same for a message (TD_COLL_SEND or TD_COLL_RECV) to or from `peer`. */
bool td__comm_history_p2p(const td_comm *c, td__coll kind, int peer, uint64_t sequence,
                          td__comm_activity *out);

/* call.c: run one call now, on this thread; work.c: in order, on the worker. */
td_status td__comm_run(td_comm *c, td__coll_call *call);
td_status td__comm_submit(td_comm *c, td__coll_call *call, td_work **work);
/* Wait until all work submitted before is done. */
void td__comm_drain(td_comm *c);
void td__queue_destroy(td__queue *q); /* joins the worker; NULL is allowed */

/* A collective call of which this rank's part is `carry` instead of an algorithm: numbered, seen by
 * the watchdog, compared with the other ranks' and ended as all calls are. kind, count and dtype
 * are set, and op; by: who carries it out. When `carry` fails, the first cause may be elsewhere,
 * and is what this returns: `carry` has told nobody. While it waits it calls td__comm_looked. */
typedef td_status td__comm_carry(void *user, td__deadline until);
TD_NODISCARD td_status td__comm_carried(td_comm *c, td__coll_call call, const char *by,
                                        td__comm_carry *carry, void *user);

/* Tell all other ranks which call this one is in; a rank in another one answers with poison. */
void td__comm_ask(td_comm *c);
void td__comm_differ(td_comm *c);
/* Wait a moment for a first cause from elsewhere; true if there is one. */
bool td__comm_await_poison(td_comm *c, unsigned ms);
/* The comm is poisoned, and the call under way gives its buffers back: from here on no transfer of
 * it touches them, also one that a peer has just begun. Whoever set the poison may not have come to
 * the meshes yet. For the thread that runs calls. */
void td__comm_let_go(td_comm *c);
/* call.c: something of the comm failed with `st` and this thread's last error. Waits a moment for
 * the first cause, which may be elsewhere, poisons all ranks and returns what they have. */
td_status td__comm_failed(td_comm *c, td_status st);
/* After td__comm_enter: has a rank that came earlier told another call of this number? */
void td__comm_compare_told(td_comm *c);
/* The rank in the comm of a peer of one of its meshes. */
int td__coll_rank_of(const td__coll_ctx *x, const td__mesh *m, int peer);

/* choose.c */
td_status td__algo_choose(const td__coll_ctx *x, const td__coll_call *call, const td__algo **out);
/* Checks "ring" or "allreduce=ring,broadcast=chain". */
td_status td__algo_check(const char *text);

/* Seconds that this rank lost because `rank` came late. For the thread that runs calls. */
static inline void td__comm_blame(td_comm *c, int rank, uint64_t ns)
{
    double s = atomic_load_explicit(&c->blame_s[rank], memory_order_relaxed);
    atomic_store_explicit(&c->blame_s[rank], s + 1e-9 * (double)ns, memory_order_relaxed);
}

#endif
