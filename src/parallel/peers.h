/* peers.h -- memory of GPUs that several ranks see, of one GPU or of GPUs with a link: each has a
 * part of its own there and opens those of the others (device.h, peer memory). Gradients, shards
 * and activations then go from rank to rank without memory of the host.
 *
 * Who may touch what, and when, is the affair of those who use it. A rank lets its stream end
 * before it tells another that something is there. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PARALLEL_PEERS_H
#define TD_PARALLEL_PEERS_H

#include "device/device.h"
#include "tandem/coll.h"

typedef struct td__peers td__peers;

/* nbytes on every rank, zeroed. Collective. *out is NULL where some rank cannot: it works with
 * another GPU, or its device has no such memory; then no rank has it, and `what` goes through
 * memory of the host. */
TD_NODISCARD td_status td__peers_open(td_comm *comm, td_device *device, size_t nbytes,
                                      const char *what, td__peers **out);
/* Collective, before td__peers_close where ranks go on: what a rank has exported is freed when no
 * rank has it open any more. This rank's stream has ended. */
TD_NODISCARD td_status td__peers_leave(td__peers *p, td_comm *comm);
void td__peers_close(td__peers *p); /* NULL is allowed; local */
/* The part of a rank, as this one sees it. */
void *td__peers_at(const td__peers *p, int rank);

#endif
