/* launcher_orders.c -- what the launcher answers to `tandem status` and `tandem scale`. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "launch/launcher_impl.h"

int td__launch_slots(const td__launch *l, int without)
{
    int n = 0;
    for (int i = 0; i < l->hosts.n; i++)
        n += i != without && td__launch_is_up(l, i) ? l->agents[i].slots : 0;
    return n;
}

static void tell_status(const td__launch *l, td__text *out)
{
    const char **host = td__calloc((size_t)l->hosts.n, sizeof *host);
    bool *up = td__calloc((size_t)l->hosts.n, sizeof *up);
    if (!host || !up)
        td__text_add(out, "error no memory for the status of the job");
    for (int i = 0; host && up && i < l->hosts.n; i++) {
        host[i] = l->hosts.host[i].name;
        up[i] = td__launch_is_up(l, i);
    }
    if (host && up) {
        td__text_add(out, "ok ");
        td__job_status_write(l->news,
                             &(td__job_facts){.elastic = l->elastic,
                                              .generation = l->generation,
                                              .ranks = l->ranks,
                                              .why = l->reason,
                                              .min_ranks = l->elastic       ? l->o.min_ranks
                                                           : l->o.min_world ? l->o.min_world
                                                                            : l->ranks,
                                              .most = l->elastic       ? l->o.most
                                                      : l->o.min_world ? l->o.size
                                                                       : l->ranks,
                                              .spares = l->o.spares,
                                              .restarts = l->elastic ? l->o.crashes : l->o.restarts,
                                              .n_agents = l->hosts.n,
                                              .host = host,
                                              .up = up},
                             out);
    }
    td__free(host);
    td__free(up);
}

static void scale(td__launch *l, const char *number, td__text *out)
{
    char *end, order[24], text[24];
    long n = strtol(number, &end, 10);
    int slots = l->o.min_world ? td__worlds_slots(l) : td__launch_slots(l, -1);
    int fewest = l->o.min_world ? l->o.min_world : l->o.min_ranks;
    if (l->o.min_world && l->o.size < slots)
        slots = l->o.size;
    if (l->o.capped && l->o.most < slots)
        slots = l->o.most;
    if (*end) {
        td__text_printf(out, "error expected a number of ranks, found '%.60s'", number);
    } else if (!l->elastic && !l->o.min_world) {
        td__text_printf(out,
                        "error this job has %d ranks from its start to its end: start it with "
                        "--elastic, or with a range such as -n 2:8",
                        l->ranks);
    } else if (n < fewest || n > slots) {
        td__text_printf(out, "error this job can have %d to %d ranks", fewest, slots);
    } else if (l->o.min_world) {
        if (td__worlds_scale(l, (int)n, out))
            td__text_printf(out, "error %s", td_last_error());
    } else {
        snprintf(order, sizeof order, "%llu", (unsigned long long)++l->n_orders);
        snprintf(text, sizeof text, "%ld", n);
        for (int i = 0; i < l->hosts.n; i++)
            td__launch_tell(&l->agents[i], TD_MSG_ORDER, order, text);
        td__text_printf(out, "ok %ld ranks are wanted from the next step border on", n);
    }
}

void td__launch_answer(void *user, const char *question, td__text *out)
{
    td__launch *l = user;
    if (!strcmp(question, "status"))
        tell_status(l, out);
    else if (strncmp(question, "scale ", 6) == 0)
        scale(l, question + 6, out);
    else
        td__text_printf(out, "error the order is not understood: %.60s", question);
}
