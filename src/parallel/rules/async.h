/* async.h -- what rules share whose ranks are not in step: each makes its updates at its own pace,
 * and messages (coll/post.h) come and go beside them. A rule is made from
 *
 *     told      a message of another rank has come
 *     exchange  (optional) every tau steps, and before ranks meet
 *     come      at a meeting, when all have arrived and all their messages have: params that are
 *               the same on all ranks. Collective
 *
 * Ranks do the same number of steps. They wait for all others at meetings, and in the step that
 * follows one, in which they tell each other losses and requests as ranks in lockstep do in each. A
 * request in another step (to stop) makes ranks halt: each tells the others which step it has done
 * and waits for theirs, and all go on to the furthest of these, which they end together. If a rank
 * has arrived at a meeting meanwhile, the request waits until after it.
 *
 * The order in which messages are applied is recorded (async_order.h): a rule says so with
 * td__async_note. In a replay, td__async_follows, it waits for the message that is next there.
 *
 * Every wait is told to the comm (td__comm_says), for stall reports, and has its deadline. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PARALLEL_ASYNC_H
#define TD_PARALLEL_ASYNC_H

#include "coll/post.h"
#include "parallel/rules/async_order.h"
#include "parallel/rules/sync_local.h"

typedef struct td__async td__async;

/* Kinds of messages that are the rules' own begin here. */
enum { TD__ASYNC_OWN = 16 };

typedef struct td__async_ops {
    td__local_ops local; /* blocks that the rule keeps */
    /* With the post's lock, on its thread. */
    td_status (*told)(td__async *a, int from, const td__post_head *h, td__post_bytes *b);
    /* (optional) A rank is away, or halts, and a replay may be left; the same. */
    td_status (*changed)(td__async *a);
    td_status (*exchange)(td__async *a);
    td_status (*come)(td__async *a);
    /* (optional) The gradients of this rank's rows, before they are applied; after they were. */
    td_status (*share)(td__async *a, const td__grad_share *own);
    td_status (*applied)(td__async *a, double lr);
} td__async_ops;

/* The struct of such a rule begins with this. */
struct td__async {
    td__sync_local base;
    const td__async_ops *ops;
    td__post *post; /* NULL: alone, or there was no beginning yet */
    int rank;
    /* With the post's lock. Of each rank: meetings that it has come to, halts and their steps. */
    uint64_t *arrivals, *halts, *halted_at;
    uint64_t meetings, rounds; /* over here */
    /* This rank's: its halts; the step to be ended together. */
    uint64_t halted, target;
    bool together, muted;
    double age_sum, age_most; /* of what came since it was last told */
    int ages;
    td__async_order order; /* with the post's lock */
    uint64_t met;          /* step of the last meeting, or 0 */
    bool again;            /* there was no step since: this one is no part of the order */
};

TD_NODISCARD td_status td__async_create(td__sync *s, const td__async_ops *ops);
void td__async_destroy(td__sync *s);
/* fits: of the config's rule, for a replay (td__async_order_check). */
TD_NODISCARD td_status td__async_check(const td__sync_config *c, const td__sync_job *j,
                                       const td__sync_world *w,
                                       bool (*fits)(const td__sync_config *c,
                                                    const td__async_part *p));
void td__async_traits(const td__sync_config *c, const td__sync_world *w, td__sync_traits *out);
TD_NODISCARD td_status td__async_begin(td__sync *s, const td__sync_place *at);
TD_NODISCARD td_status td__async_step(td__sync *s, double lr, td__step_result *out);
TD_NODISCARD td_status td__async_gather(td__sync *s);
TD_NODISCARD td_status td__async_meet(td__sync *s, td__sync_meet why);
int td__async_notes(td__sync *s, td__step_note *out); /* mean and largest age */
void td__async_abandon(td__sync *s, const char *why);
bool td__async_told(td__sync *s, td__order_event *out);
/* Exchanges of a rank in a part of a run: every tau steps, and before a meeting. */
uint64_t td__async_exchanges(const td__sync_config *c, const td__async_part *p);

/* A message of rank `from` is applied. With the post's lock. */
TD_NODISCARD static inline td_status td__async_note(td__async *a, int from)
{
    return a->post ? td__async_order_add(&a->order, from) : TD_OK;
}
static inline bool td__async_follows(const td__async *a)
{
    return a->order.follows; /* the same */
}
/* What came is `age` updates behind. With the post's lock, or where messages do not call it. */
void td__async_age(td__async *a, double age);
/* Wait with the post's lock; told to the comm. */
TD_NODISCARD td_status td__async_wait(td__async *a, bool (*ready)(void *user), void *user,
                                      const char *what);
/* Is this rank at a meeting that is not over here? With the post's lock. */
bool td__async_away(const td__async *a, int rank);
/* Ranks are on their way to a step that they end together: who waits for one that is there already
 * would wait forever, so nobody waits for others. The same. */
bool td__async_hurries(const td__async *a);
/* Params from the centre, which is the same on all ranks. */
TD_NODISCARD td_status td__async_take_centre(td__async *a);

#endif
