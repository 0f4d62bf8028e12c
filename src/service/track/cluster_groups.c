/* cluster_groups.c -- what becomes of a group, on the loop thread: each LOOK is turned into events
 * and further calls (see cluster.h). */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/log.h"
#include "service/track/cluster_impl.h"

enum {
    LOOK_EVERY_MS = 30000,
    LOOK_AGAIN_MS = 2000,
    STARTING_MS = 1000,
    PENDING_MOST_MS = 10000,
    FETCH_TRIES = 5
};

td__cluster_group *td__cluster_find(td__cluster *c, const char *token)
{
    for (td__cluster_group *g = c->groups; g; g = g->next)
        if (strcmp(g->l->g.token, token) == 0)
            return g;
    return NULL;
}

static void free_group(td__cluster_group *g)
{
    td__launch_destroy(g->l);
    td__free(g->seen);
    td__free(g->log_base);
    td__free(g->restarting);
    td__free(g);
}

static void free_call(td__call *call)
{
    td__free(call->seen);
    td__free(call);
}

static void release(td__cluster_group *g)
{
    if (g->reserved && g->c->ops->release)
        g->c->ops->release(g->c->system, g->l->g.token);
    g->reserved = false;
}

/* Forget about it here. A call under way keeps the group until it ends (its `c` stays, `next` of
 * the list does not). */
void td__cluster_drop(td__cluster_group *g)
{
    td__cluster *c = g->c;
    td__cluster_group **at = &c->groups;

    while (*at && *at != g)
        at = &(*at)->next;
    if (*at)
        *at = g->next;
    td__timer_stop(c->base.c.loop, &g->look);
    td__timer_stop(c->base.c.loop, &g->grace);
    td__timer_stop(c->base.c.loop, &g->metrics);
    td__cluster_publish_stop(g);
    td__cluster_followers_stop(c, g);
    release(g);
    g->over = true;
    for (td__call *call = g->calls ? g->calls->after : NULL, *after; call; call = after) {
        after = call->after;
        if (call->sink.end)
            call->sink.end(call->sink.arg, TD_EABORTED);
        free_call(call);
    }
    if (g->calls && !c->closing) {
        g->calls->after = NULL;
        g->calls->dropped = true; /* freed when it ends */
        return;
    }
    if (g->calls)
        free_call(g->calls);
    free_group(g);
}

/* Calls that no worker has begun, when the tracker ends; those of known groups go with these. */
void td__cluster_empty_queue(td__cluster *c)
{
    for (int i = 0; i < TD__LANES; i++)
        for (td__call *call = c->lanes[i].queue, *next; call; call = next) {
            next = call->next;
            if (call->kind != TD_CALL_FORGET && !call->dropped)
                continue;
            if (call->dropped)
                free_group(call->g);
            free_call(call);
        }
}

void td__cluster_say(td__cluster_group *g, td__track_event_kind kind, int member, const char *text)
{
    td__track_event e = {.kind = kind,
                         .token = g->l->g.token,
                         .member = member,
                         .exit_status = g->exit_status,
                         .exit_class = g->exit_class,
                         .unsaved = g->unsaved,
                         .text = text};
    if (!g->c->closing)
        g->c->base.c.event(g->c->base.c.arg, &e);
}

/* The last word about a group; it stays known for its output until it is forgotten. */
void td__cluster_over(td__cluster_group *g, td__track_event_kind kind)
{
    g->over = true;
    release(g); /* who hears it may start another one */
    td__timer_stop(g->c->base.c.loop, &g->look);
    td__timer_stop(g->c->base.c.loop, &g->grace);
    td__timer_stop(g->c->base.c.loop, &g->metrics);
    td__cluster_metrics_look(g);
    td__cluster_say(g, kind, 0, g->text[0] ? g->text : NULL);
}

