/* watchdog.c -- the watcher of a world. See watchdog.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/watchdog.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/log.h"
#include "coll/hang.h"
#include "coll/stall.h"
#include "coll/vigil.h"

enum {
    TICK_MS = 100,   /* between looks at calls in progress */
    ANSWER_MS = 300, /* for the store, in an answer */
    LEFT_MS = 300,   /* that a call may wait for a rank that left: its data may be on the way, */
    LEFT_LOOKS = 3,  /* or here already, and the call has not had the time to look */
};

static const char SPLIT[] = "td_comm_split";

/* ---- news ---- */

static int rank_in(const td__watch *w, int world_rank)
{
    for (int i = 0; i < w->n; i++)
        if (w->ranks[i] == world_rank)
            return i;
    return -1;
}

/* "rank 3 on host a (pid 17)", with the world rank where the comm numbers differently. */
static char *who(const td__watch *w, int member, char *buf, size_t nbytes)
{
    int world = w->ranks[member];
    const td__member *p = &w->m->members[world];
    char alias[32] = "";
    if (world != member)
        snprintf(alias, sizeof alias, " (world rank %d)", world);
    snprintf(buf, nbytes, "rank %d%s on host %s, pid %d,", member, alias, p->hostname, p->pid);
    return buf;
}

void td__watch_poison(td__watch *w, int member, td_status st, const char *what)
{
    char text[400], name[200], call[160] = "";
    td__comm_activity a;
    td__comm_activity_get(w->c, &a);
    if (a.in_call)
        td__comm_activity_text(&a, call, sizeof call);
    snprintf(text, sizeof text, "%s %s%s%s", who(w, member, name, sizeof name), what,
             call[0] ? " during " : "", call);
    td__comm_poison(w->c, st, text);
}

static void poison_for(td__watch *w, int member, const char *what)
{
    td__watch_poison(w, member, TD_EPEER, what);
}

/* `rank` will not come to the rendezvous: end the wait of those that are still meeting. What it was
 * given may have been wrong; then that of all was, and they end with the same status, whoever is
 * first. */
static void end_meeting(td__watchdog *m, int rank, const char *line)
{
    char text[400], *end;
    td_status st = TD_EPEER;
    bool concerned = m->meeting && !m->meeting_ranks;
    for (int i = 0; m->meeting && m->meeting_ranks && i < m->n_meeting; i++)
        concerned |= m->meeting_ranks[i] == rank;
    if (!concerned)
        return;
    if (line && strncmp(line, "poison ", 7) != 0)
        return;
    if (line) {
        if (strtol(line + 7, &end, 10) == TD_EINVAL)
            st = TD_EINVAL;
        snprintf(text, sizeof text, "rank %d failed:%s", rank, end);
    } else {
        snprintf(text, sizeof text, "rank %d died during rendezvous", rank);
    }
    td__store_stop_waits(m->store, st, text);
}

static void on_death(td__watchdog *m, int rank)
{
    if (m->fates[rank] != TD_FATE_HERE)
        return;
    m->fates[rank] = TD_FATE_DEAD;
    end_meeting(m, rank, NULL);
    for (td__watch *w = m->watches; w; w = w->next) {
        int member = rank_in(w, rank);
        if (member >= 0)
            poison_for(w, member,
                       strcmp(m->members[rank].host, m->members[m->rank].host) != 0
                           ? "died or can no longer be reached,"
                           : "died");
    }
}

static void on_comm_line(td__watchdog *m, int from, const char *text)
{
    const char *space = strchr(text, ' ');
    size_t n = space ? (size_t)(space - text) : 0;
    if (!n || n >= TD_STALL_KEY)
        return;
    for (td__watch *w = m->watches; w; w = w->next)
        if (!strncmp(w->key, text, n) && !w->key[n]) {
            int member = rank_in(w, from);
            if (member >= 0)
                td__comm_told(w->c, member, space + 1);
            return;
        }
    if (m->meeting && !strncmp(m->meeting, text, n) && !m->meeting[n])
        end_meeting(m, from, space + 1);
    if (!m->early && !(m->early = td__calloc(MAX_EARLY, sizeof *m->early)))
        return;
    early *e = &m->early[m->n_early++ % MAX_EARLY];
    e->from = from;
    snprintf(e->key, sizeof e->key, "%.*s", (int)n, text);
    snprintf(e->line, sizeof e->line, "%s", space + 1);
}

