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

/* Where it is to run. */
typedef struct td__job_place {
    const char *self;        /* tandem there */
    const char *dir;         /* the job's directory, here */
    const char *there;       /* the same as members see it */
    const char *checkpoints; /* URL to which a run sends its checkpoints and from which it goes on;
                                NULL: its directory stays */
    bool shares_dir;         /* members write into `dir` itself, as far as the service knows */
    bool local;              /* on this host (process); else in an image */
    bool attended;           /* its results are brought to the service (`tandem attend`) */
} td__job_place;

/* TD_EINVAL: it cannot be run, with the text for the job's message. */
TD_NODISCARD td_status td__job_command_make(const td__service_config *c, const td__job_record *r,
                                            const td__job_place *p, td__job_command *out);
void td__job_command_fini(td__job_command *c); /* a zeroed struct is allowed */

#endif
