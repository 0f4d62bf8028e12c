/* launcher_worlds.c -- ranks of programs that know nothing of Tandem's members, and yet may become
 * more or fewer: each generation is a world of fixed ranks, as under torchrun. When a rank fails, a
 * host is lost, or the file of hosts or an order changes how many ranks there are to be, all are
 * ended, and the ranks of the next world begin anew: with other numbers, ports and addresses. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "launch/launcher_impl.h"

int td__worlds_slots(const td__launch *l)
{
    int n = 0;
    for (int i = 0; i < l->listed.n; i++)
        n += l->listed.host[i].lost ? 0 : l->listed.host[i].count;
    return n;
}

/* The hosts of the next world. */
static td_status place(const td__launch *l, td__hosts *out)
{
    int slots = td__worlds_slots(l);
    *out = (td__hosts){0};
    if (slots < l->o.min_world)
        return TD_FAIL(TD_EPEER, "%d ranks at least, but the hosts that are left have %d slot%s",
                       l->o.min_world, slots, slots == 1 ? "" : "s");
    TD_TRY(td__hosts_place(&l->listed, l->wanted, out));
    if (out->n <= l->max_agents)
        return TD_OK;
    td__hosts_fini(out);
    return TD_FAIL(TD_EINVAL, "a world that may change has at most %d hosts", l->max_agents);
}

td_status td__worlds_next(td__launch *l)
{
    td__hosts next;
    TD_TRY(place(l, &next));
    td__hosts_fini(&l->hosts);
    l->hosts = next;
    return td__roles_parse(l->o.roles, next.size, &l->roles);
}

td_status td__worlds_begin(td__launch *l)
{
    char why[200];
    l->listed = l->hosts;
    l->hosts = (td__hosts){0};
    l->wanted = l->o.size;
    int slots = td__worlds_slots(l);
    if (slots < l->o.min_world)
        return TD_FAIL(TD_EINVAL, "%d ranks, but the hosts have %d slots", l->o.min_world, slots);
    if (td__roles_parse(l->o.roles, l->o.min_world, &l->roles)) { /* with the fewest ranks too */
        snprintf(why, sizeof why, "%s", td_last_error());
        return TD_FAIL(TD_EINVAL, "--roles: %s", why);
    }
    return td__worlds_next(l);
}

/* End this world for another one; before its ranks are there, nobody waits for anything. */
static void change(td__launch *l, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(l->reason, sizeof l->reason, fmt, args);
    va_end(args);
    l->changing = true;
    td__job_status_event(l->news, l->reason, false, -1);
    td__output_say(l->output, "%s; all ranks are started again in a new world", l->reason);
    if (l->begun) {
        td__launch_stop(l, TD_MSG_STOP);
        return;
    }
    l->stopping = true;
    for (int i = 0; i < l->hosts.n; i++)
        l->agents[i].ended = true; /* their pipes are closed next */
}

bool td__worlds_lost(td__launch *l, int index, const char *why)
{
    const char *name = l->hosts.host[index].name;
    for (int i = 0; l->o.min_world && i < l->listed.n; i++)
        if (!strcmp(l->listed.host[i].name, name))
            l->listed.host[i].lost = true;
    if (!l->o.min_world || l->over || l->stopping || td__worlds_slots(l) < l->o.min_world)
        return false;
    change(l, "%s", why);
    return true;
}

static bool same_hosts(const td__hosts *a, const td__hosts *b)
{
    bool same = a->n == b->n;
    for (int i = 0; same && i < a->n; i++)
        same = !strcmp(a->host[i].name, b->host[i].name) && a->host[i].count == b->host[i].count;
    return same;
}

/* Would the next world be another one than this? It then begins. */
static td_status compare(td__launch *l, const char *why, bool *begins)
{
    td__hosts next;
    TD_TRY(place(l, &next));
    *begins = !same_hosts(&next, &l->hosts);
    if (*begins)
        change(l, "%s: %d rank%s on %d host%s", why, next.size, next.size == 1 ? "" : "s", next.n,
               next.n == 1 ? "" : "s");
    td__hosts_fini(&next);
    return TD_OK;
}

td_status td__worlds_look_at_hosts(td__launch *l)
{
    td__hosts new;
    if (!l->begun || l->stopping || l->n_done || !td__launch_hosts_changed(l))
        return TD_OK; /* where a rank has done its work, the world stays as it is */
    if (td__hosts_read(l->o.hosts_file, 0, &new)) {
        td__output_say(l->output, "the file of hosts: %s", td_last_error());
        return TD_OK;
    }
    td__hosts_fini(&l->listed); /* hosts that were lost are tried again */
    l->listed = new;
    bool begins;
    return compare(l, "the file of hosts has changed", &begins);
}

td_status td__worlds_scale(td__launch *l, int ranks, td__text *out)
{
    bool begins = false, stays = !l->begun || l->stopping || l->n_done;
    l->wanted = ranks;
    if (!stays)
        TD_TRY(compare(l, "another number of ranks is wanted", &begins));
    td__text_printf(out, "ok %d ranks are wanted: %s", ranks,
                    begins                        ? "a new world begins"
                    : !stays                      ? "this world has as many and goes on"
                    : l->stopping && !l->changing ? "but the job is ending"
                    : l->n_done                   ? "a rank has ended its work, so this world "
                                                    "goes on as it is"
                                                  : "the next world has as many");
    return TD_OK;
}
