/* span_log.h -- what a rank did when, for the trace of a run: a bounded record of spans of time.
 *
 * Any thread adds spans; of too many the newest are kept. After the last step the ranks' records
 * are gathered on rank 0, on its clock (coll/clock_sync.h). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_RUN_SPAN_LOG_H
#define TD_RUN_SPAN_LOG_H

#include "tandem/coll.h"

/* Identifier, name. Those of the first group are one after the other or within each other, on the
 * thread that trains; micro-batches are on compute threads, buckets on the one that carries them.
 * Those from forward on are a pipeline's: runs of micro-batches through chunks, waiting, messages.
 * The last are of a GPU's stream, on its own clock.
 */
#define TD_SPAN_MAP(X)            \
    X(STEP, "step")               \
    X(DATA, "data")               \
    X(REDUCE, "reduce")           \
    X(WAIT, "wait")               \
    X(UPDATE, "update")           \
    X(VALID, "valid")             \
    X(MICRO_BATCH, "micro-batch") \
    X(BUCKET, "bucket")           \
    X(FORWARD, "forward")         \
    X(BACKWARD, "backward")       \
    X(WEIGHT, "weight gradients") \
    X(BUBBLE, "bubble")           \
    X(SEND_UP, "send")            \
    X(SEND_DOWN, "send back")     \
    X(RECV_UP, "receive")         \
    X(RECV_DOWN, "receive back")  \
    X(COPY_IN, "copy to the GPU") \
    X(KERNELS, "kernels")         \
    X(COPY_OUT, "copy back")

typedef enum td__span_kind {
#define X(id, name) TD_SPAN_##id,
    TD_SPAN_MAP(X)
#undef X
        TD_SPAN_COUNT
} td__span_kind;
const char *td__span_name(td__span_kind kind);

typedef struct td__span {
    uint64_t begin_ns, end_ns; /* td__clock_ns() */
    uint64_t posted_ns;        /* of a bucket: when it was ready to be carried; else 0 */
    uint32_t step;
    uint16_t kind,
        lane;     /* of a micro-batch or a stream, its compute thread; of a pipeline's, its chunk */
    int32_t id;   /* of a micro-batch or bucket, its number */
    uint32_t kib; /* of a bucket or message: its size, in units of 1,024 bytes */
    uint32_t stage; /* of a pipeline's */
} td__span;

typedef struct td__span_log td__span_log;
TD_NODISCARD td_status td__span_log_create(int room, td__span_log **out);
void td__span_log_destroy(td__span_log *l);                /* NULL is allowed */
void td__span_log_add(td__span_log *l, const td__span *s); /* l may be NULL */
int td__span_log_count(const td__span_log *l);             /* that are kept */
td__span td__span_log_at(const td__span_log *l, int i);    /* oldest first */
uint64_t td__span_log_lost(const td__span_log *l);

/* Look at the clocks: before the first span. Collective; comm NULL: nothing to do. */
TD_NODISCARD td_status td__span_log_start(td__span_log *l, td_comm *comm);
/* All records to rank 0, which gets one call for each rank, itself included. Collective. */
typedef td_status td__span_sink(void *user, int rank, const td__span *spans, int n, uint64_t lost);
TD_NODISCARD td_status td__span_log_gather(td__span_log *l, td_comm *comm, td__span_sink *sink,
                                           void *user);

#endif
