/* auto_mesh.h -- `--parallel auto`: the arrangement of ranks that cuts the model into the fewest
 * parts that fit memory: stages, or with parallel.tensor_pieces stages of several ranks. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_CMD_AUTO_MESH_H
#define TD_CMD_AUTO_MESH_H

#include "plan/mesh.h"
#include "session.h"

typedef struct td__auto_mesh {
    td__rank_mesh mesh;
    double need, limit; /* bytes of a rank: planned, and what it may have */
} td__auto_mesh;

/* Does --parallel say "auto", or "auto:200MB"? */
bool td__auto_mesh_wanted(const td__args *a);
/* For n ranks on this host; s has a trainer of one blank rank. TD_EINVAL if nothing fits, or if the
 * size of a rank is none. */
TD_NODISCARD td_status td__auto_mesh_choose(const td__session *s, const td__args *a, int n,
                                            td__auto_mesh *out);
/* The same for the job of a command line, which is loaded for it, before ranks are started. */
TD_NODISCARD td_status td__auto_mesh_find(const td__args *a, const char *job, int n,
                                          td__auto_mesh *out);
/* "parallel auto: pipeline=2, 310 MB of a rank's 400 MB". */
void td__auto_mesh_print(const td__auto_mesh *m);

#endif
