/* sweeps.c -- runs sweeps on top of the service: see sweeps.h.
 *
 * Events of jobs only mark what is to be done; the work (reading metrics, starting and stopping
 * trials) is a task of the next turn, so that the service is never called from within its own
 * events. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "service/sweep/sweeps.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "service/sweep/sweeps_impl.h"

/* Metrics of a trial that are being read. */
struct td__sweep_reader {
    td__sweeps *w; /* NULL: the sweeps have gone */
    td__sweep_reader *prev, *next;
    td__sweep_run *run;
    td__trial *trial;
    td__text line; /* whose end was not read yet */
    size_t got;
};

static void read_metrics(td__sweeps *w, td__sweep_run *r, td__trial *t);

static void post(td__sweeps *w)
{
    if (!w->posted)
        td__loop_post(td__service_loop(w->service), &w->task);
    w->posted = true;
}

static td__caller owner(const td__sweep_run *r)
{
    return (td__caller){.user = r->user, .admin = r->admin};
}

int td__sweep_finished(const td__sweep_run *r)
{
    int n = 0;
    for (int i = 0; i < r->started; i++)
        n += td__job_state_final(r->trials[i].state);
    return n;
}

const td__trial *td__sweep_best(const td__sweep_run *r)
{
    const td__trial *best = NULL;
    bool lower = td__sweep_lower(r->plan);
    for (int i = 0; i < r->started; i++) {
        const td__trial *t = &r->trials[i];
        if (t->has && (!best || (lower ? t->best < best->best : t->best > best->best)))
            best = t;
    }
    return best;
}

static td__sweep_run *find(td__sweeps *w, int64_t id)
{
    td__sweep_run *r = w->runs;
    while (r && r->id != id)
        r = r->next;
    return r;
}

/* ---- metrics of trials ---- */

static void give_up(td__sweeps *w, td__sweep_run *r, td__trial *t)
{
    char why[128];
    td__caller who = {.user = r->user, .admin = true};
    snprintf(why, sizeof why,
             "stopped by sweep %" PRId64 ": %s at step %" PRId64
             " is not among the best of its rung",
             r->id, r->plan->metric, t->step);
    t->stopped = td__service_cancel(w->service, &who, t->job, why) == TD_ANSWER_OK;
}

static void report(td__sweeps *w, td__sweep_run *r, td__trial *t, int64_t step, double value)
{
    int rung = t->rung;
    if (!t->has || (td__sweep_lower(r->plan) ? value < t->best : value > t->best))
        t->best = value;
    t->has = true;
    t->step = step;
    if (strcmp(r->plan->search, "asha") == 0 && !t->stopped &&
        !td__asha_report(&r->asha, r->plan, step, value, &t->rung) &&
        !td__job_state_final(t->state) && r->state == TD_SWEEP_STATE_RUNNING)
        give_up(w, r, t);
    r->changed |= rung != t->rung;
}

static void on_data(void *arg, const void *bytes, size_t nbytes, uint64_t offset)
{
    td__sweep_reader *d = arg;
    const char *at = bytes, *end = at + nbytes, *stop;
    d->got += nbytes;
    if (!d->w)
        return;
    d->trial->at = offset + nbytes;
    while ((stop = memchr(at, '\n', (size_t)(end - at)))) {
        int64_t step;
        double value;
        td__text_append(&d->line, at, (size_t)(stop - at));
        if (!d->line.failed && d->line.used &&
            td__sweep_read(d->run->plan, d->line.data, d->line.used, &step, &value))
            report(d->w, d->run, d->trial, step, value);
        td__text_clear(&d->line);
        at = stop + 1;
    }
    td__text_append(&d->line, at, (size_t)(end - at));
}

static void on_end(void *arg, td_status st)
{
    td__sweep_reader *d = arg;
    td__sweeps *w = d->w;
    if (w) {
        *(d->prev ? &d->prev->next : &w->readers) = d->next;
        if (d->next)
            d->next->prev = d->prev;
        d->trial->reading = false;
        d->trial->at -= d->line.used; /* half a line is read again */
        d->trial->again |= d->got > d->line.used && !st;
        if (d->trial->again || d->run->changed)
            post(w);
    }
    td__text_fini(&d->line);
    td__free(d);
}

