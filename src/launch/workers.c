/* workers.c -- see workers.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "launch/workers_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/config.h"
#include "base/fail.h"
#include "base/log.h"
#include "launch/foreign/foreign.h"
#include "net/socket.h"

enum {
    FDS_EACH = 4,          /* pidfd, out, err, link */
    START_AGAIN_MS = 1000, /* what this host lacks may come back */
    EXIT_FAILED = 1,
};

static const char TOO_LATE[] = "its place in the run was removed before it started";

typedef td__worker worker;

/* ---- making ---- */

void td__workers_fix(td__workers *w, const td__rank_plan *plan)
{
    w->plan = plan;
    w->target = (uint32_t)w->max;
    w->now.generation = plan->generation;
    w->now.wanted = (uint32_t)plan->hosts->size;
}

td_status td__workers_create(td__agent_spec *s, bool *lost, td__workers **out)
{
    td__workers *w = td__calloc(1, sizeof *w);
    td_status st = TD_OK;
    char actual[TD_ADDRESS_BYTES];
    int fd, max = s->most ? (int)TD_PLACE_PROCS : td__agent_spec_host(s)->count;
    *out = NULL;
    if (w)
        w->all = td__calloc((size_t)max, sizeof *w->all);
    if (w)
        w->strangers = td__calloc((size_t)max, sizeof *w->strangers);
    if (!w || !w->all || !w->strangers) {
        td__free(w ? w->all : NULL);
        td__free(w ? w->strangers : NULL);
        td__free(w);
        return TD_FAIL(TD_ENOMEM, "no memory for %d processes", max);
    }
    w->s = s;
    w->lost = lost;
    w->max = max;
    for (int i = 0; i < max; i++)
        w->strangers[i].conn.fd = -1;
    w->report.slots = (uint32_t)td__agent_spec_host(s)->count;
    snprintf(w->report.host, sizeof w->report.host, "%.*s", (int)sizeof w->report.host - 1,
             td__agent_spec_host(s)->name);
    snprintf(w->socket, sizeof w->socket, "unix:@tandem-%s-%d", s->job, s->index);
    TD_TRY_OR(st, fail, td__socket_listen(w->socket, &fd, actual));
    TD_TRY_OR(st, fail, td__gate_create_take(fd, TD_HS_AGENT, &s->secret, NULL, &w->gate));
    *out = w;
    return TD_OK;
fail:
    td__workers_destroy(w);
    return st;
}

void td__worker_kill(const worker *k, int sig)
{
    if (k->child.pidfd < 0)
        return;
    kill(-k->child.pid, sig);
    if (sig == SIGTERM) /* a stopped one would not hear it */
        kill(-k->child.pid, SIGCONT);
}

void td__workers_destroy(td__workers *w)
{
    if (!w)
        return;
    /* Elastic processes come and go, and any of them may have left some behind. */
    bool clean = w->plan && !w->stopping && !w->n_running && !*w->lost;
    td__workers_kill(w);
    for (int i = 0; i < w->max; i++) {
        if (w->all[i].used && w->all[i].child.pidfd >= 0)
            td__child_reap(&w->all[i].child);
        w->all[i].done = false;
        if (w->all[i].used)
            td__worker_release(&w->all[i]);
    }
    if (w->n_started && !clean)
        td__kill_marked(w->s->job, TD_ENV_AGENT, w->socket);
    for (int i = 0; i < w->max; i++)
        td__link_fini(&w->strangers[i]);
    td__gate_destroy(w->gate);
    td__free(w->strangers);
    td__free(w->all);
    td__free(w);
}

/* ---- hearing ---- */

