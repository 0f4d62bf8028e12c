/* optimizer.c -- an optimizer at work: its state block, and a step over slices of the params.
 *
 * The params block is cut into segments once, at creation: runs of dense params that are treated
 * alike (whole tensors for per-tensor optimizers). A slice of the gradient block is then a range of
 * segments, the first and last of them cut. State k of param element i is state[k * stride + i]. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/cpu.h"
#include "base/fail.h"
#include "optim/options.h"

typedef struct segment {
    size_t begin, end; /* elements of the params block */
    bool decay;        /* weight decay and trust ratio apply */
} segment;

struct td_optimizer {
    const td__optim_def *def;
    td_optim_opts opts; /* resolved */
    td_params *params;
    td__isa isa;
    segment *segments; /* in rising order */
    int n_segments;
    size_t dense; /* elements of the params block that have dense gradients */
    float *state; /* (n_states, stride) */
    size_t stride, count, state_nbytes;
    const char *state_names[TD_OPTIM_MAX_STATE];
    int n_states;
    uint64_t t;
    double grad_norm;
    td__optim_hyper now, now_rows; /* of the step under way */
};

/* Row-sparse params have no segment: their rows are updated one by one. */
static td_status make_segments(td_optimizer *o)
{
    int n = td_params_count(o->params);

    o->segments = td__calloc((size_t)n + 1, sizeof *o->segments);
    if (!o->segments)
        return TD_FAIL(TD_ENOMEM, "%s: no memory for %d segments", o->def->name, n);
    for (int i = 0; i < n; i++) {
        td_param_info info = td_params_info(o->params, i);
        if (info.is_state || info.sparse || info.count == 0)
            continue;
        TD_ASSERT(info.offset >= o->dense, "param %s lies at %zu, before %zu", info.name,
                  info.offset, o->dense);
        o->dense = info.offset + info.count;
        bool decay = !o->opts.no_decay_vectors || info.shape.ndim >= 2;
        segment *s = o->n_segments ? &o->segments[o->n_segments - 1] : NULL;
        if (s && !o->def->tensor && s->end == info.offset && s->decay == decay)
            s->end = o->dense;
        else
            o->segments[o->n_segments++] = (segment){info.offset, o->dense, decay};
    }
    return TD_OK;
}

static td_status check_sparse(const td_optimizer *o)
{
    const char *why = o->def->no_rows(&o->opts);

    for (int i = 0; why && i < td_params_count(o->params); i++) {
        td_param_info info = td_params_info(o->params, i);
        if (info.sparse)
            return TD_FAIL(TD_ENOTSUP, "%s: row-sparse gradient of '%s' cannot be used: %s",
                           o->def->name, info.name, why);
    }
    return TD_OK;
}

static td_status make_state(td_optimizer *o)
{
    size_t elements;

    o->count = td_params_trainable(o->params);
    o->n_states = o->def->states(&o->opts, o->state_names);
    o->stride = td__align_up(o->count, 16);
    if (!td__size_mul(o->stride, (size_t)o->n_states, &elements) ||
        !td__size_mul(elements, sizeof *o->state, &o->state_nbytes))
        return TD_FAIL(TD_EINVAL, "%s: state of %zu params is too large", o->def->name, o->count);
    if (o->state_nbytes == 0)
        return TD_OK;
    o->state = td__alloc_block(o->state_nbytes);
    if (!o->state)
        return TD_FAIL(TD_ENOMEM, "%s: no memory for %zu bytes of state", o->def->name,
                       o->state_nbytes);
    float first = o->def->first_state ? o->def->first_state(&o->opts) : 0.0f;
    for (size_t i = 0; first != 0.0f && i < o->count; i++)
        o->state[i] = first;
    return TD_OK;
}

