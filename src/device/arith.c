/* arith.c -- arithmetic over blocks: of devices that run the processor's own kernels, where each
 * operation is a launch whose kernel turns addresses into the device's own and calls the loops of
 * kernels/ for the best instruction set; and of all devices through their tables. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/fail.h"
#include "base/kernels/blend.h"
#include "device/device_impl.h"

static float *local(const td_stream *s, const float *at)
{
    const td_device_ops *ops = s->device->ops;
    return ops->host_reads ? (float *)(uintptr_t)at : ops->local(s->device, at);
}

/* A launch is a call, and addresses are the host's. Steps update blocks of a thousand elements, of
 * which a copy of the arguments would be some per cent of the time. */
static bool is_plain_call(const td_stream *s)
{
    return s->at_once && !s->tape && s->device->ops->host_reads;
}

/* ---- Blends ---------------------------------------------------------------------------------- */

typedef struct blend_args {
    const td_stream *s;
    const td__blend_op *op;
    int n;
    size_t begin, count;
    float *to;
} blend_args;

void td__host_blend(const td__blend_op *op, int n, size_t begin, size_t count)
{
    void (*blend)(float *, float, const float *, float, size_t) =
        TD_ISA_PICK(td__cpu_isa(), td__blend);
    for (int i = 0; i < n; i++)
        blend(op[i].dst + begin, op[i].a, op[i].src + begin, op[i].b, count);
}

static void run_blend(const void *args)
{
    const blend_args *b = args;
    for (int i = 0; i < b->n; i++) {
        td__blend_op op = b->op[i];
        op.dst = local(b->s, op.dst);
        op.src = local(b->s, op.src);
        td__host_blend(&op, 1, b->begin, b->count);
    }
}

static void host_blend(td_stream *s, const td__blend_op *op, int n, size_t begin, size_t count)
{
    blend_args b = {.s = s, .op = op, .n = n, .begin = begin, .count = count};
    td__stream_launch(s, run_blend, &b, sizeof b);
}

static void run_blended(const void *args)
{
    const blend_args *b = args;
    TD_ISA_PICK(td__cpu_isa(), td__blended)
    (local(b->s, b->to), local(b->s, b->op->dst + b->begin), b->op->a,
     local(b->s, b->op->src + b->begin), b->op->b, b->count);
}

static void host_blended(td_stream *s, const td__blend_op *op, size_t begin, size_t count,
                         float *to)
{
    if (is_plain_call(s)) {
        TD_ISA_PICK(td__cpu_isa(), td__blended)
        (to, op->dst + begin, op->a, op->src + begin, op->b, count);
        return;
    }
    blend_args b = {.s = s, .op = op, .begin = begin, .count = count, .to = to};
    td__stream_launch(s, run_blended, &b, sizeof b);
}

typedef struct scale_args {
    const td_stream *s;
    float *to;
    const float *from;
    float by;
    size_t n;
} scale_args;

static void run_scale(const void *args)
{
    const scale_args *c = args;
    TD_ISA_PICK(td__cpu_isa(), td__scaled_copy)
    (local(c->s, c->to), local(c->s, c->from), c->by, c->n);
}

static void host_scale(td_stream *s, float *to, const float *from, float by, size_t n)
{
    scale_args c = {s, to, from, by, n};
    td__stream_launch(s, run_scale, &c, sizeof c);
}

static void run_publish(const void *args)
{
    const scale_args *c = args;
    TD_ISA_PICK(td__cpu_isa(), td__scaled_stream)(c->to, local(c->s, c->from), c->by, c->n);
}

static void host_publish(td_stream *s, float *to, const float *from, float by, size_t n)
{
    scale_args c = {s, to, from, by, n};
    td__stream_launch(s, run_publish, &c, sizeof c);
}

/* ---- Optimizers ------------------------------------------------------------------------------ */

