/* workers_end.c -- the end of a process: its cause, the report of it, whether it is replaced. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "launch/foreign/foreign.h"
#include "launch/workers_impl.h"

enum {
    WINDOW_MS = 250, /* crashes this close together have one cause */
    BACK_OFF_MS = 100,
    MOST_DOUBLINGS = 8,
    EXIT_USAGE = 2,
    EXIT_NOT_RUN = 127,
    EXIT_INTERRUPTED = 130,
    TEXT = 176, /* of how one ended: fits into the cause of the job's end, with its name */
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

static void note_cause(td__workers *w, const td__worker *k, int status, const char *how)
{
    td__place_report *r = &w->report;
    char name[TD_WORKER_NAME];
    td__text t = {0};
    r->status = status;
    if (k)
        td__text_printf(&t, "%s %s", td__worker_name(w, k, name), how);
    else
        td__text_printf(&t, "host %s: %s", r->host, how);
    memset(r->cause, 0, sizeof r->cause);
    if (!td__text_status(&t))
        memcpy(r->cause, t.data, t.used < sizeof r->cause ? t.used : sizeof r->cause - 1);
    td__text_fini(&t);
}

void td__workers_count_crash(td__workers *w, const td__worker *k, int status, const char *how,
                             uint64_t now)
{
    td__place_report *r = &w->report;
    bool forward = w->step > w->crash_step, was_in = k && k->was_in;
    if (forward || !r->crashes) {
        r->crashes = 1;
        note_cause(w, k, status, how);
        w->crash_ns = now;
    } else if (now > w->crash_ns + td__worker_ns(WINDOW_MS)) {
        r->crashes++;
        note_cause(w, k, status, how); /* what happens again and again, not what came before it */
        w->crash_ns = now;
    }
    w->crash_step = w->step;
    bool not_run = (status == EXIT_USAGE || status == EXIT_NOT_RUN) && !w->step && !was_in;
    if ((not_run || (k && k->hopeless)) && !r->hopeless) {
        r->hopeless = true;
        note_cause(w, k, status, how);
    }
    uint32_t n = r->crashes < MOST_DOUBLINGS ? r->crashes : MOST_DOUBLINGS;
    if (r->crashes > 1 || !was_in)
        w->start_at = now + (td__worker_ns(BACK_OFF_MS) << (n - 1));
}

void td__workers_give_up_place(td__workers *w, const td__worker *k)
{
    w->report.given_up += !w->stopping && !k->spare;
}

static void send_exit(td__workers *w, const td__worker *k, int status, bool killed)
{
    char text[24 + TEXT];
    int n = snprintf(text, sizeof text, "%d%s", status, killed ? " killed" : "") + 1;
    if (k->fenced) { /* the watchdog's reason */
        td__worker_how_it_ended(w, k, status, text + n, TEXT);
        n += (int)strlen(text + n) + 1;
    }
    if (!*w->lost && td__channel_send(&w->s->up, TD_MSG_EXIT, k->slot, text, (size_t)n))
        *w->lost = true;
}

/* It ended otherwise than it should have. */
static void lose(td__workers *w, td__worker *k, int status, const char *how, uint64_t now)
{
    if (k->kept && status == EXIT_INTERRUPTED) {
        w->report.hopeless = true; /* the whole job was asked to end: a replacement would be too */
        w->report.status = status;
        w->report.cause[0] = 0;
    } else if (k->wrong) { /* it goes, with all of its places; the job has other hosts */
        td__workers_slots(w, 0);
    } else {
        td__workers_count_crash(w, k, status, how, now);
    }
    if (!k->hopeless && !w->report.hopeless)
        td__worker_say_lost(w, k, how);
}

void td__worker_reap(td__workers *w, td__worker *k, uint64_t now)
{
    char how[TEXT];
    if (td__link_up(&k->link)) /* its last words */
        td__worker_hear(w, k, now);
    bool killed = td__child_killed(&k->child) && (!w->stopping || k->dying);
    int status = td__child_reap(&k->child); /* its children are gone too: the pipes end */
    td__worker_pump(w, k, true);
    w->n_running--;
    if (w->plan) { /* fixed ranks are not replaced: what their end means is for the launcher */
        int aborted = td__foreign_aborted(w->plan->foreign, td__worker_rank(w, k));
        killed &= aborted < 0;
        status = aborted < 0 ? status : aborted;
        send_exit(w, k, status, killed);
        k->done = true;
        td__worker_release(k);
        return;
    }
    k->done = !status && !k->told_end && !k->leaving;
    if (!k->done) {
        td__worker_how_it_ended(w, k, status, how, sizeof how);
        td__place_end *e = &w->report.end[w->report.n_ends++ % TD_PLACE_ENDS];
        *e = (td__place_end){.proc = k->proc, .pid = (uint32_t)k->child.pid};
        snprintf(e->how, sizeof e->how, "%.*s", (int)sizeof e->how - 1, how);
        if (!k->told_end && !k->leaving && !w->stopping && !w->now.over)
            lose(w, k, status, how, now);
        if (k->leaving && !k->told_end)
            td__workers_give_up_place(w, k);
    }
    td__worker_release(k);
}
