/* ranks.h -- a command that several ranks carry out together. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_CMD_RANKS_H
#define TD_CMD_RANKS_H

#include "command.h"
#include "tandem/coll.h"

#define TD_FLAG_RANKS                                                                           \
    {                                                                                           \
        .name = "ranks", .letter = 'n', .value = "N",                                           \
        .help = "ranks on this host: 4, or 2:8 (elastic); the result does not depend on it (1)" \
    }

/* Is this process to start ranks (-n) rather than to be one? *rc is set if neither can be. */
bool td__ranks_wanted(const td__args *a, int *n, int *rc);
/* Run this command, without -n, in n ranks; its exit status. more: further flags for them, NULL at
 * the end, in the place of those of the same names; may be NULL. servers: of the n, parameter
 * servers, which -n does not count, and without which ranks of fixed number cannot go on. cause:
 * td__launch_opts has it. */
int td__ranks_run(const td__args *a, const td__command *c, int n, int servers,
                  const char *const *more, char *cause);

#endif
