/* comm_mpi.c -- worlds and groups that MPI carries: its launcher has made the ranks known to one
 * another, and ends all of them when one dies, so nothing has to watch them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fail.h"
#include "coll/comm_impl.h"
#include "coll/comm_setup.h"
#include "coll/mpi_mesh.h"

static td_status mpi_split(void *user, td_comm *parent, const int *ranks, int n, int me,
                           const char *key, td__deadline until, td__comm_parts *out)
{
    (void)user;
    *out = (td__comm_parts){.rank = me, .size = n, .hooks = {.split = mpi_split}};
    TD_TRY(td__mesh_mpi_split(parent->ctx.mesh, ranks, n, key, &out->mesh));
    td_status st = td__mesh_measure(out->mesh, until);
    if (st)
        td__mesh_destroy(out->mesh);
    return st;
}

td_status td__comm_create_mpi(const td__world *w, const td_comm_opts *o, td_comm **out)
{
    td__deadline until = td__deadline_in_ms(o->setup_ms ? o->setup_ms : TD_COMM_SETUP_MS);
    td__comm_parts parts = {.rank = w->rank, .size = w->size, .hooks = {.split = mpi_split}};
    td_status st = TD_OK;
    TD_TRY(td__mesh_mpi_world(&parts.mesh));
    if (parts.mesh->rank != w->rank || parts.mesh->size != w->size)
        TD_TRY_OR(st, fail,
                  TD_FAIL(TD_EINVAL,
                          "MPI reports rank %d of %d, but the environment rank %d of %d; start the "
                          "program with that MPI's own mpirun",
                          parts.mesh->rank, parts.mesh->size, w->rank, w->size));
    TD_TRY_OR(st, fail, td__mesh_measure(parts.mesh, until));
    TD_TRY_OR(st, fail, td__comm_assemble(&parts, o, out));
    return TD_OK;
fail:
    td__mesh_destroy(parts.mesh);
    return st;
}
