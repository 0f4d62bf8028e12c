/* spawn.h -- processes of a launch: started so that they cannot outlive their parent; and those
 * that are meant to. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_LAUNCH_SPAWN_H
#define TD_LAUNCH_SPAWN_H

#include <sys/resource.h>
#include <sys/types.h>

#include "base/config.h"
#include "tandem/status.h"

typedef struct td__child {
    pid_t pid;        /* also its process group */
    int pidfd;        /* readable when it has ended */
    int in, out, err; /* our ends of its pipes; -1: none */
} td__child;

typedef struct td__spawn_opts {
    char *const *env;           /* NULL: ours */
    bool pipe_in;               /* else /dev/null */
    bool share_out;             /* its standard output is ours, of whichever group it is */
    int keep;                   /* a descriptor that stays open in it; 0: none */
    int log;                    /* both outputs go to this descriptor; 0: to pipes */
    const char *dir;            /* its working directory; NULL: ours */
    int death_signal;           /* what it gets when we die */
    const struct rlimit *files; /* its limit of open files; NULL: ours */
} td__spawn_opts;

/* Run argv; a program that cannot be run writes one line to its standard error and exits with
 * 127. */
TD_NODISCARD td_status td__spawn(const char *const *argv, const td__spawn_opts *o, td__child *out);

/* Run argv (argv[0] is a path) in a session of its own, without descriptors of ours, its output
 * appended to a file. It goes on when we end. *pidfd is readable when it has ended, and is the
 * caller's; a program that cannot be run exits with 127. */
TD_NODISCARD td_status td__spawn_detached(const char *const *argv, const char *log, int *pidfd);

/* Once pidfd is readable: kill what is left of its group, reap it. Its exit status, 128 + N for
 * signal N. */
int td__child_reap(td__child *c);
/* Has it ended by a signal? Not yet reaped. */
bool td__child_killed(const td__child *c);
/* Closes descriptors; does not wait. */
void td__child_close(td__child *c);

/* Kill every process whose environment has TANDEM_JOB=job, and `var` (the agent's store or socket)
 * with this value: those that ranks of one agent left behind. Another agent of the job may run on
 * the same machine. */
void td__kill_marked(const char *job, td__env var, const char *value);

#endif
