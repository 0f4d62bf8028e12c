/* Random graphs: whatever a user may put together, the optimised program on the CPU backend gives
 * the numbers of the graph run as written by the reference kernels.
 *
 * A seed makes a graph: a pool of values starts with a few inputs and params, and each step takes
 * values from it, applies an operator of random attributes and puts the result back. Values are
 * kept of size about one, so that errors of rounding stay small; operators whose gradients jump
 * (sign, floor) are left out.
 *     test_fuzz_graphs [first seed [number of seeds]]       one seed prints its graph */
/* SPDX-License-Identifier: Apache-2.0 */
/* Test labels: one-thread */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/check.h"
#include "tandem/tandem.h"

enum { MAX_POOL = 64, MAX_INPUTS = 16, MAX_OUTPUTS = 4, MAX_COUNT = 2048 };

static unsigned long first_seed = 1, n_seeds = 300;

typedef struct fuzz {
    td_graph *g;
    uint64_t random;
    td_node *pool[MAX_POOL];
    int n_pool;
    td_node *inputs[MAX_INPUTS]; /* floating */
    int n_inputs;
    td_node *outputs[MAX_OUTPUTS];
    td_node *loss;
    int n_names;
} fuzz;

/* ---- Choices --------------------------------------------------------------------------------- */

/* A number of [0, n). */
static int pick(fuzz *f, int n)
{
    f->random += 0x9E3779B97F4A7C15u; /* splitmix64 */
    uint64_t z = f->random;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (int)((z ^ (z >> 31)) >> 33) % n;
}

static bool coin(fuzz *f)
{
    return pick(f, 2);
}

static const char *new_name(fuzz *f, const char *kind)
{
    static char name[32];
    snprintf(name, sizeof name, "%s%d", kind, f->n_names++);
    return name;
}

static td_node *param(fuzz *f, td_shape s)
{
    double scale = s.ndim > 1 ? 1 / sqrt((double)td_shape_count(&s) / (double)s.dim[0]) : 1;
    return td_param(f->g, new_name(f, "p"), s, (td_init){TD_INIT_UNIFORM, -scale, scale, false});
}

static td_node *input(fuzz *f, td_shape s)
{
    if (f->n_inputs == MAX_INPUTS)
        return param(f, s);
    return f->inputs[f->n_inputs++] = td_input(f->g, new_name(f, "x"), TD_F32, s);
}

static td_node *constant(fuzz *f, td_shape s)
{
    float v[MAX_COUNT];
    int64_t count = td_shape_count(&s);
    for (int64_t i = 0; i < count; i++)
        v[i] = (float)pick(f, 5) / 2 - 1; /* zeros and ones among them */
    return td_constant(f->g, TD_F32, s, v);
}

static td_node *leaf(fuzz *f, td_shape s)
{
    switch (pick(f, 3)) {
    case 0: return input(f, s);
    case 1: return constant(f, s);
    default: return param(f, s);
    }
}

static td_node *any(fuzz *f)
{
    return f->pool[pick(f, f->n_pool)];
}

/* A value with this many axes; NULL if a few tries find none. */
static td_node *with_ndim(fuzz *f, int lo, int hi)
{
    for (int i = 0; i < 12; i++) {
        td_node *n = any(f);
        int ndim = td_node_shape(n).ndim;
        if (ndim >= lo && ndim <= hi)
            return n;
    }
    return NULL;
}

/* A shape that broadcasts to s. */
static td_shape narrower(fuzz *f, td_shape s)
{
    td_shape r = {.ndim = 0};
    int drop = coin(f) ? 0 : pick(f, s.ndim + 1);
    for (int i = drop; i < s.ndim; i++)
        r.dim[r.ndim++] = pick(f, 3) ? s.dim[i] : 1;
    return r;
}

/* ---- Operators ------------------------------------------------------------------------------- */