td_status td_optimizer_create(const td_optim_opts *opts, td_params *ps, td_optimizer **out)
{
    td_status st = TD_OK;

    *out = NULL;
    td_optimizer *o = td__calloc(1, sizeof *o);
    if (!o)
        return TD_FAIL(TD_ENOMEM, "optimizer: out of memory");
    o->params = ps;
    o->isa = td__cpu_isa();
    TD_TRY_OR(st, fail, td__optim_resolve(opts, &o->def, &o->opts));
    TD_TRY_OR(st, fail, check_sparse(o));
    TD_TRY_OR(st, fail, make_segments(o));
    TD_TRY_OR(st, fail, make_state(o));
    *out = o;
    return TD_OK;
fail:
    td_optimizer_destroy(o);
    return st;
}

void td_optimizer_destroy(td_optimizer *o)
{
    if (!o)
        return;
    if (o->state)
        td__free_block(o->state, o->state_nbytes);
    td__free(o->segments);
    td__free(o);
}

td_status td__optim_begin(td_optimizer *o, double lr, double scale)
{
    if (!isfinite(lr) || lr < 0)
        return TD_FAIL(TD_EINVAL, "%s: lr is %g in step %llu, must be finite and not negative",
                       o->def->name, lr, (unsigned long long)o->t);
    o->t++;
    td__optim_step st = {.opts = &o->opts, .lr = lr, .t = o->t};
    td__optim_hyper h = {
        .scale = (float)scale,
        .clip = o->opts.clip_value > 0 ? (float)o->opts.clip_value : INFINITY,
        .shrink = 1,
    };
    o->now = o->now_rows = h;
    o->def->begin(&st, &o->now);
    st.rows = true;
    o->def->begin(&st, &o->now_rows);
    return TD_OK;
}

/* Elements [at, at + n), of one segment, whose gradients are at g. */
static void update(const td_optimizer *o, const td__optim_hyper *h, bool decay, size_t at, size_t n,
                   const float *g)
{
    size_t all;
    td__optim_hyper mine = *h;
    td__optim_slice s = {.p = td_params_block(o->params, &all) + at, .g = g, .n = n};

    for (int k = 0; k < o->n_states; k++)
        s.s[k] = o->state + (size_t)k * o->stride + at;
    if (!decay) {
        mine.l2 = 0;
        mine.shrink = 1;
    }
    if (o->def->tensor)
        o->def->tensor(o->isa, &o->opts, &mine, &s, decay);
    else
        o->def->elements[o->isa >= TD_ISA_AVX512 ? 2 : o->isa >= TD_ISA_AVX2 ? 1 : 0](&mine, &s);
}

void td__optim_apply(td_optimizer *o, const float *grads, size_t begin, size_t count)
{
    size_t end = begin + count;
    unsigned mode = td__cpu_fp_flush(); /* averages decay into denormals, which are slow */

    for (int i = 0; i < o->n_segments; i++) {
        const segment *s = &o->segments[i];
        if (s->end <= begin || s->begin >= end)
            continue;
        size_t from = s->begin > begin ? s->begin : begin, to = s->end < end ? s->end : end;
        TD_ASSERT(!o->def->tensor || to - from == s->end - s->begin,
                  "%s: slice [%zu, %zu) cuts the tensor [%zu, %zu)", o->def->name, begin, end,
                  s->begin, s->end);
        update(o, &o->now, s->decay, from, to - from, grads + (from - begin));
    }
    td__cpu_fp_restore(mode);
}

void td__optim_apply_rows(td_optimizer *o, const td_sparse_grad *sg)
{
    td_param_info info = td_params_info(o->params, sg->param);
    size_t width = (size_t)sg->width;
    unsigned mode = td__cpu_fp_flush();

    for (int64_t r = 0; r < sg->n_rows; r++)
        update(o, &o->now_rows, true, info.offset + (size_t)sg->rows[r] * width, width,
               sg->values + (size_t)r * width);
    td__cpu_fp_restore(mode);
}

void td__optim_end(td_optimizer *o)
{
    td_params_touch(o->params);
}

bool td__optim_sliceable(const td_optimizer *o)
{
    return !o->def->tensor;
}