static void hear(td__workers *w, worker *k, const td__link_msg *m, uint64_t now)
{
    td__ctl_left left;
    uint64_t number;
    k->heard_ns = now;
    if (m->kind == TD_CTL_HEARTBEAT && m->nbytes == sizeof k->heartbeat) {
        memcpy(&k->heartbeat, m->data, sizeof k->heartbeat);
        k->heartbeat.what[sizeof k->heartbeat.what - 1] =
            k->heartbeat.about[sizeof k->heartbeat.about - 1] = 0;
        w->step = k->heartbeat.step > w->step ? k->heartbeat.step : w->step;
        if (w->plan)
            k->state = TD_PROC_BUSY;
        if (w->step > w->crash_step)
            w->report.crashes = 0;
    } else if (m->kind == TD_CTL_WAIT && m->nbytes == sizeof number) {
        memcpy(&number, m->data, sizeof number);
        k->out_of = number > k->out_of ? number : k->out_of;
        k->late_ns = 0;
        if (k->told <= number)
            k->state = TD_PROC_WAITING;
    } else if (m->kind == TD_CTL_LEFT && m->nbytes == sizeof left) {
        memcpy(&left, m->data, sizeof left);
        left.why[sizeof left.why - 1] = 0;
        k->out_of = left.generation > k->out_of ? left.generation : k->out_of;
        k->late_ns = 0;
        /* Who goes for good goes, also if it was given another generation meanwhile since others
         * had left this one sooner. */
        bool ends =
            left.status == TD_EINVAL || left.status == TD_EMISMATCH || left.status == TD_ENOMEM;
        if (left.generation < k->told && !ends)
            return;
        /* One that is about to end the job must not be given another generation meanwhile. */
        k->failed = left.status && left.status != TD_EINVAL;
        if (left.status == TD_EINVAL || left.status == TD_EIO || left.status == TD_ENOMEM ||
            left.status == TD_EMISMATCH)
            snprintf(k->said, sizeof k->said, "%.159s", left.why);
        k->hopeless = left.status == TD_EINVAL;
        k->wrong = left.status == TD_EMISMATCH && w->s->hosts.n > 1;
        k->ends = ends;
        if (k->hopeless || k->wrong) /* all others wait for its end */
            k->kill_at = now + td__worker_ns(w->s->grace_ms);
    } else if (m->kind == TD_CTL_KEPT) {
        k->kept = true;
    } else if (m->kind == TD_CTL_DRAIN && w->now.generation) { /* before the first: it asks again */
        k->leaving = true;
        k->spare = td__worker_rank(w, k) < 0 && w->now.n_members >= w->now.wanted;
    } else if (m->kind == TD_CTL_RUN_DIR && !*w->lost) {
        char dir[4096];
        int n = snprintf(dir, sizeof dir, "%.*s", (int)(m->nbytes < 4000 ? m->nbytes : 4000),
                         (const char *)m->data);
        *w->lost |= td__channel_send(&w->s->up, TD_MSG_RUN_DIR, k->slot, dir, (size_t)n + 1) != 0;
    }
}

void td__worker_hear(td__workers *w, worker *k, uint64_t now)
{
    td__link_msg m;
    td__link_flush(&k->link);
    td__link_fill(&k->link);
    while (td__link_next(&k->link, &m))
        hear(w, k, &m, now);
    if (td__link_up(&k->link))
        return;
    if (w->plan) /* a program that a rank ran has ended, or said something malformed */
        td__link_fini(&k->link);
    else if (k->child.pidfd >= 0 && !k->link.ended)
        td__worker_kill(k, SIGKILL); /* malformed message */
}

void td__worker_pump(td__workers *w, worker *k, bool last)
{
    td__lines_pump(&k->out, &w->s->up, w->lost, k->slot, last);
    td__lines_pump(&k->err, &w->s->up, w->lost, k->slot, last);
}

static void end_worker(td__workers *w, worker *k, const char *why, uint64_t now)
{
    if (k->told_end)
        return;
    k->told_end = true;
    k->kill_at = now + td__worker_ns(w->s->grace_ms);
    if (td__link_up(&k->link))
        td__link_send(&k->link, TD_CTL_END, why, strlen(why));
    else
        td__worker_kill(k, SIGTERM);
}

/* ---- new ones ---- */

static void welcome(td__workers *w, td__link *l, uint64_t now)
{
    td__link_msg m;
    uint32_t hello[2];
    td__link_fill(l);
    if (!td__link_next(l, &m)) {
        if (!td__link_up(l))
            td__link_fini(l);
        return;
    }
    worker *k = NULL;
    if (m.kind == TD_CTL_HELLO && m.nbytes == sizeof hello) {
        memcpy(hello, m.data, sizeof hello);
        for (int i = 0; i < w->max; i++)
            if (w->all[i].used && !w->all[i].done && w->all[i].proc == hello[0] &&
                w->all[i].link.conn.fd < 0) /* of a fixed rank: the next program that it runs */
                k = &w->all[i];
    }
    if (!k) {
        td__link_fini(l);
        return;
    }
    k->link = *l;
    *l = (td__link){.conn = {.fd = -1}};
    k->heard_ns = now;
    uint32_t hail[] = {w->s->heartbeat_ms, w->s->min_ranks};
    td__link_send(&k->link, TD_CTL_WELCOME, hail, sizeof hail);
    if (k->told_end) /* by a signal, which it may have been too young to understand */
        td__link_send(&k->link, TD_CTL_END, TOO_LATE, strlen(TOO_LATE));
    td__worker_hear(w, k, now);
}

