/* args.h -- a command line against a command's table of flags. Commands see only command.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_CMD_ARGS_H
#define TD_CMD_ARGS_H

#include "command.h"

/* Parse argv[0..argc), what stands after the command's name. On failure one line is printed, *out
 * is NULL and the exit status to leave with is returned; 0 otherwise. */
int td__args_parse(const td__command *c, int argc, char *const *argv, td__args **out);
void td__args_destroy(td__args *a);    /* NULL is allowed */
bool td__args_help(const td__args *a); /* --help or -h was given; then nothing else is checked */

/* Every command, in the order of commands.def; NULL after the last. */
const td__command *td__command_list(int i);
const td__command *td__command_find(const char *name); /* NULL if there is none */

/* "tandem: unknown command 'trian'; did you mean train?" and the status to return. */
int td__no_command(const char *name);

#endif
