/* stall.c -- the stall report. See stall.h; who asks and who answers is in watchdog.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/stall.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "coll/hang.h"

enum {
    ANSWER_MS = 300,  /* for the store */
    OTHERS_MS = 1000, /* for looking at ranks that are not waited for directly */
};

/* What is `world` doing, in words? False: it waits in the same comm like this rank. *silent: its
 * process is there, and does not answer. */
static bool explain_more(const td__stall_world *m, const td__stall *s, int world, char *out,
                         size_t max, bool *silent)
{
    const td__member *p = &m->members[world];
    char key[2 * TD_STALL_KEY], call[TD_STALL_TEXT] = "", of[TD_STALL_KEY] = "", in[4] = "";
    unsigned long long token = 0;
    double age = 0;
    unsigned phase = TD_PHASE_COMPUTE;
    void *value = NULL;
    size_t nbytes = 0;
    bool local = !strcmp(p->host, m->members[m->rank].host);
    char state = local ? td__process_state(p->pid) : '?';

    td__hang hang = td__hang_class(state, phase);
    *silent = false;
    if (m->fates[world] == TD_FATE_DEAD || hang == TD_HANG_DEAD) {
        snprintf(out, max, "dead");
        return true;
    }
    if (m->fates[world] == TD_FATE_LEFT) {
        snprintf(out, max, "it has exited");
        return true;
    }
    if (hang == TD_HANG_STOPPED) {
        *silent = true;
        snprintf(out, max, "stopped (by a signal or a debugger)");
        return true;
    }
    snprintf(key, sizeof key, "%s/doing%d", m->group, world);
    td_status st = td__store_get(m->store, key, td__deadline_in_ms(ANSWER_MS), &value, &nbytes);
    bool known =
        !st && value && nbytes && !((char *)value)[nbytes - 1] &&
        sscanf(value, "%llx %63s %3s %lf %u %399[^\n]", &token, of, in, &age, &phase, call) == 6;
    bool fresh = false;
    for (int i = 0; i < TD_STALL_TOKENS; i++)
        fresh |= known && token == s->tokens[i];
    td__free(value);
    age += 1e-9 * (double)(td__clock_ns() - s->asked_ns); /* the answer is that old */
    bool out_of = !strcmp(in, "out"), other = strcmp(of, s->key) != 0;
    hang = td__hang_class(state, !fresh || !out_of ? TD_PHASE_COMM : phase);
    *silent = !fresh;
    if (!fresh)
        snprintf(out, max, "%s: no answer: stopped, or its host cannot be reached",
                 td__hang_name(hang));
    else if (out_of)
        snprintf(out, max, "%s: in no call for %.1f s (last: %s)", td__hang_name(hang), age, call);
    else
        snprintf(out, max, "%s: in %s%s for %.1f s", td__hang_name(hang), call,
                 other ? " of another group" : "", age);
    return !fresh || out_of || other;
}

static bool explain(const td__stall_world *m, const td__stall *s, int world, char *out, size_t max)
{
    bool silent;
    return explain_more(m, s, world, out, max, &silent);
}

int td__stall_silent(const td__stall_world *m, const td__stall *s, char *what, size_t max)
{
    for (int i = 0; i < s->n; i++) {
        bool silent;
        (void)explain_more(m, s, s->world[i], what, max, &silent);
        if (silent)
            return s->waiting[i];
    }
    return -1;
}

/* Does a lower rank wait as well? Then that one warns. */
static bool is_first(const td__stall_world *m, const td__stall *s)
{
    char what[TD_STALL_TEXT + 64];
    td__deadline until = td__deadline_in_ms(OTHERS_MS);
    for (int i = 0; i < s->n_others && !td__deadline_passed(until); i++)
        if (s->others_world[i] < m->rank && !explain(m, s, s->others_world[i], what, sizeof what))
            return false;
    for (int i = 0; i < s->n && !td__deadline_passed(until); i++)
        if (s->world[i] < m->rank && !explain(m, s, s->world[i], what, sizeof what))
            return false;
    return true;
}

static void say(bool warn, const td__stall_world *m, const td__stall *s, const char *via, int rank,
                int world, const char *what)
{
    const td__member *p = &m->members[world];
    char then[64] = "", alias[32] = "";
    if (world != rank) /* the comm numbers its ranks otherwise */
        snprintf(alias, sizeof alias, "world rank %d, ", world);
    if (s->fails_ns > s->waited_ns)
        snprintf(then, sizeof then, "; the call fails after %.0f s", 1e-9 * (double)s->fails_ns);
    td_log_level level = warn ? TD_LOG_WARN : TD_LOG_INFO;
    if (td__log_enabled(level, TD_LOG_PART_COLL))
        td__log_write(level, TD_LOG_PART_COLL,
                      "stall: %s: %s has waited %.1f s for %srank %d (%shost %s, pid %d): %s%s",
                      s->name, s->call, 1e-9 * (double)s->waited_ns, via, rank, alias, p->hostname,
                      p->pid, what, then);
}

/* A rank that is waited for may itself wait for another: of those not waited for directly, name all
 * that hold the call up. */
static void report_others(bool warn, const td__stall_world *m, const td__stall *s)
{
    char what[TD_STALL_TEXT + 64];
    td__deadline until = td__deadline_in_ms(OTHERS_MS);
    for (int i = 0; i < s->n_others && !td__deadline_passed(until); i++)
        if (explain(m, s, s->others_world[i], what, sizeof what))
            say(warn, m, s, "ranks that wait for ", s->others[i], s->others_world[i], what);
}

void td__stall_report(const td__stall_world *m, const td__stall *s)
{
    char what[TD_STALL_TEXT + 64];
    bool warn = is_first(m, s);
    for (int i = 0; i < s->n; i++) {
        explain(m, s, s->world[i], what, sizeof what);
        say(warn, m, s, "", s->waiting[i], s->world[i], what);
    }
    if (s->n_more > 0)
        TD_LOG(WARN, COLL, "stall: %s: %s also waits for %d more ranks", s->name, s->call,
               s->n_more);
    else
        report_others(warn, m, s);
}
