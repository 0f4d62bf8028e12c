/* fixed_ranks.h -- the one generation of a job whose ranks are fixed: a store in which they meet,
 * below that of another agent or as the root of the tree, and what each finds in its environment.
 *
 * The launcher decides it: READY tells it the store's address and a free port for each rank, GO
 * brings back where all ranks of the job live. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_LAUNCH_FIXED_RANKS_H
#define TD_LAUNCH_FIXED_RANKS_H

#include "launch/agent_spec.h"
#include "launch/rank_env.h"
#include "net/store.h"

typedef struct td__fixed_ranks {
    const td__agent_spec *s;
    td__store_server *store;
    int n_ports, *port; /* one per rank of this host, then, of the first agent, the master's */
    char *go;           /* a copy of what GO says, which the plan points into */
    const char **worker;
    td__rank_plan plan;
} td__fixed_ranks;

/* parent: address of the store above; "": this is the root. *f is all zero, and to be ended also if
 * this fails. */
TD_NODISCARD td_status td__fixed_ranks_init(td__fixed_ranks *f, const td__agent_spec *s,
                                            const char *parent);
void td__fixed_ranks_fini(td__fixed_ranks *f);
/* The body of TD_MSG_READY. */
void td__fixed_ranks_ready(const td__fixed_ranks *f, td__texts *out);
/* The body of TD_MSG_GO: f->plan is complete after it. */
TD_NODISCARD td_status td__fixed_ranks_begin(td__fixed_ranks *f, const td__msg *m);
/* The store above is lost: nobody else ends the ranks of a host that was cut off. */
bool td__fixed_ranks_cut_off(const td__fixed_ranks *f);

#endif
