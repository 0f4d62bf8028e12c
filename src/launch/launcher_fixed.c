/* launcher_fixed.c -- what the launcher does for fixed ranks: it decides their generation (GO names
 * where all ranks live), and the first rank that fails ends it. If the job may be
 * restarted, the same ranks are started again as another generation; those that train continue
 * their run from its newest checkpoint. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "launch/launcher_impl.h"

enum {
    EXIT_USAGE = 2,
    EXIT_NOT_RUN = 127,
    LEFT_MS = 10000, /* for workers, once their servers have ended well */
};

/* The texts of READY after the first: "HOST:PORT" of each rank, of the first agent also of the
 * master. */
td_status td__fixed_ready(td__launch *l, int index, const td__msg *m, size_t at)
{
    td__launch_agent *a = &l->agents[index];
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

/* All agents are ready: tell each where all ranks live. */
td_status td__fixed_go(td__launch *l)
{
    td__texts t = {0};
    for (int i = 0; i < l->hosts.n; i++)
        for (int k = 0; k < l->hosts.host[i].count; k++)
            td__texts_add(&t, "%s", l->agents[i].rank_address[k]);
    td__texts_add(&t, "%s", l->agents[0].rank_address[l->hosts.host[0].count]);
    td_status st =
        t.failed ? TD_FAIL(TD_ENOMEM, "no memory for %d addresses", l->hosts.size) : TD_OK;
    for (int i = 0; i < l->hosts.n && !st; i++) {
        st = td__channel_send(&l->agents[i].link.down, TD_MSG_GO, -1, t.data, t.used);
        st = st == TD_EPEER ? TD_OK : st; /* the agent's end is reported separately */
        l->agents[i].gone = true;
    }
    td__texts_fini(&t);
    return st;
}

void td__fixed_exit(td__launch *l, int index, const td__msg *m)
{
    char *end;
    size_t at = strlen(m->data) + 1; /* ends with 0: checked by the caller */
    int status = (int)strtol(m->data, &end, 10);
    const char *why = td__texts_next(m->data, m->nbytes, &at);
    bool killed = strcmp(end, " killed") == 0, none = l->first < 0 && !l->stopping;
    bool refused = status == EXIT_USAGE && l->first_status != EXIT_USAGE;
    l->agents[index].n_ended++;
    if (!status && none && l->agents[index].base + m->rank < l->o.lossy_from &&
        ++l->n_leaders == l->o.lossy_from)
        l->limit = td__deadline_in_ms(LEFT_MS); /* what the others do is of no use to anybody */
    if (killed && none && l->o.lossy_from > 0 && l->agents[index].base + m->rank >= l->o.lossy_from)
        return; /* the others know, and go on */
    /* A rank that was killed before anybody was told to end, or that refuses what it was given, is
     * the cause of those that left by themselves, also if the news of it comes later. */
    if (status && (none || ((killed || refused) && l->first >= 0 && !l->killed))) {
        l->first = l->agents[index].base + m->rank;
        l->first_status = status;
        l->killed = killed;
        snprintf(l->first_why, sizeof l->first_why, "%s", why ? why : "");
    }
    const td__role *role = td__roles_of(&l->roles, l->agents[index].base + m->rank);
    l->n_done += !status && !td__role_serves(role);
    bool done = l->n_done == td__roles_working(&l->roles) && l->n_done < l->hosts.size;
    if (none && (status || (done && l->n_done)))
        td__launch_stop(l, TD_MSG_STOP);
}

/* Ranks may need the stores of other hosts until they end: agents stay until all have. */
void td__fixed_end_agents(td__launch *l)
{
    for (int i = 0; i < l->hosts.n; i++)
        if (!l->agents[i].ended && l->agents[i].n_ended < l->hosts.host[i].count)
            return;
    if (!l->ending)
        td__launch_tell_all(l, TD_MSG_END);
    l->ending = true;
}

/* Which rank failed first, and how. */
static void write_cause(td__launch *l)
{
    int host = 0, s = l->first_status;
    while (l->first >= l->hosts.host[host].first + l->hosts.host[host].count)
        host++;
    if (l->first_why[0])
        snprintf(l->cause, sizeof l->cause, "%s: rank %d of %d on host %s", l->first_why, l->first,
                 l->hosts.size, l->hosts.host[host].name);
    else if (s > 128 && s < 128 + NSIG)
        snprintf(l->cause, sizeof l->cause, "killed by signal %d (%s): rank %d of %d on host %s",
                 s - 128, strsignal(s - 128), l->first, l->hosts.size, l->hosts.host[host].name);
    else
        snprintf(l->cause, sizeof l->cause, "failed with exit status %d: rank %d of %d on host %s",
                 s, l->first, l->hosts.size, l->hosts.host[host].name);
}

/* Nothing is left of the generation that ended. */
static void forget(td__launch *l)
{
    l->cause[0] = l->first_why[0] = 0;
    l->first = -1;
    l->first_status = l->n_done = l->n_leaders = 0;
    l->killed = l->ending = l->begun = l->stopping = l->killing = l->changing = false;
}

/* The job is not started again if it was asked to stop, by a signal to the launcher or to a rank,
 * or if its command line is wrong. */
bool td__fixed_again(td__launch *l)
{
    int s = l->first_status;
    if (l->elastic || l->failed || l->signal)
        return false;
    if (l->changing) {
        forget(l);
        return true;
    }
    if (l->first < 0 || l->failures >= l->o.restarts)
        return false;
    if (s == EXIT_USAGE || s == EXIT_NOT_RUN || s == 128 + SIGINT)
        return false;
    write_cause(l);
    l->failures++;
    snprintf(l->reason, sizeof l->reason, "%.200s", l->cause);
    td__job_status_event(l->news, l->cause, true, -1);
    td__output_say(l->output, "%s; all ranks are started again (restart %d of %d)", l->cause,
                   l->failures, l->o.restarts);
    forget(l);
    return true;
}

/* The name of the rank that failed comes last. */
void td__fixed_conclude(td__launch *l)
{
    if (l->first < 0)
        return;
    l->over = true;
    l->status = l->first_status;
    if (!l->o.plain)
        td__output_tail(l->output, l->first);
    if (!l->o.plain || l->status > 128 + SIGINT) /* else rank 0 has given the reason */
        write_cause(l);
}
