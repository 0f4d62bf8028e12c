/* launcher_elastic.c -- what the launcher does for elastic ranks: it shows their generations and
 * follows the file of hosts. Hosts that appear in it get an agent, those that vanish from it lose
 * their slots. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "launch/launcher_impl.h"

typedef td__launch launch;
typedef td__launch_agent agent;

/* The agents that this one connects to. */
void td__elastic_go(launch *l, int index)
{
    td__texts t = {0};
    agent *a = &l->agents[index];
    for (int i = 0; i < l->hosts.n; i++)
        if (i != index && l->agents[i].ready && !l->agents[i].ended &&
            (i < index || l->agents[i].gone))
            td__texts_add(&t, "%d %s", i, l->agents[i].address);
    td_status st = td__channel_send(&a->link.down, TD_MSG_GO, -1, t.data, t.used);
    (void)st; /* its end is reported separately */
    a->gone = true;
    td__texts_fini(&t);
}

/* ---- what agents say ---- */

static void hear_generation(launch *l, const char *number, const char *size, const char *why)
{
    uint64_t n = strtoull(number, NULL, 10);
    if (n <= l->generation)
        return;
    char text[TD_STATUS_TEXT];
    l->generation = n;
    l->ranks = (int)strtol(size, NULL, 10);
    snprintf(l->reason, sizeof l->reason, "%s", why);
    snprintf(text, sizeof text, "now %s rank%s (generation %s): %s", size, l->ranks != 1 ? "s" : "",
             number, why);
    td__job_status_event(l->news, text, false, l->ranks);
    if (n > 1)
        td__output_say(l->output, "%s", text);
}

void td__elastic_note_output(launch *l, const td__msg *m)
{
    size_t end = m->nbytes && m->data[m->nbytes - 1] == '\n' ? m->nbytes - 1 : m->nbytes;
    size_t begin = end;
    if (l->over && !l->stopping) /* extend the deadline while output is pending */
        td__launch_limit_end(l);
    if (m->kind != TD_MSG_ERR)
        return;
    while (begin > 0 && m->data[begin - 1] != '\n')
        begin--;
    snprintf(l->last, sizeof l->last, "%.*s", (int)(end - begin), m->data + begin);
}

static void set_slots(launch *l, int index, int slots)
{
    char text[24];
    agent *a = &l->agents[index];
    if (a->slots == slots || a->ended)
        return;
    a->slots = slots;
    snprintf(text, sizeof text, "%d", slots);
    td__launch_tell(a, TD_MSG_SLOTS, text, NULL);
}

/* A host was asked to go: its ranks do, at a step border, or the job does if the others are too
 * few, as with fixed ranks they always are. */
static void drain(launch *l, int index)
{
    if (l->over || l->stopping)
        return;
    char why[200];
    snprintf(why, sizeof why, "host %s was asked to go (SIGTERM)", l->hosts.host[index].name);
    if (td__worlds_lost(l, index, why))
        return;
    if (!l->elastic || td__launch_slots(l, index) < l->o.min_ranks) {
        l->signal = SIGTERM;
        td__launch_stop(l, TD_MSG_STOP);
        return;
    }
    td__output_say(l->output, "host %s was asked to go (SIGTERM): its ranks leave at a step border",
                   l->hosts.host[index].name);
    set_slots(l, index, 0);
}

static void hear_over(launch *l, const char *status, const char *cause)
{
    if (l->over)
        return;
    l->over = true;
    l->status = (int)strtol(status, NULL, 10);
    snprintf(l->cause, sizeof l->cause, "%s", cause);
    td__launch_limit_end(l);
    td__launch_tell_all(l, TD_MSG_END);
}

/* Why an agent leaves. For the last agent the text is kept: its end, which comes next, ends the job
 * with it. */
