/* supervise.h -- the supervisor of one attempt: a process of its own, in a session of its own, that
 * starts the attempt's processes, restarts those that may be restarted, and records the end. The
 * service may come and go meanwhile.
 *
 * It works in the attempt's directory:
 *
 *     spec      what to run, JSON; written by the tracker before the supervisor is started
 *     claim     "PID START BOOT": by whom; linked into place, so that one supervisor wins
 *     control   a FIFO: "stop", "kill", "restart RANK"
 *     started   all processes run
 *     events    a line each: "restart MEMBER WHY", "end MEMBER STATUS"
 *     log-N     output of member N
 *     beat-R    process R touches it (TANDEM_HEARTBEAT_FILE) to show that it makes progress
 *     artifacts the list, if the attempt succeeded
 *     status    "EXIT TEXT": its end; renamed into place */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_SERVICE_TRACK_SUPERVISE_H
#define TD_SERVICE_TRACK_SUPERVISE_H

#include <sys/types.h>

#include "tandem/status.h"

/* Run the attempt in `dir` to its end. TD_OK also if another supervisor has it. */
TD_NODISCARD td_status td__supervise(const char *dir);

/* Who has an attempt. */
typedef struct td__claim {
    pid_t pid;                /* 0: given up, nobody may start it any more */
    unsigned long long start; /* of the process, in ticks since boot */
    char boot[40];
} td__claim;

/* This process takes the attempt, or (pid 0) it is given up. *won false: it was taken before. */
TD_NODISCARD td_status td__claim_take(const char *dir, pid_t pid, bool *won);
/* false: nobody has taken it. */
bool td__claim_read(const char *dir, td__claim *out);
/* A descriptor that becomes readable when that process ends; -1 and ESRCH: it has ended; another
 * errno: there is none to be had now. */
int td__claim_open(const td__claim *c);

#endif
