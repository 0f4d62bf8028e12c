/* comm.h -- what the layers above ask of a communicator besides its calls (tandem/coll.h). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_COLL_COMM_H
#define TD_COLL_COMM_H

#include "base/point.h"
#include "coll/algo.h"

/* td_comm_split with a timeout_ms and a stall_ms of the group's own; 0: the parent's. opts may be
 * NULL, and is the same on all members. */
TD_NODISCARD td_status td__comm_split_with(td_comm *parent, int color, int key,
                                           const td_comm_opts *opts, td_comm **out);

/* End this comm here: the first cause wins, waits on its meshes are interrupted, and every call
 * returns it. poison_all also tells the other ranks, for whom TD_EABORTED becomes TD_EPEER. Any
 * thread. */
void td__comm_poison(td_comm *c, td_status st, const char *text);
void td__comm_poison_all(td_comm *c, td_status st, const char *text);
/* Why it is, as its calls return it from then on; TD_OK: it is not. Any thread. */
TD_NODISCARD td_status td__comm_cause(td_comm *c);
/* From now on every call passes p, which is borrowed; what fails there fails the call. Between
 * calls. */
void td__comm_points(td_comm *c, td__points *p);
td__points *td__comm_points_of(const td_comm *c);

/* Knows which calls are to come (parallel/plan_follow.h): asked before each, on the thread that
 * makes it. A failure ends the comm on all ranks. */
typedef struct td__comm_guard td__comm_guard;
struct td__comm_guard {
    td_status (*call)(td__comm_guard *g, const td__coll_call *call);
};
/* From now on; g is borrowed, NULL: nobody is asked. Between calls. */
void td__comm_set_guard(td_comm *c, td__comm_guard *g);

/* vigil.h: from now on, who a call of this comm waits for is to answer the watchdog; begin and end
 * a wait for all its other ranks that is no call. Has it ended because one did not answer? */
void td__comm_keep_vigil(td_comm *c);
void td__comm_await(td_comm *c, bool begins);
bool td__comm_unanswered(td_comm *c);

/* activity.c: what the program does from now on (what may be NULL); what its calls are about. c may
 * be NULL. */
void td__comm_says(td_comm *c, unsigned phase, uint64_t step, const char *what);
void td__comm_about(td_comm *c, int bucket, const char *tensor);
/* "allreduce, bucket 2 from fc1.weight": the call under way; false: none is. Any thread, while the
 * comm lives. */
bool td__comm_now(const td_comm *c, char *out, size_t max);

/* The host of every rank, (size); NULL: there is one host. */
const int *td__comm_host_of(const td_comm *c);
uint32_t td__comm_timeout_ms(const td_comm *c); /* of one call */
const char *td__comm_engine(const td_comm *c);  /* asked for: "nccl"; "": none */
bool td__comm_tls(const td_comm *c);            /* must what leaves a host be encrypted? */
/* Was an algorithm named for it, rather than chosen by cost? */
bool td__comm_names_algo(const td_comm *c);
/* Can all its ranks map memory of td_comm_alloc? */
bool td__comm_shares(const td_comm *c);
/* Memory that td_comm_alloc gave this rank as p: where that of every rank is mapped here, (size);
 * NULL: it is not shared by all of them. */
void *const *td__comm_shared(const td_comm *c, const void *p);
/* A rank that waits for a message sleeps at once (patient), or spins for a while first. */
void td__comm_set_patient(td_comm *c, bool patient);
/* Can `algo` carry out the call on this comm? */
bool td__comm_can(const td_comm *c, const td__algo *algo, const td__coll_call *call);

#endif
