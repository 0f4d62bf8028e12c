/* progress.h -- what `tandem train` shows while it runs: an observer on standard output. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_CMD_PROGRESS_H
#define TD_CMD_PROGRESS_H

#include <stdatomic.h>

#include "base/text.h"
#include "run/observer.h"
#include "train/trainer.h"

typedef enum td__progress_mode {
    TD_PROGRESS_LINE,  /* one line, drawn again and again: for terminals */
    TD_PROGRESS_PLAIN, /* a line every so many steps */
    TD_PROGRESS_JSON,  /* every event as an object (run/event_json.h) */
    TD_PROGRESS_QUIET,
} td__progress_mode;

typedef struct td__progress {
    td__observer observer; /* first */
    td__progress_mode mode;
    int64_t every; /* PLAIN: steps between lines */
    td__train_info info;
    td__text text;
    uint64_t began_ns, drawn_ns, steps;  /* steps: in this process */
    bool settled;                        /* rate has been measured for long enough once */
    double loss, rate, samples, seconds; /* loss smoothed; samples, seconds: since the last rate */
    char metric[64];                     /* "accuracy 97.10 %", of the last validation */
    char blame[64];                      /* "waited 12 % for rank 3", lately; "" */
    int error;                           /* errno of a failed write to standard output; 0: none */
    atomic_bool shown;                   /* the line is on the screen */
} td__progress;

/* LINE becomes PLAIN where standard output is not a terminal; else the log goes above the line
 * until fini. */
void td__progress_init(td__progress *p, td__progress_mode mode, int64_t every);
void td__progress_clear(td__progress *p); /* takes the line off the screen */
void td__progress_flush(td__progress *p); /* standard output; a failure is kept in error */
void td__progress_fini(td__progress *p);

#endif
