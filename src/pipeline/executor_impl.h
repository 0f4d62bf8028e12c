/* executor_impl.h -- the executor, between its files: executor.c runs what is computed,
 * executor_messages.c what is sent. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PIPELINE_EXECUTOR_IMPL_H
#define TD_PIPELINE_EXECUTOR_IMPL_H

#include "pipeline/executor.h"

typedef struct td__executor_op {
    bool posted, done, seen; /* seen: that all of it has arrived */
    int n;
    uint64_t posted_ns;
    td_work **at; /* (most) values of a message under way */
} td__executor_op;

/* A batch of the list that was given. */
typedef struct td__executor_given {
    td__executor_batch b;
    int64_t rows;
    uint32_t step;
} td__executor_given;

struct td__executor {
    td__executor_opts o;
    td__executor_op *ops;
    td_work **works;     /* (room, most) theirs */
    int room, most;      /* operations; values of a message */
    td__partial *leaves; /* (chunks, micro-batches) gradients of micro-batches under way */
    int n_leaves;
    td__executor_given *given; /* (list.batches) */
    int given_room;
    /* The list under way. */
    td__executor_list l;
    const td__plan_list *list;
    int at, fed;            /* the first operation that was not run; batches that were given */
    bool closing;           /* no further one will be */
    int next[TD_LANES];     /* the first operation of a lane that was not posted, */
    int finished[TD_LANES]; /* or not waited for */
    double wait;
    uint64_t sent;
};

/* Of micro-batch m of the list: the batch that it is of, its rows, its number in its step, its
 * chunks and the runner that it has in one of them. */
int td__executor_batch_of(const td__executor *x, uint32_t m);
int64_t td__executor_rows(const td__executor *x, uint32_t m);
int td__executor_number(const td__executor *x, uint32_t m);
td__chunks *td__executor_chunks(const td__executor *x, uint32_t m);
TD_NODISCARD td_status td__executor_runner(td__executor *x, int chunk, uint32_t m, td_runner **out);

/* Is it a collective, or a message of other than values of a micro-batch? Whoever begins the step,
 * or updates, sees to it (parallel/planned_calls.h). */
bool td__executor_is_other(const td__plan_op *o);
/* Was the batch of the operation given? */
bool td__executor_was_given(const td__executor *x, const td__plan_op *o);
/* Post all messages that can be; look which of them are over. */
TD_NODISCARD td_status td__executor_post(td__executor *x);
void td__executor_look(td__executor *x);
/* Wait for what operation o waits for; for one message, of those that were posted. */
TD_NODISCARD td_status td__executor_wait(td__executor *x, const td__plan_op *o);
TD_NODISCARD td_status td__executor_finish(td__executor *x, int index);

#endif
