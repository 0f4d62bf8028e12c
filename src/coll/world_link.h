/* world_link.h -- the way of one world from a description to meshes, shared by the files that make
 * comms: comm_rendezvous.c finds the other ranks, comm_meshes.c joins them, comm_stop.c ends that
 * from another thread, comm_setup.c makes comms of it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_COLL_WORLD_LINK_H
#define TD_COLL_WORLD_LINK_H

#include "coll/comm_impl.h"
#include "coll/comm_setup.h"
#include "coll/watchdog.h"
#include "net/fault.h"

/* What the comms of one world have in common. */
typedef struct td__world_link {
    int n_users; /* comms; they are made and destroyed by one thread at a time */
    td__world w;
    td__store_server *server; /* rank 0 of a world without an agent; otherwise NULL */
    td__store *store;
    td__watchdog *watchdog;
    td__member *members; /* (size) */
    char group[32];
    char transport[16]; /* asked for; "" */
    char options[256];  /* of the comm, in words: the same on all ranks */
    uint64_t began_ns;
    td__fault_plan faults;
    bool has_faults;
    int streams;
    bool checksum;
    uint32_t stall_ms;
} td__world_link;

/* Connect to the store, which rank 0 may have to host first. */
TD_NODISCARD td_status td__world_connect(td__world_link *l, td__deadline until);
/* Wait for all ranks: fills group, members and watchdog. */
TD_NODISCARD td_status td__world_meet(td__world_link *l, td__deadline until);
/* The meshes of n world ranks, of which this is the one at `me`. host_of is (n), filled here. */
TD_NODISCARD td_status td__world_meshes(td__world_link *l, const int *ranks, int n, int me,
                                        const char *key, int *host_of, td__deadline until,
                                        td__comm_parts *out);

/* What is to be ended, if the time has come already: at once. */
void td__comm_stop_has(td__comm_stop *s, td_comm *c, td__store *store);
bool td__comm_stop_is_set(td__comm_stop *s);
TD_NODISCARD td_status td__comm_stop_check(td__comm_stop *s); /* TD_EABORTED with the reason */

#endif