/* The store is gone, and with it all news. */
static void on_store_lost(td__watchdog *m)
{
    if (m->host && m->host != m->rank + 1)
        on_death(m, m->host - 1); /* unless it has left: the others may not need it any more */
    for (td__watch *w = m->watches; w && !m->host; w = w->next)
        td__comm_poison(
            w->c, TD_EPEER,
            "lost the store: the agent of this host, or its connection to the others, is gone");
}

static void note_question(td__watchdog *m, uint64_t token)
{
    m->asked = token;
    m->asked_ns = td__clock_ns();
    m->tokens[m->n_tokens++ % TD_STALL_TOKENS] = token;
}

/* On the store client's thread. */
static void on_event(void *user, const char *group, int rank, const char *what)
{
    td__watchdog *m = user;
    if (strcmp(group, m->group) != 0 || rank >= m->size || rank == m->rank)
        return;
    pthread_mutex_lock(&m->lock);
    if (rank < 0) {
        on_store_lost(m);
    } else if (!strcmp(what, "dead")) {
        on_death(m, rank);
    } else if (!strcmp(what, "left")) {
        if (m->fates[rank] == TD_FATE_HERE)
            m->fates[rank] = TD_FATE_LEFT;
    } else if (!strncmp(what, "comm ", 5)) {
        on_comm_line(m, rank, what + 5);
    } else if (!strncmp(what, "ask ", 4)) {
        note_question(m, strtoull(what + 4, NULL, 16));
        pthread_cond_signal(&m->wake);
    }
    pthread_mutex_unlock(&m->lock);
}

void td__watchdog_tell(td__watchdog *m, const char *key, const char *line)
{
    char text[TD_STALL_KEY + TD_COMM_LINE + 8];
    snprintf(text, sizeof text, "comm %s %s", key, line);
    td__store_tell(m->store, m->group, m->rank, text);
}

/* ---- what this rank is doing ---- */

/* "TOKEN KEY in|out SECONDS PHASE CALL[; NOTE]": the comm whose call began or ended last, and what
 * the program says of itself. */
static void describe_self(td__watchdog *m, char *out, size_t max)
{
    td__comm_activity best = {0}, a;
    const td__watch *of = NULL;
    const td_comm *says = NULL;
    for (const td__watch *w = m->watches; w; w = w->next) {
        td__comm_activity_get(w->c, &a);
        if (w->c->note.since_ns && (!says || w->c->note.since_ns > says->note.since_ns))
            says = w->c;
        if (!of || a.in_call > best.in_call ||
            (a.in_call == best.in_call && a.since_ns > best.since_ns)) {
            best = a;
            of = w;
        }
    }
    char call[160] = "no call", note[120];
    double age = 0;
    unsigned phase = says ? atomic_load(&says->note.phase) : TD_PHASE_COMPUTE;
    if (m->meeting_ranks) {
        age = 1e-9 * (double)(td__clock_ns() - m->meeting_ns);
        snprintf(out, max, "%llx %s in %.1f %u %s", (unsigned long long)m->asked, m->meeting, age,
                 phase, SPLIT);
        return;
    }
    if (of && best.sequence) {
        td__comm_activity_text(&best, call, sizeof call);
        age = 1e-9 * (double)(td__clock_ns() - best.since_ns);
    }
    int n = snprintf(out, max, "%llx %s %s %.1f %u %s", (unsigned long long)m->asked,
                     of ? of->key : "-", of && best.in_call ? "in" : "out", age, phase, call);
    for (int i = 0; i < best.n_waiting && i < TD_COMM_WAITING && of && best.in_call; i++)
        if (n > 0 && (size_t)n < max)
            n += snprintf(out + n, max - (size_t)n, "%s%d", i ? ", " : ", waiting for rank ",
                          best.waiting[i]);
    if (says && n > 0 && (size_t)n < max)
        snprintf(out + n, max - (size_t)n, "; %s", td__comm_note_text(says, note, sizeof note));
}