static td_node *one_input(fuzz *f)
{
    td_graph *g = f->g;
    td_node *x = any(f);
    switch (pick(f, 23)) {
    case 0: return td_relu(g, x);
    case 1: return td_gelu(g, x);
    case 2: return td_gelu_tanh(g, x);
    case 3: return td_silu(g, x);
    case 4: return td_sigmoid(g, x);
    case 5: return td_tanh(g, x);
    case 6: return td_softplus(g, x);
    case 7: return td_sin(g, x);
    case 8: return td_cos(g, x);
    case 9: return td_erf(g, x);
    case 10: return td_square(g, td_tanh(g, x));
    case 11: return td_neg(g, x);
    case 12: return td_abs(g, x);
    case 13: return td_affine(g, x, pick(f, 3) - 1, pick(f, 2));
    case 14: return td_clamp(g, x, -0.7, coin(f) ? 0.9 : 4);
    case 15: return td_leaky_relu(g, x, 0.1);
    case 16: return td_exp(g, td_tanh(g, x));
    case 17: return td_log(g, td_affine(g, td_square(g, x), 1, 1));
    case 18: return td_sqrt(g, td_affine(g, td_abs(g, x), 1, 0.5));
    case 19: return td_rsqrt(g, td_affine(g, td_square(g, x), 1, 0.5));
    case 20: return td_reciprocal(g, td_affine(g, td_sigmoid(g, x), 1, 0.5));
    case 21: return td_dropout(g, x, coin(f) ? 0.3 : 0);
    default: return td_cast(g, x, TD_F32);
    }
}

static td_node *two_inputs(fuzz *f)
{
    td_graph *g = f->g;
    td_node *a = any(f), *b = NULL;
    td_shape sa = td_node_shape(a);
    for (int i = 0; i < 6 && !b; i++) {
        td_node *n = any(f);
        td_shape s = td_node_shape(n);
        if (td_shape_equal(&s, &sa) || td_shape_count(&s) == 1)
            b = n;
    }
    if (!b || !pick(f, 3))
        b = leaf(f, narrower(f, sa));
    td_node *pair[] = {a, b};
    a = pair[coin(f)];
    b = a == pair[0] ? pair[1] : pair[0];
    switch (pick(f, 9)) {
    case 0: return td_sub(g, a, b);
    case 1: return td_mul(g, a, b);
    case 2: return td_div(g, a, td_affine(g, td_sigmoid(g, b), 1, 0.5));
    case 3: return td_maximum(g, a, b);
    case 4: return td_minimum(g, a, b);
    case 5: return td_where(g, td_less(g, a, b), a, td_neg(g, b));
    case 6: return td_pow(g, td_affine(g, td_sigmoid(g, a), 1, 0.5), td_tanh(g, b));
    case 7: return td_relu(g, td_add(g, a, b));
    default: return td_add(g, a, b);
    }
}

static td_node *product(fuzz *f)
{
    td_graph *g = f->g;
    td_node *x = with_ndim(f, 1, 6);
    if (!x)
        return NULL;
    td_shape s = td_node_shape(x);
    int64_t k = s.dim[s.ndim - 1], n = 1 + pick(f, 9);
    if (s.ndim >= 2 && !pick(f, 3)) { /* x x^T, or x^T x, of size one */
        bool ta = coin(f);
        double count = (double)(ta ? s.dim[s.ndim - 2] : k);
        return td_affine(g, td_matmul(g, x, x, ta, !ta), 1 / sqrt(count), 0);
    }
    if (s.ndim >= 2 && coin(f)) {
        bool tb = coin(f);
        return td_matmul(g, x, param(f, tb ? TD_SHAPE(n, k) : TD_SHAPE(k, n)), false, tb);
    }
    td_node *b = coin(f) ? param(f, TD_SHAPE(n)) : NULL;
    td_node *y = td_linear(g, x, param(f, TD_SHAPE(n, k)), b,
                           coin(f) ? TD_ACT_NONE : (td_act)pick(f, TD_ACT_COUNT));
    return coin(f) ? td_relu(g, y) : y;
}

