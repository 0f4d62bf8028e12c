/* lines.h -- the output of a process on its way to the launcher, in whole lines. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_LAUNCH_LINES_H
#define TD_LAUNCH_LINES_H

#include "launch/message.h"

typedef struct td__lines {
    int *fd; /* the pipe's end: -1 when it has ended */
    td__msg_kind kind;
    char *data; /* what is not yet a whole line */
    size_t used, max;
    char recent[160]; /* the last line that was passed on, without its end */
} td__lines;

/* For what comes out of *fd, which is borrowed. The first memory is taken now: a process whose
 * output cannot be told is better not started. */
TD_NODISCARD td_status td__lines_init(td__lines *l, int *fd, td__msg_kind kind);
void td__lines_fini(td__lines *l);
/* Read what is there and pass on the whole lines as of `who`. At the end of the stream, or `last`,
 * the rest. *lost is set when the launcher is gone. */
void td__lines_pump(td__lines *l, td__channel *up, bool *lost, int who, bool last);

#endif