static void enter(void *user, td__conn conn)
{
    td__workers *w = user;
    td__link *l = &w->strangers[w->next_stranger++ % w->max];
    td__link_fini(l);
    td__link_init_take(l, conn);
}

/* ---- waiting ---- */

int td__workers_most_fds(const td__workers *w)
{
    return 2 + w->max + w->max * FDS_EACH;
}

int td__workers_poll(td__workers *w, struct pollfd *p)
{
    int n = 0;
    bool full = td__channel_full(&w->s->up);
    p[n++] = (struct pollfd){td__gate_fd(w->gate), POLLIN, 0};
    for (int i = 0; i < w->max; i++)
        p[n++] = (struct pollfd){w->strangers[i].conn.fd, POLLIN, 0};
    for (int i = 0; i < w->max; i++) {
        const worker *k = &w->all[i];
        if (!k->used || k->done)
            continue;
        p[n++] = (struct pollfd){k->child.pidfd, POLLIN, 0};
        p[n++] = (struct pollfd){full ? -1 : k->child.out, POLLIN, 0};
        p[n++] = (struct pollfd){full ? -1 : k->child.err, POLLIN, 0};
        p[n++] = (struct pollfd){td__link_up(&k->link) ? k->link.conn.fd : -1,
                                 td__link_events(&k->link), 0};
    }
    p[n++] = (struct pollfd){td__foreign_fd(w->plan ? w->plan->foreign : NULL), POLLIN, 0};
    return n;
}

/* Of those that ended since the last look, who was killed by a signal comes first: it is the
 * likelier cause of the others' end. */
static void reap_all(td__workers *w, uint64_t now)
{
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < w->max; i++) {
            worker *k = &w->all[i];
            if (k->used && !k->done && k->ended && (pass || td__child_killed(&k->child)))
                td__worker_reap(w, k, now);
        }
}

void td__workers_serve(td__workers *w, const struct pollfd *p, uint64_t now)
{
    int n = 1 + w->max;
    for (int i = 0; i < w->max; i++) { /* in the order of td__workers_poll */
        worker *k = &w->all[i];
        if (!k->used || k->done)
            continue;
        const struct pollfd *q = p + n;
        n += FDS_EACH;
        if (q[3].revents)
            td__worker_hear(w, k, now);
        if (q[1].revents || q[2].revents)
            td__worker_pump(w, k, false);
        k->ended = q[0].revents != 0;
    }
    if (p[n].revents) /* MPI_Abort */
        td__foreign_hear(w->plan->foreign);
    for (int i = 0; p[n].revents && i < w->max; i++)
        if (w->all[i].used && !w->all[i].done &&
            td__foreign_aborted(w->plan->foreign, td__worker_rank(w, &w->all[i])) >= 0)
            td__worker_kill(&w->all[i], SIGKILL);
    reap_all(w, now);
    if (p[0].revents)
        td__gate_serve(w->gate, enter, w);
    for (int i = 0; i < w->max; i++)
        if (w->strangers[i].conn.fd >= 0)
            welcome(w, &w->strangers[i], now);
    td__workers_find_dying(w);
}

/* ---- doing what was decided ---- */

/* One that may go: not a member, the youngest first; NULL: none. */
static worker *find_surplus(td__workers *w)
{
    worker *found = NULL;
    for (int i = 0; i < w->max; i++) {
        worker *k = &w->all[i];
        if (k->used && !k->done && !k->told_end && td__worker_rank(w, k) < 0 &&
            (!found || k->leaving || (k->proc > found->proc && !found->leaving)))
            found = k;
    }
    return found;
}

/* Those that leave, or have nothing more to do. */
static void let_go(td__workers *w, worker *k, uint64_t now)
{
    if (k->leaving && !k->told_end && td__worker_rank(w, k) < 0) {
        td__workers_give_up_place(w, k);
        end_worker(w, k, "it was asked to go", now);
    }
    if (w->now.over)
        end_worker(w, k, "the job is over", now);
}

