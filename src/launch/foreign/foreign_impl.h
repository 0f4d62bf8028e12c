/* foreign_impl.h -- one server of foreign.h: a table of functions in a file of its own. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_LAUNCH_FOREIGN_FOREIGN_IMPL_H
#define TD_LAUNCH_FOREIGN_FOREIGN_IMPL_H

#include <stdatomic.h>

#include "launch/foreign/exchange.h"
#include "launch/foreign/foreign.h"

typedef struct td__foreign_ops {
    /* Can it be had here? NULL: always. */
    td_status (*check)(const td__foreign_http *http);
    td_status (*create)(td__foreign *f); /* sets f->server; ended by destroy also if it fails */
    td_status (*rank)(td__foreign *f, int rank, td__texts *env, int *fd);
    void (*destroy)(td__foreign *f);
} td__foreign_ops;

struct td__foreign {
    const td__foreign_ops *ops;
    const td__agent_spec *s;
    const td__rank_plan *plan;
    td__exchange exchange;
    void *server;
    int abort_fd;             /* an eventfd */
    atomic_int *abort_status; /* of each rank of the host, -1: none */
};

/* From any thread: the rank of this number on the host asks to end with this status. */
void td__foreign_abort(td__foreign *f, int local, int status);

#define X(name) extern const td__foreign_ops td__foreign_##name;
#include "launch/foreign/foreign.def"
#undef X

#endif
