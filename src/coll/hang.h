/* hang.h -- why does a rank not go on? What it says it is doing, and one word for what holds it up:
 * the classes of the hang report.
 *
 *     dead      its process is gone
 *     stopped   by a signal or a debugger
 *     data      it waits for samples
 *     disk      it reads or writes files, or its process sleeps in the kernel for a device
 *     network   it waits for other ranks, or cannot be reached
 *     compute   none of these: it runs */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_COLL_HANG_H
#define TD_COLL_HANG_H

#include "tandem/status.h"

/* What a process is doing, for heartbeats, `tandem status` and the hang report. */
#define TD_PHASE_MAP(X)   \
    X(START, "start")     \
    X(DATA, "data")       \
    X(COMPUTE, "compute") \
    X(COMM, "network")    \
    X(DISK, "disk")       \
    X(IDLE, "idle")
typedef enum td__phase {
#define X(id, name) TD_PHASE_##id,
    TD_PHASE_MAP(X)
#undef X
        TD_PHASE_COUNT
} td__phase;

#define TD_HANG_MAP(X)    \
    X(DEAD, "dead")       \
    X(STOPPED, "stopped") \
    X(DATA, "data")       \
    X(DISK, "disk")       \
    X(NETWORK, "network") \
    X(COMPUTE, "compute")
typedef enum td__hang {
#define X(id, name) TD_HANG_##id,
    TD_HANG_MAP(X)
#undef X
        TD_HANG_COUNT
} td__hang;

/* What a rank is at: from its heartbeat, or from what the program says to its comm. */
typedef struct td__doing {
    unsigned phase;    /* td__phase */
    const char *what;  /* "gradients"; "" or NULL: nothing more is known */
    const char *about; /* of that: "allreduce, bucket 2 from fc1.weight"; "" or NULL: nothing */
    uint64_t step;
    double seconds; /* for so long */
} td__doing;
/* "network: gradients (allreduce, bucket 2 from fc1.weight) at step 17 for 3.1 s" */
char *td__doing_text(const td__doing *d, char *buf, size_t nbytes);

const char *td__phase_name(unsigned phase); /* "?" for one that is none */
const char *td__hang_name(td__hang h);

/* Of /proc/PID/stat, the letter and the flags of <linux/sched.h>; false: there is no such process.
 * Only for processes of this host. */
enum { TD_PROCESS_EXITS = 0x4, TD_PROCESS_KERNEL = 0x200000 };
bool td__process_stat(int pid, char *state, unsigned *flags);
/* That letter; 0: there is no such process. */
char td__process_state(int pid);
/* A child that is not reaped yet: is it dead, or on its way? Nothing of it runs any more then,
 * though its end cannot be waited for yet, and some of its connections may be closed. false also if
 * /proc does not tell. */
bool td__process_ends(int pid);
/* state: that letter, or '?' for a process of another host. */
td__hang td__hang_class(char state, unsigned phase);

#endif
