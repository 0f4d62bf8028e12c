/* runner.c -- executing a program: a walk over an array of kernels.
 *
 * Everything is bound when the runner is made: every pointer of every call is final, so that a run
 * allocates nothing, looks nothing up and decides nothing. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/half.h"
#include "graph/program_impl.h"
#include "graph/runner.h"
#include "graph/walk.h"

typedef struct bound {
    td_kernel_call call;
    uint64_t calls, total_ns; /* while profiling */
} bound;

/* After step `step` elements [0, count) of the gradient block are final. */
typedef struct mark {
    int step;
    size_t count;
} mark;

struct td_runner {
    const td_program *p;
    td_params *ps;
    int *info_of; /* by slot: index in ps */
    void *space[TD_SPACE_COUNT];
    size_t space_bytes[TD_SPACE_COUNT];
    void *scratch, *packed;
    bound *steps;
    void **pointers; /* of all calls, one array */
    size_t n_pointers;
    void *own_grads; /* what space[TD_SPACE_GRAD] is unless set otherwise */
    mark *marks;     /* rising in both */
    int n_marks;
    td_run_ctx ctx;
    int done, passed;  /* of the run under way: steps, marks */
    td_runner *lender; /* whose scratch, packed weights and own gradients these are; NULL: own */
    uint64_t prepared; /* version of the params that `packed` was made from; 0: none */
    bool profile;
    atomic_int now; /* the step being run, from 1; 0: none. Any thread may look */
};

/* ---- Making one ------------------------------------------------------------------------------ */

static td_status match_params(td_runner *r)
{
    const td_program *p = r->p;
    r->info_of = td__calloc((size_t)p->n_slots + 1, sizeof *r->info_of);
    if (!r->info_of)
        return TD_FAIL(TD_ENOMEM, "td_runner_create: no memory");
    for (int i = 0; i < p->n_slots; i++) {
        const td_node *leaf = p->slots[i].leaf;
        int k = td_params_find(r->ps, leaf->name);
        if (k < 0)
            return TD_FAIL(TD_EINVAL, "td_runner_create: the params hold no '%s'", leaf->name);
        const td_param_info *info = &r->ps->info[k];
        char have[128], want[128];
        if (!td_shape_equal(&info->shape, &leaf->out[0].shape))
            return TD_FAIL(TD_EINVAL,
                           "td_runner_create: '%s' is %s in the params and %s in the "
                           "program",
                           leaf->name, td_shape_text(&info->shape, have, sizeof have),
                           td_shape_text(&leaf->out[0].shape, want, sizeof want));
        if (info->is_state != p->slots[i].is_state)
            return TD_FAIL(TD_EINVAL,
                           "td_runner_create: '%s' is a %s in the params and a %s in the "
                           "program",
                           leaf->name, info->is_state ? "state" : "param",
                           p->slots[i].is_state ? "state" : "param");
        if (!p->evaluate && !p->slots[i].is_state && info->sparse != p->slots[i].sparse)
            return TD_FAIL(TD_EINVAL,
                           "td_runner_create: the gradient of '%s' is row-sparse in one "
                           "of params and program, and dense in the other",
                           leaf->name);
        r->info_of[i] = k;
    }
    return TD_OK;
}

/* What to allocate for a space of the runner's own. An empty one has an address all the same, so
 * that kernels never see NULL, but there are no gradients in evaluation, or they are lent. */
static size_t held_bytes(const td_runner *r, int space)
{
    if (space == TD_SPACE_PARAM || (space == TD_SPACE_GRAD && (r->p->evaluate || r->lender)))
        return 0;
    return r->space_bytes[space] ? r->space_bytes[space] : TD_ALIGN;
}

