/* cpu.c -- the CPU backend: a table of planners, the reference executor behind it, and the state of
 * the calling thread while kernels run. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/cpu.h"

#include "backend/cpu/engine_onednn.h"
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

/* Says once why convolutions take so long. */
static void miss_onednn(td__cpu *cpu, const td_node *n)
{
    bool conv = n->op == TD_OP_CONV2D || n->op == TD_OP_CONV2D_BACK_DATA ||
                n->op == TD_OP_CONV2D_BACK_WEIGHT;
    if (!conv || td__onednn_version() || cpu->missed)
        return;
    cpu->missed = true;
    TD_LOG(WARN, BACKEND,
           "this build has no oneDNN: convolutions such as %s run on reference kernels, which are "
           "very slow; install libdnnl-dev and build again, or train on a GPU",
           n->name);
}

static td_status cpu_plan(td_backend *b, const td_node *n, const bool *is_param, td_kernel *k)
{
    td__cpu_plan_fn *plan = PLANNERS[n->op];
    td_status st = TD_ENOTSUP;

    *k = (td_kernel){.node = n};
    if (!plan && td__op(n->op)->scalar)
        plan = td__cpu_plan_elementwise;
    if (plan) {
        /* oneDNN cuts a primitive for the team size it sees at creation, and runs with that one. */
        unsigned team = td__onednn_alone();
        st = plan((const td__cpu *)b, n, is_param, k);
        td__onednn_restore(team);
    }
    if (st != TD_ENOTSUP)
        return st;
    miss_onednn((td__cpu *)b, n);
    TD_LOG(DEBUG, BACKEND, "%s: %s runs on its reference kernel", n->name, td__op(n->op)->name);
    return td__ref_exec_plan(n, k);
}

/* The saved word: MXCSR (16 bits) below, the thread's OpenMP team size above it. */
static void cpu_enter(td_backend *b, unsigned *saved)
{
    (void)b;
    *saved = td__onednn_alone() << 16 | (td__cpu_fp_flush() & 0xffffu);
    td__amx_enter();
}

static void cpu_leave(td_backend *b, unsigned saved)
{
    (void)b;
    td__amx_leave();
    td__onednn_restore(saved >> 16);
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
