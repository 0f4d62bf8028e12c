/* program.c -- from a graph to a plan: rewrites, autodiff, slots, memory, kernels. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/fail.h"
#include "graph/lone_norm.h"
#include "graph/phases.h"
#include "graph/program_impl.h"
#include "graph/rewrite.h"
#include "graph/rewrites/rewrite_tensor.h"

/* ---- 1. The graph ---------------------------------------------------------------------------- */

/* Replace *g by what `pass` makes of it. */
static td_status apply(td_graph **g, td__rewrite_fn *pass)
{
    td_graph *next;
    TD_TRY(pass(*g, &next));
    td_graph_destroy(*g);
    *g = next;
    return td_graph_verify(next);
}

static td_status apply_all(td_graph **g, td__rewrite_fn *const *passes, int n)
{
    for (int i = 0; i < n; i++)
        TD_TRY(apply(g, passes[i]));
    return TD_OK;
}

static td_status check_node(const td_graph *g, const td_node *n, const char *what)
{
    if (!n || !td__graph_owns(g, n))
        return TD_FAIL(TD_EINVAL, "td_program_create: %s is not a node of this graph", what);
    return TD_OK;
}

static td_status check_request(const td_graph *g, const td_node *loss, const td_program_opts *o)
{
    if (g->status)
        return TD_FAIL(g->status, "%s", g->error);
    if (o->precision != TD_F32 && o->precision != TD_BF16)
        return TD_FAIL(TD_EINVAL, "td_program_create: precision %s; f32 and bf16 are possible",
                       td_dtype_name(o->precision));
    if (o->n_outputs < 0 || (o->n_outputs && !o->outputs))
        return TD_FAIL(TD_EINVAL, "td_program_create: %d outputs, list %s", o->n_outputs,
                       o->outputs ? "given" : "NULL");
    if (o->n_grad_inputs < 0 || (o->n_grad_inputs && !o->grad_inputs))
        return TD_FAIL(TD_EINVAL, "td_program_create: %d inputs want gradients, list %s",
                       o->n_grad_inputs, o->grad_inputs ? "given" : "NULL");
    if (!loss && !o->evaluate)
        return TD_FAIL(TD_EINVAL, "td_program_create: a training program needs a loss");
    if (!loss && o->n_outputs == 0)
        return TD_FAIL(TD_EINVAL, "td_program_create: nothing to compute: no loss, no outputs");
    if (loss) {
        TD_TRY(check_node(g, loss, "the loss"));
        char text[160];
        if (td__desc_count(&loss->out[0]) != 1 || !td_dtype_is_float(loss->out[0].dtype))
            return TD_FAIL(TD_EINVAL,
                           "td_program_create: the loss '%s' is %s; one number is needed",
                           loss->name, td__desc_text(&loss->out[0], text, sizeof text));
    }
    for (int i = 0; i < o->n_outputs; i++)
        TD_TRY(check_node(g, o->outputs[i], "an output"));
    for (int i = 0; i < o->n_grad_inputs; i++) {
        TD_TRY(check_node(g, o->grad_inputs[i], "an input whose gradient is wanted"));
        if (o->grad_inputs[i]->op != TD_OP_INPUT ||
            !td_dtype_is_float(o->grad_inputs[i]->out[0].dtype))
            return TD_FAIL(TD_EINVAL, "td_program_create: '%s' is not a floating input",
                           o->grad_inputs[i]->name);
    }
    return TD_OK;
}

/* A copy of g whose roots are what was asked for. */
static td_status copy_request(const td_graph *g, const td_node *loss, const td_program_opts *o,
                              td_graph **out)
{
    td__rewriter rw;
    TD_TRY(td__rewrite_begin(&rw, g));
    for (int i = 0; i < g->n_nodes; i++)
        td__rewrite_copy(&rw, td__rewrite_visit(&rw, i));
    if (loss)
        td__graph_add_root(rw.to, (td__root){.kind = TD_ROOT_LOSS, .node = rw.map[loss->id]});
    for (int i = 0; i < o->n_outputs; i++)
        td__graph_add_root(
            rw.to,
            (td__root){.kind = TD_ROOT_OUTPUT, .index = i, .node = rw.map[o->outputs[i]->id]});
    return td__rewrite_end(&rw, out);
}

