/* comm_setup.h -- how a comm comes into being: from a description of the world (who am I, where
 * is the store, what is the secret) to meshes. The description is made by world_env.c from the
 * environment, or by tests. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_COLL_COMM_SETUP_H
#define TD_COLL_COMM_SETUP_H

#include <pthread.h>

#include "net/store.h"
#include "tandem/coll.h"

/* The handle by which another thread ends a comm, whether it is still being made, in use, or gone
 * by then. Belongs to the caller that asks for the comm, and outlives it. */
typedef struct td__comm_stop {
    pthread_mutex_t lock; /* protects all below; taken before the locks of comms and stores */
    td_comm *comm;
    td__store *store; /* of a comm that is being made */
    bool stopped;     /* comms that ask for it from now on are not made */
    char why[256];
} td__comm_stop;
void td__comm_stop_init(td__comm_stop *s);
void td__comm_stop_fini(td__comm_stop *s);
/* As td_comm_abort. Any thread. */
void td__comm_stop_now(td__comm_stop *s, const char *why);
void td__comm_stop_reset(td__comm_stop *s);

typedef struct td__world {
    int rank, size, local_rank, local_size;
    char host[64];     /* equal for ranks that can share memory: boot id and namespaces */
    char hostname[64]; /* for texts */
    char address[64];  /* of this host, where other ranks reach it; "127.0.0.1" */
    bool route; /* no: on the way to the store; for the rank that hosts it, its default route */
    char store[256];   /* address; "" for a world of one, or one that meets through a file */
    int server;        /* 1 + the rank that serves the store, at the port of its address; 0: none */
    char meeting[256]; /* that file: rank 0 hosts the store and leaves address and secret there */
    td__secret secret;
    bool tls;
    char tls_dir[256];
    bool mpi;        /* started by an MPI launcher: the MPI engine can be used */
    char agent[256]; /* tandem launch: where the agent of this host listens; "" */
    uint32_t proc;   /* and which of its processes this is */
    bool elastic;    /* the agent tells this process its rank, generation after generation */
    char space[32]; /* this world's name in the store; "": the process' nth meets the others' nth */
    td__comm_stop *stop; /* borrowed; NULL: none */
} td__world;

/* Read the environment (world_env.c): TANDEM_*, then OMPI_COMM_WORLD_*, PMI_*, SLURM_*,
 * torchrun's RANK and WORLD_SIZE; none: a world of one. TD_EINVAL if it contradicts itself. */
TD_NODISCARD td_status td__world_from_env(td__world *out);

/* A secret as 64 hexadecimal digits and back. */
enum { TD_SECRET_HEX = 2 * sizeof(td__secret) + 1 };
void td__secret_hex(const td__secret *s, char hex[TD_SECRET_HEX]);
TD_NODISCARD td_status td__secret_parse(const char *hex, td__secret *out);

/* A comm of this world; what td_comm_world() does after td__world_from_env(). */
TD_NODISCARD td_status td__comm_create(const td__world *w, const td_comm_opts *opts, td_comm **out);
/* The part of it that MPI carries. TD_ENOTSUP: there is no module for this MPI. */
TD_NODISCARD td_status td__comm_create_mpi(const td__world *w, const td_comm_opts *o,
                                           td_comm **out);

enum { TD_COMM_SETUP_MS = 30000 }; /* for ranks to meet, unless the options say so */

#endif
