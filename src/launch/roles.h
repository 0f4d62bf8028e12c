/* roles.h -- what ranks are for one another in programs that are not all workers: TensorFlow's
 * chief, ps, worker and evaluator, the role of torchrun.
 *
 *     --roles chief:1,ps:2     of 6 ranks: 0 the chief, 1 and 2 ps, 3 to 5 worker */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_LAUNCH_ROLES_H
#define TD_LAUNCH_ROLES_H

#include "tandem/status.h"

enum { TD_ROLES = 8, TD_ROLE_NAME = 24 };

typedef struct td__role {
    char name[TD_ROLE_NAME];
    int first, count; /* its ranks */
} td__role;

typedef struct td__roles {
    td__role role[TD_ROLES];
    int n;
} td__roles;

/* "NAME:COUNT,..." (without a number: one) for `size` ranks in this order; those that are left are
 * "worker", all of them where text is NULL. TD_EINVAL. */
TD_NODISCARD td_status td__roles_parse(const char *text, int size, td__roles *out);
/* The role of a rank that there is. */
const td__role *td__roles_of(const td__roles *r, int rank);
/* Parameter servers serve until they are ended: a job is done when its other ranks are. */
bool td__role_serves(const td__role *r);
/* How many ranks do not. */
int td__roles_working(const td__roles *r);

#endif