/* ---- Clipping by the norm of all gradients --------------------------------------------------- */

bool td__optim_clips(const td_optimizer *o)
{
    return o->opts.clip_norm > 0;
}

double td__optim_param_squares(const td_optimizer *o, const float *grads, size_t count)
{
    return td__optim_squares(o->isa, grads, count, 1.0f, INFINITY);
}

td_status td__optim_clip(td_optimizer *o, double squares, double *scale)
{
    double norm = sqrt(squares);

    if (!isfinite(norm))
        return TD_FAIL(TD_EINVAL, "%s: the gradients' norm is %g in step %llu", o->def->name, norm,
                       (unsigned long long)o->t);
    o->grad_norm = norm;
    double want = o->opts.clip_norm / (norm + 1e-6); /* as torch.nn.utils.clip_grad_norm_ */
    *scale = want < 1 ? want : 1;
    return TD_OK;
}

/* Sum of squares per param, then over the params and row-sparse gradients in order. */
static double all_squares(const td_optimizer *o, const float *grads, td_runner *r)
{
    td__tree_sum sum = {.n = 0};

    for (int i = 0; i < td_params_count(o->params); i++) {
        td_param_info info = td_params_info(o->params, i);
        if (!info.is_state && !info.sparse)
            td__tree_add(&sum, td__optim_param_squares(o, grads + info.offset, info.count));
    }
    for (int i = 0; i < td_runner_sparse_count(r); i++) {
        td_sparse_grad sg = td_runner_sparse_grad(r, i);
        td__tree_add(&sum, td__optim_param_squares(o, sg.values, (size_t)(sg.n_rows * sg.width)));
    }
    return td__tree_total(&sum);
}

td_status td_optimizer_step(td_optimizer *o, td_runner *r, double lr)
{
    size_t count;
    double scale = 1;

    if (td_runner_params(r) != o->params)
        return TD_FAIL(TD_EINVAL, "%s: the runner works on other params than the optimizer",
                       o->def->name);
    const float *grads = td_runner_grads(r, &count);
    if (!grads || count < o->dense)
        return TD_FAIL(TD_EINVAL, "%s: the runner has no gradients (an evaluation program?)",
                       o->def->name);
    o->grad_norm = 0;
    if (td__optim_clips(o))
        TD_TRY(td__optim_clip(o, all_squares(o, grads, r), &scale));
    TD_TRY(td__optim_begin(o, lr, scale));
    td__optim_apply(o, grads, 0, o->dense);
    for (int i = 0; i < td_runner_sparse_count(r); i++) {
        td_sparse_grad sg = td_runner_sparse_grad(r, i);
        td__optim_apply_rows(o, &sg);
    }
    td_runner_update_states(r);
    td__optim_end(o);
    return TD_OK;
}

const char *td_optimizer_name(const td_optimizer *o)
{
    return o->def->name;
}

double td_optimizer_lr(const td_optimizer *o)
{
    return o->opts.lr;
}

double td_optimizer_grad_norm(const td_optimizer *o)
{
    return o->grad_norm;
}

uint64_t td_optimizer_steps(const td_optimizer *o)
{
    return o->t;
}

void td_optimizer_set_steps(td_optimizer *o, uint64_t steps)
{
    o->t = steps;
}

int td_optimizer_state_count(const td_optimizer *o)
{
    return o->n_states;
}

const char *td_optimizer_state_name(const td_optimizer *o, int k)
{
    TD_ASSERT(k >= 0 && k < o->n_states, "%s has %d states, asked for %d", o->def->name,
              o->n_states, k);
    return o->state_names[k];
}

float *td_optimizer_state(td_optimizer *o, int k, size_t *count)
{
    TD_ASSERT(k >= 0 && k < o->n_states, "%s has %d states, asked for %d", o->def->name,
              o->n_states, k);
    if (count)
        *count = o->count;
    return o->state + (size_t)k * o->stride;
}