static void read_metrics(td__sweeps *w, td__sweep_run *r, td__trial *t)
{
    td__sweep_reader *d = t->reading ? NULL : td__calloc(1, sizeof *d);
    if (!d) /* on_end looks again, or the next event does */
        return;
    t->again = false;
    t->reading = true;
    *d = (td__sweep_reader){.w = w, .run = r, .trial = t, .next = w->readers};
    if (w->readers)
        w->readers->prev = d;
    w->readers = d;
    td__service_metrics(w->service, t->job, t->at,
                        &(td__log_sink){.data = on_data, .end = on_end, .arg = d});
}

/* ---- starting trials ---- */

static void start_trials(td__sweeps *w, td__sweep_run *r)
{
    td__caller who = owner(r);
    while (r->state == TD_SWEEP_STATE_RUNNING && r->started < r->plan->trials &&
           (!r->plan->parallel || r->started - td__sweep_finished(r) < r->plan->parallel)) {
        td__job_spec *spec;
        char key[64];
        int32_t job;
        td_status st = td__sweep_trial(r->plan, r->started, &spec);
        td__answer a = td__answer_of(st);
        if (!st) {
            spec->sweep = r->id;
            snprintf(key, sizeof key, "sweep-%" PRId64 "-%d", r->id, r->started);
            a = td__service_submit(w->service, &who, spec, key, false, &job);
        }
        if (a == TD_ANSWER_EXHAUSTED && r->started > td__sweep_finished(r))
            return; /* a quota: again when a trial has ended */
        if (a != TD_ANSWER_OK) {
            snprintf(r->message, sizeof r->message, "trial %d: %s", r->started, td_last_error());
            r->state = TD_SWEEP_STATE_FAILED;
        } else {
            r->trials[r->started++] = (td__trial){.job = job, .state = TD_JOB_QUEUED};
        }
        r->changed = true;
    }
}

/* TD_ANSWER_OK, or why the first of those that could not be cancelled could not. */
static td__answer cancel_trials(td__sweeps *w, td__sweep_run *r)
{
    td__caller who = {.user = r->user, .admin = true};
    td__answer worst = TD_ANSWER_OK;
    for (int i = 0; i < r->started; i++) {
        td__answer a =
            td__job_state_final(r->trials[i].state)
                ? TD_ANSWER_OK
                : td__service_cancel(w->service, &who, r->trials[i].job, "the sweep was cancelled");
        if (!worst && a != TD_ANSWER_STATE) /* it has just ended: well */
            worst = a;
    }
    return worst;
}

static void work(void *arg)
{
    td__sweeps *w = arg;
    w->posted = false;
    for (td__sweep_run *r = w->runs; r; r = r->next) {
        for (int i = 0; i < r->started; i++)
            if (r->trials[i].again)
                read_metrics(w, r, &r->trials[i]);
        start_trials(w, r);
        if (r->state == TD_SWEEP_STATE_RUNNING && td__sweep_finished(r) == r->plan->trials) {
            r->state = TD_SWEEP_STATE_DONE;
            r->changed = true;
        }
        if (r->changed && td__sweep_run_save(w, r))
            return; /* the store has failed, and with it the service */
        r->changed = false;
    }
}

static td__trial *find_trial(td__sweep_run *r, int32_t job)
{
    int lo = 0, hi = r->started;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (r->trials[mid].job < job)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < r->started && r->trials[lo].job == job ? &r->trials[lo] : NULL;
}

static void on_event(void *arg, const td__job_event *e)
{
    td__sweeps *w = arg;
    if (e->kind != TD_EVENT_STATE && e->kind != TD_EVENT_METRICS)
        return;
    for (td__sweep_run *r = w->runs; r; r = r->next) {
        td__trial *t = find_trial(r, e->job);
        if (!t)
            continue;
        if (e->kind == TD_EVENT_STATE) {
            t->state = e->state;
            r->changed |= td__job_state_final(e->state);
        }
        t->again = true;
        post(w);
        return;
    }
}