static void answer(td__watchdog *m)
{
    char key[2 * TD_STALL_KEY], text[TD_STALL_TEXT];
    describe_self(m, text, sizeof text);
    m->asked = 0;
    pthread_mutex_unlock(&m->lock);
    snprintf(key, sizeof key, "%s/doing%d", m->group, m->rank);
    td_status st =
        td__store_set(m->store, key, text, strlen(text) + 1, td__deadline_in_ms(ANSWER_MS));
    if (st)
        TD_LOG(DEBUG, COLL, "cannot report what this rank is doing: %s", td_last_error());
    pthread_mutex_lock(&m->lock);
}

/* ---- calls that wait ---- */

void td__watchdog_ask(td__watchdog *m, uint64_t now)
{
    char text[40];
    note_question(m, now | 1);
    snprintf(text, sizeof text, "ask %llx", (unsigned long long)m->asked);
    td__store_tell(m->store, m->group, m->rank, text);
}

/* Asks at half the time, so that the answers are there when the report is due; a report that is
 * overdue is made with the answers that are there: this thread may be too slow for new ones. */
static bool is_due(td__watchdog *m, uint64_t waited, uint64_t *report_ns, uint64_t now)
{
    uint64_t half = *report_ns / 2;
    if (waited > half && waited < *report_ns + half && m->asked_ns + half + half / 2 < now) {
        td__watchdog_ask(m, now);
        return false;
    }
    if (waited < *report_ns)
        return false;
    while (*report_ns <= waited)
        *report_ns *= 2;
    return true;
}

static void add_others(const td__watchdog *m, td__stall *s, const int *ranks, int size)
{
    for (int i = 0; i < size && size <= TD_STALL_OTHERS; i++) {
        bool known = ranks[i] == m->rank;
        for (int k = 0; k < s->n; k++)
            known |= s->waiting[k] == i;
        if (!known) {
            s->others[s->n_others] = i;
            s->others_world[s->n_others++] = ranks[i];
        }
    }
    memcpy(s->tokens, m->tokens, sizeof s->tokens);
}

/* Whom of those that have left the call waits for, -1 if for nobody, or if what it waits for may
 * still be found. */
static int missed(td__watch *w, const td__comm_activity *a, uint64_t now)
{
    int n = a->n_waiting < TD_COMM_WAITING ? a->n_waiting : TD_COMM_WAITING, who_left = -1;
    for (int i = 0; i < n && who_left < 0; i++)
        if (a->waiting[i] >= 0 && a->waiting[i] < w->n &&
            w->m->fates[w->ranks[a->waiting[i]]] == TD_FATE_LEFT)
            who_left = a->waiting[i];
    if (who_left < 0 || w->left_since != a->since_ns) {
        w->left_since = who_left < 0 ? 0 : a->since_ns;
        w->left_ns = now;
        w->left_looks = a->looks;
        return -1;
    }
    bool in_vain = now - w->left_ns > LEFT_MS * 1000000ull && a->looks - w->left_looks > LEFT_LOOKS;
    return in_vain ? who_left : -1;
}

