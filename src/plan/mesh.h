/* mesh.h -- the axes that ranks are arranged in: data, pipeline, tensor.
 *
 * Neighbouring ranks differ in their tensor coordinate first, then in data, then in pipeline: the
 * ranks of a host are neighbours, so that the axis that talks most stays inside a host, and the one
 * that talks least crosses between hosts. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PLAN_MESH_H
#define TD_PLAN_MESH_H

#include "tandem/status.h"

typedef enum td__axis { TD_AXIS_DATA, TD_AXIS_PIPELINE, TD_AXIS_TENSOR, TD_AXES } td__axis;
enum { TD__AXIS_ALL = TD_AXES };          /* of a collective: all ranks of the mesh */
const char *td__axis_name(td__axis axis); /* "data"; "all axes" */

typedef struct td__rank_mesh {
    int size[TD_AXES]; /* all at least 1 */
} td__rank_mesh;

int td__rank_mesh_ranks(const td__rank_mesh *m);
int td__rank_mesh_coordinate(const td__rank_mesh *m, int rank, td__axis axis);
/* The rank whose coordinate along `axis` is that of `rank` plus `offset`; -1: outside the mesh. */
int td__rank_mesh_peer(const td__rank_mesh *m, int rank, td__axis axis, int offset);

/* Sizes that are 0 become what is left of `ranks`: one of them all of it, further ones 1, data
 * first. TD_EINVAL, with what would work, if the product is not `ranks`. */
TD_NODISCARD td_status td__rank_mesh_complete(td__rank_mesh *m, int ranks);
/* "data=2,pipeline=4"; axes that are not named are 0. TD_EINVAL for anything else. */
TD_NODISCARD td_status td__rank_mesh_parse(const char *text, td__rank_mesh *out);
/* "data=2,pipeline=4", without axes of 1; "data=1" for one rank. Returns buf. */
enum { TD__RANK_MESH_TEXT = 64 };
char *td__rank_mesh_text(const td__rank_mesh *m, char buf[TD__RANK_MESH_TEXT]);

#endif
