/* cluster_work.c -- the threads of a tracker over another system: workers that carry out calls, and
 * one that waits for events. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/log.h"
#include "service/track/cluster_impl.h"

enum { MAIL_MS = 100, WATCH_PAUSE_MS = 1000, WATCH_PAUSE_MOST_MS = 30000 };

td__call *td__cluster_call(td__cluster_group *g, td__call_kind kind)
{
    td__call *call = td__calloc(1, sizeof *call);

    if (!call)
        return NULL;
    *call = (td__call){.kind = kind, .c = g->c, .g = g, .member = TD_TRACK_ALL};
    call->done = (td__mail){.run = td__cluster_ended, .arg = call};
    if (kind == TD_CALL_LOOK) {
        call->seen = td__calloc((size_t)g->l->members, sizeof *call->seen);
        if (!call->seen) {
            td__free(call);
            return NULL;
        }
    }
    return call;
}

void td__cluster_post(td__cluster *c, td__mail *m)
{
    uint64_t one = 1;

    m->next = NULL;
    pthread_mutex_lock(&c->mail_lock);
    *c->mail_end = m;
    c->mail_end = &m->next;
    pthread_mutex_unlock(&c->mail_lock);
    (void)!write(c->mailed.fd, &one, sizeof one);
}

void td__cluster_await_mail(td__cluster *c)
{
    struct pollfd p = {.fd = c->mailed.fd, .events = POLLIN};
    poll(&p, 1, MAIL_MS);
}

void td__cluster_read_mail(td__cluster *c)
{
    uint64_t count;

    (void)!read(c->mailed.fd, &count, sizeof count);
    pthread_mutex_lock(&c->mail_lock);
    td__mail *m = c->mail;
    c->mail = NULL;
    c->mail_end = &c->mail;
    pthread_mutex_unlock(&c->mail_lock);
    for (td__mail *next; m; m = next) {
        next = m->next; /* run may free it */
        m->run(m->arg);
    }
}

static void *work(void *arg);

/* With the lock. A thread that cannot be had is not missed while there is another one. */
static bool add_worker(td__lane *lane)
{
    if (lane->n_workers == TD__LANE_WORKERS ||
        pthread_create(&lane->workers[lane->n_workers], NULL, work, lane) != 0)
        return lane->n_workers > 0;
    lane->n_workers++;
    return true;
}

void td__cluster_queue(td__cluster *c, td__call *call)
{
    td__lane *lane = &c->lanes[call->kind];

    pthread_mutex_lock(&c->lock);
    call->next = NULL;
    *lane->queue_end = call;
    lane->queue_end = &call->next;
    if (++lane->n_waiting > lane->n_idle)
        (void)add_worker(lane);
    pthread_cond_signal(&lane->more);
    pthread_mutex_unlock(&c->lock);
}

void td__cluster_push(td__cluster_group *g, td__call *call)
{
    td__call **end = &g->calls;

    while (*end)
        end = &(*end)->after;
    *end = call;
    if (g->calls == call)
        td__cluster_queue(g->c, call);
}

static void carry_out(td__call *call)
{
    td__cluster *c = call->c;
    const td__launch *l = call->g ? call->g->l : NULL;

    switch (call->kind) {
    case TD_CALL_START: call->st = c->ops->start(c->system, l); break;
    case TD_CALL_LOOK: call->st = c->ops->look(c->system, l, call->seen); break;
    case TD_CALL_SIGNAL: call->st = c->ops->signal(c->system, l, call->member, call->what); break;
    case TD_CALL_OUTPUT:
        call->st = td__cluster_fetch(c, l, call->member, call->g->log_base[call->member], false,
                                     NULL, NULL);
        if (call->member == 0 && call->why == TD_FETCH_LAST)
            td__cluster_bring_metrics(call->g); /* what it has written at its end */
        break;
    case TD_CALL_METRICS: td__cluster_bring_metrics(call->g); break;
    case TD_CALL_TIDY: call->st = c->ops->tidy(c->system, l); break;
    case TD_CALL_FORGET: call->st = c->ops->forget(c->system, call->token); break;
    }
    snprintf(call->text, sizeof call->text, "%s", call->st ? td_last_error() : "");
}