/* Look at one comm; true: *s is to be reported. With the lock held. */
static bool look(td__watch *w, uint64_t now, td__stall *s)
{
    td__watchdog *m = w->m;
    td__comm_activity a;
    td__comm_activity_get(w->c, &a);
    if (!a.in_call || !a.n_waiting || now <= a.since_ns)
        return false;
    uint64_t waited = now - a.since_ns, stall_ns = (uint64_t)w->c->stall_ms * 1000000u;
    int n = a.n_waiting < TD_COMM_WAITING ? a.n_waiting : TD_COMM_WAITING;
    int left = missed(w, &a, now);
    if (left >= 0) {
        poison_for(w, left, "left");
        return false;
    }
    if (w->since_ns != a.since_ns) {
        w->since_ns = a.since_ns;
        w->report_ns = stall_ns;
    }
    if (!is_due(m, waited, &w->report_ns, now))
        return false;
    *s = (td__stall){.waited_ns = waited,
                     .fails_ns = (uint64_t)w->c->timeout_ms * 1000000u,
                     .asked_ns = m->asked_ns,
                     .n = n,
                     .n_more = a.n_waiting - n};
    char note[120], call[160];
    td__comm_note_text(w->c, note, sizeof note);
    snprintf(s->call, sizeof s->call, "%s%s%s", td__comm_activity_text(&a, call, sizeof call),
             note[0] ? "; " : "", note);
    snprintf(s->key, sizeof s->key, "%s", w->key);
    snprintf(s->name, sizeof s->name, "%s", w->c->name);
    for (int i = 0; i < n; i++) {
        s->waiting[i] = a.waiting[i];
        s->world[i] = w->ranks[a.waiting[i]];
    }
    add_others(m, s, w->ranks, w->n);
    return true;
}

/* The same for a sub-group that is being made. */
static bool look_at_meeting(td__watchdog *m, uint64_t now, td__stall *s)
{
    if (!m->meeting_ranks || now <= m->meeting_ns ||
        !is_due(m, now - m->meeting_ns, &m->meeting_report_ns, now))
        return false;
    *s = (td__stall){.waited_ns = now - m->meeting_ns, .asked_ns = m->asked_ns};
    snprintf(s->call, sizeof s->call, "%s", SPLIT);
    snprintf(s->key, sizeof s->key, "%s", m->meeting);
    snprintf(s->name, sizeof s->name, "%s", m->meeting);
    add_others(m, s, m->meeting_ranks, m->n_meeting);
    return true;
}

