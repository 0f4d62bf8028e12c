/* cpu.h -- the CPU backend, as its planners see it.
 *
 * A planner turns a node into a kernel: it sets run, impl, and as needed scratch, state, fini,
 * prepare, packs and packed of a zeroed *k (whose node is set). It answers TD_ENOTSUP, without an
 * error text, for what it does not do, and the reference executor takes the node. Adding a kernel
 * is one planner and one line in kernels.def. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BACKEND_CPU_CPU_H
#define TD_BACKEND_CPU_CPU_H

#include "base/cpu.h"
#include "graph/backend.h"

typedef struct td__cpu {
    td_backend base;
    td__isa isa;      /* what kernels may use */
    const char *kind; /* td__cpu_kind(): the key of tuning tables */
    bool missed;      /* it was said that this build has no oneDNN */
} td__cpu;

typedef td_status td__cpu_plan_fn(const td__cpu *cpu, const td_node *n, const bool *is_param,
                                  td_kernel *k);

#define TD_CPU_KERNEL(OP, plan) td__cpu_plan_fn plan;
#include "backend/cpu/kernels.def"
#undef TD_CPU_KERNEL

/* Planner of every operator that has `scalar`; they need no line in kernels.def. */
td__cpu_plan_fn td__cpu_plan_elementwise;

/* The desc of input i. */
static inline const td_desc *td__in_desc(const td_node *n, int i)
{
    return &n->in[i]->out[0];
}

/* Floating types that kernels compute in f32. */
static inline bool td__is_narrow(td_dtype t)
{
    return t == TD_F32 || t == TD_BF16 || t == TD_F16;
}

/* Floating types that the matrix products and the image kernels take. */
static inline bool td__is_f32_or_bf16(td_dtype t)
{
    return t == TD_F32 || t == TD_BF16;
}

/* Does an image lie as NHWC? One of a single pixel or channel lies the same way in both layouts. */
static inline bool td__lies_nhwc(const td_desc *image)
{
    const int64_t *dim = image->shape.dim;
    return image->layout == TD_LAYOUT_NHWC || dim[1] == 1 || dim[2] * dim[3] == 1;
}

#endif
