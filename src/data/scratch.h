/* scratch.h -- working memory of datasets that many threads read: a list of free pieces of one
 * size, as many as threads ever read at once, so that reading allocates nothing after the first
 * batches. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_DATA_SCRATCH_H
#define TD_DATA_SCRATCH_H

#include <pthread.h>

#include "tandem/status.h"

typedef struct td__scratch {
    struct td__scratch *next;
    void *data; /* the list's nbytes, 64-byte aligned */
} td__scratch;

typedef struct td__scratch_list {
    size_t nbytes;        /* of a piece */
    pthread_mutex_t lock; /* of what follows */
    td__scratch *unused;
} td__scratch_list;

void td__scratch_init(td__scratch_list *l, size_t nbytes);
void td__scratch_fini(td__scratch_list *l);
td__scratch *td__scratch_take(td__scratch_list *l); /* NULL: out of memory */
void td__scratch_give(td__scratch_list *l, td__scratch *s);

#endif
