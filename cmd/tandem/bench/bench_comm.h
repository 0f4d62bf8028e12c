/* bench_comm.h -- measuring collectives among processes of this host. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_CMD_BENCH_COMM_H
#define TD_CMD_BENCH_COMM_H

#include "bench_rows.h"
#include "tandem/status.h"

enum { BENCH_MOST_SIZES = 40 };

typedef struct bench_plan {
    int ranks;
    const char *transport;   /* "shm", "tcp" */
    const char *collectives; /* "allreduce,broadcast" or "all" */
    const char *algorithms;  /* "default" (the library chooses), "all", or names */
    const char *memory;      /* "registered,private" or one of them */
    size_t nbytes[BENCH_MOST_SIZES];
    int n_sizes;
    double seconds; /* per measurement */
} bench_plan;

/* Start the ranks, let them measure, and add their rows. Rows are also printed to `progress` as
 * they come, if it is not NULL. */
TD_NODISCARD td_status bench_comm_measure(const bench_plan *plan, bench_rows *rows, FILE *progress);

/* Is `name` in the list "a,b,c" (or is the list "all")? */
bool bench_listed(const char *list, const char *name);

#endif
