/* scale.c -- `tandem scale`: give a running elastic job another number of ranks. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "launch/control.h"
#include "parallel/server_order.h"

enum { ANSWER_MS = 10000 };

/* Of the ranks, so many are to be parameter servers. */
static int order_servers(const td__args *a, long servers)
{
    char dir[4096];
    snprintf(dir, sizeof dir, "%.4000s/checkpoints", td__args_at(a, 0));
    td_status st = td__server_order_write(dir, (int)servers);
    if (st)
        return td__failure(a, st);
    printf("%ld of them parameter servers\n", servers);
    return TD_EXIT_OK;
}

static int run(const td__args *a)
{
    char question[64], *end;
    td__text answer = {0};
    long n = strtol(td__args_at(a, 1), &end, 10), servers;
    if (*end || n < 1)
        return td__usage_error(a, "expected a number of ranks, found '%s'", td__args_at(a, 1));
    if (!td__args_int(a, "servers", 1, TD__MOST_SERVERS, 0, &servers))
        return TD_EXIT_USAGE;
    if (servers >= n)
        return td__usage_error(a, "--servers: %ld servers of %ld ranks leave no rank to train",
                               servers, n);
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
    if (rc == TD_EXIT_OK && servers)
        rc = order_servers(a, servers);
    td__text_fini(&answer);
    return rc;
}

static const td__flag FLAGS[] = {{.name = "servers",
                                  .value = "S",
                                  .help = "so many of the ranks are parameter servers, whose "
                                          "shards move; of a run that has some"},
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
