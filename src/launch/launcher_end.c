/* launcher_end.c -- how a job ends, for its launcher. Of an elastic job an agent says that it is
 * over. Of fixed ranks the first that fails ends the generation; if the job may be restarted, the
 * same ranks are started again as another one, and those that train continue their run from its
 * newest checkpoint. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "launch/launcher_impl.h"

enum {
    EXIT_USAGE = 2,
    EXIT_NOT_RUN = 127,
    LEFT_MS = 10000, /* for workers, once their servers have ended well */
};

void td__launch_over(td__launch *l, int status, const char *cause)
{
    if (l->over)
        return;
    l->over = true;
    l->status = status;
    snprintf(l->cause, sizeof l->cause, "%s", cause);
    td__launch_limit_end(l);
    td__launch_tell_all(l, TD_MSG_END);
}

/* ---- fixed ranks ---- */

/* Ranks may need the stores of other hosts until they end: agents stay until all have. */
void td__launch_end_agents(td__launch *l)
{
    for (int i = 0; i < l->hosts.n; i++)
        if (!l->agents[i].ended && l->agents[i].n_ended < l->hosts.host[i].count)
            return;
    td__launch_over(l, l->first_status, "");
}

void td__launch_exit(td__launch *l, int index, int local, const char *how, const char *why)
{
    char *end;
    int status = (int)strtol(how, &end, 10), rank = l->agents[index].base + local;
    bool killed = strcmp(end, " killed") == 0, none = l->first < 0 && !l->stopping;
    bool refused = status == EXIT_USAGE && l->first_status != EXIT_USAGE;
    l->agents[index].n_ended++;
    if (!status && none && rank < l->o.lossy_from && ++l->n_leaders == l->o.lossy_from)
        l->limit = td__deadline_in_ms(LEFT_MS); /* what the others do is of no use to anybody */
    if (killed && none && l->o.lossy_from > 0 && rank >= l->o.lossy_from)
        return; /* the others know, and go on */
    /* A rank that was killed before anybody was told to end, or that refuses what it was given, is
     * the cause of those that left by themselves, also if the news of it comes later. */
    if (status && (none || ((killed || refused) && l->first >= 0 && !l->killed))) {
        l->first = rank;
        l->first_status = status;
        l->killed = killed;
        snprintf(l->first_why, sizeof l->first_why, "%s", why ? why : "");
    }
    l->n_done += !status && !td__role_serves(td__roles_of(&l->roles, rank));
    bool done = l->n_done == td__roles_working(&l->roles) && l->n_done < l->hosts.size;
    if (none && (status || (done && l->n_done)))
        td__launch_stop(l, TD_MSG_STOP);
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
    l->killed = l->begun = l->stopping = l->killing = l->changing = l->over = false;
}

/* The job is not started again if it was asked to stop, by a signal to the launcher or to a rank,
 * or if its command line is wrong. */
bool td__launch_again(td__launch *l)
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

/* ---- what is said of it ---- */

/* Has the process that gave the cause said it itself, as the last thing that was said? */
static bool is_said(const td__launch *l)
{
    const char *status = strstr(l->cause, "exit status "),
               *words = status ? strchr(status, ':') : "";
    return l->o.plain && words && strlen(words) > 2 && strstr(l->last, words + 2);
}

/* The name of the rank that failed comes last. */
static void conclude_fixed(td__launch *l)
{
    l->over = l->first >= 0 || !l->signal;
    l->status = l->first_status;
    if (l->first < 0)
        return;
    if (!l->o.plain)
        td__output_tail(l->output, l->first);
    if (!l->o.plain || l->status > 128 + SIGINT) /* else rank 0 has given the reason */
        write_cause(l);
}

td_status td__launch_conclude(td__launch *l, int *exit_status)
{
    if (!l->elastic)
        conclude_fixed(l);
    bool failed = l->over && l->status;
    if (l->o.cause)
        snprintf(l->o.cause, TD_LAUNCH_CAUSE, "%s", l->failed ? l->why : failed ? l->cause : "");
    if (l->failed)
        return TD_FAIL(l->failed, "%s", l->why);
    if (failed && l->cause[0] && !is_said(l))
        td__output_say(l->output, "%s", l->cause);
    if (!l->over && l->signal && l->signal != SIGPIPE)
        td__output_say(l->output, "stopped by signal %d (%s)", l->signal, strsignal(l->signal));
    *exit_status = l->over ? l->status : l->signal ? 128 + l->signal : 0;
    return *exit_status ? TD_OK : td__output_status(l->output);
}
