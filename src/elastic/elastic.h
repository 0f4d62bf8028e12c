/* elastic.h -- the generations of a run: of ranks that come and go, or the one of fixed ranks.
 *
 * Every process holds the whole state of the run: weights, optimizer, schedule, position; or, by
 * the sync rule, shards of it, each of which a second process holds too (catch_up_shards.c). The
 * world is that of td__members (coll/members.h): a run is a loop over generations.
 *
 *   1. next       a comm of the ranks that are there now.
 *   2. catch up   All ranks exchange which step and validation they hold. Those with the newest
 *                 state send it to the others, from memory to memory; where several hold it, they
 *                 share the work. If no rank holds a state: the newest checkpoint on disk, or else
 *                 the beginning.
 *   3. run        The trainer's part (td__elastic_ops): rank 0, which may be another process now,
 *                 takes the lead; then steps until the run is over or the generation is to end.
 *   4. leave      When a call on the comm fails, or all agreed at a step's border that the
 *                 membership changes. All that knows the comm is dropped; programs, runners and
 *                 weights stay.
 *
 * A step is applied whole or not at all. A rank updates its params only after it has the sum of all
 * gradients; a rank that fails before that has the state of the step before. So when a generation
 * ends, every rank is at step s or s + 1, and those at s + 1 have the newest state. A state that is
 * received replaces the old one only when it is complete: a rank whose transfer fails still has its
 * old state.
 *
 * Fixed     Ranks that nobody replaces are one generation, which the environment or the program has
 *           made: no members, its comm stays the caller's. All begin with what rank 0 has, and any
 *           failure ends the run.
 * Failures  TD_EPEER, TD_ETIMEDOUT and TD_EABORTED of the comm end a generation. What this host
 *           alone lacks (memory, its disk, data that do not come in time) ends the part of this
 *           process, with a line about the cause. All others end the run: what is wrong with the
 *           job or its numbers is wrong on every rank, and the rank that finds it takes all others
 *           with it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_ELASTIC_ELASTIC_H
#define TD_ELASTIC_ELASTIC_H

#include <stdatomic.h>

#include "coll/members.h"
#include "elastic/replica.h"
#include "fault/faults.h"
#include "run/result.h"

/* How a run goes on after the step under way; the same on all ranks, but where it says so.
 *
 *     TRAINING -> ENDING -> STOPPING            too few ranks would be left
 *     TRAINING -> STOPPING                      the job, or a run of fixed ranks, is asked to stop
 *     TRAINING -> CHANGING or LEAVING           a generation ends, and with the next one:
 *     CHANGING, LEAVING -> TRAINING
 */
typedef enum td__run_phase {
    TD_RUN_TRAINING,
    TD_RUN_ENDING,   /* rank 0 alone: it tells all, with the next step, that the run is to stop */
    TD_RUN_CHANGING, /* the generation ends: the membership changes */
    TD_RUN_LEAVING,  /* the same, on a rank that was asked to stop: it goes, the others go on */
    TD_RUN_STOPPING  /* the run ends here, as was asked for */
} td__run_phase;

/* The ranks that train together now. */
typedef struct td__world {
    td_comm *comm;   /* NULL: this process is alone, or between two generations */
    int rank, ranks; /* of the last generation */
    uint64_t generation;
    td__run_phase phase;
} td__world;

/* What the trainer (train/trainer.h), unknown here, does in a generation. */
typedef struct td__trainer td__trainer;
typedef struct td__elastic_ops {
    /* Fixed ranks: all get what rank 0 has. Collective. */
    td_status (*begin)(td__trainer *t);
    /* The ranks are at the same moment: go on until *over (the run is) or the generation ends. */
    td_status (*run)(td__trainer *t, td__train_result *out, bool *over);
    /* The generation is over, its comm is about to go: drop all that knows it, but what an update
     * that others may have made still needs (prepared). */
    void (*end)(td__trainer *t);
    /* Drop that too. */
    void (*close)(td__trainer *t);
    /* Has this rank failed in a step for whose update it misses nothing? If others have made it:
     * make it too. Local. */
    bool (*prepared)(td__trainer *t);
    td_status (*forward)(td__trainer *t);
    /* Has this rank the options of rank `root`? TD_EINVAL names one that differs. Collective. */
    td_status (*agree)(td__trainer *t, int root);
    /* replica.shards for the world's ranks. */
    td_status (*join)(td__trainer *t);
    /* The first values of all params, or of those that are held. */
    td_status (*fill)(td__trainer *t);
    /* Rank 0: replica.state is that of the newest checkpoint, if there is one, and so are the
     * blocks; where they are sharded, all ranks then load them together. Found too: first weights
     * that other ranks cannot make. */
    td_status (*find)(td__trainer *t, bool *found);
    /* resumed: from that checkpoint; else rank 0's first values. */
    td_status (*load)(td__trainer *t, bool resumed);
    /* Steps that rank 0 has reported are about to happen again. */
    void (*rewind)(td__trainer *t);
    /* Rank 0 goes: what it has begun to write is finished, before another one writes. */
    void (*hand_lead)(td__trainer *t);
    /* Was this rank outvoted on what it computed? */
    bool (*outvoted)(td__trainer *t);
    void (*heartbeat)(td__trainer *t, td__phase phase, const char *what, const char *about);
    /* From here on the agent may ask what this rank does, or no longer. */
    void (*explains)(td__trainer *t, bool does);
} td__elastic_ops;

/* All borrowed. */
typedef struct td__elastic {
    td__replica *replica;
    td__world *world;
    td__members *members; /* NULL: the ranks are fixed */
    td__faults *faults;   /* NULL: none */
    const atomic_int *stop;
    const td_optim_opts *optim;
    td__worlds worlds; /* what ranks hold */
    /* What is held whole (parallel/ownership.h) is another on each rank between meetings: where a
     * rank is lost, so is its part of it. */
    bool unlike;
    uint32_t agreement; /* crc32c of what all ranks must have in common */
    /* Where there are several ranks, the sync rule has them hold optimizer state, and params, in
     * shards. */
    bool sharded, sharded_params;
    bool own_params; /* ranks at the same step may differ: all go on from one of them */
    const td__elastic_ops *ops;
    td__trainer *trainer;
} td__elastic;

/* All generations. */
TD_NODISCARD td_status td__elastic_run(td__elastic *e, td__train_result *out);

/* Does this failure of a comm end a generation rather than the run? */
static inline bool td__elastic_survives(td_status st)
{
    return st == TD_EPEER || st == TD_ETIMEDOUT || st == TD_EABORTED;
}

/* Will this process be without a place in the next generation? */
bool td__elastic_goes(const td__elastic *e);

/* Has a wait for this host's disk or data timed out, and not one for a peer? Keeps the last error.
 */
bool td__elastic_is_local(td_comm *comm, td_status st);

#endif