static td_status allocate(td_runner *r)
{
    const td_program *p = r->p;
    td_backend *b = p->backend;
    for (int s = 0; s < TD_SPACE_COUNT; s++)
        r->space_bytes[s] = p->space_bytes[s];
    r->space_bytes[TD_SPACE_PARAM] = 0; /* theirs is the params' block */
    if (!p->evaluate)
        r->space_bytes[TD_SPACE_GRAD] =
            (r->ps->dense + r->ps->total - r->ps->trainable) * sizeof(float);
    for (int s = 0; s < TD_SPACE_COUNT; s++)
        if (held_bytes(r, s))
            TD_TRY(b->ops->alloc(b, held_bytes(r, s), &r->space[s]));
    if (r->lender) {
        r->space[TD_SPACE_GRAD] = r->lender->own_grads;
        r->scratch = r->lender->scratch;
        r->packed = r->lender->packed;
    }
    if (p->scratch && !r->lender)
        TD_TRY(b->ops->alloc(b, p->scratch, &r->scratch));
    if (p->packed && !r->lender)
        TD_TRY(b->ops->alloc(b, p->packed, &r->packed));
    size_t n_pointers = 0;
    for (int i = 0; i < p->n_steps; i++)
        n_pointers += (size_t)(p->steps[i].node->n_in + p->steps[i].node->n_out);
    r->n_pointers = n_pointers;
    r->own_grads = r->space[TD_SPACE_GRAD];
    r->steps = td__calloc((size_t)p->n_steps + 1, sizeof *r->steps);
    r->pointers = td__calloc(n_pointers + 1, sizeof *r->pointers);
    if (!r->steps || !r->pointers)
        return TD_FAIL(TD_ENOMEM, "td_runner_create: no memory for %d steps", p->n_steps);
    return TD_OK;
}

static void *address(const td_runner *r, const td_node *n, int k)
{
    const td__place *place = td__place_of(r->p, n, k);
    if (place->space == TD_SPACE_PARAM)
        return r->ps->block + r->ps->info[r->info_of[place->slot]].offset;
    if (place->space == TD_SPACE_GRAD) {
        const td_param_info *info = &r->ps->info[r->info_of[place->slot]];
        float *grads = r->space[TD_SPACE_GRAD];
        return info->is_state ? grads + r->ps->dense + (info->offset - r->ps->trainable)
                              : grads + info->offset;
    }
    return (char *)r->space[place->space] + place->offset;
}

static void bind(td_runner *r)
{
    void **at = r->pointers;
    for (int i = 0; i < r->p->n_steps; i++) {
        const td__step *step = &r->p->steps[i];
        td_kernel_call *c = &r->steps[i].call;
        c->in = (const void *const *)at;
        for (int k = 0; k < step->node->n_in; k++)
            *at++ = address(r, step->node->in[k], 0);
        c->out = at;
        for (int k = 0; k < step->node->n_out; k++)
            *at++ = address(r, step->node, k);
        c->scratch = r->scratch;
        c->packed = r->packed ? (char *)r->packed + step->packed_offset : NULL;
        c->kernel = &step->kernel;
        c->ctx = &r->ctx;
    }
}

/* By param: the last step that writes its gradient; -1: none does. */
static void last_writers(const td_runner *r, int *step_of)
{
    for (int i = 0; i < r->ps->count; i++)
        step_of[i] = -1;
    for (int i = 0; i < r->p->n_steps; i++)
        for (int k = 0; k < r->p->steps[i].node->n_out; k++) {
            const td__place *place = td__place_of(r->p, r->p->steps[i].node, k);
            if (place->space == TD_SPACE_GRAD)
                step_of[r->info_of[place->slot]] = i;
        }
}

/* A prefix of the block is final when all params in it are. Params are laid out in the order in
 * which that happens, so there are about as many marks as params. Statistics come with the end. */
static td_status find_marks(td_runner *r)
{
    const td_params *ps = r->ps;
    size_t total = r->space_bytes[TD_SPACE_GRAD] / sizeof(float);
    int last = r->p->n_steps - 1, step = 0;
    if (r->p->evaluate)
        return TD_OK;
    int *step_of = td__calloc((size_t)ps->count + 1, sizeof *step_of);
    r->marks = td__calloc((size_t)ps->count + 1, sizeof *r->marks);
    if (!step_of || !r->marks) {
        td__free(step_of);
        return TD_FAIL(TD_ENOMEM, "td_runner_create: no memory for %d params", ps->count);
    }
    last_writers(r, step_of);
    for (int i = 0; i < ps->count && !ps->info[i].is_state && !ps->info[i].sparse; i++) {
        step = step_of[i] > step ? step_of[i] : step;
        if (!r->n_marks || r->marks[r->n_marks - 1].step < step)
            r->marks[r->n_marks++].step = step;
        r->marks[r->n_marks - 1].count =
            ps->info[i].offset + td__align_up(ps->info[i].count, TD_ALIGN_FLOATS);
    }
    if (!r->n_marks || r->marks[r->n_marks - 1].count < total) {
        if (!r->n_marks || r->marks[r->n_marks - 1].step < last)
            r->marks[r->n_marks++].step = last;
        r->marks[r->n_marks - 1].count = total;
    }
    td__free(step_of);
    return TD_OK;
}

