/* optimizer.c -- an optimizer at work: its state block, and a step over slices of the params.
 *
 * The params block is cut into segments once, at creation: runs of dense params that are treated
 * alike (whole tensors for per-tensor optimizers). A slice of the gradient block is then a range of
 * segments, the first and last of them cut. State k of param element i is state[k * stride + i];
 * an optimizer of some elements holds their states side by side in the order of its own ranges. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/cpu.h"
#include "base/fail.h"
#include "graph/params.h"
#include "optim/optimizer_impl.h"
#include "optim/options.h"

/* Row-sparse params have no segment: their rows are updated one by one. */
static td_status make_segments(td_optimizer *o)
{
    int n = td_params_count(o->params);

    o->segments = td__calloc((size_t)n + 1, sizeof *o->segments);
    o->chunks = td__calloc((size_t)n + 1, sizeof *o->chunks);
    if (!o->segments || !o->chunks)
        return TD_FAIL(TD_ENOMEM, "%s: no memory for %d segments", o->def->name, n);
    for (int i = 0; i < n; i++) {
        td_param_info info = td_params_info(o->params, i);
        o->chunks[i + 1] = o->chunks[i];
        if (info.is_state || info.sparse || info.count == 0)
            continue;
        o->chunks[i + 1] += (int)((info.count + TD_OPTIM_CHUNK - 1) / TD_OPTIM_CHUNK);
        TD_ASSERT(info.offset >= o->dense, "param %s lies at %zu, before %zu", info.name,
                  info.offset, o->dense);
        o->dense = info.offset + info.count;
        bool decay = !o->opts.no_decay_vectors || info.shape.ndim >= 2;
        segment *s = o->n_segments ? &o->segments[o->n_segments - 1] : NULL;
        if (s && !o->def->chunk && s->end == info.offset && s->decay == decay)
            s->end = o->dense;
        else
            o->segments[o->n_segments++] = (segment){info.offset, o->dense, decay, o->chunks[i], 0};
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

static td_status set_own(td_optimizer *o, const td__optim_range *own, int n_own)
{
    size_t at = 0;

    o->count = td_params_trainable(o->params);
    if (!own)
        return TD_OK;
    o->own = td__calloc((size_t)n_own + 1, sizeof *o->own);
    if (!o->own)
        return TD_FAIL(TD_ENOMEM, "%s: no memory for %d ranges", o->def->name, n_own);
    o->n_own = n_own;
    for (int i = 0; i < n_own; i++) {
        TD_ASSERT(own[i].begin <= own[i].end && own[i].end <= o->count &&
                      (!i || own[i - 1].end <= own[i].begin),
                  "range %d of elements is [%zu, %zu)", i, own[i].begin, own[i].end);
        o->own[i] = (held){own[i].begin, own[i].end, at};
        at += own[i].end - own[i].begin;
    }
    o->count = at;
    return TD_OK;
}

static td_status make_state(td_optimizer *o)
{
    size_t elements, nbytes;
    td__mapping map;

    o->n_states = o->def->states(&o->opts, o->state_names);
    o->stride = td__align_up(o->count, 16);
    if (!td__size_mul(o->stride, (size_t)o->n_states, &elements) ||
        !td__size_mul(elements, sizeof *o->state, &nbytes))
        return TD_FAIL(TD_EINVAL, "%s: state of %zu params is too large", o->def->name, o->count);
    if (nbytes == 0)
        return TD_OK;
    TD_TRY(td__mem_alloc(td__params_device(o->params), TD_MEM_OWN, nbytes, &o->mem));
    o->state = o->mem.at;
    float first = o->def->first_state ? o->def->first_state(&o->opts) : 0.0f;
    if (first == 0.0f)
        return TD_OK;
    TD_TRY(td__mem_map(o->mem.device, o->state, o->count * sizeof first, TD_MAP_WRITE, &map));
    for (size_t i = 0; i < o->count; i++)
        ((float *)map.at)[i] = first;
    return td__mem_unmap(&map);
}

td_status td_optimizer_create(const td_optim_opts *opts, td_params *ps, td_optimizer **out)
{
    return td__optim_create_own(opts, ps, NULL, 0, out);
}

td_status td__optim_create_own(const td_optim_opts *opts, td_params *ps, const td__optim_range *own,
                               int n_own, td_optimizer **out)
{
    td_status st = TD_OK;

    *out = NULL;
    td_optimizer *o = td__calloc(1, sizeof *o);
    if (!o)
        return TD_FAIL(TD_ENOMEM, "optimizer: out of memory");
    o->params = ps;
    o->on = td__device_stream(td__params_device(ps));
    TD_TRY_OR(st, fail, td__optim_resolve(opts, &o->def, &o->opts));
    TD_TRY_OR(st, fail, check_sparse(o));
    TD_TRY_OR(st, fail, make_segments(o));
    TD_TRY_OR(st, fail, set_own(o, own, n_own));
    TD_TRY_OR(st, fail, make_state(o));
    TD_TRY_OR(st, fail, td__optim_make_chunks(o));
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
    td__mem_free(&o->mem);
    td__mem_free(&o->chunk_list);
    td__mem_free(&o->chunk_sums);
    td__free(o->segments);
    td__free(o->chunks);
    td__free(o->own);
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
    o->rates = false;
    return TD_OK;
}

/* Where the states of elements [at, at + n) begin. */
static size_t state_at(const td_optimizer *o, size_t at, size_t n)
{
    int low = 0, high = o->n_own;

    if (!o->own)
        return at;
    while (high - low > 1) {
        int mid = (low + high) / 2;
        *(o->own[mid].begin <= at ? &low : &high) = mid;
    }
    const held *h = &o->own[low];
    TD_ASSERT(o->n_own && h->begin <= at && at + n <= h->end,
              "%s: elements [%zu, %zu) are another rank's", o->def->name, at, at + n);
    return h->at + (at - h->begin);
}

/* Elements [at, at + n), of one segment, whose gradients are at g, with the segment's numbers. */
static td__optim_slice slice_at(const td_optimizer *o, size_t at, size_t n, const float *g)
{
    size_t all;
    td__optim_slice s = {.p = td_params_block(o->params, &all) + at, .g = g, .n = n};
    size_t from = o->n_states ? state_at(o, at, n) : 0;

    for (int k = 0; k < o->n_states; k++)
        s.s[k] = o->state + (size_t)k * o->stride + from;
    return s;
}

static td__optim_hyper hyper_of(const td__optim_hyper *h, bool decay)
{
    td__optim_hyper mine = *h;

    if (!decay) {
        mine.l2 = 0;
        mine.shrink = 1;
    }
    return mine;
}

/* The chunk of s that begins at its element `at`. */
static td__optim_slice chunk_at(const td_optimizer *o, const td__optim_slice *s, size_t at)
{
    size_t left = s->n - at;
    td__optim_slice c = {.p = s->p + at, .g = s->g + at};

    c.n = left < TD_OPTIM_CHUNK ? left : TD_OPTIM_CHUNK;
    for (int k = 0; k < o->n_states; k++)
        c.s[k] = s->s[k] + at;
    return c;
}

/* The learning rate of a tensor from the sums of its chunks, fed one by one. */
typedef struct trust {
    td__tree_sum sum[2];
} trust;

static void trust_add(trust *t, const double sums[2])
{
    td__tree_add(&t->sum[0], sums[0]);
    td__tree_add(&t->sum[1], sums[1]);
}

static float trust_rate(const td_optimizer *o, const td__optim_hyper *h, const trust *t)
{
    double sums[2] = {td__tree_total(&t->sum[0]), td__tree_total(&t->sum[1])};
    return o->def->rate(&o->opts, h, sums);
}

/* Elements [at, at + n), of one segment; rate NULL: the segment is all of them, a whole tensor. */
static void update(const td_optimizer *o, const td__optim_hyper *h, bool decay, size_t at, size_t n,
                   const float *g, const float *rate)
{
    td__optim_hyper mine = hyper_of(h, decay);
    td__optim_slice s = slice_at(o, at, n, g);

    if (o->def->chunk && rate) {
        mine.lr = *rate;
    } else if (o->def->chunk) {
        trust t = {.sum = {{.n = 0}, {.n = 0}}};
        for (size_t from = 0; from < n; from += TD_OPTIM_CHUNK) {
            td__optim_slice c = chunk_at(o, &s, from);
            double sums[2];
            o->def->chunk(o->on, &mine, &c, sums);
            td__stream_drain(o->on);
            trust_add(&t, sums);
        }
        if (decay)
            mine.lr = trust_rate(o, &mine, &t);
    }
    td__stream_update(o->on, o->def->update, &mine, &s);
}

/* The first segment that ends after element `at`. */
static int segment_at(const td_optimizer *o, size_t at)
{
    int low = 0, high = o->n_segments;

    while (low < high) {
        int mid = (low + high) / 2;
        if (o->segments[mid].end <= at)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* Without waiting for it. */
static void apply(td_optimizer *o, const float *grads, size_t begin, size_t count)
{
    size_t end = begin + count;
    unsigned mode = td__cpu_fp_flush(); /* averages decay into denormals, which are slow */

    for (int i = segment_at(o, begin); count && i < o->n_segments; i++) {
        const segment *s = &o->segments[i];
        if (s->begin >= end)
            break;
        size_t from = s->begin > begin ? s->begin : begin, to = s->end < end ? s->end : end;
        TD_ASSERT(!o->def->chunk || o->rates || to - from == s->end - s->begin,
                  "%s: slice [%zu, %zu) cuts the tensor [%zu, %zu)", o->def->name, begin, end,
                  s->begin, s->end);
        update(o, &o->now, s->decay, from, to - from, grads + (from - begin),
               o->rates ? &s->rate : NULL);
    }
    td__cpu_fp_restore(mode);
}

void td__optim_apply(td_optimizer *o, const float *grads, size_t begin, size_t count)
{
    apply(o, grads, begin, count);
    td__stream_drain(o->on);
}

void td__optim_apply_rows(td_optimizer *o, const td_sparse_grad *sg)
{
    td_param_info info = td_params_info(o->params, sg->param);
    size_t width = (size_t)sg->width;
    unsigned mode = td__cpu_fp_flush();

    for (int64_t r = 0; r < sg->n_rows; r++)
        update(o, &o->now_rows, true, info.offset + (size_t)sg->rows[r] * width, width,
               sg->values + (size_t)r * width, NULL);
    td__stream_drain(o->on);
    td__cpu_fp_restore(mode);
}

td_status td__optim_end(td_optimizer *o)
{
    td_params_touch(o->params);
    return td__stream_sync(o->on);
}

bool td__optim_sliceable(const td_optimizer *o)
{
    return !o->def->chunk;
}

/* ---- Clipping by the norm of all gradients --------------------------------------------------- */

double td__optim_param_squares(const td_optimizer *o, const float *grads, size_t count)
{
    return td__optim_squares(o->on, grads, count, 1.0f, INFINITY);
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

/* ---- Elements of one rank -------------------------------------------------------------------- */

/* A chunk's states, beside the real ones. */
static void copy_states(const td_optimizer *o, td__optim_slice *c,
                        float beside[TD_OPTIM_MAX_STATE][TD_OPTIM_CHUNK])
{
    for (int k = 0; k < o->n_states; k++) {
        memcpy(beside[k], c->s[k], c->n * sizeof *beside[k]);
        c->s[k] = beside[k];
    }
}

void td__optim_chunk_sums(td_optimizer *o, const float *grads, size_t begin, size_t count,
                          bool keep, double *sums)
{
    float beside[TD_OPTIM_MAX_STATE][TD_OPTIM_CHUNK];
    size_t end = begin + count;
    unsigned mode = td__cpu_fp_flush();

    for (int i = 0; i < o->n_segments; i++) {
        const segment *s = &o->segments[i];
        if (s->end <= begin || s->begin >= end || !count)
            continue;
        size_t from = s->begin > begin ? s->begin : begin, to = s->end < end ? s->end : end;
        td__optim_hyper mine = hyper_of(&o->now, s->decay);
        td__optim_slice part = slice_at(o, from, to - from, grads + (from - begin));
        double *to_sums = sums + 2 * ((size_t)s->chunk + (from - s->begin) / TD_OPTIM_CHUNK);
        for (size_t at = 0; at < part.n; at += TD_OPTIM_CHUNK, to_sums += 2) {
            td__optim_slice c = chunk_at(o, &part, at);
            if (!keep)
                copy_states(o, &c, beside);
            o->def->chunk(o->on, &mine, &c, to_sums);
        }
    }
    td__stream_drain(o->on);
    td__cpu_fp_restore(mode);
}

void td__optim_set_rates(td_optimizer *o, const double *sums)
{
    for (int i = 0; i < o->n_segments; i++) {
        segment *s = &o->segments[i];
        size_t n = (s->end - s->begin + TD_OPTIM_CHUNK - 1) / TD_OPTIM_CHUNK;
        trust t = {.sum = {{.n = 0}, {.n = 0}}};
        for (size_t k = 0; k < n; k++)
            trust_add(&t, sums + 2 * ((size_t)s->chunk + k));
        td__optim_hyper mine = hyper_of(&o->now, s->decay);
        s->rate = s->decay ? trust_rate(o, &mine, &t) : mine.lr;
    }
    o->rates = true;
}

size_t td__optim_state_part(td_optimizer *o, int k, size_t begin, size_t end, size_t *first,
                            float **state)
{
    held all = {0, o->count, 0};
    const held *h = o->own ? o->own : &all;

    for (int i = 0; i < (o->own ? o->n_own : 1); i++, h++) {
        size_t from = h->begin > begin ? h->begin : begin, to = h->end < end ? h->end : end;
        if (from >= to)
            continue;
        *first = from;
        *state = o->state + (size_t)k * o->stride + h->at + (from - h->begin);
        return to - from;
    }
    return 0;
}

/* Sum of squares per param, then over the params and row-sparse gradients in order. */
static double all_squares(const td_optimizer *o, const float *grads, td_runner *r)
{
    td__tree_sum sum = {.n = 0};

    if (o->chunk_list.at)
        td__optim_add_all_squares(o, grads, &sum);
    for (int i = 0; !o->chunk_list.at && i < td_params_count(o->params); i++) {
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
    apply(o, grads, 0, o->dense);
    for (int i = 0; i < td_runner_sparse_count(r); i++) {
        td_sparse_grad sg = td_runner_sparse_grad(r, i);
        td__optim_apply_rows(o, &sg);
    }
    td_runner_update_states(r);
    return td__optim_end(o);
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
    TD_ASSERT(!o->own, "%s: state %d is not in one piece", o->def->name, k);
    if (count)
        *count = o->count;
    return o->state + (size_t)k * o->stride;
}

td_status td__optim_map_state(td_optimizer *o, int k, td__map_use use, td__mapping *out)
{
    size_t count;
    float *state = td_optimizer_state(o, k, &count);

    return td__mem_map(o->mem.device, state, count * sizeof *state, use, out);
}