static td_node *image(fuzz *f)
{
    td_graph *g = f->g;
    td_node *x = with_ndim(f, 4, 4);
    if (!x)
        return NULL;
    td_shape s = td_node_shape(x);
    int64_t c = s.dim[1];
    int size = 1 + pick(f, 3);
    if (size > s.dim[2] || size > s.dim[3])
        size = 1;
    int pad = size > 1 ? pick(f, 2) : 0, stride = 1 + pick(f, 2);
    switch (pick(f, 6)) {
    case 0:
        return td_max_pool2d(g, x,
                             &(td_pool2d_opts){{size, size}, {stride, 1}, {pad && size > 1, 0}});
    case 1: return td_avg_pool2d(g, x, &(td_pool2d_opts){{size, 1}, {0}, {0}});
    case 2: return pick(f, 3) ? NULL : td_global_avg_pool(g, x);
    default: {
        int groups = c % 2 == 0 && coin(f) ? (coin(f) ? (int)c : 2) : 1;
        int64_t out = groups * (1 + pick(f, 3));
        int dilation = size > 1 && s.dim[2] > 2 * size && s.dim[3] > 2 * size ? 1 + pick(f, 2) : 1;
        td_node *w = param(f, TD_SHAPE(out, c / groups, size, size));
        td_node *y =
            td_conv2d(g, x, w, coin(f) ? param(f, TD_SHAPE(out)) : NULL,
                      &(td_conv2d_opts){{stride, 1}, {pad, pad}, {dilation, dilation}, groups});
        return coin(f) ? td_relu(g, y) : y;
    }
    }
}

/* Large eps: a row of equal values would blow its rounding errors up. */
static td_node *norm(fuzz *f)
{
    td_graph *g = f->g;
    const td_init zeros = {.kind = TD_INIT_ZEROS}, ones = {.kind = TD_INIT_ONES};
    td_node *x = with_ndim(f, 2, 6);
    if (!x)
        return NULL;
    td_shape s = td_node_shape(x), last = TD_SHAPE(s.dim[s.ndim - 1]), ch = TD_SHAPE(s.dim[1]);
    switch (pick(f, 6)) {
    case 0: return td_layer_norm(g, x, param(f, last), param(f, last), 0.1);
    case 1: return td_rms_norm(g, x, param(f, last), 0.1);
    case 2: return td_softmax(g, x);
    case 3: return td_affine(g, td_log_softmax(g, x), 0.3, 0);
    case 4:
        if (s.ndim != 4)
            return NULL;
        return td_group_norm(g, x, param(f, ch), param(f, ch), s.dim[1] % 2 ? 1 : 2, 0.1);
    default: {
        td_node *mean = NULL, *var = NULL;
        if (coin(f)) {
            mean = td_state(g, new_name(f, "mean"), ch, zeros);
            var = td_state(g, new_name(f, "var"), ch, ones);
        }
        td_node *y = td_batch_norm(g, x, param(f, ch), param(f, ch), mean, var, 0.1, 0.1);
        if (coin(f))
            y = coin(f) ? td_add(g, x, y) : td_add(g, y, x);
        return coin(f) ? td_relu(g, y) : y;
    }
    }
}

static td_node *reduction(fuzz *f)
{
    td_node *x = with_ndim(f, 1, 6);
    if (!x)
        return NULL;
    td_shape s = td_node_shape(x);
    int axes[TD_MAX_DIMS], n = 0;
    for (int i = 0; i < s.ndim; i++)
        if (!pick(f, 3))
            axes[n++] = coin(f) ? i : i - s.ndim;
    bool keep = coin(f);
    switch (pick(f, 4)) {
    case 0: return td_affine(f->g, td_sum(f->g, x, axes, n, keep), 0.2, 0);
    case 1: return td_max(f->g, x, axes, n, keep);
    case 2: return td_log(f->g, td_affine(f->g, td_norm(f->g, x, axes, n, keep), 1, 1));
    default: return td_mean(f->g, x, axes, n, keep);
    }
}

static td_node *reshape(fuzz *f, td_node *x)
{
    td_shape s = {.ndim = 0};
    td_shape from = td_node_shape(x);
    int64_t left = td_shape_count(&from);
    int ndim = 1 + pick(f, 4);
    for (int i = 0; i < ndim - 1; i++) {
        int64_t d = 1 + pick(f, 4);
        s.dim[s.ndim++] = left % d ? 1 : d;
        left /= s.dim[i];
    }
    s.dim[s.ndim++] = coin(f) ? -1 : left;
    return td_reshape(f->g, x, s);
}

