/* stall.c -- the stall report. See stall.h; who asks and who answers is in monitor.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/stall.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"

enum {
    ANSWER_MS = 300,  /* for the store */
    OTHERS_MS = 1000, /* for looking at ranks that are not waited for directly */
};

static char process_state(int pid)
{
    char path[32], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *f = fopen(path, "re");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f)
        fclose(f);
    text[n] = 0;
    const char *p = strrchr(text, ')');
    return p && p[1] ? p[2] : 0;
}

/* What is `world` doing, in words? False: it waits in the same comm like this rank. */
static bool explain(const td__stall_world *m, const td__stall *s, int world, char *out, size_t max)
{
    const td__member *p = &m->members[world];
    char key[2 * TD_STALL_KEY], call[TD_STALL_TEXT] = "", of[TD_STALL_KEY] = "", in[4] = "";
    unsigned long long token = 0;
    double age = 0;
    void *value = NULL;
    size_t nbytes = 0;
    bool local = !strcmp(p->host, m->members[m->rank].host);
    char state = local ? process_state(p->pid) : '?';

    if (m->fates[world] == TD_FATE_DEAD || state == 0 || state == 'Z' || state == 'X') {
        snprintf(out, max, "dead");
        return true;
    }
    if (m->fates[world] == TD_FATE_LEFT) {
        snprintf(out, max, "it has left");
        return true;
    }
    if (state == 'T' || state == 't') {
        snprintf(out, max, "stopped (by a signal or a debugger)");
        return true;
    }
    snprintf(key, sizeof key, "%s/doing%d", m->group, world);
    td_status st = td__store_get(m->store, key, td__deadline_in_ms(ANSWER_MS), &value, &nbytes);
    bool known = !st && value && nbytes && !((char *)value)[nbytes - 1] &&
                 sscanf(value, "%llx %63s %3s %lf %399[^\n]", &token, of, in, &age, call) == 5;
    bool fresh = false;
    for (int i = 0; i < TD_STALL_TOKENS; i++)
        fresh |= known && token == s->tokens[i];
    td__free(value);
    age += 1e-9 * (double)(td__clock_ns() - s->asked_ns); /* the answer is that old */
    if (!fresh)
        snprintf(out, max, "it does not answer: stopped, or its host cannot be reached");
    else if (!strcmp(in, "out"))
        snprintf(out, max, "computing since %.1f s (last: %s)", age, call);
    else if (strcmp(of, s->key) != 0)
        snprintf(out, max, "in %s of another group since %.1f s", call, age);
    else
        snprintf(out, max, "in %s since %.1f s", call, age);
    return !fresh || !strcmp(in, "out") || strcmp(of, s->key) != 0;
}

/* Who is waited for may itself wait for somebody: of those not waited for directly, name all that
 * hold the call up. */
static void report_others(const td__stall_world *m, const td__stall *s)
{
    char what[TD_STALL_TEXT + 64];
    td__deadline until = td__deadline_in_ms(OTHERS_MS);
    for (int i = 0; i < s->n_others && !td__deadline_passed(until); i++) {
        const td__member *p = &m->members[s->others_world[i]];
        if (explain(m, s, s->others_world[i], what, sizeof what))
            TD_LOG(WARN, COLL,
                   "stall: %s: %s waits since %.1f s for ranks that wait for rank %d on host %s, "
                   "pid %d: %s",
                   s->name, s->call, 1e-9 * (double)s->waited_ns, s->others[i], p->hostname, p->pid,
                   what);
    }
}

void td__stall_report(const td__stall_world *m, const td__stall *s)
{
    char what[TD_STALL_TEXT + 64];
    for (int i = 0; i < s->n; i++) {
        const td__member *p = &m->members[s->world[i]];
        explain(m, s, s->world[i], what, sizeof what);
        TD_LOG(WARN, COLL, "stall: %s: %s waits since %.1f s for rank %d on host %s, pid %d: %s",
               s->name, s->call, 1e-9 * (double)s->waited_ns, s->waiting[i], p->hostname, p->pid,
               what);
    }
    if (s->n_more > 0)
        TD_LOG(WARN, COLL, "stall: %s: %s waits for %d more ranks", s->name, s->call, s->n_more);
    else
        report_others(m, s);
}
