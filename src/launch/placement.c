/* placement.c -- see placement.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "launch/placement.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    RETRY_MS = 10,
    MOST_DOUBLINGS = 9,
    SETTLE_MS =
        300, /* that waiting processes wait for others that are starting, to join together */
};

static uint64_t bit(int agent)
{
    return (uint64_t)1 << agent;
}

size_t td__place_report_nbytes(const td__place_report *r)
{
    return offsetof(td__place_report, proc) + r->n_procs * sizeof r->proc[0];
}

bool td__place_report_good(const td__place_report *r, size_t nbytes)
{
    if (nbytes < offsetof(td__place_report, proc) || r->n_procs > TD_PLACE_PROCS ||
        nbytes != td__place_report_nbytes(r) || !memchr(r->cause, 0, sizeof r->cause) ||
        !memchr(r->host, 0, sizeof r->host))
        return false;
    for (int i = 0; i < TD_PLACE_ENDS; i++)
        if (!memchr(r->end[i].how, 0, sizeof r->end[i].how))
            return false;
    return true;
}

__attribute__((format(printf, 2, 3))) static void set_text(char text[TD_MS_TEXT], const char *fmt,
                                                           ...)
{
    va_list args;
    memset(text, 0, TD_MS_TEXT);
    va_start(args, fmt);
    vsnprintf(text, TD_MS_TEXT, fmt, args);
    va_end(args);
}

static const td__place_report *report_of(const td__place *p, int agent)
{
    return (p->alive & bit(agent)) ? p->report[agent] : NULL;
}

static bool all_reported(const td__place *p)
{
    for (int a = 0; a < TD_MS_AGENTS; a++)
        if ((p->alive & bit(a)) && !p->report[a])
            return false;
    return true;
}

/* NULL: it is gone, or its agent is. */
static const td__place_proc *find(const td__place *p, uint32_t proc)
{
    const td__place_report *r = report_of(p, td__ms_proc_agent(proc));
    for (uint32_t i = 0; r && i < r->n_procs; i++)
        if (r->proc[i].proc == proc)
            return &r->proc[i];
    return NULL;
}

static bool is_member(const td__ms_content *c, uint32_t proc)
{
    for (uint32_t i = 0; i < c->n_members; i++)
        if (c->member[i] == proc)
            return true;
    return false;
}

/* ---- where processes run ---- */

/* Keep what is there; take away from the last, add to the first that has room. */
static void set_targets(const td__place *p, uint64_t voters, td__ms_content *c)
{
    uint32_t have = 0, slots = 0, part[TD_MS_AGENTS] = {0};
    int n = __builtin_popcountll(voters), nth = 0;
    for (int a = 0; a < TD_MS_AGENTS; a++) {
        const td__place_report *r = voters & bit(a) ? p->report[a] : NULL;
        uint32_t room = r ? r->slots : 0, spares = 0;
        if (voters & bit(a))
            spares = p->spares / (uint32_t)n + ((uint32_t)nth++ < p->spares % (uint32_t)n);
        part[a] = c->target[a] > spares ? c->target[a] - spares : 0;
        part[a] = part[a] < room ? part[a] : room;
        c->target[a] = (uint16_t)(room ? spares : 0);
        have += part[a];
        slots += room;
    }
    uint32_t want = c->wanted < slots ? c->wanted : slots;
    for (int a = TD_MS_AGENTS; a-- > 0 && have > want;) {
        uint32_t less = part[a] < have - want ? part[a] : have - want;
        part[a] -= less;
        have -= less;
    }
    for (int a = 0; a < TD_MS_AGENTS && have < want; a++) {
        uint32_t room = (voters & bit(a)) && p->report[a] ? p->report[a]->slots - part[a] : 0;
        uint32_t more = room < want - have ? room : want - have;
        part[a] += more;
        have += more;
    }
    for (int a = 0; a < TD_MS_AGENTS; a++)
        c->target[a] = (uint16_t)(c->target[a] + part[a]);
}