/* Autodiff on *g; the wanted inputs are found again by name. */
static td_status differentiate(td_graph *g, const td_program_opts *o)
{
    td_node **inputs = td__calloc((size_t)o->n_grad_inputs + 1, sizeof(td_node *));
    if (!inputs)
        return TD_FAIL(TD_ENOMEM, "no memory for a list of inputs");
    for (int i = 0; i < o->n_grad_inputs; i++)
        for (int k = 0; k < g->n_nodes && !inputs[i]; k++) /* other nodes may have the same name */
            if (g->nodes[k]->op == TD_OP_INPUT &&
                strcmp(g->nodes[k]->name, o->grad_inputs[i]->name) == 0)
                inputs[i] = g->nodes[k];
    td_status st = td__autodiff(g, inputs, o->n_grad_inputs);
    td__free(inputs);
    return st;
}

static td_status cut_products(td_graph **g, const td__tensor_cut *cut)
{
    td_graph *next;
    if (!cut || (!cut->of && cut->pieces < 2))
        return TD_OK;
    TD_TRY(cut->of ? td__rewrite_packed(*g, cut->of, &next) : td__rewrite_tensor(*g, cut, &next));
    td_graph_destroy(*g);
    *g = next;
    return td_graph_verify(next);
}

static td_status transform(td_graph **g, const td_program_opts *o, const td__tensor_cut *cut,
                           const td_backend *backend, bool phased)
{
    static td__rewrite_fn *const FORWARD[] = {td__rewrite_fold, td__rewrite_merge,
                                              td__rewrite_lookup, td__rewrite_epilogue,
                                              td__rewrite_prune};
    static td__rewrite_fn *const WHOLE[] = {td__rewrite_fold, td__rewrite_merge,
                                            td__rewrite_unsplit, td__rewrite_prune};
    if (o->evaluate)
        TD_TRY(apply(g, td__rewrite_evaluate));
    TD_TRY(apply(g, td__rewrite_prune));
    if (o->precision == TD_BF16)
        TD_TRY(apply(g, td__rewrite_bf16));
    if (!o->evaluate && td__graph_sync_norm(*g))
        TD_TRY(apply(g, td__rewrite_sync_norm));
    TD_TRY(cut_products(g, cut));
    if (!o->no_rewrites)
        TD_TRY(apply_all(g, FORWARD, TD_LEN(FORWARD)));
    if (!o->no_rewrites && backend->ops->wants_one_pass)
        TD_TRY(apply(g, td__rewrite_joined));
    if (!o->evaluate)
        TD_TRY(differentiate(*g, o));
    if (!o->no_rewrites)
        TD_TRY(apply_all(g, WHOLE, TD_LEN(WHOLE)));
    if (!o->no_rewrites && backend->ops->wants_one_pass)
        TD_TRY(apply(g, td__rewrite_one_pass));
    if (!o->no_rewrites && backend->ops->wants_nhwc)
        TD_TRY(apply(g, td__rewrite_nhwc));
    if (!o->no_rewrites)
        TD_TRY(apply(g, td__rewrite_elementwise));
    TD_TRY(apply(g, td__rewrite_prune));
    if (!o->no_rewrites && backend->ops->wants_one_pass)
        TD_TRY(apply(g, phased ? td__rewrite_classifier_parts : td__rewrite_classifier));
    if (cut && cut->sequence && cut->ranks > 1) {
        TD_TRY(apply(g, td__rewrite_scatter));
        TD_TRY(apply(g, td__rewrite_regather));
    }
    TD_TRY(td__own_gradients(*g));
    td__settle_phases(*g);
    return td_graph_verify(*g);
}