/* ---- what clients ask ---- */

td__answer td__sweeps_submit(td__sweeps *w, const td__caller *who, const char *text, size_t nbytes,
                             int64_t *sweep)
{
    td__sweep_run *r = NULL;
    td_status st;
    TD_TRY_OR(st, failed, td__sweep_run_create(0, text, nbytes, &r));
    TD_TRY_OR(st, failed, td__job_store_number(td__service_store(w->service), "sweep", &r->id));
    r->user = td__strdup(who->user);
    if (!r->user) {
        st = TD_FAIL(TD_ENOMEM, "out of memory");
        goto failed;
    }
    r->admin = who->admin;
    r->created_ms = td__service_now_ms(w->service);
    start_trials(w, r);
    if (r->state == TD_SWEEP_STATE_FAILED && !r->started) {
        /* The reason is the service's, and so is the text. */
        td__answer a = td__answer_fail(TD_ANSWER_INVALID, "%s", r->message);
        td__sweep_run_destroy(r);
        return a;
    }
    TD_TRY_OR(st, failed, td__sweep_run_save(w, r));
    r->changed = false;
    r->next = w->runs;
    w->runs = r;
    *sweep = r->id;
    return TD_ANSWER_OK;
failed:
    td__sweep_run_destroy(r);
    return td__answer_of(st);
}

td__answer td__sweeps_cancel(td__sweeps *w, const td__caller *who, int64_t sweep)
{
    td__sweep_run *r = find(w, sweep);
    if (!r)
        return td__answer_fail(TD_ANSWER_NOT_FOUND, "Sweep %" PRId64 " doesn't exist", sweep);
    if (!who->admin && strcmp(who->user, r->user) != 0)
        return td__answer_fail(TD_ANSWER_DENIED, "sweep %" PRId64 " belongs to %s", sweep, r->user);
    if (r->state != TD_SWEEP_STATE_RUNNING)
        return td__answer_fail(TD_ANSWER_STATE, "sweep %" PRId64 " has ended: %s", sweep,
                               td__sweep_state_name(r->state));
    r->state = TD_SWEEP_STATE_CANCELLED;
    td_status st = td__sweep_run_save(w, r);
    return st ? td__answer_of(st) : cancel_trials(w, r);
}

td__answer td__sweeps_json(td__sweeps *w, int64_t sweep, td__text *out)
{
    td__sweep_run *r = find(w, sweep);
    if (!r)
        return td__answer_fail(TD_ANSWER_NOT_FOUND, "Sweep %" PRId64 " doesn't exist", sweep);
    td__sweep_run_json(r, out);
    td__text_add(out, "\n");
    return TD_ANSWER_OK;
}

void td__sweeps_list_json(td__sweeps *w, td__text *out)
{
    td__text_add(out, "{\"sweeps\":[");
    for (td__sweep_run *r = w->runs; r; r = r->next) {
        td__text_add(out, r == w->runs ? "" : ",\n");
        td__sweep_run_json(r, out);
    }
    td__text_add(out, "]}\n");
}

/* ---- life ---- */

td_status td__sweeps_create(td__service *s, td__sweeps **out)
{
    td_status st;
    td__sweeps *w = td__calloc(1, sizeof *w);
    *out = NULL;
    if (!w)
        return TD_FAIL(TD_ENOMEM, "out of memory");
    w->service = s;
    w->task = (td__task){.run = work, .arg = w};
    TD_TRY_OR(st, failed, td__sweeps_load(w));
    TD_TRY_OR(st, failed, td__service_subscribe(s, 0, -1, on_event, w, &w->sub));
    if (w->runs)
        post(w);
    *out = w;
    return TD_OK;
failed:
    td__sweeps_destroy(w);
    return st;
}

void td__sweeps_destroy(td__sweeps *w)
{
    if (!w)
        return;
    td__service_unsubscribe(w->sub);
    for (td__sweep_reader *d = w->readers; d; d = d->next)
        d->w = NULL;
    for (td__sweep_run *r = w->runs, *next; r; r = next) {
        next = r->next;
        td__sweep_run_destroy(r);
    }
    td__free(w);
}
