/* origin.c -- see origin.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/origin.h"

#include <stdio.h>
#include <string.h>

#include "graph/graph_impl.h"

const char *td__graph_set_origin(td_graph *g, const char *origin)
{
    const char *before = g->origin;
    g->origin = origin ? td__arena_strdup(g->arena, origin) : NULL;
    if (origin && !g->origin)
        td__graph_fail(g, TD_ENOMEM, "td_graph", "no memory for the origin of a param");
    return before;
}

char *td__origin_text(const char *first, const char *last, char buf[TD__ORIGIN])
{
    const char *line = last ? strrchr(last, ':') : NULL;
    bool range = first && line && strcmp(first, last) != 0;
    snprintf(buf, TD__ORIGIN, "%s%s%s", first ? first : "", range ? " to " : "",
             range ? line + 1 : "");
    return buf;
}
