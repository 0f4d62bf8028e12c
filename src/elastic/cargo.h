/* cargo.h -- all that travels when another process is handed a whole replica: the states of the
 * sync rule, the event log, params and optimizer states. Ranks that begin and ranks that catch up
 * get it in the same way. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_ELASTIC_CARGO_H
#define TD_ELASTIC_CARGO_H

#include "coll/comm.h"
#include "elastic/replica.h"

enum { TD__CARGO_PIECES = 4 + TD_OPTIM_MAX_STATE };
typedef struct td__cargo {
    void *at[TD__CARGO_PIECES];
    td__mapping map[TD__CARGO_PIECES]; /* what `at` is, where it is a block */
    size_t nbytes[TD__CARGO_PIECES];
    int n;
    size_t total; /* with each piece aligned to 64 */
} td__cargo;

/* states: of the sync rule, those that are there, or room for those that come. */
TD_NODISCARD td_status td__cargo_load(td__cargo *c, td__replica *r, td__map_use use,
                                      td__block_copies *states);
/* The end of it: what was written into it stays, or */
TD_NODISCARD td_status td__cargo_keep(td__cargo *c);
/* is not wanted. */
void td__cargo_drop(td__cargo *c);

TD_NODISCARD td_status td__cargo_send(const td__cargo *c, td_comm *comm, int peer);
TD_NODISCARD td_status td__cargo_receive(const td__cargo *c, td_comm *comm, int peer);
TD_NODISCARD td_status td__cargo_broadcast(const td__cargo *c, td_comm *comm, int root);

/* The states of the sync rule that rank root has, to all; nbytes, which all know, of them. */
TD_NODISCARD td_status td__states_broadcast(td__block_copies *states, uint64_t nbytes,
                                            td_comm *comm, int root);

#endif