td_status td__workers_tick(td__workers *w, uint64_t now)
{
    bool paused =
        w->ticked_ns && now > w->ticked_ns + td__worker_ns(w->s->lease_ms) / 2 + td__worker_ns(100);
    uint32_t n_live = 0, n_done = 0, target = w->target;
    w->ticked_ns = now;
    /* So that a pause of this process is noticed. */
    bool watched = !w->plan || w->s->lease_ms != UINT32_MAX;
    w->next_ns = watched ? now + td__worker_ns(w->s->lease_ms) / 4 : UINT64_MAX;
    for (int i = 0; i < w->max; i++) {
        worker *k = &w->all[i];
        if (!k->used)
            continue;
        if (paused) /* it was this process that did not listen */
            k->heard_ns = now;
        if (!k->done && watched) /* fixed ranks only if that is asked for */
            td__worker_watch(w, k, now);
        if (!k->done && !w->plan) /* fixed ranks are not replaced */
            let_go(w, k, now);
        n_done += k->done;
        n_live += !k->done && !k->told_end;
    }
    if (w->stopping) {
        if (w->kill_at && now >= w->kill_at)
            td__workers_kill(w);
        else if (w->kill_at)
            td__workers_later(w, w->kill_at);
        return TD_OK;
    }
    if (w->now.over)
        return TD_OK;
    worker *k;
    for (; n_live + n_done > target && n_live && (k = find_surplus(w)); n_live--)
        end_worker(w, k, TOO_LATE, now);
    if (!w->plan) /* places that were given up, which the leader has yet to hear of */
        n_done += w->report.given_up - w->now.given_up[w->s->index];
    if (n_live + n_done < target && now < w->start_at)
        td__workers_later(w, w->start_at);
    while (n_live + n_done < target && now >= w->start_at && !w->report.hopeless) {
        td_status st = td__worker_start(w, now);
        if (st && w->plan)
            return st;
        if (st) {
            TD_LOG(WARN, LAUNCH, "%s", td_last_error());
            td__workers_count_crash(w, NULL, EXIT_FAILED, td_last_error(), now);
            w->start_at = now + td__worker_ns(START_AGAIN_MS);
            break;
        }
        n_live++;
    }
    return TD_OK;
}

uint64_t td__workers_deadline(const td__workers *w)
{
    return w->next_ns;
}

/* From now on processes end because they were told to, but for those that are ending already. */
static void begin_to_stop(td__workers *w)
{
    for (int i = 0; i < w->max && !w->stopping; i++) {
        worker *k = &w->all[i];
        if (k->used && !k->done)
            k->dying |= td__process_ends((int)k->child.pid);
    }
    w->stopping = true;
}

void td__workers_stop(td__workers *w, uint64_t now)
{
    if (w->stopping)
        return;
    begin_to_stop(w);
    w->kill_at = now + td__worker_ns(w->s->grace_ms);
    for (int i = 0; i < w->max; i++) {
        worker *k = &w->all[i];
        if (!k->used || k->done)
            continue;
        if (td__link_up(&k->link) && !w->plan) {
            /* Together: a signal would reach one a step before another. */
            td__link_send(&k->link, TD_CTL_STOP, NULL, 0);
            td__worker_kill(k, SIGCONT);
        } else {
            td__worker_kill(k, SIGTERM);
        }
    }
}

void td__workers_kill(td__workers *w)
{
    begin_to_stop(w);
    for (int i = 0; i < w->max; i++)
        if (w->all[i].used && !w->all[i].done)
            td__worker_kill(&w->all[i], SIGKILL);
}

int td__workers_running(const td__workers *w)
{
    return w->n_running;
}

void td__workers_order(td__workers *w, uint64_t order, uint32_t wanted)
{
    if (order <= w->report.order)
        return;
    w->report.order = order;
    w->report.wanted = wanted;
}

void td__workers_slots(td__workers *w, uint32_t slots)
{
    w->report.slots = slots;
    w->s->hosts.host[w->s->index].count = (int)slots;
}

const td__place_report *td__workers_report(td__workers *w)
{
    td__place_report *r = &w->report;
    r->n_procs = 0;
    for (int i = 0; i < w->max; i++) {
        const worker *k = &w->all[i];
        td__proc_failed failed = k->hopeless || k->wrong || k->dying ? TD_FAILED_ENDS
                                 : k->failed                         ? TD_FAILED_SOME
                                                                     : TD_FAILED_NOT;
        if (k->used && !k->told_end)
            r->proc[r->n_procs++] =
                (td__place_proc){.proc = k->proc,
                                 .state = (uint8_t)k->state,
                                 .leaving = k->leaving || k->ends,
                                 .failed = (uint8_t)failed,
                                 .stopped = k->stopped,
                                 .out = k->dying || k->ends ? k->told : k->out_of};
    }
    size_t n = td__place_report_nbytes(r);
    r->number = w->sent.number;
    if (memcmp(r, &w->sent, n) != 0 || !r->number) {
        r->number++;
        memcpy(&w->sent, r, n);
    }
    return r;
}
