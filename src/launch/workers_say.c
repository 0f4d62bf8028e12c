/* workers_say.c -- what an agent tells of its processes: how one ended, the hang report, and what
 * they do now. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "launch/workers_impl.h"

enum { DIGITS = 6, WHERE = 192 };

/* "network: gradients (allreduce, bucket 2 from fc1.weight) of step 17 since 3.1 s", as the last
 * beat said; "" if it had not begun. */
static void where(const td__worker *k, char *out, size_t max)
{
    const td__ctl_heartbeat *b = &k->heartbeat;
    out[0] = 0;
    if (k->was_in && b->phase != TD_PHASE_START)
        snprintf(out, max, "%s%s%s%s%s%s of step %" PRIu64 " since %.1f s",
                 td__phase_name(b->phase), b->what[0] ? ": " : "", b->what, b->about[0] ? " (" : "",
                 b->about, b->about[0] ? ")" : "", b->step + 1,
                 b->since + 1e-9 * (double)(td__clock_ns() - k->heard_ns));
}

/* Why it ended, as it told the agent, or else its last line. */
static const char *words(const td__worker *k)
{
    return k->said[0] ? k->said : k->err.recent;
}

void td__worker_end_text(const td__workers *w, const td__worker *k, int status, char *out,
                         size_t max)
{
    int pid = (int)k->child.pid;
    char at[WHERE];
    where(k, at, sizeof at);
    if (k->stuck)
        snprintf(out, max, "pid %d) went no further for more than %.1f s and was killed: %s%s%s",
                 pid, 1e-3 * w->s->hang_ms, td__hang_name(k->hang), at[0] ? ", in " : "", at);
    else if (k->fenced)
        snprintf(out, max, "pid %d) was silent for more than %u ms and was killed: %s%s%s", pid,
                 w->s->lease_ms, td__hang_name(k->hang), at[0] ? ", in " : "", at);
    else if (status > 128 && status < 128 + NSIG)
        snprintf(out, max, "pid %d) was killed by signal %d (%s)%s%s", pid, status - 128,
                 strsignal(status - 128), at[0] ? ", in " : "", at);
    else
        snprintf(out, max, "pid %d) ended with exit status %d%s%s", pid, status,
                 words(k)[0] ? ": " : "", words(k));
}

void td__worker_say_hang(td__workers *w, const td__worker *k, int status)
{
    char line[720], at[WHERE], rank[32] = "a process", how[256] = "";
    double silent = 1e-9 * (double)(td__clock_ns() - k->heard_ns);
    where(k, at, sizeof at);
    if (k->was_in)
        snprintf(rank, sizeof rank, "rank %d", k->rank);
    if (k->stuck)
        snprintf(how, sizeof how, "no step forward for more than %.1f s (--hang), killed",
                 1e-3 * w->s->hang_ms);
    else if (k->fenced)
        snprintf(how, sizeof how, "silent since %.1f s, killed", silent);
    else if (status > 128 && status < 128 + NSIG)
        snprintf(how, sizeof how, "by signal %d (%s)", status - 128, strsignal(status - 128));
    else
        snprintf(how, sizeof how, "with exit status %d%s%s", status, words(k)[0] ? ": " : "",
                 words(k));
    int n = snprintf(line, sizeof line,
                     "hang: %s on host %s, pid %d: %s%s%s, %s; the others go on without it, %s",
                     rank, w->report.host, (int)k->child.pid,
                     td__hang_name(k->fenced ? k->hang : TD_HANG_DEAD), at[0] ? " in " : "", at,
                     how, k->wrong ? "and without its host" : "another process takes its place");
    if (n > 0 && !*w->lost)
        *w->lost |= td__channel_send(&w->s->up, TD_MSG_HANG, k->slot, line, strlen(line) + 1) != 0;
}

void td__worker_say_lingers(td__workers *w, const td__worker *k, uint64_t now)
{
    char line[480], rank[32] = "a process";
    bool waited_for = td__worker_rank(&w->now, k->proc) >= 0;
    if (k->was_in)
        snprintf(rank, sizeof rank, "rank %d", k->rank);
    int n = snprintf(
        line, sizeof line,
        "hang: %s on host %s, pid %d: killed %.1f s ago, and has not ended (state %c): "
        "the kernel does not let go of it, as when a disk or a network file system "
        "does not answer%s",
        rank, w->report.host, (int)k->child.pid, 1e-9 * (double)(now - k->killed_ns),
        td__process_state((int)k->child.pid), waited_for ? "; the others wait for its end" : "");
    if (n > 0 && !*w->lost)
        *w->lost |= td__channel_send(&w->s->up, TD_MSG_HANG, k->slot, line, strlen(line) + 1) != 0;
}

static const char *state_name(const td__worker *k)
{
    if (k->told_end || k->leaving)
        return "leaving";
    switch (k->state) {
    case TD_PROC_STARTING: return "starting";
    case TD_PROC_WAITING: return "waiting";
    case TD_PROC_BUSY: return "busy";
    case TD_PROC_DONE: return "done";
    }
    return "?";
}

static void number(td__text *out, const char *key, double v)
{
    td__text_printf(out, ", \"%s\": ", key);
    td__text_json_number(out, v, DIGITS);
}

void td__workers_status(const td__workers *w, uint64_t now, td__text *out)
{
    bool first = true;
    for (int i = 0; i < w->max; i++) {
        const td__worker *k = &w->all[i];
        const td__ctl_heartbeat *b = &k->heartbeat;
        if (!k->used || k->done)
            continue;
        td__text_printf(out,
                        "%s{\"rank\": %d, \"pid\": %d, \"state\": \"%s\", \"step\": %" PRIu64
                        ", \"steps\": %" PRIu64 ", \"phase\": \"%s\", \"what\": ",
                        first ? "" : ", ", td__worker_rank(&w->now, k->proc), (int)k->child.pid,
                        state_name(k), b->step, b->steps, td__phase_name(b->phase));
        first = false;
        td__text_json(out, b->what);
        td__text_add(out, ", \"about\": ");
        td__text_json(out, b->about);
        number(out, "since", b->since);
        number(out, "samples_per_second", b->samples_per_second);
        number(out, "loss", b->loss);
        number(out, "speed", b->speed);
        number(out, "wait", b->wait);
        td__text_printf(out, ", \"faults\": %u", b->faults);
        double heartbeat = 1e-9 * (double)(now - k->heard_ns);
        number(out, "beat", heartbeat);
        if (heartbeat * 1000 > 2.5 * w->s->heartbeat_ms) /* late: why? */
            td__text_printf(
                out, ", \"hang\": \"%s\"",
                td__hang_name(td__hang_class(td__process_state((int)k->child.pid), b->phase)));
        td__text_add(out, "}");
    }
}

uint32_t td__workers_started(const td__workers *w)
{
    return w->n_started;
}