static td_node *pieces(fuzz *f, td_node *x, int axis)
{
    td_graph *g = f->g;
    int64_t size = td_node_shape(x).dim[axis];
    td_node *part[4];
    int n = 0;
    for (int64_t at = 0; at < size && n < 4; n++) { /* slices that tile the axis */
        int64_t stop = n == 3 ? size : at + 1 + pick(f, (int)(size - at));
        part[n] = td_slice(g, x, axis, at, stop, 1);
        at = stop;
    }
    for (int i = 0; i < n; i++)
        part[i] = coin(f) ? td_tanh(g, part[i]) : part[i];
    if (coin(f) && n > 1) {
        td_node *t = part[0];
        part[0] = part[n - 1];
        part[n - 1] = t;
    }
    return td_concat(g, part, pick(f, 4) ? n : 1, coin(f) ? axis : axis - td_node_shape(x).ndim);
}

static td_node *move(fuzz *f)
{
    td_graph *g = f->g;
    td_node *x = with_ndim(f, 1, 6);
    if (!x)
        return NULL;
    td_shape s = td_node_shape(x);
    int axis = pick(f, s.ndim);
    switch (pick(f, 6)) {
    case 0: return reshape(f, x);
    case 1: {
        int axes[TD_MAX_DIMS];
        for (int i = 0; i < s.ndim; i++)
            axes[i] = i;
        for (int i = s.ndim - 1; i > 0; i--) {
            int k = pick(f, i + 1), t = axes[i];
            axes[i] = axes[k];
            axes[k] = t;
        }
        return td_permute(g, x, axes);
    }
    case 2: return td_slice(g, x, axis, 0, s.dim[axis], 1 + pick(f, 2));
    case 3: return pieces(f, x, axis);
    case 4: {
        int64_t before[TD_MAX_DIMS] = {0}, after[TD_MAX_DIMS] = {0};
        before[axis] = pick(f, 2);
        after[axis] = pick(f, 2);
        return td_pad(g, x, before, after, coin(f) ? 0 : 0.5);
    }
    default: {
        td_shape wide = s;
        for (int i = 0; i < s.ndim; i++)
            if (s.dim[i] == 1)
                wide.dim[i] = 1 + pick(f, 3);
        return td_expand(g, x, wide);
    }
    }
}

static td_node *ids(fuzz *f, td_shape s, int below)
{
    int32_t v[256];
    int64_t count = td_shape_count(&s);
    for (int64_t i = 0; i < count; i++)
        v[i] = pick(f, below);
    return td_constant(f->g, TD_I32, s, v);
}

static td_node *rare(fuzz *f)
{
    td_graph *g = f->g;
    switch (pick(f, 5)) {
    case 0: { /* a small table and many ids: the product may go first */
        int rows = 1 + pick(f, 6);
        td_node *table = param(f, TD_SHAPE(rows, 4));
        td_shape s = coin(f) ? TD_SHAPE(12) : TD_SHAPE(3, 5);
        td_node *y = td_embedding(g, ids(f, s, rows), table, false);
        return coin(f) ? td_linear(g, y, param(f, TD_SHAPE(3, 4)), param(f, TD_SHAPE(3)),
                                   (td_act)pick(f, TD_ACT_COUNT))
                       : y;
    }
    case 1: {
        td_node *x = with_ndim(f, 4, 4);
        return x ? td_attention(g, x, x, coin(f) ? x : td_tanh(g, x), NULL,
                                &(td_attention_opts){.causal = coin(f)})
                 : NULL;
    }
    case 2:
    case 3: {
        td_node *x = with_ndim(f, 3, 3);
        if (!x)
            return NULL;
        int64_t in = td_node_shape(x).dim[2], b = td_node_shape(x).dim[1], h = 1 + pick(f, 5);
        bool lstm = coin(f), first = coin(f);
        int64_t n = lstm ? 4 * h : 3 * h;
        td_node *w = param(f, TD_SHAPE(n, in)), *u = param(f, TD_SHAPE(n, h));
        td_node *p = param(f, TD_SHAPE(n)), *q = param(f, TD_SHAPE(n)), *last;
        td_node *h0 = first ? leaf(f, TD_SHAPE(b, h)) : NULL;
        td_node *y = lstm ? td_lstm(g, x, h0, first ? leaf(f, TD_SHAPE(b, h)) : NULL, w, u, p, q,
                                    &last, NULL)
                          : td_gru(g, x, h0, w, u, p, q, &last);
        return coin(f) ? last : y;
    }
    default: {
        td_node *x = with_ndim(f, 2, 2);
        if (!x)
            return NULL;
        td_shape s = td_node_shape(x);
        int axis = pick(f, 2);
        td_shape at = s;
        at.dim[axis] = 1 + pick(f, 3);
        if (td_shape_count(&at) > 256)
            return NULL;
        return td_gather(g, x, ids(f, at, (int)s.dim[axis]), axis);
    }
    }
}

