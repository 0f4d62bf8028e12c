/* links.c -- communicators of two ranks. See links.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/links.h"

#include "base/fail.h"
#include "coll/comm.h"

static const td_comm_opts PATIENT = {.stall_ms = UINT32_MAX};

td_status td__links_star(td_comm *comm, td_comm **link)
{
    int rank = td_comm_rank(comm), size = td_comm_size(comm);
    td_status st = TD_OK;

    for (int r = 0; r < size; r++)
        link[r] = NULL;
    for (int r = 1; r < size; r++) {
        bool in = rank == 0 || rank == r;
        td_comm *made = NULL;
        TD_TRY_OR(st, fail, td__comm_split_with(comm, in ? 0 : -1, rank, &PATIENT, &made));
        if (in)
            link[rank == 0 ? r : 0] = made;
    }
    return TD_OK;
fail:
    for (int r = 0; r < size; r++) {
        td_comm_destroy(link[r]);
        link[r] = NULL;
    }
    return st;
}

td_status td__links_line(td_comm *comm, td_comm **before, td_comm **after)
{
    int rank = td_comm_rank(comm), size = td_comm_size(comm);
    td_comm *made[2] = {NULL, NULL}; /* from even ranks to odd ones, then from odd to even */
    td_status st = TD_OK;

    *before = *after = NULL;
    for (int odd = 0; odd < 2; odd++) {
        int first = rank - (rank + odd) % 2; /* the lower rank of the pair that this one is in */
        bool in = first >= 0 && first + 1 < size;
        TD_TRY_OR(st, fail, td__comm_split_with(comm, in ? first : -1, rank, &PATIENT, &made[odd]));
        if (in)
            *(first == rank ? after : before) = made[odd];
    }
    return TD_OK;
fail:
    td_comm_destroy(made[0]);
    td_comm_destroy(made[1]);
    *before = *after = NULL;
    return st;
}
