/* cpu.c -- the CPU backend: a table of planners, the reference executor behind it, and the state of
 * the calling thread while kernels run. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/cpu.h"

#include <omp.h>

#include "backend/cpu/gemm.h"
#include "backend/host.h"
#include "backend/ref_exec.h"
#include "base/fail.h"
#include "base/log.h"

static td__cpu_plan_fn *const PLANNERS[TD_OP_COUNT] = {
    [TD_OP_INPUT] = NULL, /* leaves and views are never planned */
#define TD_CPU_KERNEL(OP, plan) [TD_OP_##OP] = plan,
#include "backend/cpu/kernels.def"
#undef TD_CPU_KERNEL
};

static td_status cpu_plan(td_backend *b, const td_node *n, const bool *is_param, td_kernel *k)
{
    td__cpu_plan_fn *plan = PLANNERS[n->op];
    td_status st = TD_ENOTSUP;

    *k = (td_kernel){.node = n};
    if (!plan && td__op(n->op)->scalar)
        plan = td__cpu_plan_elementwise;
    if (plan) {
        /* oneDNN cuts a primitive for the team size it sees at creation, and runs with that one. */
        int team = omp_get_max_threads();
        omp_set_num_threads(1);
        st = plan((const td__cpu *)b, n, is_param, k);
        omp_set_num_threads(team);
    }
    if (st != TD_ENOTSUP)
        return st;
    TD_LOG(DEBUG, BACKEND, "%s: %s runs on its reference kernel", n->name, td__op(n->op)->name);
    return td__ref_exec_plan(n, k);
}

/* The saved word: MXCSR (16 bits) below, the thread's OpenMP team size above it. oneDNN runs its
 * primitives on an OpenMP team; a worker is one thread. */
static void cpu_enter(td_backend *b, unsigned *saved)
{
    (void)b;
    *saved = (unsigned)omp_get_max_threads() << 16 | (td__cpu_fp_flush() & 0xffffu);
    omp_set_num_threads(1);
    td__amx_enter();
}

static void cpu_leave(td_backend *b, unsigned saved)
{
    (void)b;
    td__amx_leave();
    omp_set_num_threads((int)(saved >> 16));
    td__cpu_fp_restore(saved & 0xffffu);
}

static const td_backend_ops OPS = {
    .name = "cpu",
    .destroy = td__host_destroy,
    .device = "host",
    .plan = cpu_plan,
    .enter = cpu_enter,
    .leave = cpu_leave,
    .wants_nhwc = true,
};

td_status td__cpu_create(td_backend **out)
{
    TD_TRY(td__host_create(&OPS, sizeof(td__cpu), out));
    td__cpu *cpu = (td__cpu *)*out;
    cpu->isa = td__cpu_isa();
    cpu->kind = td__cpu_kind();
    return TD_OK;
}
