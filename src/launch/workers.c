/* workers.c -- see workers.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "launch/workers_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/fail.h"
#include "base/log.h"
#include "launch/rank_env.h"
#include "net/socket.h"

extern char **environ;

enum {
    FDS_EACH = 4,    /* pidfd, out, err, link */
    WINDOW_MS = 250, /* crashes this close together have one cause */
    BACK_OFF_MS = 100,
    START_AGAIN_MS = 1000, /* what this host lacks may come back */
    MOST_DOUBLINGS = 8,
    EXIT_FAILED = 1,
    EXIT_USAGE = 2,
    EXIT_NOT_RUN = 127,
    EXIT_INTERRUPTED = 130,
    TEXT = 224, /* of how one ended: fits into the cause of the job's end */
};

static const char TOO_LATE[] = "there is no place for it any more";

enum { MOST = TD_PLACE_PROCS, STRANGERS = TD_WORKERS_STRANGERS };
typedef td__worker worker;

uint64_t td__order_number(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- making ---- */

td_status td__workers_create(td__agent_spec *s, bool *lost, td__workers **out)
{
    td__workers *w = td__calloc(1, sizeof *w);
    td_status st = TD_OK;
    char actual[TD_ADDRESS_BYTES];
    int fd;
    *out = NULL;
    if (w)
        w->all = td__calloc(MOST, sizeof *w->all);
    if (!w || !w->all)
        TD_TRY_OR(st, fail, TD_FAIL(TD_ENOMEM, "no memory for an agent's processes"));
    w->s = s;
    w->lost = lost;
    for (int i = 0; i < STRANGERS; i++)
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

static void release(worker *k)
{
    td__link_fini(&k->link);
    td__child_close(&k->child);
    td__lines_fini(&k->out);
    td__lines_fini(&k->err);
    bool done = k->done;
    uint32_t proc = k->proc;
    uint64_t out_of = k->out_of;
    *k = (worker){.link = {.conn = {.fd = -1}}};
    if (done) { /* the others are to know that its work is done */
        k->used = k->done = true;
        k->proc = proc;
        k->out_of = out_of;
        k->state = TD_PROC_DONE;
        k->child = (td__child){0, -1, -1, -1, -1};
    }
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
    td__workers_kill(w);
    for (int i = 0; w->all && i < MOST; i++) {
        if (w->all[i].used && w->all[i].child.pidfd >= 0)
            td__child_reap(&w->all[i].child);
        w->all[i].done = false;
        if (w->all[i].used)
            release(&w->all[i]);
    }
    if (w->n_started)
        td__kill_marked(w->s->job, TD_ENV_AGENT, w->socket);
    for (int i = 0; w->s && i < STRANGERS; i++)
        td__link_fini(&w->strangers[i]);
    td__gate_destroy(w->gate);
    td__free(w->all);
    td__free(w);
}

/* ---- starting ---- */

static void add_env(const td__workers *w, const worker *k, td__texts *t)
{
    const td__agent_spec *s = w->s;
    td__texts_add(t, "%s=%s", td__env_name(TD_ENV_AGENT), w->socket);
    td__texts_add(t, "%s=%u", td__env_name(TD_ENV_PROC), k->proc);
    td__texts_add(t, "%s=%s", td__env_name(TD_ENV_SECRET_FILE), s->secret_file);
    td__texts_add(t, "%s=%s", td__env_name(TD_ENV_ADDRESS), s->address);
    td__texts_add(t, "%s=%s", td__env_name(TD_ENV_JOB), s->job);
    if (s->tls_file[0])
        td__texts_add(t, "%s=%s", td__env_name(TD_ENV_TLS_DIR), s->tls_file);
    for (int i = 0; s->env[i]; i++)
        td__texts_add(t, "%s", s->env[i]);
}

static int free_slot(const td__workers *w)
{
    for (int slot = 0;; slot++) {
        bool taken = false;
        for (int i = 0; i < MOST; i++)
            taken |= w->all[i].used && !w->all[i].done && w->all[i].slot == slot;
        if (!taken)
            return slot;
    }
}

static td_status start(td__workers *w, uint64_t now)
{
    worker *k = w->all;
    while (k < w->all + MOST && k->used)
        k++;
    if (k == w->all + MOST)
        return TD_FAIL(TD_ENOMEM, "an agent runs at most %d processes", (int)MOST);
    *k = (worker){.proc = td__ms_proc(w->s->index, ++w->n_started),
                  .slot = free_slot(w),
                  .link = {.conn = {.fd = -1}},
                  .heard_ns = now};
    td__texts t = {0};
    add_env(w, k, &t);
    char **env = td__rank_environ(environ, &t);
    td__spawn_opts o = {
        .env = env, .share_out = w->s->terminal, .death_signal = SIGKILL, .files = &w->s->files};
    td_status st = env ? TD_OK : TD_FAIL(TD_ENOMEM, "no memory for the environment of a process");
    if (!st)
        st = td__lines_init(&k->out, &k->child.out, TD_MSG_OUT);
    if (!st)
        st = td__lines_init(&k->err, &k->child.err, TD_MSG_ERR);
    if (!st)
        st = td__spawn(w->s->argv, &o, &k->child);
    td__free(env);
    td__texts_fini(&t);
    if (st) {
        td__lines_fini(&k->out);
        td__lines_fini(&k->err);
        return st;
    }
    k->used = true;
    if (k->child.out >= 0)
        fcntl(k->child.out, F_SETFL, O_NONBLOCK);
    fcntl(k->child.err, F_SETFL, O_NONBLOCK);
    w->n_running++;
    return TD_OK;
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
        k->spare = td__worker_rank(&w->now, k->proc) < 0 && w->now.n_members >= w->now.wanted;
    } else if (m->kind == TD_CTL_RUN_DIR && !*w->lost) {
        char dir[4096];
        int n = snprintf(dir, sizeof dir, "%.*s", (int)(m->nbytes < 4000 ? m->nbytes : 4000),
                         (const char *)m->data);
        *w->lost |= td__channel_send(&w->s->up, TD_MSG_RUN_DIR, k->slot, dir, (size_t)n + 1) != 0;
    }
}

static void hear_all(td__workers *w, worker *k, uint64_t now)
{
    td__link_msg m;
    td__link_flush(&k->link);
    td__link_fill(&k->link);
    while (td__link_next(&k->link, &m))
        hear(w, k, &m, now);
    if (!td__link_up(&k->link) && k->child.pidfd >= 0 && !k->link.ended)
        td__worker_kill(k, SIGKILL); /* speaks nonsense */
}

/* ---- ends ---- */

static void note_first(td__place_report *r, int status, const char *text)
{
    r->status = status;
    snprintf(r->first, sizeof r->first, "host %.60s, %.186s", r->host, text);
}

/* One more that failed; text: "pid 7 was killed by signal 9". */
static void count_crash(td__workers *w, const worker *k, int status, const char *text, uint64_t now)
{
    td__place_report *r = &w->report;
    bool forward = w->step > w->crash_step;
    if (forward || !r->crashes) {
        r->crashes = 1;
        note_first(r, status, text);
        w->crash_ns = now;
    } else if (now > w->crash_ns + td__worker_ns(WINDOW_MS)) {
        r->crashes++;
        w->crash_ns = now;
    }
    w->crash_step = w->step;
    bool not_run = (status == EXIT_USAGE || status == EXIT_NOT_RUN) && !w->step && !k->was_in;
    if ((not_run || k->hopeless) && !r->hopeless) {
        r->hopeless = true;
        note_first(r, status, text);
    }
    uint32_t n = r->crashes < MOST_DOUBLINGS ? r->crashes : MOST_DOUBLINGS;
    if (r->crashes > 1 || !k->was_in)
        w->start_at = now + (td__worker_ns(BACK_OFF_MS) << (n - 1));
}

/* One that was asked to go takes its place along: as if the operator wanted one rank less. A spare
 * has none; another takes over. */
static void want_less(td__workers *w, const worker *k)
{
    uint32_t now = w->report.order > w->now.order ? w->report.wanted : w->now.wanted;
    if (!w->stopping && !k->spare && now > w->s->min_ranks)
        td__workers_order(w, td__order_number(), now - 1);
}

static void pump(td__workers *w, worker *k, bool last)
{
    td__lines_pump(&k->out, &w->s->up, w->lost, k->slot, last);
    td__lines_pump(&k->err, &w->s->up, w->lost, k->slot, last);
}

static void reap(td__workers *w, worker *k, uint64_t now)
{
    char text[TEXT];
    if (td__link_up(&k->link)) /* its last words */
        hear_all(w, k, now);
    int status = td__child_reap(&k->child);
    pump(w, k, true);
    w->n_running--;
    k->done = !status && !k->told_end && !k->leaving;
    if (!k->done) {
        td__worker_end_text(w, k, status, text, sizeof text);
        td__place_end *e = &w->report.end[w->report.n_ends++ % TD_PLACE_ENDS];
        memset(e, 0, sizeof *e);
        e->proc = k->proc;
        snprintf(e->why, sizeof e->why, "%.*s", (int)sizeof e->why - 1, text);
        if (!k->told_end && !k->leaving && !w->stopping && !w->now.over) {
            for (char *p = text; *p; p++) /* the bracket belongs to the other form */
                if (*p == ')' && p[1] == ' ') {
                    memmove(p, p + 1, strlen(p));
                    break;
                }
            if (k->kept && status == EXIT_INTERRUPTED) {
                w->report.hopeless = true; /* who were to go on would be asked to go as well */
                w->report.status = status;
                w->report.first[0] = 0;
            } else if (k->wrong) /* it goes, with all of its places; the job has other hosts */
                td__workers_slots(w, 0);
            else
                count_crash(w, k, status, text, now);
            if (!k->hopeless && !w->report.hopeless)
                td__worker_say_hang(w, k, status);
        }
        if (k->leaving && !k->told_end)
            want_less(w, k);
    }
    release(k);
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
        for (int i = 0; i < MOST; i++)
            if (w->all[i].used && !w->all[i].done && w->all[i].proc == hello[0] &&
                w->all[i].link.conn.fd < 0)
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
    hear_all(w, k, now);
}

static void enter(void *user, td__conn conn)
{
    td__workers *w = user;
    td__link *l = &w->strangers[w->next_stranger++ % STRANGERS];
    td__link_fini(l);
    td__link_init_take(l, conn);
}

/* ---- waiting ---- */

int td__workers_most_fds(const td__workers *w)
{
    (void)w;
    return 1 + STRANGERS + MOST * FDS_EACH;
}

int td__workers_poll(td__workers *w, struct pollfd *p)
{
    int n = 0;
    bool full = td__channel_full(&w->s->up);
    p[n++] = (struct pollfd){td__gate_fd(w->gate), POLLIN, 0};
    for (int i = 0; i < STRANGERS; i++)
        p[n++] = (struct pollfd){w->strangers[i].conn.fd, POLLIN, 0};
    for (int i = 0; i < MOST; i++) {
        const worker *k = &w->all[i];
        if (!k->used || k->done)
            continue;
        p[n++] = (struct pollfd){k->child.pidfd, POLLIN, 0};
        p[n++] = (struct pollfd){full ? -1 : k->child.out, POLLIN, 0};
        p[n++] = (struct pollfd){full ? -1 : k->child.err, POLLIN, 0};
        p[n++] = (struct pollfd){td__link_up(&k->link) ? k->link.conn.fd : -1,
                                 td__link_events(&k->link), 0};
    }
    return n;
}

void td__workers_serve(td__workers *w, const struct pollfd *p, uint64_t now)
{
    int n = 1 + STRANGERS;
    for (int i = 0; i < MOST; i++) { /* in the order of td__workers_poll */
        worker *k = &w->all[i];
        if (!k->used || k->done)
            continue;
        const struct pollfd *q = p + n;
        n += FDS_EACH;
        if (q[3].revents)
            hear_all(w, k, now);
        if (q[1].revents || q[2].revents)
            pump(w, k, false);
        if (q[0].revents)
            reap(w, k, now);
    }
    if (p[0].revents)
        td__gate_serve(w->gate, enter, w);
    for (int i = 0; i < STRANGERS; i++)
        if (w->strangers[i].conn.fd >= 0)
            welcome(w, &w->strangers[i], now);
    td__workers_find_dying(w);
}

/* ---- doing what was decided ---- */

/* One that may go: not a member, the youngest first; NULL: none. */
static worker *find_surplus(td__workers *w)
{
    worker *found = NULL;
    for (int i = 0; i < MOST; i++) {
        worker *k = &w->all[i];
        if (k->used && !k->done && !k->told_end && td__worker_rank(&w->now, k->proc) < 0 &&
            (!found || k->leaving || (k->proc > found->proc && !found->leaving)))
            found = k;
    }
    return found;
}

/* Those that leave, or have nothing more to do. */
static void let_go(td__workers *w, worker *k, uint64_t now)
{
    if (k->leaving && !k->told_end && td__worker_rank(&w->now, k->proc) < 0) {
        want_less(w, k);
        end_worker(w, k, "it was asked to go", now);
    }
    if (w->now.over)
        end_worker(w, k, "the job is over", now);
}

void td__workers_tick(td__workers *w, uint64_t now)
{
    bool paused =
        w->ticked_ns && now > w->ticked_ns + td__worker_ns(w->s->lease_ms) / 2 + td__worker_ns(100);
    uint32_t n_live = 0, n_done = 0, n_going = 0, target = w->now.target[w->s->index];
    w->ticked_ns = now;
    w->next_ns =
        now + td__worker_ns(w->s->lease_ms) / 4; /* so that a pause of this process is noticed */
    for (int i = 0; i < MOST; i++) {
        worker *k = &w->all[i];
        if (!k->used)
            continue;
        if (paused) /* it was this process that did not listen */
            k->heard_ns = now;
        if (!k->done) {
            td__worker_watch(w, k, now);
            let_go(w, k, now);
        }
        n_done += k->done;
        n_live += !k->done && !k->told_end;
        n_going += k->leaving && k->told_end && !k->spare; /* with its place, soon */
    }
    if (w->stopping) {
        if (w->kill_at && now >= w->kill_at)
            td__workers_kill(w);
        else if (w->kill_at)
            td__workers_later(w, w->kill_at);
        return;
    }
    if (w->now.over)
        return;
    worker *k;
    for (; n_live + n_done > target && n_live && (k = find_surplus(w)); n_live--)
        end_worker(w, k, TOO_LATE, now);
    n_done += n_going;
    if (n_live + n_done < target && now < w->start_at)
        td__workers_later(w, w->start_at);
    while (n_live + n_done < target && now >= w->start_at && !w->report.hopeless) {
        if (start(w, now)) {
            TD_LOG(WARN, LAUNCH, "%s", td_last_error());
            count_crash(w, &(worker){.used = false}, EXIT_FAILED, td_last_error(), now);
            w->start_at = now + td__worker_ns(START_AGAIN_MS);
            break;
        }
        n_live++;
    }
}

uint64_t td__workers_deadline(const td__workers *w)
{
    return w->next_ns;
}

void td__workers_stop(td__workers *w, uint64_t now)
{
    if (w->stopping)
        return;
    w->stopping = true;
    w->kill_at = now + td__worker_ns(w->s->grace_ms);
    for (int i = 0; i < MOST; i++) {
        worker *k = &w->all[i];
        if (!k->used || k->done)
            continue;
        if (td__link_up(&k->link)) { /* together: a signal would reach one a step before another */
            td__link_send(&k->link, TD_CTL_STOP, NULL, 0);
            td__worker_kill(k, SIGCONT);
        } else {
            td__worker_kill(k, SIGTERM);
        }
    }
}

void td__workers_kill(td__workers *w)
{
    w->stopping = true;
    for (int i = 0; w->all && i < MOST; i++)
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
    for (int i = 0; i < MOST; i++) {
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
