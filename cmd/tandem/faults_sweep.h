/* faults_sweep.h -- `tandem train --faults-sweep`: the job's first steps again and again, each time
 * with one rank killed at another communication or file operation. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_CMD_FAULTS_SWEEP_H
#define TD_CMD_FAULTS_SWEEP_H

#include "command.h"

/* `job`: the path of the job file, which was found to be good. The exit status. */
int td__faults_sweep(const td__args *a, const char *job, int ranks);

#endif
