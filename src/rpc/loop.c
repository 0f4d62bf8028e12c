/* loop.c -- the event loop, on epoll; timers in a heap (timers.c), posts by an eventfd. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "rpc/loop.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "rpc/timers.h"

enum {
    BATCH = 64,          /* events taken per turn */
    LONGEST_WAIT = 60000 /* ms; no wait is unbounded */
};

struct td__loop {
    int epoll, wake; /* wake: an eventfd, written by posts and stops */
    uint64_t now;
    td__timer *timers;            /* heap; the root is due first */
    struct epoll_event ev[BATCH]; /* data.ptr: the watch; NULL once it is unwatched */
    int n_ev;
    td__turn_hook *hooks[TD_TURN_PHASE_COUNT];
    td__turn_hook *next_hook; /* while hooks run: the one to run next */
    bool again;               /* the next turn does not wait */
    atomic_bool stopping;
    pthread_mutex_t lock; /* protects first and last_link, nothing else; taken alone */
    td__task *first, **last_link;
    td__task *next_task; /* while tasks run: the one to run next */
};

td__deadline td__loop_wakes(const td__loop *l)
{
    return l->timers ? l->timers->at : TD_DEADLINE_NEVER;
}

td_status td__loop_create(td__loop **out)
{
    td__loop *l = td__calloc(1, sizeof *l);
    struct epoll_event e = {.events = EPOLLIN};
    td_status st = TD_OK;

    *out = NULL;
    if (!l)
        return TD_FAIL(TD_ENOMEM, "event loop: out of memory");
    l->last_link = &l->first;
    l->now = td__clock_ns();
    pthread_mutex_init(&l->lock, NULL);
    l->epoll = epoll_create1(EPOLL_CLOEXEC);
    l->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    e.data.ptr = &l->wake; /* told from watches by its address */
    if (l->epoll < 0 || l->wake < 0 || epoll_ctl(l->epoll, EPOLL_CTL_ADD, l->wake, &e) < 0)
        st = TD_FAIL(TD_EIO, "event loop: %s", strerror(errno));
    if (st) {
        td__loop_destroy(l);
        return st;
    }
    *out = l;
    return TD_OK;
}

void td__loop_destroy(td__loop *l)
{
    if (!l)
        return;
    if (l->epoll >= 0)
        close(l->epoll);
    if (l->wake >= 0)
        close(l->wake);
    pthread_mutex_destroy(&l->lock);
    td__free(l);
}

uint64_t td__loop_now(const td__loop *l)
{
    return l->now;
}

void td__loop_again(td__loop *l)
{
    l->again = true;
}

static void wake(td__loop *l)
{
    uint64_t one = 1;
    ssize_t n = write(l->wake, &one, sizeof one); /* fails only when it is already readable */

    (void)n;
}

void td__loop_stop(td__loop *l)
{
    atomic_store_explicit(&l->stopping, true, memory_order_release);
    wake(l);
}

/* ---- descriptors ---- */

static td_status control(td__loop *l, int op, td__watch *w, uint32_t events)
{
    struct epoll_event e = {.events = events, .data.ptr = w};

    if (epoll_ctl(l->epoll, op, w->fd, &e) < 0)
        return TD_FAIL(TD_EIO, "event loop: descriptor %d: %s", w->fd, strerror(errno));
    w->events = events;
    return TD_OK;
}

td_status td__loop_watch(td__loop *l, td__watch *w, uint32_t events)
{
    return control(l, EPOLL_CTL_ADD, w, events);
}

td_status td__loop_rewatch(td__loop *l, td__watch *w, uint32_t events)
{
    return w->events == events ? TD_OK : control(l, EPOLL_CTL_MOD, w, events);
}

void td__loop_unwatch(td__loop *l, td__watch *w)
{
    epoll_ctl(l->epoll, EPOLL_CTL_DEL, w->fd, NULL);
    for (int i = 0; i < l->n_ev; i++)
        if (l->ev[i].data.ptr == w)
            l->ev[i].data.ptr = NULL;
}

/* ---- timers ---- */

