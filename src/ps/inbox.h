/* inbox.h -- pushes as they arrive at server 0, in their order, while its trainer does other
 * things: a thread per worker receives, one push at a time, after the worker was told to work.
 *
 * A push lies in the worker's lane until it is taken, and the worker waits for its next order. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PS_INBOX_H
#define TD_PS_INBOX_H

#include "base/deadline.h"
#include "ps/lane.h"
#include "ps/shard_map.h"
#include "run/observer.h"

/* What a worker says with its gradients. */
typedef struct td__ps_push {
    uint64_t step; /* that it was told to work on */
    int64_t rows;
    double loss;          /* weighted as the gradients */
    int32_t grads;        /* 1: gradients follow, */
    int32_t slots;        /* in so many partials of a shard each; */
    int32_t n_numbers;    /* and so many doubles that ranks add up */
    int32_t stop;         /* its process was asked to stop */
    td__rank_times times; /* of the worker, since it began */
} td__ps_push;

typedef struct td__ps_inbox td__ps_inbox;

/* lanes: borrowed, of n workers; own: what is received of a slot of `floats`; numbers: the most
 * that a push has. */
TD_NODISCARD td_status td__ps_inbox_create(td__ps_lane *lanes, int n, size_t floats,
                                           td__ps_held own, size_t numbers, td__ps_inbox **out);
/* Nobody is waited for any more; links of workers whose push is under way are aborted. */
void td__ps_inbox_destroy(td__ps_inbox *b); /* NULL is allowed */

/* The worker was told to work: its push is to come. */
void td__ps_inbox_expect(td__ps_inbox *b, int worker);
/* The push that came first of those that are not taken; of worker `only` alone, unless that is -1.
 * TD_ETIMEDOUT names who is waited for. TD_EPEER with a worker that is not -1: it was lost, which
 * is told once. */
TD_NODISCARD td_status td__ps_inbox_next(td__ps_inbox *b, int only, td__deadline until, int *worker,
                                         td__ps_push *out, const double **numbers);
/* When the last push of a worker came (base/clock.h), however long it lay there. */
uint64_t td__ps_inbox_came_ns(td__ps_inbox *b, int worker);
/* Is a push expected or there? */
bool td__ps_inbox_busy(td__ps_inbox *b, int worker);
void td__ps_inbox_taken(td__ps_inbox *b, int worker);

#endif
