/* faults.h -- faults of ranks at counted points of a run (net/fault.h has the schedule).
 *
 * A point is a communication or file operation (base/point.h). Points of a step are counted by the
 * name of their operation, on every rank for itself, so the same schedule hits the same operation
 * of the same run every time. A step that is done again after a failure is not hit again: faults
 * of a step belong to the first rank that begins it. What is done is logged, in words that can be
 * given as a schedule.
 *
 * Threads   A td__points is used by any thread; the rest by the trainer's. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TRAIN_FAULTS_H
#define TD_TRAIN_FAULTS_H

#include "base/point.h"
#include "net/fault.h"
#include "tandem/coll.h"

typedef struct td__faults td__faults;

/* What is done; NULL: SIGKILL, SIGSTOP and so on to this process. What it returns, the operation
 * does; only a kill and a stop are its affair. */
typedef td_status td__fault_do(void *user, const td__fault_event *e);

TD_NODISCARD td_status td__faults_create(const char *text, td__fault_do *act, void *user,
                                         td__faults **out);
void td__faults_destroy(td__faults *f); /* NULL is allowed, here and below */
td__points *td__faults_points(td__faults *f);
/* This process is `rank` of `size` in a generation, whose comm is borrowed; NULL: no longer. */
void td__faults_generation(td__faults *f, uint64_t number, int rank, int size, td_comm *comm);
/* Step `step` begins; first: it has not been tried before. */
void td__faults_step(td__faults *f, uint64_t step, bool first);
/* Who was `rank` is gone: what was to befall it up to step `step` has. */
void td__faults_gone(td__faults *f, int rank, uint64_t step);
/* A bit for each event of the schedule that is past; those of `also` are from now on. */
uint32_t td__faults_past(td__faults *f, uint32_t also);
/* How many are past, as far as this process knows. */
uint32_t td__faults_count(td__faults *f);
/* Is a bit of this step's gradients to be flipped? Once. */
bool td__faults_flip(td__faults *f);
/* `shards` shards have been run; takes longer if this rank is to be slow. */
void td__faults_slow(td__faults *f, int shards);
/* Seconds since the run began, as far as this process knows; the longest that any knows counts. */
double td__faults_elapsed(const td__faults *f);
void td__faults_since(td__faults *f, double elapsed);

#endif