static void *watch_thread(void *arg)
{
    td__watchdog *m = arg;
    const td__stall_world world = {.store = m->store,
                                   .group = m->group,
                                   .rank = m->rank,
                                   .members = m->members,
                                   .fates = m->fates};
    td_log_set_rank(m->rank);
    pthread_mutex_lock(&m->lock);
    while (!m->ending) {
        struct timespec at;
        clock_gettime(CLOCK_MONOTONIC, &at);
        at.tv_nsec += TICK_MS * 1000000L;
        at.tv_sec += at.tv_nsec / 1000000000L;
        at.tv_nsec %= 1000000000L;
        pthread_cond_timedwait(&m->wake, &m->lock, &at);
        td__stall s;
        bool found = false;
        uint64_t now = td__clock_ns();
        for (td__watch *w = m->watches; w && !found && !m->ending; w = w->next)
            found = look(w, now, &s) || td__vigil_look(w, now, &s);
        found = found || look_at_meeting(m, now, &s);
        if (m->asked)
            answer(m);
        if (found && s.vigil_ns) {
            td__vigil_judge(m, &world, &s);
        } else if (found) {
            pthread_mutex_unlock(&m->lock);
            td__stall_report(&world, &s);
            pthread_mutex_lock(&m->lock);
        }
    }
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

/* ---- making and ending ---- */

td_status td__watchdog_create(td__store *s, const char *group, const td__watchdog_opts *o,
                              td__deadline until, td__watchdog **out)
{
    pthread_condattr_t attr;
    td__watchdog *m = td__calloc(1, sizeof *m);
    *out = NULL;
    if (m)
        m->fates = td__calloc((size_t)o->size, sizeof *m->fates);
    if (!m || !m->fates) {
        td__free(m);
        return TD_FAIL(TD_ENOMEM, "no memory to watch %d ranks", o->size);
    }
    m->store = s;
    m->rank = o->rank;
    m->size = o->size;
    m->members = o->members;
    m->host = o->host;
    snprintf(m->group, sizeof m->group, "%s", group);
    pthread_mutex_init(&m->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&m->wake, &attr);
    pthread_condattr_destroy(&attr);
    *out = m; /* also on failure: the store may know it already */
    return td__store_join(s, group, o->rank, on_event, m, until);
}

td_status td__watchdog_begin(td__watchdog *m)
{
    int error = pthread_create(&m->thread, NULL, watch_thread, m);
    if (error)
        return TD_FAIL(TD_ENOMEM, "cannot start the watchdog thread: %s", strerror(error));
    m->running = true;
    return TD_OK;
}

void td__watchdog_end(td__watchdog *m)
{
    if (!m || !m->running)
        return;
    pthread_mutex_lock(&m->lock);
    m->ending = true;
    pthread_cond_signal(&m->wake);
    pthread_mutex_unlock(&m->lock);
    pthread_join(m->thread, NULL);
    m->running = false;
}

void td__watchdog_destroy(td__watchdog *m)
{
    if (!m)
        return;
    pthread_cond_destroy(&m->wake);
    pthread_mutex_destroy(&m->lock);
    td__free(m->fates);
    td__free(m->early);
    td__free(m);
}

void td__watchdog_meeting(td__watchdog *m, const int *ranks, int n, const char *key,
                          uint32_t stall_ms)
{
    pthread_mutex_lock(&m->lock);
    m->meeting = key;
    m->meeting_ranks = ranks;
    m->n_meeting = n;
    m->meeting_ns = td__clock_ns();
    m->meeting_report_ns = (uint64_t)stall_ms * 1000000u;
    for (int r = 0; r < m->size; r++)
        if (m->fates[r] == TD_FATE_DEAD)
            end_meeting(m, r, NULL);
    for (int i = 0; m->early && i < MAX_EARLY; i++)
        if (!strcmp(m->early[i].key, key))
            end_meeting(m, m->early[i].from, m->early[i].line);
    pthread_mutex_unlock(&m->lock);
}

void td__watchdog_met(td__watchdog *m)
{
    pthread_mutex_lock(&m->lock);
    m->meeting = NULL;
    m->meeting_ranks = NULL;
    td__store_stop_waits(m->store, TD_OK, "");
    pthread_mutex_unlock(&m->lock);
}

td_status td__watch_create(td__watchdog *m, const int *ranks, int n, const char *key,
                           td__watch **out)
{
    td__watch *w = td__calloc(1, sizeof *w + (size_t)n * sizeof w->ranks[0]);
    *out = NULL;
    if (!w)
        return TD_FAIL(TD_ENOMEM, "no memory to watch %d ranks", n);
    w->m = m;
    w->n = n;
    memcpy(w->ranks, ranks, (size_t)n * sizeof w->ranks[0]);
    snprintf(w->key, sizeof w->key, "%s", key);
    *out = w;
    return TD_OK;
}

void td__watch_begin(td__watch *w, td_comm *c)
{
    td__watchdog *m = w->m;
    pthread_mutex_lock(&m->lock);
    w->c = c;
    w->next = m->watches;
    m->watches = w;
    for (int i = 0; i < w->n; i++)
        if (m->fates[w->ranks[i]] == TD_FATE_DEAD)
            poison_for(w, i, "died");
    for (int i = 0; m->early && i < MAX_EARLY; i++) {
        early *e = &m->early[i];
        int member = !strcmp(e->key, w->key) ? rank_in(w, e->from) : -1;
        if (member >= 0) {
            td__comm_told(c, member, e->line);
            e->key[0] = 0;
        }
    }
    pthread_mutex_unlock(&m->lock);
}

void td__watch_destroy(td__watch *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->m->lock);
    for (td__watch **p = &w->m->watches; *p; p = &(*p)->next)
        if (*p == w) {
            *p = w->next;
            break;
        }
    pthread_mutex_unlock(&w->m->lock);
    td__free(w);
}
