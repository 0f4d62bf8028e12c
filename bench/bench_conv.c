/* bench_conv.c -- milliseconds of the convolutions of the models that are compared with other
 * systems: forward, gradient to the data, gradient to the weight, f32 and bf16, one thread. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>

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

/* Best seconds of one node on buffers of its own; negative if it cannot be planned. */
static double time_node(td_backend *b, td_opcode op, const td_attr_conv2d *attr, const td_desc *in0,
                        const td_desc *in1, const td_desc *out, char impl[64])
{
    td_node leaf[2] = {{.op = TD_OP_INPUT, .name = "a", .n_out = 1, .out = in0},
                       {.op = TD_OP_INPUT, .name = "b", .n_out = 1, .out = in1}};
    td_node n = {.op = op,
                 .name = "conv",
                 .n_in = 2,
                 .n_out = 1,
                 .in = (td_node *[]){&leaf[0], &leaf[1]},
                 .out = out,
                 .attr = attr};
    bool is_param[] = {false, op != TD_OP_CONV2D_BACK_WEIGHT};
    const td_desc *descs[] = {in0, in1, out};
    void *buffer[3], *scratch, *packed;
    td_kernel k;
    unsigned saved;

    if (b->ops->plan(b, &n, is_param, &k))
        return -1.0;
    for (int i = 0; i < 3; i++) {
        buffer[i] = td__alloc_block(td__desc_bytes(descs[i]));
        fill(descs[i], buffer[i], (uint32_t)i);
    }
    scratch = td__alloc_block(k.scratch + 64);
    packed = td__alloc_block(k.packed + 64);
    td_kernel_call c = {.in = (const void *[]){buffer[0], buffer[1]},
                        .out = &buffer[2],
                        .scratch = scratch,
                        .packed = packed,
                        .kernel = &k,
                        .ctx = &(td_run_ctx){.seed = 1}};
    b->ops->enter(b, &saved);
    double best = bench_best_seconds(run_kernel, &c, 0.05, 3);
    b->ops->leave(b, saved);
    snprintf(impl, 64, "%s", k.impl);
    for (int i = 0; i < 3; i++)
        td__free_block(buffer[i], td__desc_bytes(descs[i]));
    td__free_block(scratch, k.scratch + 64);
    td__free_block(packed, k.packed + 64);
    if (k.fini)
        k.fini(k.state);
    return best;
}

static void bench_case(td_backend *b, const conv_case *v, td_dtype dtype)
{
    int64_t oh = (v->h + 2 * v->pad - v->k) / v->stride + 1;
    td_desc x = {dtype, TD_LAYOUT_NHWC, TD_SHAPE(v->n, v->c, v->h, v->h)};
    td_desc w = {TD_F32, TD_LAYOUT_PLAIN, TD_SHAPE(v->o, v->c, v->k, v->k)};
    td_desc y = {dtype, TD_LAYOUT_NHWC, TD_SHAPE(v->n, v->o, oh, oh)};
    td_attr_conv2d attr = {.stride = {v->stride, v->stride},
                           .pad = {v->pad, v->pad},
                           .dilation = {1, 1},
                           .groups = 1,
                           .out_dtype = dtype};
    td_attr_conv2d data = attr, weight = attr;
    static const char *const PASS[] = {"forward", "data", "weight"};

    data.other = x.shape;
    weight.other = w.shape;
    weight.out_dtype = TD_F32;
    for (int pass = 0; pass < 3; pass++) {
        char name[128], impl[64] = "";
        snprintf(name, sizeof name, "conv %s %s N%d C%d H%d O%d K%d s%d", td_dtype_name(dtype),
                 PASS[pass], (int)v->n, (int)v->c, (int)v->h, (int)v->o, (int)v->k, v->stride);
        if (!bench_wanted(name) || (pass == 1 && v->c <= 3))
            continue;
        double t = pass == 0   ? time_node(b, TD_OP_CONV2D, &attr, &x, &w, &y, impl)
                   : pass == 1 ? time_node(b, TD_OP_CONV2D_BACK_DATA, &data, &y, &w, &x, impl)
                               : time_node(b, TD_OP_CONV2D_BACK_WEIGHT, &weight, &y, &x, &w, impl);
        size_t used = 0;
        while (name[used])
            used++;
        snprintf(name + used, sizeof name - used, " [%s]", impl);
        bench_row(name, t * 1e3, 0.0, "ms", false);
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
