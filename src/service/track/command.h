/* command.h -- running a program of another system (sbatch, ssh, a credential plug-in) to its end,
 * with what it prints, within a limit of time. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_SERVICE_TRACK_COMMAND_H
#define TD_SERVICE_TRACK_COMMAND_H

#include <stdatomic.h>

#include "base/deadline.h"
#include "base/text.h"

typedef bool (*td__command_sink)(void *user, const void *data, size_t nbytes);

typedef struct td__command_opts {
    const char *const *argv; /* NULL-terminated; [0] is looked for in PATH */
    const char *const *env;  /* "K=V", NULL-terminated, besides the service's own; NULL: none */
    const char *input;       /* standard input; NULL: nothing */
    td__text *out;           /* standard output is appended, at most 16 MiB; NULL: to sink */
    td__command_sink sink;   /* as it comes; false ends the program */
    void *sink_user;
    td__deadline until;      /* then it is killed */
    const atomic_bool *stop; /* set: it is killed; may be NULL */
} td__command_opts;

/* TD_EINVAL with the program's name and the last line of its standard error if it ends with another
 * status than 0, which is *status (may be NULL; -1: killed by a signal, or not started);
 * TD_ETIMEDOUT, TD_EABORTED. */
TD_NODISCARD td_status td__command(const td__command_opts *o, int *status);

#endif