static td__optim_kernel *const KERNELS[TD_UPDATE_COUNT][3] = {
#define TD_UPDATE(NAME, kernel)                                                       \
    [TD_UPDATE_##NAME] = {td__optim_k_##kernel##_scalar, td__optim_k_##kernel##_avx2, \
                          td__optim_k_##kernel##_avx512},
#include "device/updates.def"
#undef TD_UPDATE
};

typedef struct update_args {
    const td_stream *s;
    td__update u;
    td__optim_hyper h;
    td__optim_slice x;
    double *sums;
} update_args;
_Static_assert(sizeof(update_args) <= TD__LAUNCH_ARGS, "the arguments of an update are copied");

static td__optim_slice local_slice(const td_stream *s, const td__optim_slice *x)
{
    td__optim_slice l = {.p = local(s, x->p), .g = local(s, x->g), .n = x->n};
    for (int k = 0; k < TD_OPTIM_MAX_STATE && x->s[k]; k++)
        l.s[k] = local(s, x->s[k]);
    return l;
}

static td__optim_kernel *kernel_of(td__update u)
{
    td__isa isa = td__cpu_isa();
    return KERNELS[u][isa >= TD_ISA_AVX512 ? 2 : isa >= TD_ISA_AVX2 ? 1 : 0];
}

static void run_update(const void *args)
{
    const update_args *u = args;
    td__optim_slice x = local_slice(u->s, &u->x);
    kernel_of(u->u)(&u->h, &x);
}

static void host_update(td_stream *s, td__update u, const td__optim_hyper *h,
                        const td__optim_slice *x)
{
    if (is_plain_call(s)) {
        kernel_of(u)(h, x);
        return;
    }
    update_args a = {.s = s, .u = u, .h = *h, .x = *x};
    td__stream_launch(s, run_update, &a, sizeof a);
}

static void run_moments(const void *args)
{
    const update_args *u = args;
    td__optim_slice x = local_slice(u->s, &u->x);
    TD_ISA_PICK(td__cpu_isa(), td__optim_k_lamb_moments)(&u->h, &x, u->sums);
}

static void host_moments(td_stream *s, const td__optim_hyper *h, const td__optim_slice *x,
                         double sums[2])
{
    update_args a = {.s = s, .h = *h, .x = *x, .sums = sums};
    td__stream_launch(s, run_moments, &a, sizeof a);
}

typedef struct squares_args {
    const td_stream *s;
    const float *x;
    size_t n;
    float scale, clip;
    double *by_chunk;
} squares_args;

static void run_squares(const void *args)
{
    const squares_args *q = args;
    double (*squares)(const float *, size_t, float, float) =
        TD_ISA_PICK(td__cpu_isa(), td__optim_k_squares);
    const float *x = local(q->s, q->x);
    double *to = q->by_chunk;
    for (size_t at = 0; at < q->n; at += TD_OPTIM_CHUNK) {
        size_t left = q->n - at;
        *to++ = squares(x + at, left < TD_OPTIM_CHUNK ? left : TD_OPTIM_CHUNK, q->scale, q->clip);
    }
}

static void host_squares(td_stream *s, const float *x, size_t n, float scale, float clip,
                         double *by_chunk)
{
    squares_args q = {s, x, n, scale, clip, by_chunk};
    td__stream_launch(s, run_squares, &q, sizeof q);
}

typedef struct square_list {
    const td_stream *s;
    const float *x;
    const td__square_chunk *list;
    size_t n;
    double *by_chunk;
} square_list;

static void run_square_chunks(const void *args)
{
    const square_list *q = args;
    double (*squares)(const float *, size_t, float, float) =
        TD_ISA_PICK(td__cpu_isa(), td__optim_k_squares);
    const float *x = local(q->s, q->x);
    for (size_t i = 0; i < q->n; i++)
        q->by_chunk[i] = squares(x + q->list[i].at, q->list[i].n, 1.0f, INFINITY);
}

static void host_square_chunks(td_stream *s, const float *x, const td__square_chunk *list, size_t n,
                               double *by_chunk)
{
    square_list q = {s, x, list, n, by_chunk};
    td__stream_launch(s, run_square_chunks, &q, sizeof q);
}

/* ---- Copies ---------------------------------------------------------------------------------- */

typedef struct copies_args {
    const td_device *device;
    const td__copy_piece *list;
    size_t n;
} copies_args;

static void run_copies(const void *args)
{
    const copies_args *c = args;
    const td_device_ops *ops = c->device->ops;
    for (size_t i = 0; i < c->n; i++)
        memcpy(ops->local(c->device, c->list[i].to), ops->local(c->device, c->list[i].from),
               c->list[i].nbytes);
}

static void host_copies(td_stream *s, const td__copy_piece *list, size_t n)
{
    copies_args c = {s->device, list, n};
    td__stream_launch(s, run_copies, &c, sizeof c);
}

const td_arith_ops td__arith_host = {.blend = host_blend,
                                     .blended = host_blended,
                                     .scale = host_scale,
                                     .publish = host_publish,
                                     .update = host_update,
                                     .moments = host_moments,
                                     .squares = host_squares,
                                     .square_chunks = host_square_chunks,
                                     .copies = host_copies};

/* ---- All devices ----------------------------------------------------------------------------- */

void td__stream_blend(td_stream *s, const td__blend_op *op, int n, size_t begin, size_t count)
{
    s->device->ops->arith->blend(s, op, n, begin, count);
}

void td__stream_blended(td_stream *s, const td__blend_op *op, size_t begin, size_t count, float *to)
{
    s->device->ops->arith->blended(s, op, begin, count, to);
}

void td__stream_scale(td_stream *s, float *to, const float *from, float by, size_t n)
{
    s->device->ops->arith->scale(s, to, from, by, n);
}

void td__stream_publish(td_stream *s, float *to, const float *from, float by, size_t n)
{
    s->device->ops->arith->publish(s, to, from, by, n);
}

void td__stream_update(td_stream *s, td__update u, const td__optim_hyper *h,
                       const td__optim_slice *x)
{
    s->device->ops->arith->update(s, u, h, x);
}

void td__stream_moments(td_stream *s, const td__optim_hyper *h, const td__optim_slice *x,
                        double sums[2])
{
    s->device->ops->arith->moments(s, h, x, sums);
}

void td__stream_squares(td_stream *s, const float *x, size_t n, float scale, float clip,
                        double *by_chunk)
{
    s->device->ops->arith->squares(s, x, n, scale, clip, by_chunk);
}

void td__stream_square_chunks(td_stream *s, const float *x, const td__square_chunk *list, size_t n,
                              double *by_chunk)
{
    if (n)
        s->device->ops->arith->square_chunks(s, x, list, n, by_chunk);
}

void td__stream_copies(td_stream *s, const td__copy_piece *list, size_t n)
{
    if (n)
        s->device->ops->arith->copies(s, list, n);
}
