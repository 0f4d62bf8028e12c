/* service_ended.c -- attempts that have ended, and what they left where they ran: containers, pods,
 * files of other hosts. It is removed when nobody needs it any more.
 *
 * The end of an attempt and a document "ended" about it are committed together; the tracker is
 * asked after that commit, and the document goes with its answer. So a service that dies in between
 * asks again, and nothing is removed whose end could be forgotten. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/log.h"
#include "service/service_impl.h"

#define ENDED "ended" /* by token: "TRACKER KIND MS TRIES" */

enum {
    AT_ONCE = 64,                /* requests to trackers in one turn */
    PAUSE_MS = 1000,             /* between two turns that ask */
    AGAIN_MS = 1000,             /* until it is asked again, at first */
    MOST_DOUBLED = 14,           /* times: 4 hours */
    KEEP_S = 300,                /* where nothing else is said */
    BY_TRACKER = -2,             /* tracker.keep_ended_s: it is not said */
    UNSAVED_S = 86400,           /* at least, where some output could not be fetched */
    VALUE_BYTES = 64 + TD__TOKEN /* of a document */
};

/* Kinds of documents: MS is... */
typedef enum ended_kind {
    KEPT = 'k',    /* the attempt's end: tracker.keep_ended_s later it may go */
    UNSAVED = 'u', /* likewise, with output that is nowhere else */
    DUE = 'd',     /* the time from which it is to go */
} ended_kind;

static void put(td__service *s, const char *token, const char *tracker, ended_kind kind, int64_t ms,
                int tries)
{
    char value[VALUE_BYTES];

    snprintf(value, sizeof value, "%s %c %" PRId64 " %d", tracker, (int)kind, ms, tries);
    if (td__job_store_put(s->store, ENDED, token, value))
        TD_LOG(ERROR, SERVICE, "%s: %s", token, td_last_error());
    td__service_touch(s);
}

/* When it may be removed; INT64_MAX: not by its age. */
static int64_t due_ms(const td__service *s, const char *tracker, char kind, int64_t ms)
{
    int64_t keep = s->config->keep_ended_s;

    if (kind == DUE)
        return ms;
    if (keep == BY_TRACKER) {
        const td__tracker_ops *t = td__tracker_find(tracker);
        keep = t && t->leaves_files ? -1 : KEEP_S;
    }
    if (keep < 0)
        return INT64_MAX;
    if (kind == UNSAVED && keep < UNSAVED_S)
        keep = UNSAVED_S;
    return ms + keep * 1000;
}

/* All of them are read at most once in PAUSE_MS, however many attempts end. */
static void look_at(td__service *s, int64_t ms)
{
    if (ms < s->forgot_ms + PAUSE_MS)
        ms = s->forgot_ms + PAUSE_MS;
    if (ms < s->forget_ms)
        s->forget_ms = ms;
}

void td__service_attempt_ended(td__service *s, const td__job_record *r, bool unsaved)
{
    td__tracker *t;

    if (!*r->token || td__service_tracker(s, r->spec->tracker, &t) || !t->ops->leaves)
        return;
    ended_kind kind = unsaved ? UNSAVED : KEPT;
    int64_t now = td__service_now_ms(s), due = due_ms(s, t->ops->name, (char)kind, now);
    put(s, r->token, t->ops->name, kind, now, 0);
    if (due != INT64_MAX)
        look_at(s, due);
}

typedef struct walk {
    td__service *s;
    int64_t now, next;
    char prefix[32]; /* tokens of one job, whatever their time; "": of all whose time has come */
    int n;
    struct {
        char token[TD__TOKEN], tracker[32];
        int tries;
    } due[AT_ONCE];
} walk;

