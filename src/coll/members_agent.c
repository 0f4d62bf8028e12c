/* members_agent.c -- generations as the agent of this host decides about them: the process' end of
 * the control connection (control.h).
 *
 * A thread owns the connection: it sends heartbeats and receives new generations. Other threads
 * leave their messages under the lock, and wake it. When a newer generation comes while the comm of
 * an older one is in use or being made, that comm is ended at once, so that no call goes on waiting
 * for a member that is gone. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/poll.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/log.h"
#include "coll/comm_setup.h"
#include "coll/control.h"
#include "coll/members.h"
#include "net/greet.h"
#include "net/link.h"

enum { CONNECT_MS = 30000, HEARTBEAT_MS = 200 };

typedef struct agent_members {
    td__members base;
    td__world world;
    td_comm_opts opts;
    char *texts[5]; /* copies, of opts */
    td__comm_stop stop;
    td__link link; /* the thread's own */
    int wake;
    pthread_t thread;
    bool running;
    atomic_uint_fast64_t in;        /* generation whose comm is in use or being made; 0: none */
    atomic_uint_fast64_t wanted;    /* generation that is to end */
    atomic_bool goes;               /* this process has no place after it */
    atomic_bool stopping;           /* the job is */
    atomic_int min_ranks, expected; /* ranks */
    pthread_mutex_t lock;           /* protects all below; taken before that of `stop` */
    pthread_cond_t news;
    bool ending; /* the thread is to end */
    bool over;   /* this process is */
    char why_over[256];
    td__ctl_generation newest; /* number 0: none */
    uint64_t last;             /* number of the last that next() gave or tried */
    uint32_t heartbeat_ms;
    td__ctl_heartbeat heartbeat;
    uint64_t since_ns, said_ns; /* of what it says; when it last did */
    td__explain *explain;
    void *explain_user;
    /* To be said. */
    bool say_left, say_wait, say_drain, say_kept;
    td__ctl_left left;
    uint64_t after; /* of the wait */
    char *run_dir;
} agent_members;

static void wake(agent_members *m)
{
    ssize_t ignored = write(m->wake, &(uint64_t){1}, sizeof(uint64_t));
    (void)ignored;
}

/* ---- the thread ---- */

static void end_process(agent_members *m, const char *why)
{
    pthread_mutex_lock(&m->lock);
    if (!m->over) {
        m->over = true;
        snprintf(m->why_over, sizeof m->why_over, "%s", why);
        td__comm_stop_now(&m->stop, why);
        pthread_cond_broadcast(&m->news);
    }
    pthread_mutex_unlock(&m->lock);
}

static void hear_generation(agent_members *m, const td__ctl_generation *g)
{
    pthread_mutex_lock(&m->lock);
    if (g->number > m->newest.number) {
        m->newest = *g;
        m->newest.store[sizeof g->store - 1] = m->newest.why[sizeof g->why - 1] = 0;
        uint64_t in = atomic_load(&m->in);
        if (in && in < g->number)
            td__comm_stop_now(&m->stop, m->newest.why);
        pthread_cond_broadcast(&m->news);
    }
    pthread_mutex_unlock(&m->lock);
}

static void hear(agent_members *m, const td__link_msg *msg)
{
    td__ctl_wanted w;
    uint32_t welcome[2];
    td__ctl_generation g;
    uint32_t expected;
    char text[256];
    if (msg->kind == TD_CTL_WELCOME && msg->nbytes == sizeof welcome) {
        memcpy(welcome, msg->data, sizeof welcome);
        m->heartbeat_ms = welcome[0] ? welcome[0] : HEARTBEAT_MS;
        atomic_store(&m->min_ranks, (int)welcome[1]);
    } else if (msg->kind == TD_CTL_EXPECTED && msg->nbytes == sizeof expected) {
        memcpy(&expected, msg->data, sizeof expected);
        atomic_store(&m->expected, (int)expected);
    } else if (msg->kind == TD_CTL_GENERATION && msg->nbytes == sizeof g) {
        memcpy(&g, msg->data, sizeof g);
        hear_generation(m, &g);
    } else if (msg->kind == TD_CTL_WANTED && msg->nbytes == sizeof w) {
        memcpy(&w, msg->data, sizeof w);
        pthread_mutex_lock(&m->lock);
        atomic_store(&m->goes, w.goes != 0);
        atomic_store(&m->wanted, w.generation);
        pthread_cond_broadcast(&m->news);
        pthread_mutex_unlock(&m->lock);
    } else if (msg->kind == TD_CTL_STOP) {
        atomic_store(&m->stopping, true);
        pthread_mutex_lock(&m->lock);
        pthread_cond_broadcast(&m->news);
        pthread_mutex_unlock(&m->lock);
    } else if (msg->kind == TD_CTL_END) {
        snprintf(text, sizeof text, "%.*s", (int)(msg->nbytes < 250 ? msg->nbytes : 250),
                 (const char *)msg->data);
        end_process(m, text);
    }
}

