/* decider.h -- who decides about the generations of a job, as the agent of a host sees it: of fixed
 * ranks the launcher (fixed_ranks.c), of elastic ranks the agents together (agreement.c). What is
 * decided goes to the workers of this host. One thread; nothing here waits. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_LAUNCH_DECIDER_H
#define TD_LAUNCH_DECIDER_H

#include "launch/agent_spec.h"
#include "launch/workers.h"

typedef struct td__decider td__decider;

/* The first four are borrowed. parent: address of the agent above; "": this is the first. lost is
 * set when the launcher is gone. Appends the body of TD_MSG_READY. */
typedef td_status td__decider_create(td__agent_spec *s, td__workers *w, bool *lost,
                                     const char *parent, td__texts *ready, td__decider **out);

typedef struct td__decider_ops {
    /* All agents are ready: the body of TD_MSG_GO. */
    TD_NODISCARD td_status (*begin)(td__decider *d, const td__msg *m);
    /* (optional, all three) Connections of its own. */
    int (*most_fds)(const td__decider *d);
    int (*poll)(td__decider *d, struct pollfd *p);
    void (*serve)(td__decider *d, const struct pollfd *p);
    /* After everything that has come was heard: an agent that was stopped for a while must not take
     * for silent those that spoke meanwhile. lead: it may decide something, if that is for this
     * agent to do. */
    TD_NODISCARD td_status (*tick)(td__decider *d, uint64_t now, bool lead);
    /* (optional) After the workers' tick: what the launcher and other agents are to know. */
    void (*say)(td__decider *d, uint64_t now);
    uint64_t (*deadline)(const td__decider *d); /* of the next tick */
    bool (*leads)(const td__decider *d);
    /* No process runs here any more: is this agent needed all the same? Ordered: to stop. Drained:
     * this host was asked to go. */
    bool (*needed)(const td__decider *d, bool ordered, bool drained);
    void (*destroy)(td__decider *d);
} td__decider_ops;

/* Every implementation begins with this. */
struct td__decider {
    const td__decider_ops *ops;
};

TD_NODISCARD td__decider_create td__fixed_ranks_create, td__agreement_create;

#endif
