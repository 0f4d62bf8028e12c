/* refusals.h -- log lines about peers that are turned away: one per source, and at most 8 in 10
 * seconds, since addresses and processes cost a stranger nothing. One thread. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_NET_REFUSALS_H
#define TD_NET_REFUSALS_H

#include "base/deadline.h"

enum { TD__REFUSALS_SOURCES = 32, TD__REFUSALS_SOURCE = 64 };

/* Zeroed before its first use. */
typedef struct td__refusals {
    char logged[TD__REFUSALS_SOURCES][TD__REFUSALS_SOURCE]; /* the oldest is overwritten */
    int n_logged;
    td__deadline until; /* of the present 10 seconds, */
    int n_lines;        /* and lines in them */
} td__refusals;

void td__refusals_log(td__refusals *r, const char *source, const char *why);

#endif
