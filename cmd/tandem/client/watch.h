/* watch.h -- following a job of a training service until it ends. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_CMD_CLIENT_WATCH_H
#define TD_CMD_CLIENT_WATCH_H

#include "client/client.h"

/* Prints what happens to the job; the exit status is 0 if it succeeds, 1 if not. */
int td__watch_job(td__client *c, int job);

#endif