void td__cluster_look_soon(td__cluster_group *g)
{
    if (g->c->closing || g->over || (g->start_again && !g->ending))
        return; /* before its start there is nothing to be seen */
    for (const td__call *call = g->calls ? g->calls->after : NULL; call; call = call->after)
        if (call->kind == TD_CALL_LOOK)
            return; /* it will see everything that has happened until then */
    td__call *call = td__cluster_call(g, TD_CALL_LOOK);
    if (call)
        td__cluster_push(g, call);
    else
        td__timer_start(g->c->base.c.loop, &g->look, td__deadline_in_ms(LOOK_AGAIN_MS));
}

void td__cluster_send(td__cluster_group *g, int member, td__track_signal what)
{
    td__call *call = td__cluster_call(g, TD_CALL_SIGNAL);

    if (what == TD_TRACK_STOP && g->c->ops->vanish)
        for (int i = 0; i < g->l->members; i++)
            if (g->seen[i].state == TD_SEEN_RUNNING && (member < 0 || member == i))
                td__cluster_follow(g, i);
    if (what == TD_TRACK_STOP)
        td__timer_start(g->c->base.c.loop, &g->grace,
                        td__deadline_in_ms((uint64_t)g->l->spec->grace_s * 1000));
    if (!call)
        return; /* the next look, or the end of the grace time, tries again */
    call->member = member;
    call->what = what;
    if (what == TD_TRACK_RESTART)
        g->restarting[member] = true;
    td__cluster_push(g, call);
}

/* A member has failed for good: the first is the group's verdict, and the others are stopped. */
static void fail_group(td__cluster_group *g, int member, const td__seen *s)
{
    if (g->failed_member >= 0 || g->signalled)
        return;
    g->failed_member = member;
    g->exit_status = s->state == TD_SEEN_ENDED ? s->exit_status : -1;
    g->exit_class = s->state == TD_SEEN_ENDED ? s->exit_class
                    : s->hopeless             ? TD_EXIT_CLASS_LAUNCH
                                              : TD_EXIT_CLASS_LOST;
    const char *text = s->state == TD_SEEN_ABSENT ? "it is gone" : s->text;
    if (g->l->members > 1)
        snprintf(g->text, sizeof g->text, "member %d%s%s", member, text[0] ? ": " : " failed",
                 text);
    else
        snprintf(g->text, sizeof g->text, "%s", text);
    g->ending = true;
    td__cluster_send(g, TD_TRACK_ALL, s->hopeless ? TD_TRACK_KILL : TD_TRACK_STOP);
}

static bool has_failed(const td__seen *s)
{
    return s->state == TD_SEEN_ABSENT || (s->state == TD_SEEN_WAITING && s->hopeless) ||
           (s->state == TD_SEEN_ENDED && s->exit_status != 0);
}

static bool fetch(td__cluster_group *g, int member, td__fetch_why why)
{
    td__call *call = td__cluster_call(g, TD_CALL_OUTPUT);

    if (!call)
        return false;
    call->member = member;
    call->why = why;
    td__cluster_push(g, call);
    return true;
}

/* One member that died, of a job that allows it, is started again alone: once all have begun, also
 * if it died before others had. */
static bool restart_member(td__cluster_group *g, int member, const td__seen *s)
{
    if (g->ending || s->state != TD_SEEN_ENDED || g->restarts >= g->l->spec->member_restarts)
        return false;
    if (!g->started)
        return true;
    char why[320];
    g->restarts++;
    snprintf(why, sizeof why, "exit status %d%s%s", s->exit_status, s->text[0] ? ": " : "",
             s->text);
    if (g->c->ops->fresh_output)
        fetch(g, member, TD_FETCH_REBASE);
    td__cluster_send(g, member, TD_TRACK_RESTART);
    td__cluster_say(g, TD_TRACK_MEMBER_RESTARTED, member, why);
    return true;
}

