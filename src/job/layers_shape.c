/* layers_shape.c -- pools, shapes, and what joins branches. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "job/layer.h"

enum { MAX_JOINED = 16 }; /* inputs of one operator */

typedef td_node *pool_fn(td_graph *, td_node *, const td_pool2d_opts *);

static td_node *pool(const td__layer *l, td_node *x, pool_fn *call)
{
    int size = (int)td__layer_int(l, "size"), stride = (int)td__layer_int(l, "stride");
    int pad = (int)td__layer_int(l, "padding");
    td_pool2d_opts o = {.size = {size, size}, .stride = {stride, stride}, .pad = {pad, pad}};

    return call(l->g, x, &o);
}
static td_node *max_pool(const td__layer *l, td_node *x)
{
    return pool(l, x, td_max_pool2d);
}
static td_node *avg_pool(const td__layer *l, td_node *x)
{
    return pool(l, x, td_avg_pool2d);
}
#define POOL_KEYS                                                                              \
    {                                                                                          \
        TD_KEY_ROW("size", INT, "Window size.", .lo = 1, .hi = 65536, .def = "2"),             \
            TD_KEY_ROW("stride", INT, "Stride; 0: the window size.", .hi = 65536, .def = "0"), \
            TD_KEY_ROW("padding", INT, "Padding.", .hi = 65536, .def = "0")                    \
    }
const td__layer_def td__layer_max_pool = {"max_pool", "2-D max pooling", POOL_KEYS, max_pool};
const td__layer_def td__layer_avg_pool = {"avg_pool", "2-D average pooling", POOL_KEYS, avg_pool};

/* (rows, ...) -> (rows, the rest) */
static td_node *flat(td_graph *g, td_node *x)
{
    return x ? td_reshape(g, x, TD_SHAPE(td_node_shape(x).dim[0], -1)) : NULL;
}
static td_node *global_avg_pool(const td__layer *l, td_node *x)
{
    return flat(l->g, td_global_avg_pool(l->g, x));
}
const td__layer_def td__layer_global_avg_pool = {
    "global_avg_pool", "global average pooling: (C, H, W) to (C)", {TD_KEYS_END}, global_avg_pool};

static td_node *flatten(const td__layer *l, td_node *x)
{
    return flat(l->g, x);
}
const td__layer_def td__layer_flatten = {
    "flatten", "joins all axes of a sample into one", {TD_KEYS_END}, flatten};

static td_node *mean(const td__layer *l, td_node *x)
{
    int axis = (int)td__layer_int(l, "axis");

    return td_mean(l->g, x, &axis, 1, false);
}
const td__layer_def td__layer_mean = {
    "mean",
    "the mean over one axis: (time, width) to (width)",
    {TD_KEY_ROW("axis", INT, "Axis, counted from 1, the first of a sample.", .lo = 1,
                .hi = TD_MAX_DIMS - 1, .def = "1")},
    mean};

static td_node *sum(const td__layer *l, td_node *x)
{
    int axis = (int)td__layer_int(l, "axis");

    return td_sum(l->g, x, &axis, 1, false);
}
const td__layer_def td__layer_sum = {
    "sum",
    "the sum over one axis: (fields, width) to (width)",
    {TD_KEY_ROW("axis", INT, "Axis, counted from 1, the first of a sample.", .lo = 1,
                .hi = TD_MAX_DIMS - 1, .def = "1")},
    sum};

/* Every pair once: sum_{i<j} v_i . v_j = (|sum_i v_i|^2 - sum_i |v_i|^2) / 2. */
static td_node *fm(const td__layer *l, td_node *x)
{
    td_shape s = x ? td_node_shape(x) : TD_SCALAR;
    int fields = 1;

    if (!x)
        return NULL;
    if (s.ndim != 3)
        return td__layer_fail(l, "expected (fields, width), found %d axes", s.ndim - 1);
    td_node *all = td_square(l->g, td_sum(l->g, x, &fields, 1, false));
    td_node *own = td_sum(l->g, td_square(l->g, x), &fields, 1, false);
    td_node *pairs = td_affine(l->g, td_sub(l->g, all, own), 0.5, 0); /* (rows, width) */
    return td_sum(l->g, pairs, &fields, 1, true);
}
const td__layer_def td__layer_fm = {
    "fm",
    "factorization machine: the products of all pairs of embeddings, (fields, width) to (1)",
    {TD_KEYS_END},
    fm};

static td_node *last(const td__layer *l, td_node *x)
{
    td_shape s = x ? td_node_shape(x) : TD_SCALAR;

    if (!x)
        return NULL;
    if (s.ndim != 3)
        return td__layer_fail(l, "expected (time, width), found %d axes", s.ndim - 1);
    return td_reshape(l->g, td_slice(l->g, x, 1, s.dim[1] - 1, s.dim[1], 1),
                      TD_SHAPE(s.dim[0], s.dim[2]));
}
const td__layer_def td__layer_last = {
    "last", "the last time step: (time, width) to (width)", {TD_KEYS_END}, last};

