/* bench_conv.c -- milliseconds of the convolutions of the models that are compared with other
 * systems, beside oneDNN's f32 primitive: forward, gradient to the data, gradient to the weight,
 * f32 and bf16, one thread. The kernel that the backend chooses is named in brackets; where it is
 * oneDNN's own, the ratio is near 1. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>

#include "backend/cpu/conv.h"
#include "base/alloc.h"
#include "base/half.h"
#include "base/rng.h"
#include "bench_report.h"
#include "graph/backend.h"
#include "ops/attr.h"

typedef struct conv_case {
    int64_t n, c, h, o, k;
    int stride, pad;
} conv_case;

static const conv_case CASES[] = {
    {64, 1, 28, 32, 3, 1, 1},    {64, 32, 28, 64, 3, 1, 1},   {32, 3, 32, 64, 3, 1, 1},
    {32, 64, 32, 64, 3, 1, 1},   {32, 64, 32, 128, 3, 2, 1},  {32, 64, 32, 128, 1, 2, 0},
    {32, 128, 16, 128, 3, 1, 1}, {32, 128, 16, 256, 3, 2, 1}, {32, 256, 8, 256, 3, 1, 1},
    {32, 256, 8, 512, 3, 2, 1},  {32, 512, 4, 512, 3, 1, 1},
};

static void fill(const td_desc *d, void *to, uint32_t stream)
{
    td__rng_key key = {.seed = 3, .stream = stream};

    for (int64_t i = 0; i < td__desc_count(d); i++) {
        float v = td__rng_uniform(&key, (uint64_t)i) - 0.5f;
        if (d->dtype == TD_BF16)
            ((td_bf16 *)to)[i] = td__bf16_from_f32(v);
        else
            ((float *)to)[i] = v;
    }
}

static void run_kernel(void *arg)
{
    const td_kernel_call *c = arg;

    if (c->kernel->prepare)
        c->kernel->prepare(c);
    c->kernel->run(c);
}

/* One pass of a convolution as a node: two inputs, one output. */
typedef struct pass_node {
    td_attr_conv2d attr;
    td_desc desc[3]; /* in[0], in[1], out */
    td_node leaf[2];
    td_node *in[2];
    td_node node;
} pass_node;

static void make_node(pass_node *p, td_opcode op)
{
    for (int i = 0; i < 2; i++) {
        p->leaf[i] = (td_node){.op = TD_OP_INPUT, .name = "in", .n_out = 1, .out = &p->desc[i]};
        p->in[i] = &p->leaf[i];
    }
    p->node = (td_node){.op = op,
                        .name = "conv",
                        .n_in = 2,
                        .n_out = 1,
                        .in = p->in,
                        .out = &p->desc[2],
                        .attr = &p->attr};
}

/* Best seconds of a planned kernel on buffers of its own; the kernel is released. */
static double time_kernel(td_backend *b, td_kernel *k, const pass_node *p)
{
    void *buffer[3], *scratch, *packed;
    unsigned saved;

    for (int i = 0; i < 3; i++) {
        buffer[i] = td__alloc_block(td__desc_bytes(&p->desc[i]));
        fill(&p->desc[i], buffer[i], (uint32_t)i);
    }
    scratch = td__alloc_block(k->scratch + 64);
    packed = td__alloc_block(k->packed + 64);
    td_kernel_call c = {.in = (const void *[]){buffer[0], buffer[1]},
                        .out = &buffer[2],
                        .scratch = scratch,
                        .packed = packed,
                        .kernel = k,
                        .ctx = &(td_run_ctx){.seed = 1}};
    b->ops->enter(b, &saved);
    double best = bench_best_seconds(run_kernel, &c, 0.05, 3);
    b->ops->leave(b, saved);
    for (int i = 0; i < 3; i++)
        td__free_block(buffer[i], td__desc_bytes(&p->desc[i]));
    td__free_block(scratch, k->scratch + 64);
    td__free_block(packed, k->packed + 64);
    if (k->fini)
        k->fini(k->state);
    return best;
}