static td_status copy_in(td_runner *r, void *to, const void *from, size_t nbytes)
{
    td_backend *b = r->p->backend;
    if (!nbytes) /* empty tensors may have no memory at all */
        return TD_OK;
    if (b->ops->upload)
        return b->ops->upload(b, to, from, nbytes);
    memcpy(to, from, nbytes);
    return TD_OK;
}

static td_status fill_constants(td_runner *r)
{
    for (int i = 0; i < r->p->g->n_nodes; i++) {
        const td_node *n = r->p->g->nodes[i];
        const td_attr_leaf *leaf = n->attr;
        if (n->op == TD_OP_CONSTANT && leaf->data)
            TD_TRY(copy_in(r, address(r, n, 0), leaf->data, leaf->nbytes));
    }
    return TD_OK;
}

static td_status make(td_runner *r)
{
    TD_TRY(match_params(r));
    TD_TRY(allocate(r));
    bind(r);
    TD_TRY(find_marks(r));
    return fill_constants(r);
}

static td_status create(const td_program *p, td_params *ps, td_runner *lender, td_runner **out)
{
    *out = NULL;
    td_runner *r = td__calloc(1, sizeof *r);
    if (!r)
        return TD_FAIL(TD_ENOMEM, "td_runner_create: no memory");
    r->p = p;
    r->ps = ps;
    r->lender = lender;
    td_status st = make(r);
    if (st) {
        td_runner_destroy(r);
        return st;
    }
    *out = r;
    return TD_OK;
}

td_status td_runner_create(const td_program *p, td_params *ps, td_runner **out)
{
    return create(p, ps, NULL, out);
}

td_status td__runner_create_beside(td_runner *first, td_runner **out)
{
    return create(first->p, first->ps, first, out);
}

void td_runner_destroy(td_runner *r)
{
    if (!r)
        return;
    td_backend *b = r->p->backend;
    if (r->lender)
        r->space[TD_SPACE_GRAD] = NULL;
    else if (r->own_grads)
        r->space[TD_SPACE_GRAD] = r->own_grads;
    for (int s = 0; s < TD_SPACE_COUNT; s++)
        if (r->space[s])
            b->ops->free(b, r->space[s], held_bytes(r, s));
    if (r->scratch && !r->lender)
        b->ops->free(b, r->scratch, r->p->scratch);
    if (r->packed && !r->lender)
        b->ops->free(b, r->packed, r->p->packed);
    td__free(r->info_of);
    td__free(r->steps);
    td__free(r->pointers);
    td__free(r->marks);
    td__free(r);
}

/* ---- Inputs ---------------------------------------------------------------------------------- */

static const td_node *find_input(const td_runner *r, const char *name)
{
    for (int i = 0; i < r->p->g->n_nodes; i++)
        if (r->p->g->nodes[i]->op == TD_OP_INPUT && strcmp(r->p->g->nodes[i]->name, name) == 0)
            return r->p->g->nodes[i];
    return NULL;
}

void *td_runner_input(td_runner *r, const char *name, size_t *nbytes)
{
    const td_node *n = find_input(r, name);
    if (!n)
        return NULL;
    if (nbytes)
        *nbytes = td__desc_bytes(&n->out[0]);
    return address(r, n, 0);
}

td_status td_runner_set_input(td_runner *r, const char *name, const void *data, size_t nbytes)
{
    const td_node *n = find_input(r, name);
    if (!n)
        return TD_FAIL(TD_EINVAL, "td_runner_set_input: the program has no input '%s'", name);
    char text[160];
    if (nbytes != td__desc_bytes(&n->out[0]))
        return TD_FAIL(TD_EINVAL, "td_runner_set_input: '%s' is %s: %zu bytes, but %zu were given",
                       name, td__desc_text(&n->out[0], text, sizeof text),
                       td__desc_bytes(&n->out[0]), nbytes);
    return copy_in(r, address(r, n, 0), data, nbytes);
}

