/* command.h -- what a job runs: the job file, the command or the algorithm of its spec as a program
 * and its arguments, with the files it needs in the job's directory. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_SERVICE_COMMAND_H
#define TD_SERVICE_COMMAND_H

#include "service/config.h"
#include "service/job.h"

typedef struct td__job_command {
    td__arena *arena;
    const char *const *argv; /* NULL-terminated; [0] NULL: the image's own */
    const char *image;       /* "": none */
    bool tandem;             /* tandem train */
    bool own_ranks;          /* starts the processes of all members itself, as tandem train does */
} td__job_command;

/* `local`: the program runs on this host (process), with our own program and the job's directory at
 * hand; else in an image. TD_EINVAL: it cannot be run, with the text for the job's message. */
TD_NODISCARD td_status td__job_command_make(const td__service_config *c, const td__job_record *r,
                                            const char *self, const char *dir, bool local,
                                            td__job_command *out);
void td__job_command_fini(td__job_command *c); /* a zeroed struct is allowed */

#endif
