/* launch.h -- starting the ranks of a program on one host or many, and seeing them to their end.
 *
 *     launcher --- agent on host a --- ranks 0 .. 3
 *          \------ agent on host b --- ranks 4 .. 7
 *
 * The launcher starts one agent per host (a child of its own here, through ssh elsewhere) and talks
 * to it over a pair of pipes (message.h): what to run goes down, output and exits come up. The
 * first agent hosts the root of the rendezvous store, the others a store below it, in a tree. An
 * agent starts its ranks, each in a process group of its own, and passes on their output line by
 * line.
 *
 * End       When a rank fails, the others get SIGTERM, and SIGKILL after the grace time. The
 *           launcher's end closes the agents' pipes, which makes them kill their ranks; an agent's
 *           end kills its ranks through PR_SET_PDEATHSIG. Processes that the ranks started go with
 *           their process group, and those that left it are found by TANDEM_JOB in their
 *           environment.
 * Trust     The secret travels in the pipes only; ranks read it from a file of the agent's own
 *           (TANDEM_SECRET_FILE), which vanishes with it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_LAUNCH_LAUNCH_H
#define TD_LAUNCH_LAUNCH_H

#include "launch/foreign/http.h"
#include "tandem/status.h"

enum {
    TD_LAUNCH_CAUSE = 512,
    /* Signals this close together are one: timeout(1) sends its own to the program and then to its
     * group, which is not somebody in a hurry. */
    TD_SIGNAL_MS = 250
};

typedef struct td__launch_opts {
    int size;               /* ranks; 0: as many as the hosts have slots */
    const char *hosts;      /* "a:4,b:4"; NULL: this host */
    const char *hosts_file; /* a line "a slots=4" or "a:4" each; instead of hosts */
    const char *ssh;        /* "ssh -p 2222"; called with host, program, "agent"; NULL: ssh */
    const char *self;       /* path of the program on other hosts; required with hosts */
    const char *listen;     /* address of the first host for the others; NULL: by route */
    const char *log_dir;    /* a file rank-N.log for each rank; NULL: none */
    const char *const *env; /* "K=V" for all ranks */
    int n_env;
    uint32_t grace_ms; /* between SIGTERM and SIGKILL; 5,000 */
    /* An elastic launch, if most > 0: ranks come and go, and those that fail are replaced. Needs
     * programs that hold a td__members (coll/members.h). size is not looked at. */
    int min_ranks, most;   /* ranks */
    bool capped;           /* orders may not ask for more than `most` */
    int spares;            /* processes that wait for a place */
    int crashes;           /* failures in a row without a step forward that end the job; 5 */
    uint32_t heartbeat_ms; /* between signs of life; 200 */
    uint32_t lease_ms;     /* silence that counts as death; 1,000 */
    uint32_t hang_ms;      /* without a step forward that is a hang; UINT32_MAX: none; 240,000 */
    /* fixed: ranks from this one on may be killed, and the others go on; when those before it have
     * ended, they are, after the grace time; 0: none may */
    int lossy_from;
    const td__foreign_http *http; /* for programs that need such a server; NULL: there is none */
    const char
        *framework;    /* fixed: whose programs these are (foreign/foreign.h); NULL: no matter */
    const char *roles; /* fixed: what ranks are for one another (roles.h); NULL: all are workers */
    int restarts;      /* fixed: so often all are started again after one failed; 0 */
    /* fixed, if > 0: their number may be another one in each generation (a world), from this one up
     * to `size`, as hosts come and go; what else changes it begins the next generation too */
    int min_world;
    /* Set by the launcher: agents at the start; fixed: the generation, from 1, and the run that the
     * last one was at. */
    int n_first, generation, failures;
    const char *resume;
    const char
        *control; /* a file that says where the job takes orders; NULL: in the run's folder */
    char *cause;  /* (TD_LAUNCH_CAUSE) receives why the job failed, "": it did not; may be NULL */
    bool tls;
    bool plain;    /* lines of rank 0 as they are, and it says itself why ranks failed */
    bool terminal; /* our standard output is one, and the ranks of this host write to it themselves:
                      for programs of which one rank writes, and draws */
    int out, err;  /* descriptors for the ranks' output: 1, 2 */
} td__launch_opts;

/* Is there room for the elastic ranks of o? So that nothing is made for a job that cannot start. */
TD_NODISCARD td_status td__launch_check(const td__launch_opts *o);
/* Run argv (NULL-terminated) in all ranks and wait for their end. *exit_status: 0, or that of the
 * first rank that failed (128 + N for signal N), or 128 + N if the launcher got signal N. A status
 * other than TD_OK: the job could not be started. */
TD_NODISCARD td_status td__launch_run(const td__launch_opts *o, const char *const *argv,
                                      int *exit_status);

/* The agent of one host: speaks with its launcher over these descriptors until the job ends. http:
 * see td__launch_opts. */
TD_NODISCARD td_status td__agent_run(int in, int out, const td__foreign_http *http);

#endif