/* ---- how many ranks ---- */

/* A process that was asked to go takes its place along, on its host. */
static void give_up_places(const td__place *p, int agent, uint32_t slots, td__ms_content *c)
{
    uint32_t n = p->report[agent]->given_up - c->given_up[agent], *wanted = &c->wanted;
    *wanted = *wanted < slots ? *wanted : slots; /* of those that were never there none goes */
    n = *wanted > p->min + n ? n : *wanted > p->min ? *wanted - p->min : 0;
    *wanted -= n;
    c->given_up[agent] = p->report[agent]->given_up;
    c->target[agent] = (uint16_t)(c->target[agent] > n ? c->target[agent] - n : 0);
}

static void count_wanted(const td__place *p, td__ms_content *c)
{
    uint32_t slots = 0;
    for (int a = 0; a < TD_MS_AGENTS; a++)
        slots += report_of(p, a) ? report_of(p, a)->slots : 0;
    for (int a = 0; a < TD_MS_AGENTS; a++) {
        const td__place_report *r = report_of(p, a);
        if (r && r->given_up > c->given_up[a])
            give_up_places(p, a, slots, c);
    }
    for (int a = 0; a < TD_MS_AGENTS; a++) {
        const td__place_report *r = report_of(p, a);
        if (r && r->order > c->order) {
            c->order = r->order;
            c->wanted = r->wanted > p->min ? r->wanted : p->min;
        }
    }
}

/* ---- who is in ---- */

/* A rank's place among the members of its agent, for one that has to give way. */
static uint32_t nth_of_agent(const td__ms_content *c, uint32_t rank)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < rank; i++)
        n += td__ms_proc_agent(c->member[i]) == td__ms_proc_agent(c->member[rank]);
    return n;
}

bool td__place_too_many(const td__ms_content *c, uint32_t rank)
{
    int agent = td__ms_proc_agent(c->member[rank]);
    return rank >= c->wanted || nth_of_agent(c, rank) >= c->target[agent];
}

/* Which members of old have no place by the numbers of next: those that are gone or want to go, and
 * of the others the last, in all or on their host. */
static void find_going(const td__place *p, const td__ms_content *next, const td__ms_content *old,
                       bool goes[TD_MS_MEMBERS])
{
    uint32_t n = 0, on[TD_MS_AGENTS] = {0};
    for (uint32_t i = 0; i < old->n_members; i++) {
        const td__place_proc *m = find(p, old->member[i]);
        int agent = td__ms_proc_agent(old->member[i]);
        goes[i] = !m || m->leaving || n >= next->wanted || on[agent] >= next->target[agent];
        n += !goes[i];
        on[agent] += !goes[i];
    }
}

static uint32_t members_on(const td__ms_content *c, int agent)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->n_members; i++)
        n += td__ms_proc_agent(c->member[i]) == agent;
    return n;
}

static bool waits(const td__place_proc *k, const td__ms_content *old)
{
    return k->state == TD_PROC_WAITING && !k->leaving && !is_member(old, k->proc);
}

/* A member that the others do not wait for. Rank 0 may be in the middle of a file. */
static bool parked(const td__place_proc *m, uint32_t rank)
{
    return m->stopped && rank > 0 && m->state == TD_PROC_BUSY;
}

