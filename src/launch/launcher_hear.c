/* launcher_hear.c -- what the agents of a launch say: they are ready, and are let go on; output;
 * the ends of ranks; generations; why an agent leaves. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "launch/launcher_impl.h"
#include "launch/placement.h"

enum { FAN_OUT = 16 /* agents below one agent's store */ };

typedef td__launch launch;
typedef td__launch_agent agent;

/* ---- ready, go ---- */

/* The texts of READY after the first: "HOST:PORT" of each fixed rank, of the first agent also of
 * the master. */
static td_status take_addresses(launch *l, int index, const td__msg *m, size_t at)
{
    agent *a = &l->agents[index];
    const td__host *host = &l->hosts.host[index];
    a->rank_address = td__calloc((size_t)host->count + 1, sizeof *a->rank_address);
    if (!a->rank_address)
        return TD_FAIL(TD_ENOMEM, "no memory for the addresses of %d ranks", host->count);
    for (int k = 0; k < host->count + (index == 0); k++) {
        const char *text = td__texts_next(m->data, m->nbytes, &at);
        a->rank_address[k] = text ? td__strdup(text) : NULL;
        if (!a->rank_address[k])
            return TD_FAIL(TD_EPROTO, "the agent on %s names too few ports", host->name);
    }
    return TD_OK;
}

/* Where all ranks live: the one generation of fixed ranks. */
static void add_ranks(const launch *l, td__texts *t)
{
    for (int i = 0; i < l->hosts.n; i++)
        for (int k = 0; k < l->hosts.host[i].count; k++)
            td__texts_add(t, "%s", l->agents[i].rank_address[k]);
    td__texts_add(t, "%s", l->agents[0].rank_address[l->hosts.host[0].count]);
}

/* Elastic: the agents that this one connects to, to agree with them on generations. */
static void add_peers(const launch *l, int index, td__texts *t)
{
    for (int i = 0; i < l->hosts.n; i++)
        if (i != index && l->agents[i].ready && !l->agents[i].ended &&
            (i < index || l->agents[i].gone))
            td__texts_add(t, "%d %s", i, l->agents[i].address);
}

/* Agents [first, end) are let go on. */
static td_status go(launch *l, int first, int end)
{
    td__texts t = {0};
    td_status st = TD_OK;
    if (!l->elastic)
        add_ranks(l, &t);
    for (int i = first; i < end && !st; i++) {
        t.used = l->elastic ? 0 : t.used;
        if (l->elastic)
            add_peers(l, i, &t);
        st = t.failed ? TD_FAIL(TD_ENOMEM, "no memory for the addresses of all hosts")
                      : td__channel_send(&l->agents[i].link.down, TD_MSG_GO, -1, t.data, t.used);
        st = st == TD_EPEER ? TD_OK : st; /* its end is reported separately */
        l->agents[i].gone = true;
    }
    td__texts_fini(&t);
    return st;
}

static td_status agent_ready(launch *l, int index, const td__msg *m)
{
    agent *a = &l->agents[index];
    size_t at = 0;
    bool all = true;
    const char *address = td__texts_next(m->data, m->nbytes, &at);
    if (a->ready || !address || strlen(address) >= sizeof a->address)
        return TD_FAIL(TD_EPROTO, "malformed message from the agent on %s",
                       l->hosts.host[index].name);
    snprintf(a->address, sizeof a->address, "%s", address);
    if (!l->elastic) /* before it counts as ready: GO tells the addresses of all its ranks */
        TD_TRY(take_addresses(l, index, m, at));
    a->ready = true;
    if (l->begun) /* one that was added */
        return go(l, index, index + 1);
    for (int i = FAN_OUT * index + 1; i <= FAN_OUT * (index + 1) && i < l->hosts.n; i++)
        td__launch_tell(&l->agents[i], TD_MSG_PARENT, address, NULL);
    for (int i = 0; i < l->hosts.n; i++)
        all &= l->agents[i].ready;
    if (!all)
        return TD_OK;
    l->begun = true;
    l->limit = l->stopping ? l->limit : 0;
    return go(l, 0, l->hosts.n);
}

