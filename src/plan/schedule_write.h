/* schedule_write.h -- what schedules are written with. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PLAN_SCHEDULE_WRITE_H
#define TD_PLAN_SCHEDULE_WRITE_H

#include "plan/schedule.h"

/* Append to a stage's list: forward of the chunk's next micro-batch; backward and weight of its
 * next one; one of the two. Nothing happens if the chunk has no further one. */
void td__write_forward(td__schedule *s, int stage, int chunk);
void td__write_backward(td__schedule *s, int stage, int chunk);
void td__write_phase(td__schedule *s, int stage, int chunk, td_run_phase phase);
/* Has this phase of the chunk been written for all micro-batches? */
bool td__write_done(const td__schedule *s, int chunk, td_run_phase phase);

/* An empty one, to be written. */
TD_NODISCARD td_status td__schedule_blank(const td__schedule_case *c, td__schedule **out);
void td__schedule_swap(td__schedule *a, td__schedule *b);
/* What it takes with the costs of its case, if messages take no time; infinity: it waits for
 * itself. */
TD_NODISCARD td_status td__schedule_seconds(const td__schedule *s, double *out);

/* A rule that picks what a stage runs next among what it could run. */
typedef struct td__schedule_greedy {
    /* Micro-batches of the stage's chunks together that may have begun and not ended. */
    int (*in_flight)(const td__schedule_case *c, int stage);
    bool weight_at_once; /* after backward, instead of when there is nothing else */
} td__schedule_greedy;
/* Simulate all stages. A stage that is free runs, of what it could run: backward of the latest
 * chunk; else forward of the latest chunk, while there is room; else weight. Where the case has
 * costs, further rules of thumb are tried, and the schedule is the one that takes the least time
 * with them: it stays as it is, if it was written before and none is better. What comes out can
 * always run, for any number of stages and micro-batches. */
TD_NODISCARD td_status td__write_greedy(td__schedule *s, const td__schedule_def *d,
                                        const td__schedule_greedy *g);

#endif