/* All members have ended: with which status, unless a failure has said it? */
static void settle(td__cluster_group *g)
{
    for (int i = 0; i < g->l->members && g->failed_member < 0; i++) {
        const td__seen *s = &g->seen[i];
        int status = s->state == TD_SEEN_ENDED ? s->exit_status : 143; /* gone after SIGTERM */
        if (status != 0 && g->exit_status == 0) {
            g->exit_status = status;
            g->exit_class = s->exit_class;
            snprintf(g->text, sizeof g->text, "%s", s->text);
        }
    }
}

static void say_started(td__cluster_group *g)
{
    g->started = true;
    td__cluster_say(g, TD_TRACK_STARTED, 0, NULL);
    td__cluster_metrics_look(g);
}

void td__cluster_tidy(td__cluster_group *g)
{
    td__call *call = g->c->ops->tidy ? td__cluster_call(g, TD_CALL_TIDY) : NULL;

    if (!call) {
        td__cluster_over(g, TD_TRACK_EXITED);
        return;
    }
    g->fetching = 1;
    td__cluster_push(g, call);
}

/* The output is kept, as far as it can be had. */
static void output_is_kept(td__cluster_group *g)
{
    if (!td__cluster_publish(g))
        td__cluster_tidy(g);
}

/* Output is kept before anybody may remove the members. */
static void fetch_output(td__cluster_group *g)
{
    g->fetching = 0;
    g->cut_off = g->unsaved = false;
    for (int i = 0; i < g->l->members; i++)
        if (g->seen[i].state == TD_SEEN_ENDED && fetch(g, i, TD_FETCH_LAST))
            g->fetching++;
    if (g->fetching == 0)
        output_is_kept(g);
}

/* The last word of one member. An outage is waited for a few times: then the group has ended, and
 * who may remove the members knows that their output is nowhere else. */
static void on_last_output(td__cluster_group *g, const td__call *call)
{
    g->unsaved = g->unsaved || call->st != TD_OK;
    g->cut_off = g->cut_off || call->st == TD_EPEER || call->st == TD_ETIMEDOUT;
    if (--g->fetching > 0 || g->over)
        return;
    if (g->cut_off && g->fetch_tries++ < FETCH_TRIES)
        td__timer_start(g->c->base.c.loop, &g->look, td__deadline_in_ms(LOOK_AGAIN_MS));
    else
        output_is_kept(g);
}

static void on_tidy(td__cluster_group *g, const td__call *call)
{
    if (call->st) /* forget() tries it again */
        TD_LOG(INFO, SERVICE, "%s: %s", g->l->g.token, call->text);
    if (!g->over)
        td__cluster_over(g, TD_TRACK_EXITED);
}

static void report_waiting(td__cluster_group *g, const td__seen *seen)
{
    for (int i = 0; i < g->l->members; i++)
        if (seen[i].state == TD_SEEN_WAITING && seen[i].text[0] &&
            strcmp(seen[i].text, g->seen[i].text) != 0)
            td__cluster_say(g, TD_TRACK_TROUBLE, i, seen[i].text);
}

/* The first member in its system's queue; n: none, or some have got their places. These hold what
 * others wait for, perhaps each other's half: the service's time for starts ends that. */
static int first_queued(const td__seen *seen, int n)
{
    int first = n;

    for (int i = n - 1; i >= 0; i--) {
        bool queued = seen[i].state == TD_SEEN_WAITING && seen[i].queued;
        if (!queued && seen[i].state != TD_SEEN_ABSENT)
            return n;
        first = queued ? i : first;
    }
    return first;
}

/* A group that waits in its system's queue. */
static void report_queue(td__cluster_group *g, const td__seen *seen)
{
    int n = g->l->members, i = first_queued(seen, n);

    if (g->started || (i == n && !g->pending))
        return;
    bool said = i < n && g->pending && strcmp(seen[i].text, g->seen[i].text) == 0;
    g->pending = i < n;
    if (!said)
        td__cluster_say(g, g->pending ? TD_TRACK_PENDING : TD_TRACK_PLACED, 0,
                        g->pending && seen[i].text[0] ? seen[i].text : NULL);
}