/* Members that stay, in their order, then those that wait, up to the number wanted. */
static void choose(const td__place *p, const td__ms_content *old, td__ms_content *next)
{
    uint32_t want = next->wanted < TD_MS_MEMBERS ? next->wanted : TD_MS_MEMBERS;
    uint32_t *n = &next->n_members;
    bool goes[TD_MS_MEMBERS];
    find_going(p, next, old, goes);
    *n = 0;
    for (uint32_t i = 0; i < old->n_members && *n < want; i++) {
        const td__place_proc *m = find(p, old->member[i]);
        if (m && m->state != TD_PROC_DONE && !parked(m, i) && !goes[i])
            next->member[(*n)++] = old->member[i];
    }
    for (uint32_t i = 0; i < old->n_members && !*n; i++) { /* one must bring the state along */
        const td__place_proc *m = find(p, old->member[i]);
        if (m && m->state != TD_PROC_DONE)
            next->member[(*n)++] = old->member[i];
    }
    for (int a = 0; a < TD_MS_AGENTS && !next->finishing; a++) {
        const td__place_report *r = report_of(p, a);
        for (uint32_t i = 0; r && i < r->n_procs && *n < want; i++)
            if (waits(&r->proc[i], old) && members_on(next, a) < next->target[a])
                next->member[(*n)++] = r->proc[i].proc;
    }
    memset(next->member + *n, 0, (TD_MS_MEMBERS - *n) * sizeof next->member[0]);
}

/* Processes that wait for a place, and for which there is one on their host. */
static uint32_t count_waiting(const td__place *p, const td__ms_content *old,
                              const td__ms_content *next)
{
    uint32_t n = 0;
    for (int a = 0; a < TD_MS_AGENTS; a++) {
        const td__place_report *r = report_of(p, a);
        uint32_t some = members_on(old, a);
        for (uint32_t i = 0; r && i < r->n_procs && some < next->target[a]; i++)
            if (waits(&r->proc[i], old)) {
                n++;
                some++;
            }
    }
    return n;
}

/* ---- why ---- */

/* The agent's word on a process that is gone. */
static void say_lost(const td__place *p, const td__ms_content *c, uint32_t rank, char *text)
{
    int a = td__ms_proc_agent(c->member[rank]);
    const td__place_report *r = p->report[a];
    const char *host = r ? r->host : "?";
    if (!(p->alive & bit(a))) {
        set_text(text, "host %s was lost, and rank %u with it: its agent %s", host, rank,
                 p->dead & bit(a) ? "died" : "does not answer");
        return;
    }
    for (int i = 0; r && i < TD_PLACE_ENDS; i++)
        if (r->end[i].proc == c->member[rank] && r->end[i].how[0]) {
            set_text(text, "rank %u (host %s, pid %u) %s", rank, host, r->end[i].pid,
                     r->end[i].how);
            return;
        }
    set_text(text, "rank %u on host %s ended", rank, host);
}

/* Who was lost last: since this generation, or before it. */
static void why_fewer(const td__place *p, const td__ms_content *c, char *text)
{
    set_text(text, "%s", c->generation > 1 ? c->why : "");
    for (uint32_t i = 0; i < c->n_members; i++)
        if (!find(p, c->member[i])) {
            say_lost(p, c, i, text);
            return;
        }
}

/* ---- the end ---- */

static bool end_job(td__ms_content *c, int status, const char *cause)
{
    c->over = true;
    c->status = status;
    set_text(c->cause, "%s", cause);
    return true;
}

static bool is_over(const td__place *p, const td__ms_state *s, td__ms_content *next)
{
    uint32_t slots = 0, n_done = 0, n_gone = 0, n_ended = 0, n_target = 0;
    char text[2 * TD_MS_TEXT];
    for (int a = 0; a < TD_MS_AGENTS; a++) {
        const td__place_report *r = report_of(p, a);
        if (!r)
            continue;
        slots += r->slots;
        n_target += next->target[a];
        for (uint32_t i = 0; i < r->n_procs; i++)
            n_ended += r->proc[i].state == TD_PROC_DONE;
        if (r->hopeless)
            return end_job(next, r->status, r->cause);
        if (r->crashes > p->most_crashes) {
            snprintf(text, sizeof text, "%u failures without a step forward; the last: %s",
                     r->crashes, r->cause);
            return end_job(next, r->status, text);
        }
    }
    for (uint32_t i = 0; i < s->content.n_members; i++) {
        const td__place_proc *m = find(p, s->content.member[i]);
        n_done += m && m->state == TD_PROC_DONE;
        n_gone += !m;
    }
    next->finishing |= n_done > 0;
    /* Who is done has seen all others come to the end: one that was lost there had done its
     * work. */
    if (next->finishing && all_reported(p) && n_done + n_gone == s->content.n_members)
        return end_job(next, 0, "");
    if (!s->content.generation && n_ended && n_ended == n_target && all_reported(p))
        return end_job(next, 0, ""); /* programs that want nothing of one another */
    if (slots < p->min && all_reported(p) && !next->finishing) {
        char why[TD_MS_TEXT];
        why_fewer(p, &s->content, why);
        snprintf(text, sizeof text,
                 "%u ranks are the least, and the hosts that are left have %u "
                 "slots%s%s",
                 p->min, slots, why[0] ? "; " : "", why);
        return end_job(next, 1, text);
    }
    return false;
}

