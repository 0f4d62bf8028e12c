/* help.h -- help, the manual page and shell completion: all printed from the commands' tables. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_CMD_HELP_H
#define TD_CMD_HELP_H

#include <stdio.h>

#include "command.h"

void td__help_program(FILE *to);                       /* tandem --help */
void td__help_command(FILE *to, const td__command *c); /* tandem help train */
void td__help_man(FILE *to);                           /* tandem help --man: man/tandem.1 */

/* "-n, --ranks N", as help and the manual page write it; without the letter where there is none. */
void td__flag_text(const td__flag *f, char *buf, size_t nbytes);

/* Status and meaning, ends with a text of NULL. */
typedef struct td__exit_code {
    int code;
    const char *text;
} td__exit_code;
extern const td__exit_code td__exit_codes[];

/* What a run's directory holds; ends with a name of NULL. */
typedef struct td__run_file {
    const char *name, *help;
} td__run_file;
extern const td__run_file td__run_files[];

extern const char *const td__program_summary, *const td__program_text;

#endif
