/* node_check.h -- what builders must give: a node of the right type and shape, or a refusal that
 * says what was wrong. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TESTS_SUPPORT_NODE_CHECK_H
#define TD_TESTS_SUPPORT_NODE_CHECK_H

#include "tandem/graph.h"

/* A call that must be refused; `says`: what the error's line must hold besides its name. */
typedef struct refusal {
    const char *call, *says[3];
} refusal;

/* `made` is the call's result: NULL, and g holds TD_EINVAL and one line that says what it must. */
void node_check_refused(const td_graph *g, const td_node *made, const refusal *want);

/* n is there and has this type and shape. */
void node_check(const td_graph *g, const td_node *n, td_dtype dtype, td_shape shape);

#endif
