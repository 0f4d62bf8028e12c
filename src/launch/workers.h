/* workers.h -- the processes of one host: started, heard, fenced, replaced.
 *
 * fixed      Ranks that the launcher decided about: one process each, all started at once, none
 *            replaced; their ends go to the launcher (TD_MSG_EXIT). They need not know of Tandem;
 *            those that train tell what they do (coll/control.h), for `tandem status`, and are
 *            watched (lease, hang) where --lease or --hang is given.
 * elastic    All below is about these: they must talk to the agent, and the decided state says how
 *            many run.
 *
 * lease      A process that has said hello must beat; one that is silent for longer than the lease
 *            is killed: whatever it was doing, it does no more.
 * crash      A process that ends with its work not done and without having been told to go. The
 *            next one is started at once if a step forward was made since the last crash, later
 *            and later otherwise.
 *
 * The decided state (membership.h) says how many are to run and who is in the generation; the
 * report (placement.h) says what became of them. One thread; nothing here waits. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_LAUNCH_WORKERS_H
#define TD_LAUNCH_WORKERS_H

#include <poll.h>

#include "base/text.h"
#include "launch/agent_spec.h"
#include "launch/placement.h"
#include "launch/rank_env.h"

typedef struct td__workers td__workers;

/* s and lost (set when the launcher is gone) are borrowed. */
TD_NODISCARD td_status td__workers_create(td__agent_spec *s, bool *lost, td__workers **out);
void td__workers_destroy(td__workers *w); /* kills what still runs; NULL is allowed */

/* What to wait for: at most td__workers_most_fds() of them; how many. */
int td__workers_most_fds(const td__workers *w);
int td__workers_poll(td__workers *w, struct pollfd *p);
/* After poll, with the same array: hear, reap. */
void td__workers_serve(td__workers *w, const struct pollfd *p, uint64_t now);

/* The only generation there is: these ranks. The plan is borrowed. */
void td__workers_fix(td__workers *w, const td__rank_plan *plan);
/* A state was decided. */
void td__workers_apply(td__workers *w, const td__ms_state *s);
/* Start, end and kill what the time has come for. An error: a fixed rank could not be started. */
TD_NODISCARD td_status td__workers_tick(td__workers *w, uint64_t now);
uint64_t td__workers_deadline(const td__workers *w); /* of the next thing to do */

/* Start no more processes; ask all to end, and kill them after the grace time. */
void td__workers_stop(td__workers *w, uint64_t now);
void td__workers_kill(td__workers *w);
int td__workers_running(const td__workers *w);

/* The report of this agent; `number` rises when it has changed. */
const td__place_report *td__workers_report(td__workers *w);
/* The launcher numbers its orders: the newest counts, whichever agent heard of it first. */
void td__workers_order(td__workers *w, uint64_t order, uint32_t wanted);
void td__workers_slots(td__workers *w, uint32_t slots);

/* For `tandem status`: what the processes of this host do, to the launcher, now and then; now_too:
 * also if it was told a moment ago. leads: this agent decides about generations. */
void td__workers_say_status(td__workers *w, bool leads, bool now_too, uint64_t now);

#endif
