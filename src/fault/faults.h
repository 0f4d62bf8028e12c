/* faults.h -- faults of ranks at counted points of a run (net/fault.h has the schedule).
 *
 * A point is a communication or file operation (base/point.h). Points of a step are counted by the
 * name of their operation, on every rank for itself, so the same schedule hits the same operation
 * of the same run every time. A fault happens once: a step that is done again after a failure has
 * only those that did not happen the first time, since its rank had not come so far. What is done
 * is logged, and written down in the run's directory, in words that can be given as a schedule.
 *
 * Drawn     Faults drawn by steps need nobody's word. Those drawn by the clock are rank 0's to call
 *           for (it says so with the losses of a step): all ranks then know that there is one in
 *           the step after the next, and everybody has done the step before by the time it
 *           happens. So nobody is left to call for it again.
 *
 * Threads   A td__points is used by any thread; the rest by the trainer's. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_FAULT_FAULTS_H
#define TD_FAULT_FAULTS_H

#include "base/point.h"
#include "net/fault.h"
#include "tandem/coll.h"

typedef struct td__faults td__faults;

/* What is done; NULL: SIGKILL, SIGSTOP and so on to this process. What it returns, the operation
 * does; only a kill and a stop are its affair. */
typedef td_status td__fault_do(void *user, const td__fault_event *e);

/* text: the schedule, or "@PATH" of a file that holds it. */
TD_NODISCARD td_status td__faults_create(const char *text, td__fault_do *act, void *user,
                                         td__faults **out);
void td__faults_destroy(td__faults *f); /* NULL is allowed, here and below */
td__points *td__faults_points(td__faults *f);
/* From now on every fault that happens is a line of dir/faults.txt. */
TD_NODISCARD td_status td__faults_record(td__faults *f, const char *dir);
/* This process is `rank` of `size` in a generation, whose comm is borrowed; NULL: no longer. */
void td__faults_generation(td__faults *f, uint64_t number, int rank, int size, td_comm *comm);
void td__faults_step(td__faults *f, uint64_t step); /* it begins, or begins again */
/* Who was `rank` of `size` is gone, and cannot say which faults have befallen it: those up to step
 * `tried`, the last that any rank that is left has begun, and if there was no end to it among them,
 * those of the step after. */
void td__faults_gone(td__faults *f, int rank, int size, uint64_t tried);
/* Nobody is left who could say which faults have been: there are no more. */
void td__faults_over(td__faults *f);

/* What a process knows of the faults so far. It travels as it is; of several the most counts. */
typedef struct td__faults_known {
    double elapsed; /* seconds since the run began */
    uint64_t drawn; /* by the clock, so far; */
    uint64_t round; /* of the clock, and */
    uint64_t at;    /* step of the last of them */
    uint64_t hit;   /* the last step that a drawn fault has befallen */
    int32_t world;  /* most ranks that there have been */
    uint32_t over;  /* 1: nobody knows which faults have been, so there are no more */
    uint8_t past[TD_FAULT_EVENTS / 8]; /* a bit for each event of the schedule */
} td__faults_known;
void td__faults_tell(td__faults *f, td__faults_known *out); /* zeros, if f is NULL */
void td__faults_learn(td__faults *f, const td__faults_known *k);
/* How many are past, as far as this process knows. */
uint32_t td__faults_count(td__faults *f);
/* Rank 0: is it time for a fault by the clock? */
bool td__faults_due(td__faults *f);
/* All ranks, at the end of step `step`: rank 0 has called for one. */
void td__faults_call(td__faults *f, uint64_t step);
/* Is a bit of this step's gradients to be flipped? Once. */
bool td__faults_flip(td__faults *f);
/* So many micro-batches have been run in so many seconds; takes longer if this rank is to be slow.
 */
void td__faults_slow(td__faults *f, int micro_batches, double seconds);

#endif
