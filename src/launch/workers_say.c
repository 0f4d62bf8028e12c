/* workers_say.c -- what an agent tells of its processes: how one ended and what is done about it,
 * and what they do now. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "launch/workers_impl.h"

enum { DIGITS = 6, LINE = 480, STATUS_MS = 500 /* between words for `tandem status` */ };

char *td__worker_name(const td__workers *w, const td__worker *k, char out[TD_WORKER_NAME])
{
    char rank[32] = "a process";
    if (k->was_in)
        snprintf(rank, sizeof rank, "rank %d", k->rank);
    snprintf(out, TD_WORKER_NAME, "%s (host %.60s, pid %d)", rank, w->report.host,
             (int)k->child.pid);
    return out;
}

/* ", in network: gradients (...) at step 17 for 3.1 s", as the last heartbeat said; "" if it had
 * not begun. */
static void where(const td__workers *w, const td__worker *k, char *out, size_t max)
{
    const td__ctl_heartbeat *b = &k->heartbeat;
    out[0] = 0;
    if (!(k->was_in || w->plan) || b->phase == TD_PHASE_START)
        return;
    int n = snprintf(out, max, ", in ");
    td__doing_text(
        &(td__doing){.phase = b->phase,
                     .what = b->what,
                     .about = b->about,
                     .step = b->step + 1,
                     .seconds = b->since + 1e-9 * (double)(td__clock_ns() - k->heard_ns)},
        out + n, max - (size_t)n);
}

void td__worker_how_it_ended(const td__workers *w, const td__worker *k, int status, char *out,
                             size_t max)
{
    /* Why it ended, as it told the agent, or else its last line. */
    const char *words = k->said[0] ? k->said : k->err.recent;
    char at[192];
    where(w, k, at, sizeof at);
    if (k->stuck)
        snprintf(out, max, "made no step forward for more than %.1f s and was killed: %s%s",
                 1e-3 * w->s->hang_ms, td__hang_name(k->hang), at);
    else if (k->fenced)
        snprintf(out, max, "was silent for more than %u ms and was killed: %s%s", w->s->lease_ms,
                 td__hang_name(k->hang), at);
    else if (status > 128 && status < 128 + NSIG)
        snprintf(out, max, "was killed by signal %d (%s)%s", status - 128, strsignal(status - 128),
                 at);
    else
        snprintf(out, max, "ended with exit status %d%s%s", status, words[0] ? ": " : "", words);
}

static void say(td__workers *w, const td__worker *k, const char *line)
{
    if (!*w->lost && td__channel_send(&w->s->up, TD_MSG_LOST, k->slot, line, strlen(line) + 1))
        *w->lost = true;
}

/* Members of the generation that are left when k is gone, as far as this host knows. */
static uint32_t members_left(const td__workers *w, const td__worker *k)
{
    uint32_t n = w->now.n_members;
    for (uint32_t r = 0; r < w->now.n_members; r++) {
        bool here = td__ms_proc_agent(w->now.member[r]) == w->s->index;
        for (int i = 0; i < w->max; i++)
            here &= !(w->all[i].used && w->all[i].proc == w->now.member[r] && &w->all[i] != k);
        n -= here;
    }
    return n;
}

void td__worker_say_lost(td__workers *w, const td__worker *k, const char *how)
{
    char line[LINE], name[TD_WORKER_NAME], then[96] = "; starting a replacement";
    uint32_t left = members_left(w, k);
    if (k->wrong)
        snprintf(then, sizeof then, "; continuing without this host");
    else if (w->report.crashes > w->s->crashes) /* the end of the job comes next */
        then[0] = 0;
    else if (td__worker_rank(w, k) >= 0 && left >= w->s->min_ranks)
        snprintf(then, sizeof then, "; continuing with %u rank%s, starting a replacement", left,
                 left == 1 ? "" : "s");
    snprintf(line, sizeof line, "%s %s%s", td__worker_name(w, k, name), how, then);
    say(w, k, line);
}