static td_node *reshape(const td__layer *l, td_node *x)
{
    const int64_t *dims;
    int n = td__keys_ints(l->arena, l->attrs, "shape", &dims);
    td_shape s = {.ndim = n + 1};

    if (!x)
        return NULL;
    if (n < 0 || n > TD_MAX_DIMS - 1)
        return td__layer_fail(l, "expected at most %d axes, found %d", TD_MAX_DIMS - 1, n);
    s.dim[0] = td_node_shape(x).dim[0];
    for (int i = 0; i < n; i++)
        s.dim[i + 1] = dims[i];
    return td_reshape(l->g, x, s);
}
const td__layer_def td__layer_reshape = {
    "reshape",
    "the same values in another shape",
    {TD_KEY_ROW("shape", INTS, "Shape of a sample; -1 is inferred.", .lo = -1, .hi = 1e12,
                .flags = TD_KEY_REQUIRED)},
    reshape};

static td_node *permute(const td__layer *l, td_node *x)
{
    const int64_t *axes;
    int n = td__keys_ints(l->arena, l->attrs, "axes", &axes), full[TD_MAX_DIMS] = {0};

    if (!x)
        return NULL;
    if (n != td_node_shape(x).ndim - 1)
        return td__layer_fail(l, "expected %d axes, found %d", td_node_shape(x).ndim - 1, n);
    for (int i = 0; i < n; i++)
        full[i + 1] = (int)axes[i];
    return td_permute(l->g, x, full);
}
const td__layer_def td__layer_permute = {
    "permute",
    "reorders the axes",
    {TD_KEY_ROW("axes", INTS, "All axes of a sample in their new order, counted from 1.", .lo = 1,
                .hi = TD_MAX_DIMS - 1, .flags = TD_KEY_REQUIRED)},
    permute};

static td_node *joined(const td__layer *l, td_node *x,
                       td_node *(*call)(td_graph *, td_node *, td_node *))
{
    for (const td__tree *t = td__tree_get(l->attrs, "with")->first; t && x; t = t->next)
        x = call(l->g, x, td__layer_tap(l, t));
    return x;
}
static td_node *add(const td__layer *l, td_node *x)
{
    return joined(l, x, td_add);
}
static td_node *mul(const td__layer *l, td_node *x)
{
    return joined(l, x, td_mul);
}
#define WITH \
    TD_KEY_ROW("with", TEXTS, "Names given by `as`, or data fields.", .flags = TD_KEY_REQUIRED)
const td__layer_def td__layer_add = {"add", "adds tapped values", {WITH}, add};
const td__layer_def td__layer_mul = {"mul", "multiplies by tapped values", {WITH}, mul};

static td_node *concat(const td__layer *l, td_node *x)
{
    td_node *xs[MAX_JOINED] = {x};
    int n = 1;

    for (const td__tree *t = td__tree_get(l->attrs, "with")->first; t; t = t->next) {
        if (n == MAX_JOINED)
            return td__layer_fail(l, "expected at most %d values", MAX_JOINED - 1);
        xs[n] = td__layer_tap(l, t);
        if (!xs[n++])
            return NULL;
    }
    return td_concat(l->g, xs, n, (int)td__layer_int(l, "axis"));
}
const td__layer_def td__layer_concat = {
    "concat",
    "concatenates its input and tapped values",
    {WITH, TD_KEY_ROW("axis", INT, "Axis, counted from 1, the first of a sample (channels).",
                      .lo = 1, .hi = TD_MAX_DIMS - 1, .def = "1")},
    concat};

#define LAYERS TD_KEY_ROW("layers", TREE, "A list of layers.", .flags = TD_KEY_REQUIRED)

static td_node *residual(const td__layer *l, td_node *x)
{
    td_node *skip = x;

    if (td__tree_get(l->attrs, "shortcut")) {
        char *prefix = td__arena_printf(l->arena, "%s.shortcut", l->name);
        skip = prefix ? td__layer_inner(l, "shortcut", prefix, x) : NULL;
    }
    return td__act_apply(l->g, td__keys_text(l->attrs, "act"),
                         td_add(l->g, td__layer_inner(l, "layers", l->name, x), skip));
}
const td__layer_def td__layer_residual = {
    "residual",
    "residual block: its input plus the output of its layers",
    {LAYERS, TD_KEY_ROW("shortcut", TREE, "Layers on the shortcut, where shapes differ."),
     TD_KEY_ACT},
    residual};

static td_node *repeat(const td__layer *l, td_node *x)
{
    int64_t times = td__layer_int(l, "times");

    for (int64_t i = 0; i < times && x; i++) {
        char *prefix = td__arena_printf(l->arena, "%s.%lld", l->name, (long long)i);
        x = prefix ? td__layer_inner(l, "layers", prefix, x) : td__layer_fail(l, "out of memory");
    }
    return x;
}
const td__layer_def td__layer_repeat = {"repeat",
                                        "repeats its layers, each repetition with its own weights",
                                        {TD_KEY_ROW("times", INT, "Number of repetitions.", .lo = 1,
                                                    .hi = 1000, .flags = TD_KEY_REQUIRED),
                                         LAYERS},
                                        repeat};

static td_node *use(const td__layer *l, td_node *x)
{
    return td__layer_inner(l, "layers", l->name, x);
}
const td__layer_def td__layer_use = {
    "use",
    "the layers of a named block (`define`), with weights of their own",
    {TD_KEY_ROW("block", TEXT, "Its name in `define`.", .flags = TD_KEY_REQUIRED),
     TD_KEY_ROW("layers", TREE, "Filled in from `define`.")},
    use};

static td_node *identity(const td__layer *l, td_node *x)
{
    (void)l;
    return x;
}
const td__layer_def td__layer_identity = {
    "identity", "its input; with `from`, the start of a branch", {TD_KEYS_END}, identity};
