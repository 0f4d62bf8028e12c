/* command.h -- a subcommand of the program: one td__command in one file and one line in
 * commands.def. Parsing of flags, help, the manual page and shell completion all come from these
 * tables.
 *
 * Exit status: 0 ok, 1 the run failed, 2 bad usage or input, 130 interrupted. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_CMD_COMMAND_H
#define TD_CMD_COMMAND_H

#include "tandem/status.h"

enum { TD_EXIT_OK = 0, TD_EXIT_FAILED = 1, TD_EXIT_USAGE = 2, TD_EXIT_INTERRUPTED = 130 };

typedef struct td__flag {
    const char *name;  /* "set": --set */
    char letter;       /* 'n': -n; 0: none */
    const char *value; /* "KEY=VALUE": takes a value, called so in the help; NULL: a switch */
    const char *help;
    const char
        *words; /* values for completion, separated by spaces; "FILE" for files; NULL: none */
} td__flag;

typedef struct td__args td__args;

typedef struct td__command {
    const char *name;
    const char *args;            /* "JOB.yaml [...]"; "" for none */
    const char *summary;         /* one line */
    const char *text;            /* paragraphs of help */
    const char *const *examples; /* pairs: command line, what it does; NULL-terminated */
    const td__flag *flags;       /* ends with a name of NULL; --help, -h is known to all */
    int min_args, max_args;      /* positional; max_args -1: any. After "--" all are positional */
    int (*run)(const td__args *a);
} td__command;

/* What the user gave. */
int td__args_count(const td__args *a); /* positional */
const char *td__args_at(const td__args *a, int i);
bool td__args_has(const td__args *a, const char *flag);
const char *td__args_value(const td__args *a, const char *flag); /* the last one; NULL: not given */
/* As if that had been given as its value; borrowed as long as the arguments. */
void td__args_replace(const td__args *a, const char *flag, const char *value);
/* As if it had not been given. */
void td__args_drop(const td__args *a, const char *flag);
int td__args_values(const td__args *a, const char *flag, const char *const **out); /* all of them */
/* A whole number within [lo, hi], or `otherwise` if not given; on nonsense prints one line and
 * returns false. */
bool td__args_int(const td__args *a, const char *flag, long lo, long hi, long otherwise, long *out);

/* One line on stderr, "tandem train: ...", and the status to return. */
int td__usage_error(const td__args *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The same for a failed call: prints td_last_error() and picks 2 for bad input, 130 for aborted, 1
 * otherwise. */
int td__failure(const td__args *a, td_status st);

#define TD_COMMAND(name) extern const td__command td__command_##name;
#include "commands.def"
#undef TD_COMMAND

#endif