static void say_heartbeat(agent_members *m)
{
    pthread_mutex_lock(&m->lock);
    td__ctl_heartbeat b = m->heartbeat;
    uint64_t now = td__clock_ns();
    char about[sizeof b.about];
    b.since = m->since_ns ? 1e-9 * (double)(now - m->since_ns) : 0;
    b.idle = m->said_ns ? 1e-9 * (double)(now - m->said_ns) : 0;
    if (m->explain && m->explain(m->explain_user, about, sizeof about))
        memcpy(b.about, about, sizeof about);
    pthread_mutex_unlock(&m->lock);
    td__link_send(&m->link, TD_CTL_HEARTBEAT, &b, sizeof b);
}

/* What other threads left to be said; true: the end. */
static bool say_all(agent_members *m)
{
    pthread_mutex_lock(&m->lock);
    bool ending = m->ending, left = m->say_left, wait = m->say_wait, drain = m->say_drain;
    bool kept = m->say_kept;
    td__ctl_left l = m->left;
    uint64_t after = m->after;
    char *dir = m->run_dir;
    m->say_left = m->say_wait = m->say_drain = m->say_kept = false;
    m->run_dir = NULL;
    pthread_mutex_unlock(&m->lock);
    if (dir)
        td__link_send(&m->link, TD_CTL_RUN_DIR, dir, strlen(dir));
    if (drain)
        td__link_send(&m->link, TD_CTL_DRAIN, NULL, 0);
    if (kept)
        td__link_send(&m->link, TD_CTL_KEPT, NULL, 0);
    if (left)
        td__link_send(&m->link, TD_CTL_LEFT, &l, sizeof l);
    if (wait)
        td__link_send(&m->link, TD_CTL_WAIT, &after, sizeof after);
    td__free(dir);
    return ending;
}

static void *keep(void *arg)
{
    agent_members *m = arg;
    td__deadline heartbeat_at = 0;
    while (!say_all(m)) {
        if (td__deadline_passed(heartbeat_at)) {
            say_heartbeat(m);
            heartbeat_at = td__deadline_in_ms(m->heartbeat_ms);
        }
        bool up = td__link_up(&m->link);
        struct pollfd p[] = {{m->wake, POLLIN, 0},
                             {up ? m->link.conn.fd : -1, td__link_events(&m->link), 0}};
        if (poll(p, 2, td__deadline_left_ms(heartbeat_at, HEARTBEAT_MS * 10)) < 0)
            continue;
        if (p[0].revents) {
            uint64_t n;
            ssize_t ignored = read(m->wake, &n, sizeof n);
            (void)ignored;
        }
        if (!up || !p[1].revents)
            continue;
        td__link_msg msg;
        td__link_flush(&m->link);
        td__link_fill(&m->link);
        while (td__link_next(&m->link, &msg))
            hear(m, &msg);
        if (!td__link_up(&m->link))
            end_process(m, "lost the connection to the agent of this host");
    }
    td__link_flush(&m->link);
    return NULL;
}

/* ---- the ops ---- */

/* The comm of generation g. */
static td_status make_comm(agent_members *m, const td__ctl_generation *g, td_comm **comm)
{
    td__world w = m->world;
    w.rank = g->rank;
    w.size = g->size;
    w.local_rank = w.local_size = -1;
    w.stop = &m->stop;
    snprintf(w.store, sizeof w.store, "%s", g->store);
    snprintf(w.space, sizeof w.space, "g%llu", (unsigned long long)g->number);
    td_status st = td__comm_create(&w, &m->opts, comm);
    explicit_bzero(&w.secret, sizeof w.secret);
    return st;
}

/* With the lock held. */
static void note_left(agent_members *m, uint64_t number, td_status st, const char *why)
{
    m->left = (td__ctl_left){.generation = number, .status = (int32_t)st};
    snprintf(m->left.why, sizeof m->left.why, "%s", why ? why : "");
    m->say_left = true;
    atomic_store(&m->in, 0);
    wake(m);
}

static struct timespec at_time(td__deadline until)
{
    return (struct timespec){.tv_sec = (time_t)(until / 1000000000u),
                             .tv_nsec = (long)(until % 1000000000u)};
}

