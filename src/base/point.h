/* point.h -- places at which a fault may be asked for: every communication and file operation of a
 * run passes one. Who counts them, and what happens there, is behind the ops (fault/faults.h). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BASE_POINT_H
#define TD_BASE_POINT_H

#include "tandem/status.h"

typedef enum td__point_kind { TD_POINT_COMM, TD_POINT_FILE } td__point_kind;

typedef struct td__points td__points;
struct td__points {
    /* Operation `op` ("allreduce", "rename") is about to be done. Any thread. A failure is the
     * operation's. */
    td_status (*at)(td__points *p, td__point_kind kind, const char *op);
};

/* p NULL: nobody counts. */
static inline td_status td__point(td__points *p, td__point_kind kind, const char *op)
{
    return p ? p->at(p, kind, op) : TD_OK;
}

#endif
