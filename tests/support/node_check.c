/* node_check.c -- see node_check.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "support/node_check.h"

#include <string.h>

#include "support/check.h"

void node_check_refused(const td_graph *g, const td_node *made, const refusal *want)
{
    CHECK(!made, "%s: a bad call (\"%s\") gives a node", want->call, want->says[0]);
    CHECK_EQ_INT(td_graph_status(g), TD_EINVAL);
    const char *text = td_graph_error(g);
    CHECK(strstr(text, want->call), "no %s in: %s", want->call, text);
    CHECK(!strchr(text, '\n'), "more than one line: %s", text);
    for (int k = 0; k < 3 && want->says[k]; k++)
        CHECK(strstr(text, want->says[k]), "no \"%s\" in: %s", want->says[k], text);
}

void node_check(const td_graph *g, const td_node *n, td_dtype dtype, td_shape shape)
{
    char got[128], want[128];
    CHECK(n, "%s", td_graph_error(g));
    td_shape s = td_node_shape(n);
    CHECK(td_shape_equal(&s, &shape), "%s has shape %s, not %s", td_node_name(n),
          td_shape_text(&s, got, sizeof got), td_shape_text(&shape, want, sizeof want));
    CHECK(td_node_dtype(n) == dtype, "%s is %s, not %s", td_node_name(n),
          td_dtype_name(td_node_dtype(n)), td_dtype_name(dtype));
}
