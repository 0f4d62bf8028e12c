/* scale.c -- `tandem scale`: give a running elastic job another number of ranks. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "launch/control.h"

enum { ANSWER_MS = 10000 };

static int run(const td__args *a)
{
    char question[64], *end;
    td__text answer = {0};
    long n = strtol(td__args_at(a, 1), &end, 10);
    if (*end || n < 1)
        return td__usage_error(a, "expected a number of ranks, found '%s'", td__args_at(a, 1));
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

static const char *const EXAMPLES[] = {"tandem scale runs/digits 4",
                                       "use four ranks from the next step on", NULL};

const td__command td__command_scale = {
    .name = "scale",
    .args = "RUN N",
    .summary = "change the number of ranks of a running elastic job",
    .text = "RUN is the directory of a run started with -n MIN:MAX or --elastic, or the "
            "file that `tandem launch --control FILE` writes. Ranks join and leave between steps; "
            "the result does not depend on their number.",
    .examples = EXAMPLES,
    .min_args = 2,
    .max_args = 2,
    .run = run,
};
