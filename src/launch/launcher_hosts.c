/* launcher_hosts.c -- the hosts of a launch. Those of fixed ranks stay; of an elastic launch they
 * are places: hosts that appear in the file of hosts get an agent, those that vanish from it or are
 * asked to go lose their slots. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "launch/launcher_impl.h"
#include "launch/placement.h"

typedef td__launch launch;
typedef td__launch_agent agent;

/* ---- at the start ---- */

td_status td__launch_check(const td__launch_opts *o)
{
    if (o->hosts || o->hosts_file || o->most + o->spares <= (int)TD_PLACE_PROCS)
        return TD_OK;
    return TD_FAIL(TD_EINVAL,
                   "%d elastic ranks and %d spares: a host runs at most %d processes; name more "
                   "hosts",
                   o->most, o->spares, (int)TD_PLACE_PROCS);
}

td_status td__launch_find_hosts(launch *l)
{
    const td__launch_opts *o = &l->o;
    int size = l->elastic || o->min_world
                   ? 0
                   : o->size; /* hosts are places, of which some may stay free */
    char here[32];
    if (o->hosts && o->hosts_file)
        return TD_FAIL(TD_EINVAL, "give the hosts or a file of hosts, not both");
    if (o->hosts_file) {
        if (stat(o->hosts_file, &l->file))
            return TD_FAIL(TD_EINVAL, "cannot read %s: %s", o->hosts_file, strerror(errno));
        TD_TRY(td__hosts_read(o->hosts_file, size, &l->hosts));
    } else if (o->hosts) {
        TD_TRY(td__hosts_parse(o->hosts, size, &l->hosts));
    } else {
        if (o->size < 1 && !l->elastic)
            return TD_FAIL(TD_EINVAL, "how many ranks? give -n N or --hosts");
        snprintf(here, sizeof here, "localhost:%d",
                 l->elastic ? (int)TD_PLACE_PROCS - o->spares : o->size);
        TD_TRY(td__hosts_parse(here, 0, &l->hosts));
    }
    l->max_agents = l->elastic || o->min_world ? (int)TD_MS_AGENTS : l->hosts.n;
    l->o.n_first = l->hosts.n;
    if (o->min_world)
        return td__worlds_begin(l);
    if (!l->elastic && td__roles_parse(o->roles, l->hosts.size, &l->roles)) {
        char why[200];
        snprintf(why, sizeof why, "%s", td_last_error());
        return TD_FAIL(TD_EINVAL, "--roles: %s", why);
    }
    if (!l->elastic)
        return TD_OK;
    TD_TRY(td__launch_check(o));
    for (int i = 0; i < l->hosts.n; i++)
        if (l->hosts.host[i].count + o->spares > TD_PLACE_PROCS)
            return TD_FAIL(TD_EINVAL,
                           "host %s: %d slots and %d spares, but a host runs at most %d "
                           "elastic processes",
                           l->hosts.host[i].name, l->hosts.host[i].count, o->spares,
                           (int)TD_PLACE_PROCS);
    if (l->hosts.n > TD_MS_AGENTS || o->most > TD_MS_MEMBERS)
        return TD_FAIL(TD_EINVAL, "an elastic job has at most %d hosts and %d ranks",
                       (int)TD_MS_AGENTS, (int)TD_MS_MEMBERS);
    if (l->hosts.size < o->min_ranks)
        return TD_FAIL(TD_EINVAL, "%d ranks, but the hosts have %d slots", o->min_ranks,
                       l->hosts.size);
    return TD_OK;
}

/* ---- later ---- */

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
void td__launch_drain(launch *l, int index)
{
    char why[200];
    if (l->over || l->stopping)
        return;
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

/* By its owner's editor, or by a service that writes it. */
bool td__launch_hosts_changed(launch *l)
{
    struct stat now;
    if (stat(l->o.hosts_file, &now) ||
        (now.st_mtim.tv_sec == l->file.st_mtim.tv_sec &&
         now.st_mtim.tv_nsec == l->file.st_mtim.tv_nsec && now.st_ino == l->file.st_ino &&
         now.st_size == l->file.st_size))
        return false;
    l->file = now;
    return true;
}

void td__launch_look_at_hosts(launch *l)
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