/* ---- Running --------------------------------------------------------------------------------- */

/* Weights in the kernels' own formats, if the params have changed. */
static void prepare(td_runner *r)
{
    r = r->lender ? r->lender : r;
    if (r->prepared == r->ps->version)
        return;
    for (int i = 0; i < r->p->n_steps; i++)
        if (r->p->steps[i].kernel.prepare)
            r->p->steps[i].kernel.prepare(&r->steps[i].call);
    r->prepared = r->ps->version;
}

static void run_profiled(td_runner *r, int begin, int end)
{
    uint64_t before = td__clock_ns();
    for (int i = begin; i < end; i++) {
        atomic_store_explicit(&r->now, i + 1, memory_order_relaxed);
        r->p->steps[i].kernel.run(&r->steps[i].call);
        uint64_t after = td__clock_ns();
        r->steps[i].calls++;
        r->steps[i].total_ns += after - before;
        before = after;
    }
}

static void run_steps(td_runner *r, int begin, int end)
{
    if (r->profile)
        run_profiled(r, begin, end);
    else
        for (int i = begin; i < end; i++) {
            atomic_store_explicit(&r->now, i + 1, memory_order_relaxed);
            r->p->steps[i].kernel.run(&r->steps[i].call);
        }
    atomic_store_explicit(&r->now, 0, memory_order_relaxed);
}

const char *td__runner_now(const td_runner *r)
{
    int i = atomic_load_explicit(&r->now, memory_order_relaxed);
    return i ? r->p->steps[i - 1].node->name : NULL;
}

static bool all_finite(const td_desc *d, const void *data)
{
    int64_t n = td__desc_count(d);
    for (int64_t i = 0; i < n; i++) {
        double v = 0;
        switch (d->dtype) {
        case TD_F32: v = (double)((const float *)data)[i]; break;
        case TD_F64: v = ((const double *)data)[i]; break;
        case TD_BF16: v = (double)td__bf16_to_f32(((const td_bf16 *)data)[i]); break;
        case TD_F16: v = (double)td__f16_to_f32(((const td_f16 *)data)[i]); break;
        default: return true;
        }
        if (!isfinite(v))
            return false;
    }
    return true;
}

/* Is n, or what it is a view of, a leaf with a bad number in it? */
static const td_node *bad_leaf(const td_runner *r, const td_node *n)
{
    int k;
    n = td__view_base(n, &k);
    return td__is_leaf(n) && !all_finite(&n->out[0], address(r, n, 0)) ? n : NULL;
}

static td_status blame_leaf(const td_runner *r, float loss, const td_node *leaf)
{
    return TD_FAIL(TD_EINVAL, "the loss is %g at step %u, shard %u: %s '%s' holds NaN or Inf",
                   (double)loss, r->ctx.step, r->ctx.shard, td__op(leaf->op)->name, leaf->name);
}

/* A loss went bad: run once more, looking at every value as soon as it is made, and name the first
 * that is not finite, or the leaf that it was made from. (A leaf alone proves nothing: masks hold
 * -Inf.) The second run has the same bits as the first, so it finds the culprit. */
static td_status blame(td_runner *r, const td_node *loss_node, float loss)
{
    const td_program *p = r->p;
    const td_node *leaf;
    for (int i = 0; i < p->n_steps; i++) {
        const td_node *n = p->steps[i].node;
        p->steps[i].kernel.run(&r->steps[i].call);
        for (int k = 0; k < n->n_out; k++) {
            if (all_finite(&n->out[k], r->steps[i].call.out[k]))
                continue;
            for (int j = 0; j < n->n_in; j++)
                if ((leaf = bad_leaf(r, n->in[j])))
                    return blame_leaf(r, loss, leaf);
            return TD_FAIL(TD_EINVAL,
                           "the loss is %g at step %u, shard %u: the first NaN or "
                           "Inf is in '%s' (%s)",
                           (double)loss, r->ctx.step, r->ctx.shard, n->name, td__op(n->op)->name);
        }
    }
    if ((leaf = bad_leaf(r, loss_node)))
        return blame_leaf(r, loss, leaf);
    return TD_FAIL(TD_EINVAL, "the loss is %g at step %u, shard %u", (double)loss, r->ctx.step,
                   r->ctx.shard);
}