/* Until the next look. Of many that wait in a queue each is looked at ever more seldom. */
static uint64_t look_after_ms(td__cluster_group *g, bool restarting)
{
    uint64_t every = g->c->ops->look_every_ms ? g->c->ops->look_every_ms : LOOK_EVERY_MS;

    if (!g->started || g->ending || restarting)
        every = every < STARTING_MS ? every : STARTING_MS;
    if (!g->pending || g->started || g->ending) {
        g->pending_ms = 0;
        return every;
    }
    g->pending_ms = g->pending_ms ? 2 * g->pending_ms : every;
    if (g->pending_ms > PENDING_MOST_MS)
        g->pending_ms = PENDING_MOST_MS;
    return g->pending_ms;
}

static void on_seen(td__cluster_group *g, const td__seen *seen)
{
    int count[TD_SEEN_ENDED + 1] = {0}, restarting = 0, n = g->l->members;

    report_waiting(g, seen);
    report_queue(g, seen);
    memcpy(g->seen, seen, (size_t)n * sizeof *seen);
    g->unreachable = false;
    for (int i = 0; i < n; i++)
        count[seen[i].state]++;
    if (g->adopting && count[TD_SEEN_ABSENT] == n) {
        td__cluster_over(g, TD_TRACK_UNKNOWN);
        return;
    }
    g->adopting = false;
    bool all_begun = count[TD_SEEN_WAITING] == 0 && count[TD_SEEN_ABSENT] == 0;
    if (!g->started && all_begun &&
        !(g->failed_member >= 0 && g->exit_class == TD_EXIT_CLASS_LAUNCH))
        say_started(g);
    for (int i = 0; i < n && !g->over; i++) {
        bool failed = has_failed(&seen[i]) && !(g->ending && seen[i].state == TD_SEEN_ABSENT);
        if (failed && !g->restarting[i] && !restart_member(g, i, &seen[i]))
            fail_group(g, i, &seen[i]);
        restarting += g->restarting[i];
    }
    bool all_over = count[TD_SEEN_WAITING] + count[TD_SEEN_RUNNING] + restarting == 0;
    if (all_over && g->fetching == 0 && !g->publication) {
        settle(g);
        if (!g->started && g->exit_class == TD_EXIT_CLASS_LAUNCH) {
            td__cluster_over(g, TD_TRACK_FAILED);
            return;
        }
        if (!g->started)
            say_started(g);
        fetch_output(g);
        return;
    }
    td__timer_start(g->c->base.c.loop, &g->look,
                    td__deadline_in_ms(look_after_ms(g, restarting > 0)));
}

/* The other system does not answer: said once, and tried again. */
static void on_unseen(td__cluster_group *g, const char *text)
{
    if (!g->unreachable)
        td__cluster_say(g, TD_TRACK_TROUBLE, 0, text);
    g->unreachable = true;
    td__timer_start(g->c->base.c.loop, &g->look, td__deadline_in_ms(LOOK_AGAIN_MS));
}

/* An outage: the same token starts it once, however often it is asked for. The service's time for
 * starts ends it. */
void td__cluster_start_again(td__cluster_group *g)
{
    if (g->ending)
        td__cluster_look_soon(g);
    else if (!td__cluster_begin(g, TD_CALL_START))
        td__timer_start(g->c->base.c.loop, &g->look, td__deadline_in_ms(LOOK_AGAIN_MS));
}

static void not_started(td__cluster_group *g, td_status st, const char *text)
{
    g->start_again = st == TD_EPEER || st == TD_ETIMEDOUT;
    if (g->start_again) {
        on_unseen(g, text);
        return;
    }
    g->exit_status = -1;
    g->exit_class = TD_EXIT_CLASS_LAUNCH;
    snprintf(g->text, sizeof g->text, "%s", text);
    td__cluster_over(g, TD_TRACK_FAILED);
}