static bool note(void *arg, const char *token, const char *value)
{
    walk *w = arg;
    char tracker[32], kind;
    int64_t ms;
    int tries = 0;

    if (sscanf(value, "%31s %c %" SCNd64 " %d", tracker, &kind, &ms, &tries) < 3 ||
        strlen(token) >= TD__TOKEN)
        return true;
    int64_t due = due_ms(w->s, tracker, kind, ms);
    bool wanted = *w->prefix ? due > 0 : due <= w->now;
    if (!wanted) {
        w->next = due < w->next ? due : w->next;
        return true;
    }
    if (w->n == AT_ONCE) {
        w->next = w->now;
        return false;
    }
    w->due[w->n].tries = tries;
    snprintf(w->due[w->n].token, sizeof w->due[0].token, "%s", token);
    snprintf(w->due[w->n++].tracker, sizeof w->due[0].tracker, "%s", tracker);
    return true;
}

static void it_goes(td__service *s, int32_t job, const char *tracker, const char *token)
{
    char dir[TD__JOB_PATH];
    td__tracker *t;

    put(s, token, tracker, DUE, 0, 0);
    if (!td__service_tracker(s, tracker, &t) && t->ops->before_removal)
        t->ops->before_removal(t, token, td__service_job_dir(s, job, dir, sizeof dir));
}

/* Of a job that is deleted: all its attempts go now. */
void td__service_forget_job(td__service *s, int32_t job, const char *tracker, const char *token)
{
    walk *w = td__calloc(1, sizeof *w);
    td__tracker *t = NULL;

    if (*token && !td__service_tracker(s, tracker, &t)) {
        if (t->ops->leaves)
            it_goes(s, job, t->ops->name, token);
        else
            t->ops->forget(t, token);
    }
    if (!w)
        return; /* they go by their age */
    do {
        *w = (walk){.s = s, .next = INT64_MAX};
        snprintf(w->prefix, sizeof w->prefix, "job-%" PRId32 "-", job);
        if ((t && !t->ops->leaves) ||
            td__job_store_values_below(s->store, ENDED, w->prefix, note, w))
            break;
        for (int i = 0; i < w->n; i++)
            it_goes(s, job, w->due[i].tracker, w->due[i].token);
    } while (w->n == AT_ONCE && !s->failed);
    look_at(s, 0);
    td__free(w);
}

/* Without an answer it is asked again, ever more seldom: a host may be gone for days. */
static int64_t again_ms(int tries)
{
    return (int64_t)AGAIN_MS << (tries < MOST_DOUBLED ? tries : MOST_DOUBLED);
}

/* The changes of this turn are durable. */
void td__service_forget_ended(td__service *s, int64_t now)
{
    td__tracker *t;

    if (now < s->forget_ms)
        return;
    walk *w = td__calloc(1, sizeof *w);
    s->forget_ms = now + AGAIN_MS;
    s->forgot_ms = now;
    if (!w)
        return;
    *w = (walk){.s = s, .now = now, .next = INT64_MAX};
    if (td__job_store_values(s->store, ENDED, note, w)) {
        TD_LOG(ERROR, SERVICE, "%s", td_last_error());
        td__free(w);
        return;
    }
    for (int i = 0; i < w->n; i++) {
        int tries = w->due[i].tries;
        put(s, w->due[i].token, w->due[i].tracker, DUE, now + again_ms(tries),
            tries < MOST_DOUBLED ? tries + 1 : tries);
        if (td__service_tracker(s, w->due[i].tracker, &t))
            TD_LOG(WARN, SERVICE, "%s stays where it ran: %s", w->due[i].token, td_last_error());
        else if (!td__point(s->o.points, TD_POINT_COMM, "forget"))
            t->ops->forget(t, w->due[i].token);
    }
    int64_t next = w->n && w->next > now + AGAIN_MS ? now + AGAIN_MS : w->next;
    s->forget_ms = next == INT64_MAX || next > now + PAUSE_MS ? next : now + PAUSE_MS;
    td__free(w);
}

void td__service_forgotten(td__service *s, const char *token)
{
    if (td__job_store_take(s->store, ENDED, token))
        TD_LOG(ERROR, SERVICE, "%s: %s", token, td_last_error());
    td__service_touch(s);
}