static void grow(fuzz *f)
{
    static td_node *(*const MAKE[])(fuzz *) = {one_input, one_input, two_inputs, two_inputs,
                                               product,   image,     image,      norm,
                                               reduction, move,      move,       rare};
    td_node *n = MAKE[pick(f, (int)(sizeof MAKE / sizeof *MAKE))](f);
    CHECK_OK(td_graph_status(f->g));
    if (!n)
        return;
    td_shape s = td_node_shape(n);
    int64_t count = td_shape_count(&s);
    if (count >= 1 && count <= MAX_COUNT)
        f->pool[f->n_pool++] = n;
}

static void generate(fuzz *f, unsigned long seed)
{
    f->random = seed;
    CHECK_OK(td_graph_create(&f->g));
    int64_t b = 1 + pick(f, 4);
    f->pool[f->n_pool++] = input(f, TD_SHAPE(b, 1 + pick(f, 9)));
    f->pool[f->n_pool++] = input(f, TD_SHAPE(b, 1 + pick(f, 6), 3 + pick(f, 6), 3 + pick(f, 6)));
    f->pool[f->n_pool++] = input(f, TD_SHAPE(2 + pick(f, 3), b, 1 + pick(f, 8)));
    f->pool[f->n_pool++] = param(f, TD_SHAPE(b, 1 + pick(f, 9)));
    int steps = 4 + pick(f, 20);
    for (int i = 0; i < steps; i++)
        grow(f);
    /* The loss reads the newest values and one more; outputs may be anything. */
    for (int i = 0; i < 3; i++) {
        td_node *n = i < 2 ? f->pool[f->n_pool - 1 - i] : any(f);
        td_node *term = td_mean(f->g, td_square(f->g, td_tanh(f->g, n)), NULL, 0, false);
        f->loss = f->loss ? td_add(f->g, f->loss, term) : term;
    }
    for (int i = 0; i < MAX_OUTPUTS; i++)
        f->outputs[i] = any(f);
    CHECK_OK(td_graph_status(f->g));
}

/* ---- Comparison ------------------------------------------------------------------------------ */

typedef struct result {
    td_program *p;
    td_params *ps;
    td_runner *r;
} result;

static result run(const fuzz *f, td_program_opts o)
{
    result t = {0};
    o.outputs = f->outputs;
    o.n_outputs = MAX_OUTPUTS;
    if (!o.evaluate) {
        o.grad_inputs = f->inputs;
        o.n_grad_inputs = f->n_inputs;
    }
    CHECK_OK(td_program_create(f->g, f->loss, &o, &t.p));
    CHECK_OK(td_params_create(t.p, 5, &t.ps));
    CHECK_OK(td_runner_create(t.p, t.ps, &t.r));
    uint32_t random = 1;
    for (int i = 0; i < f->n_inputs; i++) {
        size_t nbytes;
        float *x = td_runner_input(t.r, td_node_name(f->inputs[i]), &nbytes);
        for (size_t k = 0; k < nbytes / sizeof *x; k++) {
            random = random * 1664525u + 1013904223u;
            x[k] = (float)(random >> 8) / (float)(1 << 23) - 1;
        }
    }
    for (unsigned k = 0; k < 2; k++) /* the second run must not see the first */
        CHECK_OK(td_runner_run(t.r, (td_run_key){.seed = 3, .step = 1}));
    if (!o.evaluate)
        td_runner_update_states(t.r);
    return t;
}

