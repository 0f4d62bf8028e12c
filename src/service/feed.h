/* feed.h -- a log or the metrics of a job, piece by piece, as fast as its reader takes them: the
 * next piece is read when the reader has taken the one before, so that a slow reader costs a piece
 * of memory and no more. At the end of what there is, a feed that follows waits for an event of the
 * job, and ends when the job has ended and everything was read. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_SERVICE_FEED_H
#define TD_SERVICE_FEED_H

#include "service/service.h"

typedef struct td__feed td__feed;

typedef struct td__feed_opts {
    int32_t job;
    int attempt, member; /* of a log; attempt 0: the last */
    bool metrics;        /* the job's metrics instead of a log */
    uint64_t from;       /* byte */
    uint64_t tail;       /* of metrics: from so many bytes before the end at the earliest; 0: all */
    bool follow;
    /* A piece: call td__feed_next when it is taken, within this call or later. */
    void (*data)(void *arg, const void *bytes, size_t nbytes, uint64_t offset);
    /* Once: no more comes, the feed is gone. Not called after td__feed_stop. */
    void (*end)(void *arg, td_status st);
    void *arg;
} td__feed_opts;

/* Begins with the next td__feed_next. */
TD_NODISCARD td_status td__feed_create(td__service *s, const td__feed_opts *o, td__feed **out);
void td__feed_next(td__feed *f);
void td__feed_stop(td__feed *f); /* NULL is allowed */

#endif