/* ---- generations ---- */

static bool form(td__place *p, const td__ms_content *old, td__ms_content *next)
{
    choose(p, old, next);
    uint32_t min_ranks = next->finishing ? 1 : p->min;
    if (next->n_members < min_ranks) { /* the rest is starting, or will be */
        memcpy(next->member, old->member, sizeof next->member);
        next->n_members = old->n_members;
        memcpy(next->why, old->why, sizeof next->why);
        return false;
    }
    next->generation = old->generation + 1;
    next->ending = false;
    memset(next->store, 0, sizeof next->store);
    snprintf(next->store, sizeof next->store, "%s", p->store);
    return true;
}

static bool form_first(td__place *p, const td__ms_content *old, uint64_t now, td__ms_content *next)
{
    uint32_t n = count_waiting(p, old, next), target = 0;
    for (int a = 0; a < TD_MS_AGENTS; a++)
        target += next->target[a];
    uint32_t want = next->wanted < target ? next->wanted : target;
    if (n < want || !want || !all_reported(p)) {
        p->look_at = p->since_ns + p->gather_ns;
        if (now < p->look_at)
            return false;
        p->look_at = UINT64_MAX;
    }
    set_text(next->why, "the first generation");
    return n > 0 && form(p, old, next);
}

/* A member that was through with its work before it heard of this generation: it will not come. */
static bool absent(const td__place_proc *m, const td__ms_content *c)
{
    return m->state == TD_PROC_DONE && m->out < c->generation;
}

/* Members that are gone or stopped, that will not come, or that could not go on. */
static bool form_urgently(td__place *p, const td__ms_content *old, uint64_t now,
                          td__ms_content *next, bool *urgent)
{
    int lost = -1, failed = -1, stopped = -1, done = -1;
    bool ends = false;
    for (uint32_t i = 0; i < old->n_members; i++) {
        const td__place_proc *m = find(p, old->member[i]);
        if (!m && lost < 0)
            lost = (int)i;
        if (m && parked(m, i) && stopped < 0)
            stopped = (int)i;
        if (m && m->failed && m->out >= old->generation && failed < 0)
            failed = (int)i;
        ends |= m && m->failed == TD_FAILED_ENDS && m->out >= old->generation;
        if (m && absent(m, old) && done < 0)
            done = (int)i;
    }
    *urgent = lost >= 0 || failed >= 0 || stopped >= 0 || done >= 0;
    if (!*urgent || ends)
        return false;
    if (lost >= 0) {
        say_lost(p, old, (uint32_t)lost, next->why);
        p->n_failed = 0;
    } else if (stopped >= 0) {
        const td__place_report *r = report_of(p, td__ms_proc_agent(old->member[stopped]));
        set_text(next->why, "rank %d on host %s is stopped: continuing without it", stopped,
                 r ? r->host : "?");
    } else if (done >= 0) {
        set_text(next->why, "rank %d had done its work before", done);
    } else {
        /* All are here, yet not together: again, but not as fast as it goes. */
        uint64_t wait = (uint64_t)RETRY_MS * 1000000u
                        << (p->n_failed < MOST_DOUBLINGS ? p->n_failed : MOST_DOUBLINGS);
        if (!p->failed_ns || p->failed_ns > now)
            p->failed_ns = now;
        if (now < p->failed_ns + wait) {
            p->look_at = p->failed_ns + wait;
            return false;
        }
        p->n_failed++;
        p->failed_ns = 0;
        set_text(next->why, "rank %d could not continue after a failure", failed);
    }
    return form(p, old, next);
}