static td_status wait_for_news(agent_members *m, td__deadline until)
{
    struct timespec at = at_time(until);
    m->say_wait = m->newest.number <= m->last;
    m->after = m->last;
    wake(m);
    while (!m->over && !atomic_load(&m->stopping) && m->newest.number <= m->last) {
        if (td__deadline_passed(until))
            return TD_FAIL(TD_ETIMEDOUT, "timed out waiting for the generation after %llu",
                           (unsigned long long)m->last);
        if (until == TD_DEADLINE_NEVER)
            pthread_cond_wait(&m->news, &m->lock);
        else
            pthread_cond_timedwait(&m->news, &m->lock, &at);
    }
    m->say_wait = false;
    if (!m->over && atomic_load(&m->stopping))
        return TD_FAIL(TD_EABORTED, "the job is being stopped");
    return m->over ? TD_FAIL(TD_EABORTED, "%s", m->why_over) : TD_OK;
}

static td_status await_seat(td__members *base, td__deadline until, int *seat)
{
    agent_members *m = (agent_members *)base;
    pthread_mutex_lock(&m->lock);
    td_status st = wait_for_news(m, until);
    *seat = m->newest.seat;
    pthread_mutex_unlock(&m->lock);
    return st;
}

static td_status next(td__members *base, td__deadline until, td__generation *g, td_comm **comm)
{
    agent_members *m = (agent_members *)base;
    *comm = NULL;
    pthread_mutex_lock(&m->lock);
    for (;;) {
        td_status st = wait_for_news(m, until);
        if (st) {
            pthread_mutex_unlock(&m->lock);
            return st;
        }
        td__ctl_generation new = m->newest;
        m->last = new.number;
        atomic_store(&m->in, new.number);
        td__comm_stop_reset(&m->stop);
        pthread_mutex_unlock(&m->lock);
        st = make_comm(m, &new, comm);
        if (!st) {
            *g = (td__generation){.number = new.number, .rank = new.rank, .size = new.size};
            snprintf(g->why, sizeof g->why, "%s", new.why);
            return TD_OK;
        }
        TD_LOG(INFO, COLL, "generation %llu: %s", (unsigned long long)new.number, td_last_error());
        pthread_mutex_lock(&m->lock);
        note_left(m, new.number, st, td_last_error());
        if (st == TD_EINVAL || st == TD_ENOMEM || st == TD_EIO || st == TD_ENOTSUP) {
            pthread_mutex_unlock(&m->lock);
            return st; /* it is this process, or its host: another generation would not help */
        }
    }
}

static bool wanted(td__members *base)
{
    agent_members *m = (agent_members *)base;
    uint64_t in = atomic_load(&m->in);
    return in && (atomic_load(&m->wanted) >= in || atomic_load(&m->stopping));
}

static bool going(td__members *base)
{
    return wanted(base) && atomic_load(&((agent_members *)base)->goes);
}

static void await_wanted(td__members *base, td__deadline until)
{
    agent_members *m = (agent_members *)base;
    struct timespec at = at_time(until);
    pthread_mutex_lock(&m->lock);
    while (!m->over && !wanted(base) && !td__deadline_passed(until))
        pthread_cond_timedwait(&m->news, &m->lock, &at);
    pthread_mutex_unlock(&m->lock);
}

static bool stopping(td__members *base)
{
    return atomic_load(&((agent_members *)base)->stopping);
}

static int min_ranks(td__members *base)
{
    int n = atomic_load(&((agent_members *)base)->min_ranks);
    return n > 1 ? n : 1;
}

static int expected(td__members *base)
{
    return atomic_load(&((agent_members *)base)->expected);
}

static void leave(td__members *base, uint64_t number, td_status st, const char *why)
{
    agent_members *m = (agent_members *)base;
    pthread_mutex_lock(&m->lock);
    note_left(m, number, st, why);
    pthread_mutex_unlock(&m->lock);
}

/* Several times a step: without the cost of snprintf. */
static void copy_text(char *to, size_t max, const char *from)
{
    size_t n = from ? strnlen(from, max - 1) : 0;
    if (n)
        memcpy(to, from, n);
    to[n] = 0;
}

static void heartbeat(td__members *base, const td__heartbeat *b)
{
    agent_members *m = (agent_members *)base;
    td__ctl_heartbeat new = {.step = b->step,
                             .steps = b->steps,
                             .samples_per_second = b->samples_per_second,
                             .loss = b->loss,
                             .speed = b->speed,
                             .wait = b->wait,
                             .phase = (uint32_t)b->phase,
                             .faults = b->faults};
    copy_text(new.what, sizeof new.what, b->what);
    copy_text(new.about, sizeof new.about, b->about);
    uint64_t now = td__clock_ns();
    pthread_mutex_lock(&m->lock);
    if (!m->since_ns || new.step != m->heartbeat.step || new.phase != m->heartbeat.phase ||
        strcmp(new.what, m->heartbeat.what) != 0)
        m->since_ns = now;
    m->said_ns = now;
    m->heartbeat = new;
    pthread_mutex_unlock(&m->lock);
}

