/* cluster.c -- trackers over other systems: their functions as the service calls them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "service/track/cluster.h"

#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/log.h"
#include "service/track/cluster_impl.h"

static void on_mail(void *arg, uint32_t events)
{
    (void)events;
    td__cluster_read_mail(arg);
}

td_status td__cluster_create(const td__cluster_ops *ops, const td__tracker_ops *self,
                             const td__tracker_config *config, td__tracker **out)
{
    td__cluster *c = td__calloc(1, sizeof *c);
    td_status st;

    *out = NULL;
    if (!c)
        return TD_FAIL(TD_ENOMEM, "out of memory for tracker %s", self->name);
    c->base = (td__tracker){.ops = self, .c = *config};
    c->ops = ops;
    c->mail_end = &c->mail;
    pthread_mutex_init(&c->mail_lock, NULL);
    c->mailed =
        (td__watch){.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .ready = on_mail, .arg = c};
    if (c->mailed.fd < 0) {
        st = TD_FAIL(TD_EIO, "tracker %s: eventfd is not to be had", self->name);
        goto fail_mail;
    }
    TD_TRY_OR(st, fail_fd, td__loop_watch(config->loop, &c->mailed, EPOLLIN));
    TD_TRY_OR(st, fail_watch, ops->open(config, &c->system));
    st = td__cluster_threads_start(c);
    if (!st) {
        *out = &c->base;
        return TD_OK;
    }
    ops->stop(c->system);
    td__cluster_threads_stop(c);
    ops->close(c->system);
fail_watch:
    td__loop_unwatch(config->loop, &c->mailed);
fail_fd:
    close(c->mailed.fd);
fail_mail:
    pthread_mutex_destroy(&c->mail_lock);
    td__free(c);
    return st;
}

/* Groups stay where they run. Calls under way end early; what they have answered is dropped. */
void td__cluster_destroy(td__tracker *t)
{
    td__cluster *c = (td__cluster *)t;

    c->closing = true;
    c->ops->stop(c->system);
    td__cluster_followers_stop(c, NULL);
    td__cluster_threads_stop(c);
    td__cluster_read_mail(c); /* frees what was posted */
    td__loop_unwatch(c->base.c.loop, &c->mailed);
    close(c->mailed.fd);
    td__cluster_publish_end(c);
    td__cluster_empty_queue(c);
    while (c->groups)
        td__cluster_drop(c->groups);
    c->ops->close(c->system);
    pthread_mutex_destroy(&c->mail_lock);
    td__free(c);
}

/* It may run, since an earlier start(). */
static void out_of_memory(td__cluster *c, const char *token)
{
    td__track_event e = {.kind = TD_TRACK_AGAIN, .token = token, .text = "out of memory"};
    c->base.c.event(c->base.c.arg, &e);
}

static void on_look(void *arg)
{
    td__cluster_group *g = arg;
    if (g->start_again)
        td__cluster_start_again(g);
    else
        td__cluster_look_soon(g);
}

static void on_grace(void *arg)
{
    td__cluster_group *g = arg;
    td__cluster_signal(&g->c->base, g->l->g.token, TD_TRACK_ALL, TD_TRACK_KILL);
}

static td__cluster_group *add_group(td__cluster *c, const td__group *from)
{
    td__cluster_group *g = td__calloc(1, sizeof *g);

    if (!g || td__launch_copy(from, &g->l)) {
        td__free(g);
        return NULL;
    }
    g->c = c;
    g->failed_member = -1;
    g->look = (td__timer){.due = on_look, .arg = g};
    g->grace = (td__timer){.due = on_grace, .arg = g};
    g->seen = td__calloc((size_t)g->l->members, sizeof *g->seen);
    g->log_base = td__calloc((size_t)g->l->members, sizeof *g->log_base);
    g->restarting = td__calloc((size_t)g->l->members, sizeof *g->restarting);
    g->next = c->groups;
    c->groups = g;
    if (g->seen && g->log_base && g->restarting)
        return g;
    td__cluster_drop(g);
    return NULL;
}

static void begin(td__tracker *t, const td__group *from, td__call_kind kind)
{
    td__cluster *c = (td__cluster *)t;
    td__cluster_group *g = td__cluster_find(c, from->token);

    if (g && g->over) {
        td__cluster_drop(g);
        g = NULL;
    }
    if (g) { /* asked for twice: what has become of it is said again */
        g->adopting = kind == TD_CALL_LOOK;
        g->started = false;
        td__cluster_look_soon(g);
        return;
    }
    g = add_group(c, from);
    if (g)
        g->adopting = kind == TD_CALL_LOOK;
    if (g && td__cluster_begin(g, kind))
        return;
    if (g)
        td__cluster_drop(g);
    out_of_memory(c, from->token);
}

void td__cluster_start(td__tracker *t, const td__group *g)
{
    begin(t, g, TD_CALL_START);
}

void td__cluster_adopt(td__tracker *t, const td__group *g)
{
    begin(t, g, TD_CALL_LOOK);
}

void td__cluster_signal(td__tracker *t, const char *token, int member, td__track_signal what)
{
    td__cluster *c = (td__cluster *)t;
    td__cluster_group *g = td__cluster_find(c, token);

    if (!g || g->over || (what == TD_TRACK_RESTART && (member < 0 || member >= g->l->members)))
        return; /* it has ended, which was said */
    if (what != TD_TRACK_RESTART && member == TD_TRACK_ALL) {
        g->ending = true;
        g->signalled = g->signalled || g->failed_member < 0;
        td__cluster_publish_stop(g);
    }
    td__cluster_send(g, member, what);
    td__cluster_look_soon(g);
}

void td__cluster_members(td__tracker *t, const char *token, td__track_member *out, int n)
{
    static const td__member_state STATES[] = {[TD_SEEN_ABSENT] = TD_MEMBER_GONE,
                                              [TD_SEEN_WAITING] = TD_MEMBER_WAITING,
                                              [TD_SEEN_RUNNING] = TD_MEMBER_RUNNING,
                                              [TD_SEEN_ENDED] = TD_MEMBER_ENDED};
    const td__cluster_group *g = td__cluster_find((td__cluster *)t, token);

    for (int i = 0; g && i < n && i < g->l->members; i++) {
        const td__seen *m = &g->seen[i];
        bool coming = m->state == TD_SEEN_ABSENT && !g->started;
        out[i].state = coming ? TD_MEMBER_WAITING : STATES[m->state];
        out[i].exit_status = m->exit_status;
        snprintf(out[i].host, sizeof out[i].host, "%s", m->host);
        snprintf(out[i].text, sizeof out[i].text, "%s", m->text);
    }
}

void td__cluster_forget(td__tracker *t, const char *token)
{
    td__cluster *c = (td__cluster *)t;
    td__cluster_group *g = td__cluster_find(c, token);

    for (const td__call *old = c->forgetting; old; old = old->after)
        if (strcmp(old->token, token) == 0)
            return; /* its answer is the answer to this one too */
    td__call *call = td__calloc(1, sizeof *call);
    if (g)
        td__cluster_drop(g);
    if (!call)
        return; /* the next clean-up does it */
    *call = (td__call){.kind = TD_CALL_FORGET, .c = c, .after = c->forgetting};
    c->forgetting = call;
    call->done = (td__mail){.run = td__cluster_ended, .arg = call};
    memcpy(call->token, token, strnlen(token, sizeof call->token - 1));
    td__cluster_queue(c, call);
}