static bool some_start(const td__place *p)
{
    for (int a = 0; a < TD_MS_AGENTS; a++) {
        const td__place_report *r = report_of(p, a);
        for (uint32_t i = 0; r && i < r->n_procs; i++)
            if (r->proc[i].state == TD_PROC_STARTING)
                return true;
    }
    return false;
}

/* Are the waiting processes to join now? Processes that are starting join with them. */
static bool is_time_to_grow(td__place *p, uint32_t n_wait, uint32_t room, uint64_t now)
{
    uint64_t settle = SETTLE_MS * 1000000ull;
    if (!n_wait)
        p->grow_ns = 0;
    else if (!p->grow_ns)
        p->grow_ns = now;
    if (!n_wait || n_wait >= room || !some_start(p) || now >= p->grow_ns + settle)
        return n_wait > 0;
    p->look_at = p->grow_ns + settle;
    return false;
}

/* "1 left, 2 joined" */
static void say_change(uint32_t left, uint32_t joined, char why[TD_MS_TEXT])
{
    if (left && joined)
        set_text(why, "%u left, %u joined", left, joined);
    else if (left || joined)
        set_text(why, "%u %s", left ? left : joined, left ? "left" : "joined");
    else
        set_text(why, "the same ranks, at a step border");
}

static bool form_at_border(td__place *p, const td__ms_content *old, uint64_t now,
                           td__ms_content *next)
{
    uint32_t n_go = 0, n_out = 0, n_done = 0, n_wait = 0;
    bool goes[TD_MS_MEMBERS];
    find_going(p, next, old, goes);
    for (uint32_t i = 0; i < old->n_members; i++) {
        const td__place_proc *m = find(p, old->member[i]);
        bool done = m && m->state == TD_PROC_DONE;
        n_done += done;
        n_go += !done && goes[i];
        n_out += m && m->state == TD_PROC_WAITING && m->out >= old->generation;
    }
    if (!next->finishing && old->n_members < next->wanted)
        n_wait = count_waiting(p, old, next);
    if (n_out && n_out + n_done == old->n_members) {
        uint32_t n = old->n_members;
        if (!form(p, old, next))
            return false;
        uint32_t come = next->n_members > n - n_go ? next->n_members - (n - n_go) : 0;
        say_change(n_go, come, next->why);
        return true;
    }
    uint32_t room = next->wanted > old->n_members ? next->wanted - old->n_members : 0;
    bool grow = is_time_to_grow(p, n_wait, room, now);
    if ((n_go || grow) && !old->ending && !n_done) {
        next->ending = true;
        return true;
    }
    return false;
}

bool td__place_next(td__place *p, const td__ms_state *s, uint64_t now, uint64_t *voters,
                    td__ms_content *next)
{
    const td__ms_content *old = &s->content;
    bool urgent = false;
    *next = *old;
    p->look_at = UINT64_MAX;
    *voters = (s->voters | (p->alive & ~s->known)) & p->alive;
    bool changed = *voters != s->voters;
    if (old->over)
        return false;
    count_wanted(p, next);
    set_targets(p, *voters, next);
    changed |= next->order != old->order || next->wanted != old->wanted ||
               memcmp(next->given_up, old->given_up, sizeof old->given_up) != 0 ||
               memcmp(next->target, old->target, sizeof old->target) != 0;
    if (is_over(p, s, next))
        return true;
    changed |= next->finishing != old->finishing;
    if (!old->generation)
        return form_first(p, old, now, next) || changed;
    if (form_urgently(p, old, now, next, &urgent))
        return true;
    if (!urgent)
        changed |= form_at_border(p, old, now, next);
    return changed;
}