static void drop(result *t)
{
    td_runner_destroy(t->r);
    td_params_destroy(t->ps);
    td_program_destroy(t->p);
}

typedef struct distance {
    double diff, norm;
} distance;

static void add_values(distance *d, const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        d->diff += pow((double)a[i] - (double)b[i], 2);
        d->norm += pow((double)a[i], 2);
    }
}

static void check_near(unsigned long seed, const char *what, const char *name, distance d)
{
    double far = sqrt(d.diff) / (sqrt(d.norm) + 0.01); /* tiny sums are rounding errors */
    CHECK(far <= 2e-4, "seed %lu, %s: %s differ by %g of %g", seed, what, name, far, sqrt(d.norm));
}

static void compare(const fuzz *f, unsigned long seed, const char *what, result *a, result *b,
                    bool grads)
{
    float la = td_runner_loss(a->r), lb = td_runner_loss(b->r);
    distance loss = {0};
    add_values(&loss, &la, &lb, 1);
    check_near(seed, what, "losses", loss);
    for (int i = 0; i < MAX_OUTPUTS; i++) {
        size_t na, nb;
        distance d = {0};
        const float *va = td_runner_output(a->r, i, &na), *vb = td_runner_output(b->r, i, &nb);
        CHECK(va && vb && na == nb, "seed %lu: output %d", seed, i);
        add_values(&d, va, vb, na / sizeof(float));
        check_near(seed, what, "outputs", d);
    }
    distance all = {0};
    for (int i = 0; grads && i < f->n_inputs; i++) {
        size_t na, nb;
        const float *va = td_runner_grad_input(a->r, i, &na);
        const float *vb = td_runner_grad_input(b->r, i, &nb);
        CHECK(va && vb && na == nb, "seed %lu: gradient of input %d", seed, i);
        add_values(&all, va, vb, na / sizeof(float));
    }
    check_near(seed, what, "inputs' gradients", all);
    distance params = {0}, states = {0};
    for (int i = 0; grads && i < td_params_count(a->ps); i++) {
        td_param_info ia = td_params_info(a->ps, i);
        td_param_info ib = td_params_info(b->ps, td_params_find(b->ps, ia.name));
        if (ia.is_state)
            add_values(&states, td_params_block(a->ps, NULL) + ia.offset,
                       td_params_block(b->ps, NULL) + ib.offset, ia.count);
        else
            add_values(&params, td_runner_grads(a->r, NULL) + ia.offset,
                       td_runner_grads(b->r, NULL) + ib.offset, ia.count);
    }
    check_near(seed, what, "params' gradients", params);
    check_near(seed, what, "states", states);
}

TEST(optimised_programs_agree_with_graphs_as_written)
{
    static const struct {
        const char *name;
        td_program_opts opts;
    } CASES[] = {
        {"ref with rewrites", {.backend = "ref"}},
        {"cpu", {.backend = "cpu"}},
        {"cpu without rewrites", {.backend = "cpu", .no_rewrites = true}},
        {"cpu without reuse", {.backend = "cpu", .no_reuse = true}},
    };
    for (unsigned long seed = first_seed; seed < first_seed + n_seeds; seed++) {
        fuzz f = {0};
        generate(&f, seed);
        if (n_seeds == 1)
            CHECK_OK(td_graph_write_text(f.g, stdout));
        result want = run(&f, (td_program_opts){.backend = "ref", .no_rewrites = true});
        for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
            result got = run(&f, CASES[i].opts);
            if (n_seeds == 1)
                CHECK_OK(td_program_write_text(got.p, stdout));
            compare(&f, seed, CASES[i].name, &want, &got, true);
            drop(&got);
        }
        drop(&want);
        td_program_opts eval = {.backend = "ref", .no_rewrites = true, .evaluate = true};
        result slow = run(&f, eval), fast = run(&f, (td_program_opts){.evaluate = true});
        compare(&f, seed, "cpu, evaluation", &slow, &fast, false);
        drop(&slow);
        drop(&fast);
        td_graph_destroy(f.g);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        first_seed = strtoul(argv[1], NULL, 10);
        n_seeds = argc > 2 ? strtoul(argv[2], NULL, 10) : 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(optimised_programs_agree_with_graphs_as_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
