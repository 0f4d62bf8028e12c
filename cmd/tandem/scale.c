/* scale.c -- `tandem scale`: give a running elastic job another number of ranks. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "job/job.h"
#include "launch/control.h"
#include "ps/server_order.h"

enum { ANSWER_MS = 10000 };

/* An order for servers, and what was ordered before it. */
typedef struct order {
    char dir[4096]; /* of checkpoints */
    int servers, before;
} order;

/* Can the run have so many? Whether its model has as many params is found by its first rank. */
static int check_servers(const td__args *a, long servers)
{
    char path[4096];
    td__job *job;
    snprintf(path, sizeof path, "%.4000s/job.yaml", td__args_at(a, 0));
    td_status st = td__job_load(path, NULL, 0, &job);
    if (st)
        return td__failure(a, st);
    const td__sync_config c = td__job_train(job)->sync; /* its texts go with the job */
    td__job_destroy(job);
    if (!c.servers)
        return td__usage_error(a, "--servers: %s is a run without parameter servers",
                               td__args_at(a, 0));
    if (servers > 1 && !c.replicas)
        return td__usage_error(a,
                               "--servers: %ld servers of elastic ranks need copies of their "
                               "shards, and %s was begun without (parallel.replicas)",
                               servers, td__args_at(a, 0));
    return TD_EXIT_OK;
}

/* Before ranks come or go, so that there is no error left when they do. */
static int give_order(const td__args *a, order *o)
{
    snprintf(o->dir, sizeof o->dir, "%.4000s/checkpoints", td__args_at(a, 0));
    o->before = td__server_order_read(o->dir);
    td_status st = td__server_order_write(o->dir, o->servers);
    return st ? td__failure(a, st) : TD_EXIT_OK;
}

static int ask(const td__args *a, long n)
{
    char question[64];
    td__text answer = {0};
    snprintf(question, sizeof question, "scale %ld", n);
    td_status st =
        td__control_ask(td__args_at(a, 0), question, td__deadline_in_ms(ANSWER_MS), &answer);
    int rc = TD_EXIT_OK;
    if (st)
        rc = td__failure(a, st);
    else if (strncmp(answer.data, "ok ", 3) != 0)
        rc = td__usage_error(a, "%s", answer.data + (strncmp(answer.data, "error ", 6) ? 0 : 6));
    else
        puts(answer.data + 3);
    td__text_fini(&answer);
    return rc;
}

static int run(const td__args *a)
{
    char *end;
    long n = strtol(td__args_at(a, 1), &end, 10), servers;
    if (*end || n < 1)
        return td__usage_error(a, "expected a number of ranks, found '%s'", td__args_at(a, 1));
    if (!td__args_int(a, "servers", 1, TD__MOST_SERVERS, 0, &servers))
        return TD_EXIT_USAGE;
    if (servers >= n)
        return td__usage_error(a, "--servers: %ld servers of %ld ranks leave no rank to train",
                               servers, n);
    if (!servers)
        return ask(a, n);
    order o = {.servers = (int)servers};
    int rc = check_servers(a, servers);
    if (rc == TD_EXIT_OK)
        rc = give_order(a, &o);
    if (rc != TD_EXIT_OK)
        return rc;
    rc = ask(a, n);
    if (rc == TD_EXIT_OK)
        printf("%ld of them parameter servers\n", servers);
    else if (td__server_order_restore(o.dir, o.before))
        fprintf(stderr, "tandem scale: %s\n", td_last_error());
    return rc;
}

static const td__flag FLAGS[] = {{.name = "servers",
                                  .value = "S",
                                  .help = "number of parameter servers among the ranks; shards "
                                          "move to them (the run must have servers and, for "
                                          "more than one, parallel.replicas)"},
                                 {.name = NULL}};

static const char *const EXAMPLES[] = {
    "tandem scale runs/digits 4", "use four ranks from the next step on",
    "tandem scale runs/clicks 6 --servers 3", "three servers and three workers", NULL};

const td__command td__command_scale = {
    .name = "scale",
    .args = "RUN N",
    .summary = "change the number of ranks of a running elastic job",
    .text = "RUN is the directory of a run started with -n MIN:MAX or --elastic, or the "
            "file that `tandem launch --control FILE` writes. Ranks join and leave between steps; "
            "the result does not depend on their number.",
    .examples = EXAMPLES,
    .flags = FLAGS,
    .min_args = 2,
    .max_args = 2,
    .run = run,
};