static void explain(td__members *base, td__explain *fn, void *user)
{
    agent_members *m = (agent_members *)base;
    pthread_mutex_lock(&m->lock);
    m->explain = fn;
    m->explain_user = user;
    pthread_mutex_unlock(&m->lock);
}

static void drain(td__members *base)
{
    agent_members *m = (agent_members *)base;
    pthread_mutex_lock(&m->lock);
    m->say_drain = true;
    pthread_mutex_unlock(&m->lock);
    wake(m);
}

static void kept(td__members *base)
{
    agent_members *m = (agent_members *)base;
    pthread_mutex_lock(&m->lock);
    m->say_kept = true;
    pthread_mutex_unlock(&m->lock);
}

static void run_dir(td__members *base, const char *dir)
{
    agent_members *m = (agent_members *)base;
    char *copy = td__strdup(dir);
    pthread_mutex_lock(&m->lock);
    td__free(m->run_dir);
    m->run_dir = copy;
    pthread_mutex_unlock(&m->lock);
    wake(m);
}

static void destroy(td__members *base)
{
    agent_members *m = (agent_members *)base;
    if (!m)
        return;
    if (m->running) {
        pthread_mutex_lock(&m->lock);
        m->ending = true;
        pthread_mutex_unlock(&m->lock);
        wake(m);
        pthread_join(m->thread, NULL);
    }
    td__link_fini(&m->link);
    if (m->wake >= 0)
        close(m->wake);
    for (size_t i = 0; i < sizeof m->texts / sizeof m->texts[0]; i++)
        td__free(m->texts[i]);
    td__comm_stop_fini(&m->stop);
    pthread_cond_destroy(&m->news);
    pthread_mutex_destroy(&m->lock);
    explicit_bzero(&m->world.secret, sizeof m->world.secret);
    td__free(m->run_dir);
    td__free(m);
}

static const td__members_ops OPS = {.next = next,
                                    .await_seat = await_seat,
                                    .wanted = wanted,
                                    .going = going,
                                    .await_wanted = await_wanted,
                                    .leave = leave,
                                    .heartbeat = heartbeat,
                                    .explain = explain,
                                    .drain = drain,
                                    .min_ranks = min_ranks,
                                    .expected = expected,
                                    .kept = kept,
                                    .stopping = stopping,
                                    .run_dir = run_dir,
                                    .destroy = destroy};

/* ---- making ---- */

static td_status copy_opts(agent_members *m, const td_comm_opts *o)
{
    if (!o)
        return TD_OK;
    m->opts = *o;
    const char **text[] = {&m->opts.engine, &m->opts.transport, &m->opts.algo, &m->opts.name,
                           &m->opts.faults};
    for (size_t i = 0; i < sizeof text / sizeof text[0]; i++) {
        m->texts[i] = *text[i] ? td__strdup(*text[i]) : NULL;
        if (*text[i] && !m->texts[i])
            return TD_FAIL(TD_ENOMEM, "no memory for the options of a comm");
        *text[i] = m->texts[i];
    }
    return TD_OK;
}

static td_status begin(agent_members *m)
{
    td__conn conn;
    uint32_t hello[2] = {m->world.proc, (uint32_t)getpid()};
    m->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (m->wake < 0)
        return TD_FAIL(TD_EIO, "cannot create an event for the agent thread");
    TD_TRY(td__greet_connect(m->world.agent, TD_HS_AGENT, &m->world.secret, NULL,
                             td__deadline_in_ms(CONNECT_MS), &conn));
    td__link_init_take(&m->link, conn);
    td__link_send(&m->link, TD_CTL_HELLO, hello, sizeof hello);
    int error = pthread_create(&m->thread, NULL, keep, m);
    if (error)
        return TD_FAIL(TD_ENOMEM, "cannot start the agent thread: %s", strerror(error));
    m->running = true;
    return TD_OK;
}

td_status td__members_from_env(const td_comm_opts *opts, td__members **out)
{
    td__world w;
    *out = NULL;
    TD_TRY(td__world_from_env(&w));
    if (!w.agent[0])
        return TD_OK;
    agent_members *m = td__calloc(1, sizeof *m);
    if (!m)
        return TD_FAIL(TD_ENOMEM, "no memory for the members of a world");
    pthread_condattr_t attr;
    m->base = (td__members){.ops = &OPS, .fixed = !w.elastic};
    m->world = w;
    m->link.conn.fd = m->wake = -1;
    m->heartbeat_ms = HEARTBEAT_MS;
    td__comm_stop_init(&m->stop);
    pthread_mutex_init(&m->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&m->news, &attr);
    pthread_condattr_destroy(&attr);
    td_status st = copy_opts(m, opts);
    st = st ? st : begin(m);
    if (st) {
        destroy(&m->base);
        return st;
    }
    *out = &m->base;
    return TD_OK;
}
