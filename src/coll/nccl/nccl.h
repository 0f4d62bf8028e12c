/* nccl.h -- NCCL as an engine: it moves bytes between the memory of GPUs, of one host or several,
 * for ranks that have a GPU each. Sums are made in the order of the micro-batch tree by whoever
 * calls this; td__nccl_sum, in NCCL's order, is for training whose bits do not matter.
 *
 * Calls are collective, all memory is the device's, and a call returns when its work is done,
 * within the time of a call of the comm. Where NCCL fails, a rank does not come in time, or the
 * comm ends, NCCL is aborted and so is the comm. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_COLL_NCCL_NCCL_H
#define TD_COLL_NCCL_NCCL_H

#include "device/device.h"
#include "tandem/coll.h"

typedef struct td__nccl td__nccl;

/* Does the engine of comm ask for NCCL where ranks have other ways, too? */
bool td__nccl_asked(const td_comm *comm);
/* For whoever has set up all that ranks exchange: where the engine is nccl, was td__nccl_open
 * called for this comm, or did it hear of that for a group of it? A failure that names `who`. */
TD_NODISCARD td_status td__nccl_is_used(const td_comm *comm, const char *who, const char *device);
void td__nccl_hear(td_comm *comm, const td_comm *group); /* group may be NULL */
/* Collective over comm, whatever device a rank has. *out is NULL where the ranks cannot: one has no
 * GPU or no NCCL, or another version of it, or two share a GPU, which NCCL refuses, or the world
 * has TLS, which NCCL has not; a line says which, and that `what` go through memory of the host.
 * With engine nccl it is a failure. */
TD_NODISCARD td_status td__nccl_open(td_comm *comm, td_device *device, const char *what,
                                     td__nccl **out);
void td__nccl_close(td__nccl *n); /* NULL is allowed; local */
/* Where the calls put their work, and where more of it may go that reads what they bring. */
td_stream *td__nccl_stream(const td__nccl *n);

/* nbytes to each rank and from each, at send + rank * send_step and recv + rank * recv_step; this
 * rank's own too, unless they are where they go. */
TD_NODISCARD td_status td__nccl_swap(td__nccl *n, const void *send, size_t send_step, void *recv,
                                     size_t recv_step, size_t nbytes);
/* nbytes of each rank, in order of ranks; `in` may be where they go in out. */
TD_NODISCARD td_status td__nccl_all_gather(td__nccl *n, const void *in, void *out, size_t nbytes);
/* The sum over ranks, in place. */
TD_NODISCARD td_status td__nccl_sum(td__nccl *n, float *x, size_t count);

#endif