/* ---- 2. Slots: params in the order in which their gradients become final --------------------- *
 *
 * The order is that of autodiff, found before nodes are moved by a schedule: the norm of all
 * gradients is summed in the order of slots, and must not depend on when they are made. */

typedef struct ranked {
    td__slot slot;
    int rank;
} ranked;

static int by_rank(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return x->slot.leaf->id - y->slot.leaf->id;
}

/* Dense params by the position of their gradient, params without one, sparse ones, states. */
static ranked rank_leaf(const td_node *leaf)
{
    ranked r = {.slot = {.leaf = leaf, .is_state = leaf->op == TD_OP_STATE}, .rank = INT_MAX - 2};
    if (r.slot.is_state)
        r.rank = INT_MAX;
    return r;
}

static void rank_root(ranked *r, const td__root *root)
{
    int k;
    if (root->kind == TD_ROOT_PARAM_GRAD)
        r->rank = td__view_base(root->node, &k)->id;
    if (root->kind == TD_ROOT_SPARSE_GRAD) {
        r->rank = INT_MAX - 1;
        r->slot.sparse = true;
    }
    if (root->kind == TD_ROOT_TRACK)
        r->slot.weight = root->weight;
}

static td_status make_slots(td_program *p)
{
    const td_graph *g = p->g;
    ranked *list = td__calloc((size_t)g->n_nodes + 1, sizeof *list); /* by node id, then sorted */
    p->slots = td__calloc((size_t)g->n_nodes + 1, sizeof *p->slots);
    if (!list || !p->slots) {
        td__free(list);
        return TD_FAIL(TD_ENOMEM, "no memory for a list of params");
    }
    for (int i = 0; i < g->n_nodes; i++)
        if (g->nodes[i]->op == TD_OP_PARAM || g->nodes[i]->op == TD_OP_STATE)
            list[i] = rank_leaf(g->nodes[i]);
    for (int i = 0; i < g->n_roots; i++)
        if (g->roots[i].leaf)
            rank_root(&list[g->roots[i].leaf->id], &g->roots[i]);
    for (int i = 0; i < g->n_nodes; i++)
        if (list[i].slot.leaf)
            list[p->n_slots++] = list[i];
    qsort(list, (size_t)p->n_slots, sizeof *list, by_rank);
    for (int i = 0; i < p->n_slots; i++)
        p->slots[i] = list[i].slot;
    td__free(list);
    return TD_OK;
}

static void lay_out_slots(td_program *p)
{
    for (int i = 0; i < p->n_slots; i++) {
        td__slot *slot = &p->slots[i];
        size_t count = td__align_up((size_t)td__desc_count(&slot->leaf->out[0]), TD_ALIGN_FLOATS);
        slot->offset = p->trainable + p->states;
        *(slot->is_state ? &p->states : &p->trainable) += count;
        if (!p->evaluate && !slot->sparse)
            p->space_bytes[TD_SPACE_GRAD] += count * sizeof(float);
    }
    p->space_bytes[TD_SPACE_PARAM] = (p->trainable + p->states) * sizeof(float);
}

/* ---- 3. Kernels ------------------------------------------------------------------------------ */

/* Does s pack all that k packs? A kernel may pack more than its weights: a bias, too. */
static bool packs_as(const td__step *s, const td__step *k)
{
    for (int i = 0; i < k->node->n_in; i++)
        if (k->kernel.packs >> i & 1 &&
            (!(s->kernel.packs >> i & 1) || s->node->in[i] != k->node->in[i]))
            return false;
    return true;
}

/* Where the step's packed weights lie: where an earlier one has the same, else behind all. */
static void place_packed(td_program *p, td__step *step)
{
    const td_kernel *k = &step->kernel;
    for (const td__step *s = p->steps; k->packing && s < step; s++)
        if (s->kernel.packing && strcmp(s->kernel.packing, k->packing) == 0 &&
            s->node->in[1] == step->node->in[1] && packs_as(s, step) &&
            s->kernel.packed >= k->packed) {
            step->packed_offset = s->packed_offset;
            step->packed_before = true;
            return;
        }
    step->packed_offset = p->packed;
    p->packed += td__align_up(k->packed, TD_ALIGN);
}

