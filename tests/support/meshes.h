/* meshes.h -- the ranks of a mesh as threads of one process, over every transport (net/mesh.h). A
 * transport is a row of TRANSPORTS in meshes.c. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TESTS_SUPPORT_MESHES_H
#define TD_TESTS_SUPPORT_MESHES_H

#include <pthread.h>

#include "net/mesh.h"
#include "net/mesh_tcp.h"

enum { MESH_MOST = 5, MESH_SOON_MS = 100000 };

/* What a rank does. */
typedef td_status mesh_body(td__mesh *m);

/* How it ended. */
typedef struct mesh_rank {
    td__mesh *mesh;
    mesh_body *run;
    td_status st;
    char text[400];
} mesh_rank;

extern const int mesh_n_transports;
const char *mesh_transport_name(int transport);

/* `run` on all ranks of a new mesh; how it ended is in r[0..size). */
void meshes_run(int transport, int size, mesh_body *run, mesh_rank *r);
/* On ranks that are there; their meshes are destroyed. */
void meshes_run_on(td__mesh *const *mesh, int size, mesh_body *run, mesh_rank *r);
void meshes_expect_ok(const mesh_rank *r, int size, int transport);

/* All ranks of a tcp mesh. */
td_status meshes_create_tcp(int size, const td__mesh_tcp_opts *o, td__mesh **out);

/* One rank of a tcp mesh: mesh_tcp_main creates it, at the same time as the others theirs. */
typedef struct mesh_tcp_rank {
    const char *store;
    int rank, size;
    td__mesh_tcp_opts opts;
    td__mesh *mesh;
    td_status st;
    char text[400];
    pthread_t thread;
} mesh_tcp_rank;

extern const td__secret MESH_SECRET;
void *mesh_tcp_main(void *mesh_tcp_rank);

td_status mesh_wait_one(td__mesh *m, td__xfer *x);

/* Byte i of what `from` sends to `to`. */
unsigned char mesh_pattern(int from, int to, size_t i);

#endif
