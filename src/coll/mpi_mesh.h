/* mpi_mesh.h -- a mesh whose messages MPI carries, so that all algorithms and their bits are the
 * same on a cluster's own network stack. MPI is reached through a module that is loaded at run time
 * (coll/mpi/module.h). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_COLL_MPI_MESH_H
#define TD_COLL_MPI_MESH_H

#include "coll/mpi/module.h"
#include "net/mesh.h"

/* All ranks that mpirun started. The module is looked for in TANDEM_MODULES, then beside this
 * library or program, then in its ../lib/tandem. TD_ENOTSUP if there is none or it does not load.
 * Collective. */
TD_NODISCARD td_status td__mesh_mpi_world(td__mesh **out);

/* A mesh of ranks[0..n) of an MPI mesh, of which this rank is one; collective over those. `key` is
 * the same on all of them. */
TD_NODISCARD td_status td__mesh_mpi_split(td__mesh *parent, const int *ranks, int n,
                                          const char *key, td__mesh **out);

/* Is this mesh MPI's? Then a collective of MPI's own can run on it, until the deadline. */
bool td__mesh_is_mpi(const td__mesh *m);
TD_NODISCARD td_status td__mesh_mpi_collective(td__mesh *m, const td__mpi_call *call,
                                               td__deadline until);

#endif