static void on_start(td__cluster_group *g, const td__call *call)
{
    if (call->st) {
        not_started(g, call->st, call->text);
        return;
    }
    g->start_again = g->unreachable = false;
    td__cluster_look_soon(g);
}

bool td__cluster_begin(td__cluster_group *g, td__call_kind kind)
{
    const td__cluster_ops *o = g->c->ops;
    char text[1024];

    if (o->reserve && !g->reserved) {
        td_status st = o->reserve(g->c->system, g->l, kind == TD_CALL_LOOK);
        g->reserved = !st;
        if (st == TD_ENOMEM)
            return false;
        if (st) {
            snprintf(text, sizeof text, "%s", td_last_error());
            not_started(g, st, text);
            return true;
        }
    }
    td__call *call = td__cluster_call(g, kind);
    if (call)
        td__cluster_push(g, call);
    return call != NULL;
}

static void on_output(td__cluster_group *g, const td__call *call)
{
    char path[4096];

    if (call->st)
        TD_LOG(INFO, SERVICE, "output of member %d of %s: %s", call->member, g->l->g.token,
               call->text);
    td__cluster_log_path(g->l->g.dir, g->l->g.token, call->member, path, sizeof path);
    switch (call->why) {
    case TD_FETCH_LAST: on_last_output(g, call); return;
    case TD_FETCH_REBASE: g->log_base[call->member] = td__cluster_log_bytes(path); return;
    case TD_FETCH_SHOW: break;
    }
    td__cluster_show(path, call->from, &call->sink, call->st);
    if (!call->st && !g->over && g->seen[call->member].state == TD_SEEN_RUNNING)
        td__cluster_follow(g, call->member);
}

static void on_signalled(td__cluster_group *g, const td__call *call)
{
    if (call->st)
        TD_LOG(WARN, SERVICE, "%s: %s", g->l->g.token, call->text);
    if (call->what == TD_TRACK_RESTART)
        g->restarting[call->member] = false;
    td__cluster_look_soon(g);
}

static void on_forgotten(td__call *call)
{
    td__cluster *c = call->c;
    td__track_event gone = {.kind = TD_TRACK_FORGOTTEN, .token = call->token};
    td__call **at = &c->forgetting;

    while (*at != call)
        at = &(*at)->after;
    *at = call->after;
    if (call->st && !c->closing)
        TD_LOG(WARN, SERVICE, "%s cannot be removed: %s", call->token, call->text);
    else if (!c->closing)
        c->base.c.event(c->base.c.arg, &gone);
    free_call(call);
}

/* A call has come back from its worker. */
void td__cluster_ended(void *arg)
{
    td__call *call = arg;
    td__cluster_group *g = call->g;

    if (call->kind == TD_CALL_FORGET) {
        on_forgotten(call);
        return;
    }
    if (call->dropped || call->c->closing) {
        if (call->sink.end)
            call->sink.end(call->sink.arg, TD_EABORTED);
        if (call->dropped) {
            free_group(g);
            free_call(call);
        } else { /* the group is dropped by destroy() */
            g->calls = call->after;
            free_call(call);
        }
        return;
    }
    /* Handlers push further calls behind those that wait; this one is the first until then. */
    switch (call->kind) {
    case TD_CALL_START: on_start(g, call); break;
    case TD_CALL_LOOK:
        if (g->over)
            break;
        if (call->st)
            on_unseen(g, call->text);
        else
            on_seen(g, call->seen);
        break;
    case TD_CALL_SIGNAL: on_signalled(g, call); break;
    case TD_CALL_OUTPUT: on_output(g, call); break;
    case TD_CALL_METRICS:
        if (!g->over)
            td__cluster_metrics_look(g);
        break;
    case TD_CALL_TIDY: on_tidy(g, call); break;
    case TD_CALL_FORGET: break;
    }
    if (call->dropped) { /* by the receiver of an event */
        free_group(g);
        free_call(call);
        return;
    }
    g->calls = call->after;
    if (g->calls)
        td__cluster_queue(g->c, g->calls);
    free_call(call);
}
