/* supervise.c -- `tandem supervise`: what the tracker process starts for each attempt of a job. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "service/track/supervise.h"

#include "command.h"

static int run(const td__args *a)
{
    td_status st = td__supervise(td__args_at(a, 0));

    return st ? td__failure(a, st) : TD_EXIT_OK;
}

static const char *const EXAMPLES[] = {"tandem supervise DATA/jobs/7/attempts/TOKEN",
                                       "what `tandem serve` does for the tracker process", NULL};

const td__command td__command_supervise = {
    .name = "supervise",
    .args = "DIR",
    .summary = "run one attempt of a job to its end, for `tandem serve`",
    .text = "Started by `tandem serve` in a session of its own; the directory says what to run and "
            "receives how it ended.",
    .examples = EXAMPLES,
    .min_args = 1,
    .max_args = 1,
    .run = run,
};