/* The nodes of a case: x NHWC, w plain, y NHWC. */
static pass_node node_of(const conv_case *v, td_dtype dtype, td__conv_pass pass)
{
    int64_t oh = (v->h + 2 * v->pad - v->k) / v->stride + 1;
    td_desc x = {dtype, TD_LAYOUT_NHWC, TD_SHAPE(v->n, v->c, v->h, v->h)};
    td_desc w = {TD_F32, TD_LAYOUT_PLAIN, TD_SHAPE(v->o, v->c, v->k, v->k)};
    td_desc y = {dtype, TD_LAYOUT_NHWC, TD_SHAPE(v->n, v->o, oh, oh)};
    pass_node p = {.attr = {.stride = {v->stride, v->stride},
                            .pad = {v->pad, v->pad},
                            .dilation = {1, 1},
                            .groups = 1,
                            .out_dtype = pass == TD__CONV_BACK_WEIGHT ? TD_F32 : dtype,
                            .other = pass == TD__CONV_BACK_DATA ? x.shape : w.shape}};

    p.desc[0] = pass == TD__CONV_FORWARD ? x : y;
    p.desc[1] = pass == TD__CONV_BACK_WEIGHT ? x : w;
    p.desc[2] = pass == TD__CONV_FORWARD ? y : pass == TD__CONV_BACK_DATA ? x : w;
    return p;
}

/* The kernel that the backend chooses. Seconds, or less than 0 if it cannot be planned. */
static double time_ours(td_backend *b, const conv_case *v, td_dtype dtype, td__conv_pass pass,
                        char impl[64])
{
    static const td_opcode OPS[] = {TD_OP_CONV2D, TD_OP_CONV2D_BACK_DATA, TD_OP_CONV2D_BACK_WEIGHT};
    pass_node p = node_of(v, dtype, pass);
    bool is_param[] = {false, pass != TD__CONV_BACK_WEIGHT};
    td_kernel k = {.node = &p.node};

    make_node(&p, OPS[pass]);
    if (b->ops->plan(b, &p.node, is_param, &k))
        return -1.0;
    snprintf(impl, 64, "%s", k.impl);
    return time_kernel(b, &k, &p);
}

/* oneDNN's f32 primitive for the same work, weights brought into its order likewise. */
static double time_onednn(td_backend *b, const conv_case *v, td__conv_pass pass)
{
    pass_node p = node_of(v, TD_F32, pass);
    pass_node forward = node_of(v, TD_F32, TD__CONV_FORWARD);
    td_kernel k = {.node = &p.node};
    td__conv conv = {.pass = pass,
                     .n = v->n,
                     .c = v->c,
                     .h = v->h,
                     .w = v->h,
                     .o = v->o,
                     .oh = forward.desc[2].shape.dim[2],
                     .ow = forward.desc[2].shape.dim[3],
                     .kh = v->k,
                     .kw = v->k,
                     .groups = 1,
                     .stride = {v->stride, v->stride},
                     .pad = {v->pad, v->pad},
                     .dilation = {1, 1},
                     .weight_is_param = pass != TD__CONV_BACK_WEIGHT,
                     .x = forward.desc[0],
                     .y = forward.desc[2],
                     .w_dtype = TD_F32};

    make_node(&p, TD_OP_CONV2D);
    if (td__conv_plan_onednn((const td__cpu *)b, &conv, &k))
        return 0.0;
    return time_kernel(b, &k, &p);
}

static void bench_case(td_backend *b, const conv_case *v, td_dtype dtype)
{
    static const char *const PASS[] = {"forward", "data", "weight"};

    for (td__conv_pass pass = TD__CONV_FORWARD; pass <= TD__CONV_BACK_WEIGHT; pass++) {
        char shape[96], name[192], impl[64] = "";
        snprintf(shape, sizeof shape, "conv %s %s N%d C%d H%d O%d K%d s%d", td_dtype_name(dtype),
                 PASS[pass], (int)v->n, (int)v->c, (int)v->h, (int)v->o, (int)v->k, v->stride);
        if (!bench_wanted(shape) || (pass == TD__CONV_BACK_DATA && v->c <= 3))
            continue;
        double ours = time_ours(b, v, dtype, pass, impl);
        double peer = time_onednn(b, v, pass);
        snprintf(name, sizeof name, "%s [%s] vs oneDNN f32", shape, impl);
        bench_row(name, ours * 1e3, peer * 1e3, "ms", false);
    }
}

int main(int argc, char **argv)
{
    td_backend *b;

    bench_begin(argc, argv);
    if (td__backend_create("cpu", &b)) {
        fprintf(stderr, "%s\n", td_last_error());
        return 1;
    }
    for (int t = 0; t < 2; t++)
        for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++)
            bench_case(b, &CASES[i], t ? TD_BF16 : TD_F32);
    td__backend_destroy(b);
    return bench_end();
}
