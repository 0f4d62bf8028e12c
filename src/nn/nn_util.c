/* nn_util.c -- see nn_util.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "nn/nn_util.h"

#include <stdarg.h>
#include <stdio.h>

#include "ops/node.h"

/* "layer.name" into buf; false, with an error, if it is too long. */
static bool join(td_graph *g, const char *layer, const char *name, char *buf, size_t nbytes)
{
    if (!layer || !*layer) {
        td__graph_fail(g, TD_EINVAL, "td_param", "the layer of '%s' needs a name", name);
        return false;
    }
    int n = snprintf(buf, nbytes, "%s.%s", layer, name);
    if (n >= 0 && (size_t)n < nbytes)
        return true;
    td__graph_fail(g, TD_EINVAL, "td_param", "name '%.64s...' is longer than %zu bytes", layer,
                   nbytes - 1);
    return false;
}

td_node *td__nn_param(td_graph *g, const char *layer, const char *name, td_shape shape,
                      const td_init *init, td_init standard)
{
    char full[256];

    if (!join(g, layer, name, full, sizeof full))
        return NULL;
    return td_param(g, full, shape, init ? *init : standard);
}

td_node *td__nn_state(td_graph *g, const char *layer, const char *name, td_shape shape,
                      td_init init)
{
    char full[256];

    if (!join(g, layer, name, full, sizeof full))
        return NULL;
    return td_state(g, full, shape, init);
}

bool td__nn_shape(td_graph *g, const char *call, const char *layer, const td_node *x, int min,
                  int max, td_shape *shape)
{
    char text[128];

    if (td_graph_status(g))
        return false;
    if (!x) {
        td__graph_fail(g, TD_EINVAL, call, "layer '%s': the input is missing (NULL)", layer);
        return false;
    }
    *shape = td_node_shape(x);
    if (shape->ndim >= min && shape->ndim <= max)
        return true;
    td_shape_text(shape, text, sizeof text);
    if (min == max)
        td__graph_fail(g, TD_EINVAL, call,
                       "layer '%s': the input '%s' has shape %s; it must have %d axes", layer,
                       td_node_name(x), text, min);
    else
        td__graph_fail(g, TD_EINVAL, call,
                       "layer '%s': the input '%s' has shape %s; it must have %d to %d axes", layer,
                       td_node_name(x), text, min, max);
    return false;
}

td__nn_text td__nn_name(const char *fmt, ...)
{
    td__nn_text name;
    va_list args;

    va_start(args, fmt);
    vsnprintf(name.text, sizeof name.text, fmt, args);
    va_end(args);
    return name;
}

td_node *td__nn_flatten(td_graph *g, td_node *x)
{
    td_shape shape;

    if (!td__nn_shape(g, "td_reshape", "flatten", x, 1, TD_MAX_DIMS, &shape))
        return NULL;
    return shape.ndim == 2 ? x : td_reshape(g, x, TD_SHAPE(shape.dim[0], -1));
}

td_node *td_nn_dropout(td_graph *g, td_node *x, double p)
{
    return p == 0 ? x : td_dropout(g, x, p);
}
