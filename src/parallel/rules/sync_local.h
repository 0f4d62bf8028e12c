/* sync_local.h -- what the rules of local updates share. Each rank updates its own params with the
 * mean gradient of its own rows, by its own optimizer. Every tau steps, and whenever ranks meet (to
 * validate, to save, to change their number, at the end), they exchange params, and the rule says
 * what becomes of them:
 *
 *     merge    x, this rank's params, and what the rule keeps, from the mean of all ranks' params
 *     settle   at a meeting, after a merge: params that are the same on all ranks
 *
 * At a meeting they also come to the mean of the states of their optimizers.
 *
 * Running averages are treated as params, but what is frozen stays as it is: a mean of equal
 * numbers may be another one in its last bit. A merge comes after its step is counted, and changes
 * nothing before the mean is there: a rank that is lost then costs its own progress since the last
 * merge, and the others go on from the params of one of them.
 *
 * The kind of a step (td__sync_ops) says whether params are exchanged after it: its plan has the
 * exchange then, and it is made then. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PARALLEL_SYNC_LOCAL_H
#define TD_PARALLEL_SYNC_LOCAL_H

#include "parallel/step_plan.h"

typedef struct td__sync_local td__sync_local;

typedef struct td__local_ops {
    int blocks; /* that the rule keeps: 0 none, 1 the centre, 2 the momentum too */
    void (*merge)(td__sync_local *l, float *x);
    void (*settle)(td__sync_local *l, float *x); /* (optional) NULL: merge makes them the same */
} td__local_ops;

/* The struct of such a rule begins with this. */
struct td__sync_local {
    td__sync base;
    const td__local_ops *ops;
    int ranks;
    uint64_t step, merged;           /* under way; the last one with a merge, */
    uint64_t shared;                 /* and after which optimizers had the same state */
    size_t count;                    /* of the params block */
    size_t from, to;                 /* the part that is exchanged: all, unless the rule says */
    float *mean, *centre, *momentum; /* (count); the last two: what the rule keeps, or NULL */
    td__param_range *frozen;         /* (n_frozen) of the block */
    int n_frozen;
};

/* The option that all of them have. */
#define TD__LOCAL_TAU(steps)                                                                 \
    TD_KEY_ROW("tau", INT, "Steps between two exchanges of params.", .lo = 1, .hi = 1000000, \
               .def = steps)

/* Parts of a td__sync_ops. */
TD_NODISCARD td_status td__sync_local_create(td__sync *s, const td__local_ops *ops);
void td__sync_local_destroy(td__sync *s);
TD_NODISCARD td_status td__sync_local_check(const td__sync_config *c, const td__sync_job *j,
                                            const td__sync_world *w);
void td__sync_local_traits(const td__sync_config *c, const td__sync_world *w, td__sync_traits *out);
size_t td__sync_local_exchange(const td__sync_sizes *z);
TD_NODISCARD td_status td__sync_local_begin(td__sync *s, const td__sync_place *at);
TD_NODISCARD td_status td__sync_local_step(td__sync *s, double lr, td__step_result *out);
TD_NODISCARD td_status td__sync_local_gather(td__sync *s);
TD_NODISCARD td_status td__sync_local_meet(td__sync *s, td__sync_meet why);
int td__sync_local_states(td__sync *s, td__sync_block *out);
void td__sync_local_plan(td__planner *w);
int td__sync_local_kind(const td__sync_config *c, uint64_t step, uint64_t steps); /* by tau */

/* All of them, for the table of a rule; and of one that has further states, and says itself when
 * params are exchanged. */
#define TD__SYNC_LOCAL \
    TD__SYNC_LOCAL_STEPS, .kind = td__sync_local_kind, .states = td__sync_local_states
#define TD__SYNC_LOCAL_STEPS                                                                     \
    .check = td__sync_local_check, .traits = td__sync_local_traits,                              \
    .exchange = td__sync_local_exchange, .destroy = td__sync_local_destroy,                      \
    .begin = td__sync_local_begin, .step = td__sync_local_step, .gather = td__sync_local_gather, \
    .meet = td__sync_local_meet, .plan = td__sync_local_plan

/* Parts of a plan: a step of this rank alone; the mean of that many params. */
void td__local_plan_step(td__planner *w);
void td__local_plan_mean(td__planner *w, size_t count);
/* Who computes l->mean itself: x, this rank's params, is the mean of what is frozen. */
void td__local_keep_frozen(td__sync_local *l, const float *x);
/* Collective: find the mean, and merge. */
TD_NODISCARD td_status td__local_merge(td__sync_local *l);
/* Collective: all take the mean of the states of their optimizers. */
TD_NODISCARD td_status td__local_share_optimizer(td__sync_local *l);
/* A merge: params are the mean. A settle: they are the centre. */
void td__local_take_mean(td__sync_local *l, float *x);
void td__local_take_centre(td__sync_local *l, float *x);
/* A merge with the option beta: x <- x - beta/n (x - c), c <- c + beta (mean - c). */
void td__local_elastic(td__sync_local *l, float *x);

#endif
