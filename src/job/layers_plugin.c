/* layers_plugin.c -- a layer of a plug-in (tandem/plugin.h). */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "job/build.h"
#include "job/plugin.h"

enum { MOST_ARGS = 64 };

/* "beta=1.5" */
static bool read_arg(const td__layer *l, const char *text, const char **name, double *value)
{
    const char *equals = strchr(text, '=');
    char *end;

    if (!equals || equals == text)
        return false;
    *value = strtod(equals + 1, &end);
    *name = td__arena_printf(l->arena, "%.*s", (int)(equals - text), text);
    return *name && end > equals + 1 && !*end;
}

static td_node *plugin(const td__layer *l, td_node *x)
{
    const td__tree *at = td__tree_get(l->attrs, "plugin"), *with = td__tree_get(l->attrs, "with");
    const td_plugin_layer *p = td__plugin_layer(l->b->job, at->text);
    const char *name[MOST_ARGS];
    double value[MOST_ARGS];
    td_plugin_args args = {.name = name, .value = value};

    if (!p) {
        td__build_fail(l->b, td__plugin_missing(l->b->job, "layer", at));
        return NULL;
    }
    for (const td__tree *t = with ? with->first : NULL; t; t = t->next, args.n++)
        if (args.n == MOST_ARGS || !read_arg(l, t->text, &name[args.n], &value[args.n]))
            return td__layer_fail(l,
                                  "with: expected at most %d numbers by name, such as beta=1.5, "
                                  "found %s",
                                  MOST_ARGS, td__tree_found(t).text);
    td_node *y = p->build(l->g, l->name, x, &args);
    if (y && (td_node_shape(y).ndim < 1 || td_node_shape(y).dim[0] != l->b->rows))
        return td__layer_fail(l, "the plug-in's layer %s does not keep the rows of its input",
                              p->name);
    return y;
}
const td__layer_def td__layer_plugin = {
    "plugin",
    "a layer of a plug-in, a shared object that plugin.files names (include/tandem/plugin.h)",
    {TD_KEY_ROW("plugin", TEXT, "Name of the layer in the plug-in.", .flags = TD_KEY_REQUIRED),
     TD_KEY_ROW("with", TEXTS, "Numbers for it, by name: [beta=1.5].")},
    plugin};
