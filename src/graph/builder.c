/* builder.c -- making graphs: nodes, leaves, names and scopes, and the sticky first error.
 *
 * Every node passes through td__node_named: it runs the operator's infer rule, which is the one
 * place where shapes, types and attributes are checked. When the rule refuses, the text it left in
 * td_last_error() is completed with the call, the node's name and the inputs' shapes. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/fail.h"
#include "graph/graph_impl.h"

td_status td_graph_create(td_graph **out)
{
    *out = NULL;
    td__arena *arena;
    TD_TRY(td__arena_create(&arena));
    td_graph *g = td__calloc(1, sizeof *g);
    if (!g) {
        td__arena_destroy(arena);
        return TD_FAIL(TD_ENOMEM, "td_graph_create: no memory for a graph");
    }
    g->arena = arena;
    g->scope = "";
    *out = g;
    return TD_OK;
}

void td_graph_destroy(td_graph *g)
{
    if (!g)
        return;
    td__arena_destroy(g->arena);
    td__free(g->nodes);
    td__free(g->roots);
    td__free(g->names.entry);
    td__free(g);
}

td_status td_graph_status(const td_graph *g)
{
    return g->status;
}

const char *td_graph_error(const td_graph *g)
{
    return g->error;
}

/* Keep the first error; later ones are consequences. */
static void keep_error(td_graph *g, td_status code)
{
    if (g->status)
        return;
    g->status = code;
    snprintf(g->error, sizeof g->error, "%s", td_last_error());
}

static td_node *out_of_memory(td_graph *g, const char *call)
{
    keep_error(g, TD_FAIL(TD_ENOMEM, "%s: no memory for a node of the graph", call));
    return NULL;
}

td_node *td__graph_fail(td_graph *g, td_status code, const char *call, const char *fmt, ...)
{
    char text[400];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    keep_error(g, TD_FAIL(code, "%s: %s%s%s", call, text, *g->scope ? " in scope " : "", g->scope));
    return NULL;
}

char *td__desc_text(const td_desc *d, char *buf, size_t nbytes)
{
    char shape[128];
    snprintf(buf, nbytes, "%s%s%s", td_dtype_name(d->dtype),
             td_shape_text(&d->shape, shape, sizeof shape),
             d->layout == TD_LAYOUT_NHWC ? " nhwc" : "");
    return buf;
}

/* Rules that are the same for every operator: arity, known types, sizes that can be counted. */
static td_status check_common(const td_op_def *def, td_node *const *in, int n_in)
{
    if (n_in < def->n_in_min || n_in > def->n_in_max)
        return TD_FAIL(TD_EINVAL, "takes %d to %d inputs, got %d", def->n_in_min, def->n_in_max,
                       n_in);
    for (int i = 0; i < n_in; i++)
        if (in[i]->n_out < 1)
            return TD_FAIL(TD_EINVAL, "input %d ('%s') has no output", i, in[i]->name);
    return TD_OK;
}

static td_status check_outputs(const td_desc *out, int n_out)
{
    for (int k = 0; k < n_out; k++) {
        if ((unsigned)out[k].dtype >= TD_DTYPE_COUNT)
            return TD_FAIL(TD_EINVAL, "unknown dtype %d", (int)out[k].dtype);
        if (out[k].shape.ndim < 0 || out[k].shape.ndim > TD_MAX_DIMS)
            return TD_FAIL(TD_EINVAL, "%d dimensions; 0 to %d are possible", out[k].shape.ndim,
                           TD_MAX_DIMS);
        int64_t count = td_shape_count(&out[k].shape);
        int64_t nbytes;
        if (count < 0 || !td__i64_mul(count, (int64_t)td_dtype_size(out[k].dtype), &nbytes))
            return TD_FAIL(TD_EINVAL, "a size is negative or the tensor has too many elements");
    }
    return TD_OK;
}