void td__worker_say_lingers(td__workers *w, const td__worker *k, uint64_t now)
{
    char line[LINE], name[TD_WORKER_NAME];
    bool waited_for = td__worker_rank(w, k) >= 0;
    snprintf(line, sizeof line,
             "%s was killed %.1f s ago and has not ended (state %c): it is blocked in the kernel, "
             "as when a disk or a network file system does not answer%s",
             td__worker_name(w, k, name), 1e-9 * (double)(now - k->killed_ns),
             td__process_state((int)k->child.pid),
             waited_for ? "; the other ranks wait until it ends" : "");
    say(w, k, line);
}

/* fixed: it need not say when it has started. */
static const char *state_name(const td__worker *k, bool fixed)
{
    if (k->told_end || k->leaving)
        return "leaving";
    switch (k->state) {
    case TD_PROC_STARTING: return fixed ? "running" : "starting";
    case TD_PROC_WAITING: return "waiting";
    case TD_PROC_BUSY: return "busy";
    case TD_PROC_DONE: return "done";
    }
    return "?";
}

/* What its processes do, as elements of a JSON array. */
static void add_processes(const td__workers *w, uint64_t now, td__text *out)
{
    bool first = true;
    for (int i = 0; i < w->max; i++) {
        const td__worker *k = &w->all[i];
        const td__ctl_heartbeat *b = &k->heartbeat;
        bool talks = !w->plan || td__link_up(&k->link);
        if (!k->used || k->done)
            continue;
        td__text_printf(out,
                        "%s{\"rank\": %d, \"pid\": %d, \"state\": \"%s\", \"step\": %" PRIu64
                        ", \"steps\": %" PRIu64 ", \"phase\": \"%s\", \"what\": ",
                        first ? "" : ", ", td__worker_rank(w, k), (int)k->child.pid,
                        state_name(k, w->plan), b->step, b->steps,
                        talks ? td__phase_name(b->phase) : "running");
        first = false;
        td__text_json(out, b->what);
        td__text_add(out, ", \"about\": ");
        td__text_json(out, b->about);
        td__text_member_number(out, "since", b->since, DIGITS);
        td__text_member_number(out, "samples_per_second", b->samples_per_second, DIGITS);
        td__text_member_number(out, "loss", b->loss, DIGITS);
        td__text_member_number(out, "speed", b->speed, DIGITS);
        td__text_member_number(out, "wait", b->wait, DIGITS);
        td__text_printf(out, ", \"faults\": %u", b->faults);
        double heartbeat = 1e-9 * (double)(now - k->heard_ns);
        td__text_member_number(out, "heartbeat", heartbeat, DIGITS);
        td__text_member_number(out, "beat", heartbeat, DIGITS); /* its former name, for scripts */
        char state = td__process_state((int)k->child.pid);
        bool stopped = state == 'T' || state == 't';
        if (stopped || (talks && heartbeat * 1000 > 2.5 * w->s->heartbeat_ms)) /* late: why? */
            td__text_printf(out, ", \"hang\": \"%s\"",
                            td__hang_name(td__hang_class(state, b->phase)));
        td__text_add(out, "}");
    }
}

void td__workers_say_status(td__workers *w, bool leads, bool now_too, uint64_t now)
{
    td__text t = {0};
    if ((now < w->status_at && !now_too) || *w->lost || td__channel_full(&w->s->up))
        return;
    w->status_at = now + td__worker_ns(STATUS_MS);
    td__text_add(&t, "{\"host\": ");
    td__text_json(&t, td__agent_spec_host(w->s)->name);
    td__text_printf(&t,
                    ", \"leads\": %s, \"generation\": %" PRIu64
                    ", \"wanted\": %u, \"started\": %u, "
                    "\"processes\": [",
                    leads ? "true" : "false", w->now.generation, w->now.wanted, w->n_started);
    add_processes(w, now, &t);
    td__text_add(&t, "]}");
    if (!td__text_status(&t) && td__channel_send(&w->s->up, TD_MSG_STATUS, -1, t.data, t.used + 1))
        *w->lost = true;
    td__text_fini(&t);
}