void td__timer_start(td__loop *l, td__timer *t, td__deadline at)
{
    td__timer_stop(l, t);
    t->at = at > l->now ? at : l->now + 1; /* not in this turn: descriptors get theirs in between */
    t->started = true;
    td__timers_add(&l->timers, t);
}

void td__timer_stop(td__loop *l, td__timer *t)
{
    if (t->started)
        td__timers_remove(&l->timers, t);
    t->started = false;
}

static void run_timers(td__loop *l)
{
    while (l->timers && l->timers->at <= l->now) {
        td__timer *t = l->timers;

        td__timer_stop(l, t);
        t->due(t->arg);
    }
}

/* ---- tasks ---- */

void td__loop_post(td__loop *l, td__task *t)
{
    bool was_empty;

    t->next = NULL;
    pthread_mutex_lock(&l->lock);
    was_empty = !l->first;
    *l->last_link = t;
    l->last_link = &t->next;
    pthread_mutex_unlock(&l->lock);
    if (was_empty)
        wake(l);
}

void td__loop_unpost(td__loop *l, td__task *t)
{
    td__task **link = &l->next_task;

    while (*link && *link != t)
        link = &(*link)->next;
    if (*link)
        *link = t->next;
    pthread_mutex_lock(&l->lock);
    for (link = &l->first; *link && *link != t;)
        link = &(*link)->next;
    if (*link && !(*link = t->next))
        l->last_link = link;
    pthread_mutex_unlock(&l->lock);
}

static void run_tasks(td__loop *l)
{
    uint64_t count;
    ssize_t n = read(l->wake, &count, sizeof count);
    td__task *t;

    (void)n;
    pthread_mutex_lock(&l->lock);
    t = l->first;
    l->first = NULL;
    l->last_link = &l->first;
    pthread_mutex_unlock(&l->lock);
    for (; t; t = l->next_task) {
        l->next_task = t->next;
        t->run(t->arg);
    }
}

/* ---- turns ---- */

void td__loop_hook(td__loop *l, td__turn_phase phase, td__turn_hook *h)
{
    td__turn_hook **link = &l->hooks[phase];

    while (*link)
        link = &(*link)->next;
    h->next = NULL;
    *link = h;
}

void td__loop_unhook(td__loop *l, td__turn_phase phase, td__turn_hook *h)
{
    td__turn_hook **link = &l->hooks[phase];

    while (*link && *link != h)
        link = &(*link)->next;
    if (*link)
        *link = h->next;
    if (l->next_hook == h)
        l->next_hook = h->next;
}

static void run_hooks(td__loop *l, td__turn_phase phase)
{
    for (td__turn_hook *h = l->hooks[phase]; h; h = l->next_hook) {
        l->next_hook = h->next;
        h->run(h->arg);
    }
    l->next_hook = NULL;
}

td_status td__loop_turn(td__loop *l, int max_ms)
{
    int wait_ms = l->timers ? td__deadline_left_ms(l->timers->at, max_ms) : max_ms;
    int n = epoll_wait(l->epoll, l->ev, BATCH, l->again ? 0 : wait_ms);

    if (n < 0 && errno != EINTR)
        return TD_FAIL(TD_EIO, "event loop: %s", strerror(errno));
    l->n_ev = n > 0 ? n : 0;
    l->now = td__clock_ns();
    for (int i = 0; i < l->n_ev; i++) {
        td__watch *w = l->ev[i].data.ptr;

        if ((void *)w == &l->wake)
            run_tasks(l);
        else if (w)
            w->ready(w->arg, l->ev[i].events);
    }
    l->n_ev = 0;
    run_timers(l);
    l->again = false; /* what asked for it before this point is done by the hooks now */
    for (int phase = 0; phase < TD_TURN_PHASE_COUNT; phase++)
        run_hooks(l, (td__turn_phase)phase);
    return TD_OK;
}

td_status td__loop_run(td__loop *l)
{
    while (!atomic_load_explicit(&l->stopping, memory_order_acquire))
        TD_TRY(td__loop_turn(l, LONGEST_WAIT));
    atomic_store_explicit(&l->stopping, false, memory_order_release);
    return TD_OK;
}