/* Complete an infer rule's message with what the user needs to find the place. */
static td_node *refuse(td_graph *g, td_status st, const td_op_def *def, const char *name,
                       td_node *const *in, int n_in)
{
    char why[256], inputs[320] = "";
    snprintf(why, sizeof why, "%s", td_last_error());
    for (int i = 0; i < n_in; i++) {
        char desc[160];
        size_t used = strlen(inputs);
        snprintf(inputs + used, sizeof inputs - used, "%s'%s' %s", i ? ", " : "", in[i]->name,
                 td__desc_text(&in[i]->out[0], desc, sizeof desc));
    }
    keep_error(g, TD_FAIL(st, "td_%s: node '%s': %s%s%s%s", def->name, name, why,
                          n_in ? " [inputs: " : "", inputs, n_in ? "]" : ""));
    return NULL;
}

static bool grow_nodes(td_graph *g)
{
    if (g->n_nodes < g->cap_nodes)
        return true;
    int cap = g->cap_nodes ? 2 * g->cap_nodes : 64;
    td_node **nodes = td__realloc(g->nodes, (size_t)cap * sizeof *nodes);
    if (!nodes)
        return false;
    g->nodes = nodes;
    g->cap_nodes = cap;
    return true;
}

bool td__graph_owns(const td_graph *g, const td_node *n)
{
    return n->id < g->n_nodes && g->nodes[n->id] == n;
}

td_node *td__node_named(td_graph *g, td_opcode op, const void *attr, td_node *const *in, int n_in,
                        const char *name)
{
    if (g->status)
        return NULL;
    const td_op_def *def = td__op(op);
    char call[64];
    snprintf(call, sizeof call, "td_%s", def->name);
    for (int i = 0; i < n_in; i++) {
        if (!in[i])
            return td__graph_fail(g, TD_EINVAL, call, "input %d is missing (NULL)", i);
        if (!td__graph_owns(g, in[i]))
            return td__graph_fail(g, TD_EINVAL, call, "input %d, '%s', is a node of another graph",
                                  i, in[i]->name);
    }

    char auto_name[256];
    if (!name) {
        snprintf(auto_name, sizeof auto_name, "%s%s_%d", g->scope, def->name, g->n_nodes);
        name = auto_name;
    }
    td_desc out[TD_MAX_OUT] = {{0}};
    int n_out = 1;
    const td_desc *in_desc[TD_MAX_IN];
    td_status st = n_in > TD_MAX_IN
                       ? TD_FAIL(TD_EINVAL, "%d inputs; at most %d are possible", n_in, TD_MAX_IN)
                       : check_common(def, in, n_in);
    if (!st) {
        for (int i = 0; i < n_in; i++)
            in_desc[i] = &in[i]->out[0];
        td_op_args args = {.n_in = n_in, .in_desc = in_desc, .attr = attr};
        st = def->infer(&args, out, &n_out);
    }
    if (!st)
        st = check_outputs(out, n_out);
    if (st)
        return refuse(g, st, def, name, in, n_in > TD_MAX_IN ? TD_MAX_IN : n_in);

    td_node *n = td__arena_alloc(g->arena, sizeof *n);
    td_node **inputs = td__arena_alloc(g->arena, (size_t)(n_in ? n_in : 1) * sizeof *inputs);
    td_desc *descs = td__arena_alloc(g->arena, (size_t)n_out * sizeof *descs);
    void *attr_copy = def->attr_size ? td__arena_alloc(g->arena, def->attr_size) : NULL;
    char *name_copy = td__arena_strdup(g->arena, name);
    if (!n || !inputs || !descs || !name_copy || (def->attr_size && !attr_copy) || !grow_nodes(g))
        return out_of_memory(g, call);
    if (n_in)
        memcpy(inputs, in, (size_t)n_in * sizeof *in);
    memcpy(descs, out, (size_t)n_out * sizeof *out);
    if (def->attr_size)
        memcpy(attr_copy, attr, def->attr_size);
    *n = (td_node){.op = op,
                   .id = g->n_nodes,
                   .name = name_copy,
                   .n_in = n_in,
                   .n_out = n_out,
                   .in = inputs,
                   .out = descs,
                   .attr = attr_copy,
                   .place = g->place,
                   .phase = g->phase};
    g->nodes[g->n_nodes++] = n;
    return n;
}

td_node *td__node(td_graph *g, td_opcode op, const void *attr, td_node *const *in, int n_in)
{
    return td__node_named(g, op, attr, in, n_in, NULL);
}