static void hear_leaving(launch *l, int index, const char *why)
{
    td__agent_link *link = &l->agents[index].link;
    int n_others = 0;
    for (int i = 0; i < l->hosts.n; i++)
        n_others += i != index && td__launch_is_up(l, i);
    if (!n_others)
        snprintf(link->noise, sizeof link->noise, "%s", why);
    else if (!l->over && !l->stopping)
        td__output_say(l->output, "%s", why);
}

bool td__elastic_hear(launch *l, int index, const td__msg *m)
{
    size_t at = 0;
    const char *one = td__texts_next(m->data, m->nbytes, &at);
    const char *two = td__texts_next(m->data, m->nbytes, &at);
    const char *three = td__texts_next(m->data, m->nbytes, &at);
    if (m->kind == TD_MSG_DRAIN)
        drain(l, index);
    else if (!one || !l->elastic)
        return false;
    else if (m->kind == TD_MSG_GENERATION && three)
        hear_generation(l, one, two, three);
    else if (m->kind == TD_MSG_OVER && two)
        hear_over(l, one, two);
    else if (m->kind == TD_MSG_LOST) {
        td__job_status_event(l->news, one, true, -1);
        td__output_say(l->output, "%s", one);
    } else if (m->kind == TD_MSG_LEAVES || m->kind == TD_MSG_FAILED)
        hear_leaving(l, index, one);
    else
        return false;
    return true;
}

/* Has the process that gave the cause said it itself, as the last thing that was said? */
static bool is_said(const launch *l)
{
    const char *status = strstr(l->cause, "exit status "),
               *words = status ? strchr(status, ':') : "";
    return l->o.plain && words && strlen(words) > 2 && strstr(l->last, words + 2);
}

void td__elastic_conclude(launch *l)
{
    const char *cause = l->failed ? l->why : l->over && l->status ? l->cause : "";
    if (l->o.cause)
        snprintf(l->o.cause, TD_LAUNCH_CAUSE, "%s", cause);
    if (!l->status || is_said(l))
        l->cause[0] = 0;
}

/* ---- the file of hosts ---- */

static int find_host(const td__hosts *h, const char *name)
{
    for (int i = 0; i < h->n; i++)
        if (!strcmp(h->host[i].name, name))
            return i;
    return -1;
}

static td_status add_host(launch *l, const td__host *host)
{
    int n = l->hosts.n;
    if (n == l->max_agents)
        return TD_FAIL(TD_EINVAL, "host %s: at most %d agents in the life of a job", host->name,
                       l->max_agents);
    td__host *more = td__realloc(l->hosts.host, (size_t)(n + 1) * sizeof *more);
    if (!more)
        return TD_FAIL(TD_ENOMEM, "no memory for the list of hosts");
    l->hosts.host = more;
    l->hosts.host[n] = *host;
    l->hosts.n++;
    TD_TRY(td__launch_start_agent(l, n));
    for (int i = 0; i < n; i++)
        if (l->agents[i].gone && !l->agents[i].ended) {
            td__launch_tell(&l->agents[n], TD_MSG_PARENT, l->agents[i].address, NULL);
            break;
        }
    return TD_OK;
}

void td__elastic_look_at_hosts(launch *l)
{
    td__hosts new = {0};
    if (!l->begun || l->over || l->stopping || !td__launch_hosts_changed(l))
        return;
    td_status st = td__hosts_read(l->o.hosts_file, 0, &new);
    for (int i = 0; i < l->hosts.n && !st; i++)
        if (find_host(&new, l->hosts.host[i].name) < 0)
            set_slots(l, i, 0);
    for (int k = 0; k < new.n && !st; k++) {
        int i = l->hosts.n;
        while (i-- > 0 &&
               (l->agents[i].ended || strcmp(l->hosts.host[i].name, new.host[k].name) != 0))
            ;
        if (i >= 0)
            set_slots(l, i, new.host[k].count);
        else
            st = add_host(l, &new.host[k]);
    }
    if (st)
        td__output_say(l->output, "the file of hosts: %s", td_last_error());
    td__hosts_fini(&new);
}