static void *work(void *arg)
{
    td__lane *lane = arg;
    td__cluster *c = lane->c;

    for (;;) {
        pthread_mutex_lock(&c->lock);
        lane->n_idle++;
        while (!lane->queue && !c->stop)
            pthread_cond_wait(&lane->more, &c->lock);
        lane->n_idle--;
        td__call *call = c->stop ? NULL : lane->queue;
        if (call) {
            lane->n_waiting--;
            lane->queue = call->next;
            if (!lane->queue)
                lane->queue_end = &lane->queue;
        }
        pthread_mutex_unlock(&c->lock);
        if (!call)
            return NULL;
        carry_out(call);
        td__cluster_post(c, &call->done);
    }
}

/* What the watcher hands to the loop. */
typedef struct change {
    td__mail mail;
    td__cluster *c;
    char token[TD__TOKEN];
} change;

static void on_change(void *arg)
{
    change *x = arg;

    for (td__cluster_group *g = x->c->groups; g; g = g->next)
        if (!x->token[0] || strcmp(g->l->g.token, x->token) == 0)
            td__cluster_look_soon(g);
    td__free(x);
}

static void changed(void *user, const char *token)
{
    td__cluster *c = user;
    change *x = td__calloc(1, sizeof *x);

    if (!x)
        return; /* the timer looks */
    x->c = c;
    snprintf(x->token, sizeof x->token, "%s", token ? token : "");
    x->mail = (td__mail){.run = on_change, .arg = x};
    td__cluster_post(c, &x->mail);
}

/* Waits, at most that long; true: it is time to end. */
static bool rest(td__cluster *c, uint64_t ms)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)(ms / 1000);
    until.tv_nsec += (long)(ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&c->lock);
    while (!c->stop && pthread_cond_timedwait(&c->rested, &c->lock, &until) != ETIMEDOUT)
        continue;
    bool stop = c->stop;
    pthread_mutex_unlock(&c->lock);
    return stop;
}

/* The stream of events, opened again whenever it ends. What happened in between is found by looking
 * at all groups. */
static void *watch(void *arg)
{
    td__cluster *c = arg;
    uint64_t pause = WATCH_PAUSE_MS;

    for (;;) {
        uint64_t begun = td__clock_ns();
        td_status st = c->ops->watch(c->system, changed, c);
        bool lived = td__clock_ns() - begun > WATCH_PAUSE_MS * 1000000ull;
        if (st && st != TD_EABORTED && lived)
            TD_LOG(INFO, SERVICE, "the stream of events ended, and is opened again: %s",
                   td_last_error());
        pause = lived ? WATCH_PAUSE_MS : pause * 2;
        pause = pause < WATCH_PAUSE_MOST_MS ? pause : WATCH_PAUSE_MOST_MS;
        if (rest(c, pause))
            return NULL;
        changed(c, NULL);
    }
}

td_status td__cluster_threads_start(td__cluster *c)
{
    pthread_condattr_t attr;

    pthread_mutex_init(&c->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&c->rested, &attr);
    pthread_condattr_destroy(&attr);
    bool started = true;
    for (int i = 0; i < TD__LANES; i++) {
        td__lane *lane = &c->lanes[i];
        lane->c = c;
        lane->queue_end = &lane->queue;
        pthread_cond_init(&lane->more, NULL);
    }
    pthread_mutex_lock(&c->lock);
    for (int i = 0; i < TD__LANES; i++) /* one that is sure to be there */
        started = add_worker(&c->lanes[i]) && started;
    pthread_mutex_unlock(&c->lock);
    if (!started)
        return TD_FAIL(TD_ENOMEM, "a tracker's thread cannot be started");
    if (!c->ops->watch)
        return TD_OK;
    if (pthread_create(&c->watcher, NULL, watch, c) != 0)
        return TD_FAIL(TD_ENOMEM, "a tracker's thread cannot be started");
    c->watching = true;
    return TD_OK;
}

void td__cluster_threads_stop(td__cluster *c)
{
    pthread_mutex_lock(&c->lock);
    c->stop = true;
    for (int i = 0; i < TD__LANES; i++)
        pthread_cond_broadcast(&c->lanes[i].more);
    pthread_cond_broadcast(&c->rested);
    pthread_mutex_unlock(&c->lock);
    for (int i = 0; i < TD__LANES; i++)
        for (int k = 0; k < c->lanes[i].n_workers; k++)
            pthread_join(c->lanes[i].workers[k], NULL);
    if (c->watching)
        pthread_join(c->watcher, NULL);
    for (int i = 0; i < TD__LANES; i++)
        pthread_cond_destroy(&c->lanes[i].more);
    pthread_cond_destroy(&c->rested);
    pthread_mutex_destroy(&c->lock);
}