td_node *td__part(td_graph *g, td_node *n, int k)
{
    if (!n || k == 0)
        return n;
    td_attr_part attr = {.index = k};
    /* The infer rule sees only output 0 of n, so the desc of output k is put in here. */
    if (k < 0 || k >= n->n_out)
        return td__graph_fail(g, TD_EINVAL, "td_part", "node '%s' has no output %d", n->name, k);
    td_node *part = td__node(g, TD_OP_PART, &attr, &n, 1);
    if (!part)
        return NULL;
    td_desc *desc = td__arena_alloc(g->arena, sizeof *desc);
    if (!desc)
        return out_of_memory(g, "td_part");
    *desc = n->out[k];
    part->out = desc;
    return part;
}

const td_node *td__view_base(const td_node *n, int *output)
{
    *output = 0;
    while (td__op(n->op)->is_view) {
        if (n->op == TD_OP_PART) {
            *output = ((const td_attr_part *)n->attr)->index;
            return n->in[0];
        }
        n = n->in[0];
    }
    return n;
}

uint32_t td__graph_next_stream(td_graph *g)
{
    return g->next_stream++;
}

void td__graph_add_root(td_graph *g, td__root root)
{
    if (!root.node || g->status)
        return;
    if (g->n_roots == g->cap_roots) {
        int cap = g->cap_roots ? 2 * g->cap_roots : 16;
        td__root *roots = td__realloc(g->roots, (size_t)cap * sizeof *roots);
        if (!roots) {
            out_of_memory(g, "td_graph");
            return;
        }
        g->roots = roots;
        g->cap_roots = cap;
    }
    g->roots[g->n_roots++] = root;
}

void td__graph_track(td_graph *g, td_node *state, td_node *value, double weight)
{
    if (state && value)
        td__graph_add_root(
            g, (td__root){.kind = TD_ROOT_TRACK, .node = value, .leaf = state, .weight = weight});
}

void td_graph_push_scope(td_graph *g, const char *name)
{
    if (!name || !*name) {
        td__graph_fail(g, TD_EINVAL, "td_graph_push_scope", "a name is needed");
        return;
    }
    struct td__scope *outer = td__arena_alloc(g->arena, sizeof *outer);
    const char *scope = td__arena_printf(g->arena, "%s%s/", g->scope, name);
    if (!scope || !outer) {
        out_of_memory(g, "td_graph_push_scope");
        return;
    }
    *outer = (struct td__scope){g->scope, g->outer};
    g->outer = outer;
    g->scope = scope;
}

void td_graph_pop_scope(td_graph *g)
{
    if (!g->outer) {
        td__graph_fail(g, TD_EINVAL, "td_graph_pop_scope", "there is no open scope");
        return;
    }
    g->scope = g->outer->text;
    g->outer = g->outer->outer;
}

int td__graph_set_place(td_graph *g, int place)
{
    int before = g->place;
    if (place < 0 || place > TD_PLACE_MOST)
        td__graph_fail(g, TD_EINVAL, "td_graph_set_place", "place %d; 0 to %d are possible", place,
                       TD_PLACE_MOST);
    else
        g->place = place;
    return before;
}

static td_node *add_leaf(td_graph *g, td_opcode op, const char *call, const char *name,
                         const td_attr_leaf *attr)
{
    if (g->status)
        return NULL;
    if (!name || !*name)
        return td__graph_fail(g, TD_EINVAL, call, "a name is needed");
    name = td__arena_printf(g->arena, "%s%s", g->scope, name);
    if (!name)
        return out_of_memory(g, call);
    if (td_shape_count(&attr->shape) < 0) {
        char text[128];
        return td__graph_fail(g, TD_EINVAL, call, "'%s': a size is negative or too large: %s", name,
                              td_shape_text(&attr->shape, text, sizeof text));
    }
    bool taken;
    if (td__graph_name_taken(g, name, &taken))
        return out_of_memory(g, call);
    if (taken)
        return td__graph_fail(g, TD_EINVAL, call, "there is a node named '%s' already", name);
    td_node *n = td__node_named(g, op, attr, NULL, 0, name);
    if (n)
        n->origin = g->origin;
    return n;
}

