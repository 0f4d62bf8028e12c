/* agent.c -- `tandem agent`: what a launcher starts on each host. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <unistd.h>

#include "agent_http.h"
#include "command.h"
#include "launch/launch.h"

static int run(const td__args *a)
{
    (void)a;
    if (isatty(STDIN_FILENO))
        return td__usage_error(a, "`tandem launch` starts this command; do not run it by hand");
    return td__agent_run(STDIN_FILENO, STDOUT_FILENO, td__agent_http()) ? TD_EXIT_FAILED
                                                                        : TD_EXIT_OK;
}

static const char *const EXAMPLES[] = {"ssh host tandem agent",
                                       "what `tandem launch --hosts host:4` does", NULL};

const td__command td__command_agent = {
    .name = "agent",
    .args = "",
    .summary = "start and watch the ranks of one host, for `tandem launch`",
    .text = "Started by `tandem launch` on each host; it reads its commands from standard input.",
    .examples = EXAMPLES,
    .run = run,
};