static const td__root *find_root(const td_runner *r, td__root_kind kind, int index)
{
    const td_graph *g = r->p->g;
    for (int i = 0; i < g->n_roots; i++)
        if (g->roots[i].kind == kind && g->roots[i].index == index)
            return &g->roots[i];
    return NULL;
}

void td__runner_begin(td_runner *r, td_run_key key)
{
    r->ctx = (td_run_ctx){.seed = key.seed, .step = key.step, .shard = key.shard};
    r->done = r->passed = 0;
}

static void proceed(td_runner *r, int end)
{
    if (r->done == 0)
        prepare(r);
    run_steps(r, r->done, end);
    r->done = end;
}

void td__runner_until(td_runner *r, size_t count)
{
    td_backend *b = r->p->backend;
    unsigned saved = 0;
    int end = r->done;
    while (r->passed < r->n_marks && (!r->passed || r->marks[r->passed - 1].count < count))
        end = r->marks[r->passed++].step + 1;
    if (end == r->done)
        return;
    if (b->ops->enter)
        b->ops->enter(b, &saved);
    proceed(r, end);
    if (b->ops->leave)
        b->ops->leave(b, saved);
}

td_status td__runner_end(td_runner *r)
{
    td_backend *b = r->p->backend;
    unsigned saved = 0;
    if (b->ops->enter)
        b->ops->enter(b, &saved);
    proceed(r, r->p->n_steps);
    td_status st = TD_OK;
    const td__root *loss = find_root(r, TD_ROOT_LOSS, 0);
    if (loss && !isfinite(td_runner_loss(r)))
        st = blame(r, loss->node, td_runner_loss(r));
    if (b->ops->leave)
        b->ops->leave(b, saved);
    return st;
}

td_status td_runner_run(td_runner *r, td_run_key key)
{
    td__runner_begin(r, key);
    return td__runner_end(r);
}

/* ---- Running with somebody beside it --------------------------------------------------------- */

void td__runner_thin(td_runner *r)
{
    td__block_thin(r->space[TD_SPACE_GRAD], r->space_bytes[TD_SPACE_GRAD]);
}

static td_status walk(td_runner *r, bool pack, td__walk_fn *fn, void *user)
{
    const td_program *p = r->p;
    for (int i = 0; i < p->n_steps; i++) {
        const td_kernel *k = &p->steps[i].kernel;
        td_kernel_call call = r->steps[i].call;
        TD_TRY(fn(user, i));
        uint64_t before = r->profile ? td__clock_ns() : 0;
        if (pack) /* all in the same place: only this step's are needed */
            call.packed = r->packed;
        if (pack && k->prepare)
            k->prepare(&call);
        k->run(&call);
        r->steps[i].calls += r->profile;
        r->steps[i].total_ns += r->profile ? td__clock_ns() - before : 0;
    }
    return fn(user, p->n_steps);
}

td_status td__runner_walk(td_runner *r, td_run_key key, bool pack, td__walk_fn *fn, void *user)
{
    td_backend *b = r->p->backend;
    unsigned saved = 0;
    r->ctx = (td_run_ctx){.seed = key.seed, .step = key.step, .shard = key.shard};
    if (b->ops->enter)
        b->ops->enter(b, &saved);
    if (pack)
        r->prepared = 0;
    else
        prepare(r);
    td_status st = walk(r, pack, fn, user);
    if (pack && r->packed) /* runners of other sizes have such a place too */
        td__block_give_back(r->packed, r->p->packed);
    if (b->ops->leave)
        b->ops->leave(b, saved);
    float loss = td_runner_loss(r);
    if (!st && !isfinite(loss))
        st = TD_FAIL(TD_EINVAL,
                     "the loss is %g at step %u, shard %u (train with parallel.zero: 0 to see in "
                     "which node)",
                     (double)loss, key.step, key.shard);
    return st;
}

/* ---- Results --------------------------------------------------------------------------------- */

float td_runner_loss(const td_runner *r)
{
    const td__root *root = find_root(r, TD_ROOT_LOSS, 0);
    if (!root)
        return 0;
    const void *at = address(r, root->node, 0);
    switch (root->node->out[0].dtype) {
    case TD_F64: return (float)*(const double *)at;
    case TD_BF16: return td__bf16_to_f32(*(const td_bf16 *)at);
    case TD_F16: return td__f16_to_f32(*(const td_f16 *)at);
    default: return *(const float *)at;
    }
}