static td_status plan_kernels(td_program *p)
{
    p->steps = td__calloc((size_t)p->g->n_nodes + 1, sizeof *p->steps);
    if (!p->steps)
        return TD_FAIL(TD_ENOMEM, "no memory for %d kernels", p->g->n_nodes);
    for (int i = 0; i < p->g->n_nodes; i++) {
        const td_node *n = p->g->nodes[i];
        if (td__is_leaf(n) || td__op(n->op)->is_view || td__lies_in_param(n))
            continue;
        bool is_param[TD_MAX_IN];
        for (int k = 0; k < n->n_in; k++) { /* pieces are used as those of one rank are: copies */
            int part;
            is_param[k] = td__location_of(p, n->in[k], 0)->space == TD_SPACE_PARAM &&
                          td__is_leaf(td__view_base(n->in[k], &part));
        }
        td__step *step = &p->steps[p->n_steps];
        step->node = n;
        step->kernel.node = n;
        TD_TRY(p->backend->ops->plan(p->backend, n, is_param, &step->kernel));
        p->phase_end[n->phase] = ++p->n_steps;
        place_packed(p, step);
    }
    for (int i = 1; i < TD_RUN_PHASE_COUNT; i++) /* of a phase without steps: where it would be */
        if (p->phase_end[i] < p->phase_end[i - 1])
            p->phase_end[i] = p->phase_end[i - 1];
    return TD_OK;
}

td_status td__program_plan(td_program *p, bool no_reuse)
{
    lay_out_slots(p);
    TD_TRY(td__plan_memory(p, no_reuse));
    TD_TRY(plan_kernels(p));
    return td__plan_scratch(p, no_reuse);
}

/* ---- The public functions -------------------------------------------------------------------- */

static td_status build(td_program *p, const td_graph *g, const td_node *loss,
                       const td_program_opts *o, const td__tensor_cut *cut)
{
    TD_TRY(check_request(g, loss, o));
    TD_TRY(td__backend_create(o->backend ? o->backend : "cpu", &p->backend));
    p->backend->nondeterministic = o->nondeterministic;
    TD_TRY(copy_request(g, loss, o, &p->g));
    TD_TRY(transform(&p->g, o, cut, p->backend, p->phased));
    TD_TRY(make_slots(p));
    if (p->phased) {
        TD_TRY(td__order_by_phase(p->g));
        TD_TRY(td_graph_verify(p->g));
    }
    return td__program_plan(p, o->no_reuse);
}

td_status td__program_create_tensor(const td_graph *g, td_node *loss, const td_program_opts *opts,
                                    bool phased, const td__tensor_cut *cut, td_program **out)
{
    static const td_program_opts DEFAULTS = {0};
    *out = NULL;
    td_program *p = td__calloc(1, sizeof *p);
    if (!p)
        return TD_FAIL(TD_ENOMEM, "td_program_create: no memory");
    if (!opts)
        opts = &DEFAULTS;
    p->evaluate = opts->evaluate;
    p->phased = phased;
    td_status st = build(p, g, loss, opts, cut);
    if (st) {
        td_program_destroy(p);
        return st;
    }
    *out = p;
    return TD_OK;
}

td_status td_program_create(const td_graph *g, td_node *loss, const td_program_opts *opts,
                            td_program **out)
{
    return td__program_create_tensor(g, loss, opts, false, NULL, out);
}

td_status td__program_create_phased(const td_graph *g, td_node *loss, const td_program_opts *opts,
                                    td_program **out)
{
    return td__program_create_tensor(g, loss, opts, true, NULL, out);
}

