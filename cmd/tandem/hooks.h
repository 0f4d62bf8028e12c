/* hooks.h -- shell commands of a job (`on:`), started by rank 0 of `tandem train`. They are taken
 * from a job file on the command line only, not from that of a run, which may have come from
 * elsewhere. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_CMD_HOOKS_H
#define TD_CMD_HOOKS_H

#include <sys/types.h>

#include "job/job.h"
#include "run/observer.h"

typedef struct td__hooks {
    td__observer observer;
    td__observer *next;
    const td__job_hooks *commands;
    const char *dir;
    uint64_t steps_per_epoch, step, epoch;
    double loss;
    pid_t running; /* 0: none */
    bool watching;
} td__hooks;

/* An observer that starts commands and passes everything on to `next`; that itself, where there is
 * no command. steps_per_epoch: of the job; 0: those of the data. */
td__observer *td__hooks_watch(td__hooks *h, const td__job_hooks *commands, const char *dir,
                              int64_t steps_per_epoch, td__observer *next);
/* The run is over, with this exit status. */
void td__hooks_end(td__hooks *h, int rc);

#endif
