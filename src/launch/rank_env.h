/* rank_env.h -- what each framework expects to find in the environment of a rank. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_LAUNCH_RANK_ENV_H
#define TD_LAUNCH_RANK_ENV_H

#include "launch/hosts.h"
#include "launch/message.h"
#include "launch/roles.h"

/* What all ranks of one host have in common; everything is borrowed. */
typedef struct td__rank_plan {
    const td__hosts *hosts;
    int host;                  /* index in hosts */
    const char *store;         /* address of the agent's store */
    const char *const *worker; /* "HOST:PORT" of every rank */
    const char *master;        /* "HOST:PORT" */
    const td__roles *roles;
    const char *job;             /* its name, the same on all hosts */
    uint32_t generation;         /* from 1 */
    uint32_t restarts, failures; /* that there may be; after which all were started again */
    struct td__foreign *foreign; /* serves programs of another system; NULL: none */
} td__rank_plan;

/* Where one rank stands in its world. */
typedef struct td__world_place {
    int rank, size, local_rank, local_size;
    int node, cross_rank, cross_size; /* of its host; among ranks of this local number */
    const char *host;
    const char *const *worker; /* "HOST:PORT" of every rank */
    const char *master;        /* "HOST:PORT" */
    const td__roles *roles;    /* NULL: all are workers */
} td__world_place;

/* The place of a rank of a host; without `worker` and `master`. */
void td__world_find(const td__hosts *hosts, int host, int local_rank, td__world_place *out);

/* Appends what foreign programs look for: always torchrun's RANK, WORLD_SIZE, MASTER_ADDR and so
 * on, which other programs use too, and what else the framework wants: "tensorflow", "horovod" and
 * "mpi" their own, "tandem" TANDEM_RANK and so on, "pytorch" nothing; NULL or another name: all
 * that is foreign. */
void td__world_env(const td__world_place *p, const char *framework, td__texts *out);

/* Appends "K=V" texts for rank `rank`; a later one replaces an earlier one of the same name. */
void td__rank_env(const td__rank_plan *p, int rank, td__texts *out);

/* `base` with the texts in place of its variables of the same names: NULL-terminated, released
 * with td__free; the strings are borrowed. NULL when out of memory. */
char **td__rank_environ(char *const *base, const td__texts *texts);

#endif
