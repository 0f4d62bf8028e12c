/* direct.h -- messages between ranks that share memory, of the host or of one GPU: the inputs of a
 * chunk's slots lie where the other stages can write them, so that a value goes from where it was
 * made to where it is read in one copy, made by the thread that computes, or by its GPU. What is
 * sent besides is a byte that says so. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PIPELINE_DIRECT_H
#define TD_PIPELINE_DIRECT_H

#include "graph/cut.h"
#include "parallel/peers.h"
#include "pipeline/pipeline.h"
#include "tandem/coll.h"

typedef struct td__direct {
    td_comm *comm;     /* of the stages of a pipeline; borrowed */
    void *mine;        /* the host's; NULL: it is the GPU's, */
    td__peers *peers;  /* that all stages share, */
    td_stream *stream; /* and this makes copies there */
    void **base;       /* by stage: its memory; NULL: there is none */
    int chunks;
    int *stage;          /* (chunks) who has it */
    int *slots;          /* (chunks) */
    size_t *at, *nbytes; /* (chunks) where slot 0 is in its stage's memory; of a slot */
} td__direct;

/* Can other processes have the memory of a device? */
bool td__direct_opens(td_device *device);
/* Have ranks of comm, whose kernels use the device, such memory? Collective. */
TD_NODISCARD td_status td__direct_possible(td_comm *comm, td_device *device, bool *out);
/* Collective over comm, whose ranks are the stages. cut is of the largest micro-batches. Without
 * memory that all stages see, d->base stays NULL, on all of them. */
TD_NODISCARD td_status td__direct_open(td__direct *d, td_comm *comm, td_device *device,
                                       const td__cut *cut, const td__pipeline_shape *shape,
                                       const int *slots);
/* Collective, before td__direct_close where the stages go on: nobody reads this rank's memory any
 * more. */
TD_NODISCARD td_status td__direct_leave(td__direct *d);
void td__direct_close(td__direct *d);
/* Memory for the inputs of a slot; NULL: it has none of this kind, or less than nbytes. */
void *td__direct_inputs(const td__direct *d, int chunk, int slot, size_t nbytes);
/* A value to such memory; it is there after the flush. */
void td__direct_copy(const td__direct *d, void *to, const void *value, size_t nbytes);
TD_NODISCARD td_status td__direct_flush(const td__direct *d);
/* Have all chunks memory for so many slots? */
bool td__direct_fits(const td__direct *d, const int *slots);

#endif
