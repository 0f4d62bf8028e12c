/* plan_pool.c -- max, average and global average pools over NHWC images, and their gradients. A
 * global pool is an average pool whose window is the image. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/cpu.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/kernels/pool.h"
#include "base/alloc.h"
#include "base/fail.h"
#include "ops/attr.h"

typedef struct pool_state {
    td__pool_kernels kernels;
    td__pool pool;
} pool_state;

/* `x` and `y` are the descs of the larger and the smaller image. */
static td_status make_state(const td__cpu *cpu, const td_node *n, const td_desc *x,
                            const td_desc *y, const td_attr_pool2d *a, td_kernel *k)
{
    if (!td__is_f32_or_bf16(x->dtype) || y->dtype != x->dtype || !td__lies_nhwc(x) ||
        !td__lies_nhwc(y))
        return TD_ENOTSUP;
    pool_state *s = td__calloc(1, sizeof *s);
    if (!s)
        return TD_FAIL(TD_ENOMEM, "no memory to plan %s", n->name);
    s->kernels = TD_ISA_PICK(cpu->isa, td__pool);
    s->pool = (td__pool){
        .n = x->shape.dim[0],
        .c = x->shape.dim[1],
        .h = x->shape.dim[2],
        .w = x->shape.dim[3],
        .oh = y->shape.dim[2],
        .ow = y->shape.dim[3],
        .size = {x->shape.dim[2], x->shape.dim[3]},
        .stride = {x->shape.dim[2], x->shape.dim[3]},
        .bf16 = x->dtype == TD_BF16,
    };
    for (int i = 0; a && i < 2; i++) {
        s->pool.size[i] = a->size[i];
        s->pool.stride[i] = a->stride[i];
        s->pool.pad[i] = a->pad[i];
    }
    k->state = s;
    k->fini = td__free;
    k->impl = "nhwc pool";
    return TD_OK;
}

static void run_max(const td_kernel_call *c)
{
    const pool_state *s = c->kernel->state;
    s->kernels.max(&s->pool, c->out[0], c->out[1], c->in[0]);
}

static void run_max_back(const td_kernel_call *c)
{
    const pool_state *s = c->kernel->state;
    s->kernels.max_back(&s->pool, c->out[0], c->in[0], c->in[1]);
}

static void run_avg(const td_kernel_call *c)
{
    const pool_state *s = c->kernel->state;
    s->kernels.avg(&s->pool, c->out[0], c->in[0]);
}

static void run_avg_back(const td_kernel_call *c)
{
    const pool_state *s = c->kernel->state;
    s->kernels.avg_back(&s->pool, c->out[0], c->in[0]);
}

td_status td__cpu_plan_max_pool(const td__cpu *cpu, const td_node *n, const bool *is_param,
                                td_kernel *k)
{
    (void)is_param;
    if (!td__lies_nhwc(&n->out[1]))
        return TD_ENOTSUP;
    k->run = run_max;
    return make_state(cpu, n, td__in_desc(n, 0), &n->out[0], n->attr, k);
}

td_status td__cpu_plan_max_pool_back(const td__cpu *cpu, const td_node *n, const bool *is_param,
                                     td_kernel *k)
{
    (void)is_param;
    if (!td__lies_nhwc(td__in_desc(n, 1)))
        return TD_ENOTSUP;
    k->run = run_max_back;
    return make_state(cpu, n, &n->out[0], td__in_desc(n, 0), n->attr, k);
}

td_status td__cpu_plan_avg_pool(const td__cpu *cpu, const td_node *n, const bool *is_param,
                                td_kernel *k)
{
    (void)is_param;
    k->run = run_avg;
    return make_state(cpu, n, td__in_desc(n, 0), &n->out[0], n->attr, k);
}

td_status td__cpu_plan_avg_pool_back(const td__cpu *cpu, const td_node *n, const bool *is_param,
                                     td_kernel *k)
{
    (void)is_param;
    k->run = run_avg_back;
    return make_state(cpu, n, &n->out[0], td__in_desc(n, 0), n->attr, k);
}

td_status td__cpu_plan_global_avg_pool(const td__cpu *cpu, const td_node *n, const bool *is_param,
                                       td_kernel *k)
{
    (void)is_param;
    k->run = run_avg;
    return make_state(cpu, n, td__in_desc(n, 0), &n->out[0], NULL, k);
}

td_status td__cpu_plan_global_avg_pool_back(const td__cpu *cpu, const td_node *n,
                                            const bool *is_param, td_kernel *k)
{
    (void)is_param;
    k->run = run_avg_back;
    return make_state(cpu, n, &n->out[0], td__in_desc(n, 0), NULL, k);
}
