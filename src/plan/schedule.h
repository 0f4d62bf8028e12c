/* schedule.h -- pipeline schedules: in which order the ranks of a pipeline run the micro-batches of
 * a step through their chunks. One file schedule_*.c and one line in schedules.def each.
 *
 * The model is cut into chunks, numbered in the order of its forward computation; a stage, the rank
 * of a pipeline, has one or several. A micro-batch passes each chunk three times: forward, backward
 * (the gradients of activations, which the chunk before waits for), weight (the gradients of
 * params, for which nobody waits, but where weights are tied: the chunk that updates them adds up
 * the gradients of all uses, micro-batch by micro-batch).
 *
 * Every order keeps, in each chunk, all three phases in rising order of micro-batches: gradients
 * are then added up in the one tree that any number of ranks adds them up in. So every schedule
 * that updates once a step ends with the bits of one rank.
 *
 * A schedule that flows (`window` batches, then the pipeline is emptied) begins batches before
 * those ahead of them have been applied: batch i of a window is run, forward and backward and on
 * all stages, with the weights that batch i - 1 - delay and those before have made, or with those
 * that the window began with. Where it keeps so many versions of the weights, it waits for none. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PLAN_SCHEDULE_H
#define TD_PLAN_SCHEDULE_H

#include "ops/phase.h"
#include "tandem/status.h"

typedef struct td__schedule_case {
    int stages, chunks; /* chunks: of the whole model, a multiple of stages */
    int micro_batches;
    int batch;          /* micro-batches of a batch, where the schedule flows; 0: all of them */
    const double *cost; /* (3 chunks) seconds of the phases of a micro-batch; NULL: all alike */
    /* (chunks) Tied weights: the first chunk whose weight gradients of a micro-batch wait for those
     * of this one; -1: none. NULL: there are none. */
    const int *tied;
} td__schedule_case;

typedef struct td__schedule_run {
    uint16_t chunk;
    uint8_t phase; /* td_run_phase */
    uint32_t micro_batch;
} td__schedule_run;

/* What the stages run, in order. */
typedef struct td__schedule {
    td__schedule_case of;
    td__schedule_run **runs; /* by stage */
    int *n;
} td__schedule;

typedef struct td__schedule_def {
    const char *name, *help;
    int per_stage; /* chunks of a stage; 0: any number from 2 on */
    bool v_shaped; /* a stage has chunks i and 2 stages - 1 - i; else i, i + stages, ... */
    int window;    /* batches after which a schedule that flows empties the pipeline; 0: it does
                      after each */
    int (*delay)(int stages); /* of one that flows: updates that weights are behind */
    const char *promise;      /* of such a one, about bits; NULL: those of one rank */
    td_status (*write)(td__schedule *s);
} td__schedule_def;

const td__schedule_def *td__schedule_at(int i); /* NULL after the last */
const char *td__schedule_word(int i);           /* its name; NULL after the last */
/* TD_EINVAL, with the names there are. */
TD_NODISCARD td_status td__schedule_find(const char *name, const td__schedule_def **out);

/* Batches that are planned together. */
static inline int td__schedule_window(const td__schedule_def *d)
{
    return d->window ? d->window : 1;
}
int td__schedule_stage(const td__schedule_def *d, int stages, int chunk);

/* TD_EINVAL if the number of chunks does not suit the schedule. */
TD_NODISCARD td_status td__schedule_create(const td__schedule_def *d, const td__schedule_case *c,
                                           td__schedule **out);
void td__schedule_destroy(td__schedule *s); /* NULL is allowed */
/* The most micro-batches that are between the beginning of forward and the end of weight in a
 * chunk. */
int td__schedule_in_flight(const td__schedule *s, int chunk);

#define TD_SCHEDULE(id) extern const td__schedule_def td__schedule_##id;
#include "plan/schedules.def"
#undef TD_SCHEDULE

#endif