td_node *td_input(td_graph *g, const char *name, td_dtype dtype, td_shape shape)
{
    td_attr_leaf attr;
    memset(&attr, 0, sizeof attr);
    attr.dtype = dtype;
    attr.shape = shape;
    return add_leaf(g, TD_OP_INPUT, "td_input", name, &attr);
}

static td_node *add_number(td_graph *g, td_opcode op, const char *call, const char *name,
                           td_shape shape, td_init init)
{
    td_attr_leaf attr;
    memset(&attr, 0, sizeof attr);
    attr.dtype = TD_F32;
    attr.shape = shape;
    attr.init.kind = init.kind;
    attr.init.a = init.a;
    attr.init.b = init.b;
    attr.init.fan_out = init.fan_out;
    if ((unsigned)init.kind >= TD_INIT_KIND_COUNT)
        return td__graph_fail(g, TD_EINVAL, call, "'%s': unknown initialiser %d", name ? name : "",
                              (int)init.kind);
    return add_leaf(g, op, call, name, &attr);
}

void td__graph_freeze(td_graph *g, td__frozen_fn *fn, void *user)
{
    g->frozen = fn;
    g->frozen_user = user;
}

static bool is_frozen(const td_graph *g, const char *name)
{
    char full[512];

    if (!g->frozen || !name)
        return false;
    int n = snprintf(full, sizeof full, "%s%s", g->scope, name);
    return n > 0 && n < (int)sizeof full && g->frozen(g->frozen_user, full);
}

td_node *td_param(td_graph *g, const char *name, td_shape shape, td_init init)
{
    return add_number(g, is_frozen(g, name) ? TD_OP_STATE : TD_OP_PARAM, "td_param", name, shape,
                      init);
}

td_node *td_state(td_graph *g, const char *name, td_shape shape, td_init init)
{
    return add_number(g, TD_OP_STATE, "td_state", name, shape, init);
}

td_node *td_constant(td_graph *g, td_dtype dtype, td_shape shape, const void *data)
{
    td_attr_leaf attr;
    memset(&attr, 0, sizeof attr);
    attr.dtype = dtype;
    attr.shape = shape;
    int64_t count = td_shape_count(&shape);
    size_t nbytes;
    if (count < 0 || !td__size_mul((size_t)count, td_dtype_size(dtype), &nbytes))
        return td__graph_fail(g, TD_EINVAL, "td_constant", "a size is negative or too large");
    if (data && nbytes) {
        void *copy = td__arena_alloc(g->arena, nbytes);
        if (!copy)
            return out_of_memory(g, "td_constant");
        memcpy(copy, data, nbytes);
        attr.data = copy;
        attr.nbytes = nbytes;
    }
    return td__node(g, TD_OP_CONSTANT, &attr, NULL, 0);
}

td_node *td_named(td_graph *g, td_node *n, const char *name)
{
    if (!n)
        return NULL;
    if (!name || !*name)
        return td__graph_fail(g, TD_EINVAL, "td_named", "node '%s': a name is needed", n->name);
    char *full = td__arena_printf(g->arena, "%s%s", g->scope, name);
    if (!full)
        return out_of_memory(g, "td_named");
    n->name = full;
    return td__graph_renamed(g, n) ? out_of_memory(g, "td_named") : n;
}

const char *td_node_name(const td_node *n)
{
    return n->name;
}

td_dtype td_node_dtype(const td_node *n)
{
    return n->out[0].dtype;
}

td_shape td_node_shape(const td_node *n)
{
    return n->out[0].shape;
}

int td_graph_node_count(const td_graph *g)
{
    return g->n_nodes;
}

td_node *td_graph_find(const td_graph *g, const char *name)
{
    for (int i = 0; i < g->n_nodes; i++)
        if (strcmp(g->nodes[i]->name, name) == 0)
            return g->nodes[i];
    return NULL;
}

int64_t td__desc_count(const td_desc *d)
{
    return td_shape_count(&d->shape);
}

size_t td__desc_bytes(const td_desc *d)
{
    return (size_t)td__desc_count(d) * td_dtype_size(d->dtype);
}
