/* crew.h -- ranks of a job that are threads of this process, one for each of its GPUs
 * (parallel.devices, parallel.strategy: mirrored, `place: cuda:1`). What they compute and exchange
 * is what ranks of other processes do; within a process GPUs that reach each other's memory use it
 * at its own addresses (device/cuda/cuda_peer.c). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_API_CREW_H
#define TD_API_CREW_H

#include "api/session.h"

/* After the job, in a process that is no rank yet: how many of them it wants; 1: none. TD_EINVAL:
 * the process does not see so many GPUs, or the backend has none. */
TD_NODISCARD td_status td__crew_size(const td__session *s, int *out);
/* Of a rank, when it has joined the others: are they as many as the job places on GPUs? */
TD_NODISCARD td_status td__crew_check(const td__session *s);

/* A rank as one of the crew; the comm is its caller's. Returns an exit status. */
typedef int td__crew_fn(void *user, td_comm *comm);
/* fn on n threads at once, of which the caller is rank 0; *rc: what rank 0 returned, or else
 * the first that is not 0. */
TD_NODISCARD td_status td__crew_run(const td__session *s, int n, td__crew_fn *fn, void *user,
                                    int *rc);

#endif
