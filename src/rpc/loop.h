/* loop.h -- the event loop of a server: one thread waits for descriptors, timers and work that
 * other threads hand over, and runs what is due. All state of a server belongs to the loop thread;
 * only td__loop_post and td__loop_stop may be called from elsewhere.
 *
 * A turn of the loop has three phases:
 *   1. EVENTS  ready descriptors, due timers, posted tasks: handlers change state, queue answers;
 *   2. COMMIT  hooks that make the changes durable, once for all events of the turn;
 *   3. SEND    hooks that write queued answers to sockets.
 * So an answer never leaves before the change that it reports is durable, and a busy server commits
 * once per turn instead of once per request.
 *
 * Watches, timers, tasks and hooks are structs in the caller's storage: nothing here allocates, so
 * starting a timer or handing work over cannot fail. Zero-initialise them. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_RPC_LOOP_H
#define TD_RPC_LOOP_H

#include "base/deadline.h"
#include "tandem/status.h"

typedef struct td__loop td__loop;

TD_NODISCARD td_status td__loop_create(td__loop **out);
/* NULL is allowed. Tasks that were posted and did not run are dropped: stop the threads that post
 * first. */
void td__loop_destroy(td__loop *l);

/* Turn after turn until td__loop_stop; the turn in which it is called is finished. */
TD_NODISCARD td_status td__loop_run(td__loop *l);
/* One turn, waiting at most max_ms for something to do. */
TD_NODISCARD td_status td__loop_turn(td__loop *l, int max_ms);
/* From any thread and from signal handlers. */
void td__loop_stop(td__loop *l);
/* The next turn does not wait: a hook has left something to do. */
void td__loop_again(td__loop *l);
/* When the first timer is due; TD_DEADLINE_NEVER: it waits for events alone. */
td__deadline td__loop_wakes(const td__loop *l);
/* The time at which this turn's events came (td__clock_ns). */
uint64_t td__loop_now(const td__loop *l);

/* ---- descriptors ---- */

typedef struct td__watch {
    int fd;
    void (*ready)(void *arg, uint32_t events); /* EPOLLIN, EPOLLOUT, EPOLLERR, EPOLLHUP */
    void *arg;
    uint32_t events; /* being waited for; kept by the loop */
} td__watch;

/* Level-triggered. The descriptor stays the caller's. */
TD_NODISCARD td_status td__loop_watch(td__loop *l, td__watch *w, uint32_t events);
/* Wait for other events from now on; 0 waits for errors alone. */
TD_NODISCARD td_status td__loop_rewatch(td__loop *l, td__watch *w, uint32_t events);
/* Before the descriptor is closed. `ready` is not called again, not even in this turn. */
void td__loop_unwatch(td__loop *l, td__watch *w);

/* ---- timers ---- */

typedef struct td__timer {
    void (*due)(void *arg);
    void *arg;
    td__deadline at;                       /* kept by the loop, as are the links below */
    struct td__timer *child, *next, *prev; /* a pairing heap */
    bool started;
} td__timer;

/* Call `due` once, at or after that time. A started timer is moved. */
void td__timer_start(td__loop *l, td__timer *t, td__deadline at);
void td__timer_stop(td__loop *l, td__timer *t); /* one that is not started is allowed */

/* ---- work from other threads ---- */

typedef struct td__task {
    void (*run)(void *arg);
    void *arg;
    struct td__task *next; /* kept by the loop */
} td__task;

/* Run the task on the loop thread, in the order of posting. From any thread; the task must not be
 * posted again before it ran, and may be freed by its own `run`. A task posted from the loop thread
 * runs in the next turn. */
void td__loop_post(td__loop *l, td__task *t);
/* Take it back, if it has not run. On the loop thread, when nobody posts it any more. */
void td__loop_unpost(td__loop *l, td__task *t);

/* ---- what happens once per turn ---- */

typedef enum td__turn_phase { TD_TURN_COMMIT, TD_TURN_SEND, TD_TURN_PHASE_COUNT } td__turn_phase;

typedef struct td__turn_hook {
    void (*run)(void *arg);
    void *arg;
    struct td__turn_hook *next; /* kept by the loop */
} td__turn_hook;

/* Call the hook in this phase of every turn. Hooks of a phase run in the order of adding. */
void td__loop_hook(td__loop *l, td__turn_phase phase, td__turn_hook *h);
void td__loop_unhook(td__loop *l, td__turn_phase phase, td__turn_hook *h);

#endif
