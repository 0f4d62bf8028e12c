/* workers_end.c -- the end of a process: what it was, who is told, whether another takes its place.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "launch/workers_impl.h"

enum {
    WINDOW_MS = 250, /* crashes this close together have one cause */
    BACK_OFF_MS = 100,
    MOST_DOUBLINGS = 8,
    EXIT_USAGE = 2,
    EXIT_NOT_RUN = 127,
    EXIT_INTERRUPTED = 130,
    TEXT = 224, /* of how one ended: fits into the cause of the job's end */
};

void td__worker_release(td__worker *k)
{
    td__link_fini(&k->link);
    td__child_close(&k->child);
    td__lines_fini(&k->out);
    td__lines_fini(&k->err);
    bool done = k->done;
    uint32_t proc = k->proc;
    uint64_t out_of = k->out_of;
    *k = (td__worker){.link = {.conn = {.fd = -1}}};
    if (done) { /* the others are to know that its work is done */
        k->used = k->done = true;
        k->proc = proc;
        k->out_of = out_of;
        k->state = TD_PROC_DONE;
        k->child = (td__child){0, -1, -1, -1, -1};
    }
}

static void note_cause(td__place_report *r, int status, const char *text)
{
    r->status = status;
    snprintf(r->cause, sizeof r->cause, "host %.60s, %.186s", r->host, text);
}

void td__workers_count_crash(td__workers *w, const td__worker *k, int status, const char *text,
                             uint64_t now)
{
    td__place_report *r = &w->report;
    bool forward = w->step > w->crash_step;
    if (forward || !r->crashes) {
        r->crashes = 1;
        note_cause(r, status, text);
        w->crash_ns = now;
    } else if (now > w->crash_ns + td__worker_ns(WINDOW_MS)) {
        r->crashes++;
        note_cause(r, status, text); /* what happens again and again, not what came before it */
        w->crash_ns = now;
    }
    w->crash_step = w->step;
    bool not_run = (status == EXIT_USAGE || status == EXIT_NOT_RUN) && !w->step && !k->was_in;
    if ((not_run || k->hopeless) && !r->hopeless) {
        r->hopeless = true;
        note_cause(r, status, text);
    }
    uint32_t n = r->crashes < MOST_DOUBLINGS ? r->crashes : MOST_DOUBLINGS;
    if (r->crashes > 1 || !k->was_in)
        w->start_at = now + (td__worker_ns(BACK_OFF_MS) << (n - 1));
}

void td__workers_give_up_place(td__workers *w, const td__worker *k)
{
    w->report.given_up += !w->stopping && !k->spare;
}

static void send_exit(td__workers *w, const td__worker *k, int status, bool killed)
{
    char text[24];
    int n = snprintf(text, sizeof text, "%d%s", status, killed ? " killed" : "");
    if (!*w->lost && td__channel_send(&w->s->up, TD_MSG_EXIT, k->slot, text, (size_t)n + 1))
        *w->lost = true;
}

void td__worker_reap(td__workers *w, td__worker *k, uint64_t now)
{
    char text[TEXT];
    if (td__link_up(&k->link)) /* its last words */
        td__worker_hear(w, k, now);
    bool killed = td__child_killed(&k->child) && (!w->stopping || k->dying);
    int status = td__child_reap(&k->child); /* its children are gone too: the pipes end */
    td__worker_pump(w, k, true);
    w->n_running--;
    if (w->plan) { /* fixed ranks are not replaced: what their end means is for the launcher */
        send_exit(w, k, status, killed);
        k->done = true;
        td__worker_release(k);
        return;
    }
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
                w->report.cause[0] = 0;
            } else if (k->wrong) /* it goes, with all of its places; the job has other hosts */
                td__workers_slots(w, 0);
            else
                td__workers_count_crash(w, k, status, text, now);
            if (!k->hopeless && !w->report.hopeless)
                td__worker_say_hang(w, k, status);
        }
        if (k->leaving && !k->told_end)
            td__workers_give_up_place(w, k);
    }
    td__worker_release(k);
}