static const void *root_value(const td_runner *r, td__root_kind kind, int i, size_t *nbytes)
{
    const td__root *root = find_root(r, kind, i);
    if (!root)
        return NULL;
    if (nbytes)
        *nbytes = td__desc_bytes(&root->node->out[0]);
    return address(r, root->node, 0);
}

const void *td_runner_output(const td_runner *r, int i, size_t *nbytes)
{
    return root_value(r, TD_ROOT_OUTPUT, i, nbytes);
}

const void *td_runner_grad_input(const td_runner *r, int i, size_t *nbytes)
{
    return root_value(r, TD_ROOT_INPUT_GRAD, i, nbytes);
}

float *td_runner_grads(td_runner *r, size_t *count)
{
    if (count)
        *count = r->space_bytes[TD_SPACE_GRAD] / sizeof(float);
    return r->space[TD_SPACE_GRAD];
}

void td__runner_set_grads(td_runner *r, float *block)
{
    char *from = r->space[TD_SPACE_GRAD], *to = block ? (char *)block : r->own_grads;
    if (from == to)
        return;
    for (size_t i = 0; i < r->n_pointers; i++) {
        char *at = r->pointers[i];
        if (at >= from && at < from + r->space_bytes[TD_SPACE_GRAD])
            r->pointers[i] = to + (at - from);
    }
    r->space[TD_SPACE_GRAD] = to;
}

void td_runner_update_states(td_runner *r)
{
    for (int i = 0; i < r->p->n_slots; i++) {
        const td__slot *slot = &r->p->slots[i];
        if (!slot->is_state || !(slot->weight > 0))
            continue;
        const td_param_info *info = &r->ps->info[r->info_of[i]];
        float *state = r->ps->block + info->offset;
        const float *now =
            (float *)r->space[TD_SPACE_GRAD] + r->ps->dense + (info->offset - r->ps->trainable);
        float w = (float)slot->weight;
        for (size_t k = 0; k < info->count; k++)
            state[k] = (1 - w) * state[k] + w * now[k];
    }
    td_params_touch(r->ps);
}

static const td__root *sparse_root(const td_runner *r, int i)
{
    const td_graph *g = r->p->g;
    for (int k = 0; k < g->n_roots; k++)
        if (g->roots[k].kind == TD_ROOT_SPARSE_GRAD && i-- == 0)
            return &g->roots[k];
    return NULL;
}

int td_runner_sparse_count(const td_runner *r)
{
    int n = 0;
    while (sparse_root(r, n))
        n++;
    return n;
}

td_sparse_grad td_runner_sparse_grad(const td_runner *r, int i)
{
    const td__root *root = sparse_root(r, i);
    TD_ASSERT(root, "sparse gradient %d", i);
    const td_shape *shape = &root->node->out[0].shape; /* (n, D) */
    td_sparse_grad s = {.param = td_params_find(r->ps, root->leaf->name),
                        .width = shape->dim[1],
                        .values = address(r, root->node, 0),
                        .rows = address(r, root->node, 1)};
    while (s.n_rows < shape->dim[0] && s.rows[s.n_rows] >= 0)
        s.n_rows++;
    return s;
}

td_params *td_runner_params(td_runner *r)
{
    return r->ps;
}

/* ---- Profile --------------------------------------------------------------------------------- */

void td_runner_set_profile(td_runner *r, bool on)
{
    for (int i = 0; on && i < r->p->n_steps; i++)
        r->steps[i].calls = r->steps[i].total_ns = 0;
    r->profile = on;
}

int td_runner_profile_count(const td_runner *r)
{
    return r->p->n_steps;
}

td_node_time td_runner_profile(const td_runner *r, int i)
{
    TD_ASSERT(i >= 0 && i < r->p->n_steps, "step %d of %d", i, r->p->n_steps);
    const td__step *step = &r->p->steps[i];
    return (td_node_time){.name = step->node->name,
                          .op = td__op(step->node->op)->name,
                          .impl = step->kernel.impl ? step->kernel.impl : "",
                          .calls = r->steps[i].calls,
                          .total_ns = r->steps[i].total_ns};
}