void td_program_destroy(td_program *p)
{
    if (!p)
        return;
    for (int i = 0; i < p->n_steps; i++)
        if (p->steps[i].kernel.fini)
            p->steps[i].kernel.fini(p->steps[i].kernel.state);
    td__free(p->steps);
    td__free(p->slots);
    td__free(p->beside);
    td__free(p->location);
    td_graph_destroy(p->g);
    td__backend_destroy(p->backend);
    td__free(p);
}

td_memory_plan td_program_memory(const td_program *p)
{
    td_memory_plan m = {
        .activations = p->space_bytes[TD_SPACE_ACTIVATION],
        .activations_unshared = p->activations_unshared,
        .params = p->trainable * sizeof(float),
        .grads = p->space_bytes[TD_SPACE_GRAD],
        .states = p->states * sizeof(float),
        .packed = p->packed,
        .scratch = p->scratch + p->beside_scratch,
        .constants = p->space_bytes[TD_SPACE_CONSTANT],
        .inputs = p->space_bytes[TD_SPACE_INPUT],
    };
    m.total = m.activations + m.params + m.grads + m.states + m.packed + m.scratch + m.constants +
              m.inputs;
    return m;
}

int td_program_node_count(const td_program *p)
{
    return p->n_steps;
}

td_status td_program_write_text(const td_program *p, FILE *to)
{
    return td_graph_write_text(p->g, to);
}

td_status td_program_write_dot(const td_program *p, FILE *to)
{
    return td_graph_write_dot(p->g, to);
}

/* ---- Row-sparse gradients -------------------------------------------------------------------- */

/* The i-th of them; NULL past their end. */
static const td__root *sparse_root(const td_program *p, int i)
{
    for (int k = 0; k < p->g->n_roots; k++)
        if (p->g->roots[k].kind == TD_ROOT_SPARSE_GRAD && i-- == 0)
            return &p->g->roots[k];
    return NULL;
}

int td__program_sparse_count(const td_program *p)
{
    int n = 0;
    while (sparse_root(p, n))
        n++;
    return n;
}

td__sparse_shape td__program_sparse(const td_program *p, int i)
{
    const td__root *root = sparse_root(p, i);
    TD_ASSERT(root, "no row-sparse gradient %d", i);
    const td_shape *rows = &root->node->out[0].shape;
    return (td__sparse_shape){root->leaf->name, rows->dim[0], rows->dim[1]};
}

bool td__program_frozen(const td_program *p, const char *name)
{
    for (int i = 0; i < p->n_slots; i++)
        if (!strcmp(p->slots[i].leaf->name, name))
            return p->slots[i].is_state && !(p->slots[i].weight > 0);
    return false;
}

/* What the ids are computed from, if that is one input whose values they are but for padding. */
static const td_node *ids_from(const td_node *n)
{
    while (n && n->op != TD_OP_INPUT)
        n = n->op == TD_OP_RESHAPE ? n->in[0] : n->op == TD_OP_WHERE ? n->in[2] : NULL;
    return n;
}

const char *td__program_sparse_ids(const td_program *p, int i)
{
    const td__root *root = sparse_root(p, i);
    TD_ASSERT(root, "no row-sparse gradient %d", i);
    const td_node *n = root->node->op == TD_OP_EMBEDDING_ROWS ? ids_from(root->node->in[0]) : NULL;
    return n ? n->name : NULL;
}

/* ---- Params that are cut --------------------------------------------------------------------- */

bool td__program_param_cut(const td_program *p, int i, td__param_cut *out)
{
    for (int k = 0; k < p->g->n_nodes; k++) {
        const td_node *n = p->g->nodes[k];
        if (n->op != TD_OP_PIECES_CUT || n->in[0]->op != TD_OP_PARAM || i-- > 0)
            continue;
        *out = (td__param_cut){.name = n->in[0]->name};
        memcpy(&out->pieces, n->attr, sizeof out->pieces);
        out->pieces.whole = n->in[0]->out[0].shape;
        return true;
    }
    return false;
}