/* ---- output ---- */

/* The last line that a process wrote to its standard error. */
static void note_line(launch *l, const td__msg *m)
{
    size_t end = m->nbytes && m->data[m->nbytes - 1] == '\n' ? m->nbytes - 1 : m->nbytes;
    size_t begin = end;
    while (begin > 0 && m->data[begin - 1] != '\n')
        begin--;
    snprintf(l->last, sizeof l->last, "%.*s", (int)(end - begin), m->data + begin);
}

static td_status show(launch *l, int index, const td__msg *m)
{
    int number = l->agents[index].base + m->rank;
    bool is_err = m->kind == TD_MSG_ERR;
    if (l->elastic)
        TD_TRY(td__output_room(l->output, number + 1, &l->o));
    if (is_err)
        note_line(l, m);
    td_status st = td__output_lines(l->output, number, is_err, m->data, m->nbytes);
    if (l->over && !l->stopping) /* however long our reader took: there may be more */
        td__launch_limit_end(l);
    return st;
}

/* ---- generations, and who is lost ---- */

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

static void hear_lost(launch *l, const char *line)
{
    td__job_status_event(l->news, line, true, -1);
    td__output_say(l->output, "%s", line);
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

/* The folder of the run: where orders can be given to the job, if this host sees it. */
static void hear_run_dir(launch *l, const char *dir)
{
    snprintf(l->run_dir, sizeof l->run_dir, "%s", dir);
    if (l->elastic || !access(dir, W_OK)) {
        td__control_offer(l->control, dir);
        td__job_status_log(l->news, dir);
    }
}

/* ---- all ---- */

td_status td__launch_hear(launch *l, int index, const td__msg *m)
{
    const td__host *host = &l->hosts.host[index];
    bool is_text = m->nbytes && !m->data[m->nbytes - 1];
    bool is_own = m->rank >= 0 && m->rank < (l->elastic ? (int)TD_PLACE_PROCS : host->count);
    bool may_go = l->elastic && l->agents[index].gone; /* the others go on without it */
    size_t at = 0;
    const char *one = is_text ? td__texts_next(m->data, m->nbytes, &at) : NULL;
    const char *two = is_text ? td__texts_next(m->data, m->nbytes, &at) : NULL;
    const char *three = is_text ? td__texts_next(m->data, m->nbytes, &at) : NULL;
    if (m->kind == TD_MSG_READY && one)
        return agent_ready(l, index, m);
    if ((m->kind == TD_MSG_OUT || m->kind == TD_MSG_ERR) && is_own)
        return show(l, index, m);
    if (m->kind == TD_MSG_FAILED && one && !may_go) {
        char why[300];
        snprintf(why, sizeof why, "host %s: %s", host->name, one);
        return td__worlds_lost(l, index, why) ? TD_OK : TD_FAIL(TD_EIO, "%s", why);
    }
    if (m->kind == TD_MSG_EXIT && one && is_own && !l->elastic)
        td__launch_exit(l, index, m->rank, one, two);
    else if (m->kind == TD_MSG_GENERATION && three)
        hear_generation(l, one, two, three);
    else if (m->kind == TD_MSG_LOST && one)
        hear_lost(l, one);
    else if (m->kind == TD_MSG_OVER && two)
        td__launch_over(l, (int)strtol(one, NULL, 10), two);
    else if (m->kind == TD_MSG_STATUS && one)
        td__job_status_host(l->news, index, one);
    else if (m->kind == TD_MSG_RUN_DIR && one)
        hear_run_dir(l, one);
    else if (m->kind == TD_MSG_DRAIN)
        td__launch_drain(l, index);
    else if ((m->kind == TD_MSG_LEAVES || m->kind == TD_MSG_FAILED) && one)
        hear_leaving(l, index, one);
    else
        return TD_FAIL(TD_EPROTO, "malformed message from the agent on %s", host->name);
    return TD_OK;
}
