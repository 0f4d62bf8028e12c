/* member.h -- a server of foreign.h for one rank that no agent has started: a member of a group
 * that some other system runs (`tandem attend --framework`). Where the rank stands in its world is
 * in its environment: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE; the store is at TANDEM_STORE,
 * served by rank 0, for those who have TANDEM_SECRET.
 *
 * Each rank has a server of its own, and is a host of its own for MPI. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_LAUNCH_FOREIGN_MEMBER_H
#define TD_LAUNCH_FOREIGN_MEMBER_H

#include "launch/foreign/foreign.h"

typedef struct td__foreign_member td__foreign_member;

/* framework: a name of foreign.def; job: the same for all ranks of this attempt, and for no other
 * one. Waits until rank 0 serves the store; TD_EABORTED when `stop_fd` (-1: none) becomes readable
 * meanwhile. */
TD_NODISCARD td_status td__foreign_member_create(const char *framework, const char *job,
                                                 const td__foreign_http *http, int stop_fd,
                                                 td__foreign_member **out);
/* Appends the variables of the rank; *fd: a descriptor that it is to inherit, the caller's; -1. */
TD_NODISCARD td_status td__foreign_member_env(td__foreign_member *m, td__texts *env, int *fd);
/* The exit status with which the rank has asked to be ended (MPI_Abort); -1: it has not. */
int td__foreign_member_aborted(const td__foreign_member *m);
/* patient: the rank has ended well; the store stays until the others have, for a while. NULL is
 * allowed. */
void td__foreign_member_destroy(td__foreign_member *m, bool patient);

#endif
