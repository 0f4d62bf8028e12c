/* shard_map.h -- which server holds what: ranges of the block of params and states, cut where a
 * param begins, as near to equal shares as that allows. A function of the model and the number of
 * servers, so no message is needed. Whole params, because optimizers may look at whole ones
 * (LAMB, LARS) and clipping adds up squares param by param: bits do not depend on the cut. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_PS_SHARD_MAP_H
#define TD_PS_SHARD_MAP_H

#include "graph/cut.h"
#include "tandem/program.h"

typedef struct td__ps_map {
    int servers;
    td__param_range *at; /* (servers) rising, of the block of params; they meet */
} td__ps_map;

/* TD_EINVAL if there are fewer params than servers. */
TD_NODISCARD td_status td__ps_map_init(td__ps_map *m, const td_params *ps, int servers);
void td__ps_map_fini(td__ps_map *m);
/* What a server has: its shard; with copies that of the server before it in their ring, too. */
typedef struct td__ps_held {
    td__param_range at[2]; /* (n) rising, not adjacent */
    int n;
} td__ps_held;
td__ps_held td__ps_map_held(const td__ps_map *m, int server, bool copies);
/* Elements of a shard. */
size_t td__ps_map_count(const td__ps_map *m, int server);

#endif
