/* cuda.c -- the CUDA backend: a table of planners, and the reference executor behind it, whose
 * nodes run on the host. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/cuda.h"

#include <stdio.h>

#include "backend/cuda/cublaslt.h"
#include "backend/cuda/cudnn.h"
#include "backend/host.h"
#include "backend/ref_exec.h"
#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "base/log.h"

static td__cuda_plan_fn *const PLANNERS[TD_OP_COUNT] = {
    [TD_OP_INPUT] = NULL, /* leaves and views are never planned */
#define TD_CUDA_KERNEL(OP, plan) [TD_OP_##OP] = plan,
#include "backend/cuda/kernels.def"
#undef TD_CUDA_KERNEL
};

/* ---- Nodes that run on the host -------------------------------------------------------------- */

typedef struct on_host {
    td_device *device;
    td_kernel ref;
    size_t bytes; /* of copies of all inputs and outputs, and scratch */
} on_host;

static td_status call_ref(const td_kernel_call *c, const on_host *h, char *at)
{
    const td_node *n = c->kernel->node;
    td_device *d = h->device;
    const void *in[TD_MAX_IN];
    void *out[TD_MAX_OUT];
    td_run_ctx ctx;
    td_kernel_call local = {.in = in, .out = out, .kernel = &h->ref, .ctx = &ctx};
    TD_TRY(td__stream_sync(c->stream));
    TD_TRY(td__mem_read(d, &ctx, c->ctx, sizeof ctx));
    for (int i = 0; i < n->n_in; i++) {
        size_t nbytes = td__desc_bytes(td__in_desc_of(n, i));
        TD_TRY(td__mem_read(d, at, c->in[i], nbytes));
        in[i] = at;
        at += td__align_up(nbytes, 64);
    }
    for (int k = 0; k < n->n_out; k++) {
        out[k] = at;
        at += td__align_up(td__desc_bytes(&n->out[k]), 64);
    }
    local.scratch = at;
    h->ref.run(&local);
    for (int k = 0; k < n->n_out; k++)
        TD_TRY(td__mem_write(d, c->out[k], out[k], td__desc_bytes(&n->out[k])));
    return TD_OK;
}

static void run_on_host(const td_kernel_call *c)
{
    const on_host *h = c->kernel->state;
    char *memory = td__alloc_block(h->bytes);
    td_status st = memory ? call_ref(c, h, memory)
                          : TD_FAIL(TD_ENOMEM, "no memory for %zu bytes of copies", h->bytes);
    td__free_block(memory, h->bytes);
    td__kernel_check(c, st);
}

static td_status plan_on_host(td_device *d, const td_node *n, td_kernel *k)
{
    on_host *h = td__calloc(1, sizeof *h);
    if (!h)
        return TD_FAIL(TD_ENOMEM, "no memory for the kernel of %s", n->name);
    h->device = d;
    td_status st = td__ref_exec_plan(n, &h->ref);
    if (st) {
        td__free(h);
        return st;
    }
    for (int i = 0; i < n->n_in; i++)
        h->bytes += td__align_up(td__desc_bytes(td__in_desc_of(n, i)), 64);
    for (int i = 0; i < n->n_out; i++)
        h->bytes += td__align_up(td__desc_bytes(&n->out[i]), 64);
    h->bytes += h->ref.scratch + 64;
    *k = (td_kernel){.node = n,
                     .impl = "reference, on the host",
                     .run = run_on_host,
                     .state = h,
                     .fini = td__free,
                     .not_taped = true};
    return TD_OK;
}

/* ---- The backend ----------------------------------------------------------------------------- */

static void undo(td_kernel *k)
{
    if (k->fini)
        k->fini(k->state);
    *k = (td_kernel){.node = k->node};
}

static td_status cuda_plan(td_backend *b, const td_node *n, const bool *is_param, td_kernel *k)
{
    td__cuda_plan_fn *plan = PLANNERS[n->op];
    *k = (td_kernel){.node = n};
    if (!plan && td__op(n->op)->scalar)
        plan = td__cuda_plan_elementwise;
    td_status st = plan ? td__cuda_begin(k) : TD_ENOTSUP;
    if (!st)
        st = plan((td__cuda *)b, n, is_param, k);
    if (!st) {
        k->impl = k->impl ? k->impl : "cuda";
        return TD_OK;
    }
    undo(k);
    if (st != TD_ENOTSUP)
        return st;
    TD_LOG(WARN, BACKEND, "%s: %s of these types runs on the host, which is slow", n->name,
           td__op(n->op)->name);
    return plan_on_host(b->device, n, k);
}

static void cuda_enter(td_backend *b, unsigned *saved)
{
    *saved = 0;
    td__cuda_enter(b->device);
}

static void cuda_destroy(td_backend *b)
{
    td__cuda_enter(b->device);
    td__cublaslt_release(((td__cuda *)b)->lt);
    td__cudnn_release(((td__cuda *)b)->dnn);
    td__host_destroy(b);
}

static const td_backend_ops OPS = {
    .name = "cuda",
    .destroy = cuda_destroy,
    .device = "cuda",
    .plan = cuda_plan,
    .enter = cuda_enter,
    .leave = td__host_leave,
    .wants_nhwc = true,
    .wants_one_pass = true,
};

static td_status create_on(const char *device, td_backend **out)
{
    TD_TRY(td__host_create_on(&OPS, sizeof(td__cuda), device, out));
    td_status st = td__cublaslt_get((*out)->device, &((td__cuda *)*out)->lt);
    if (st) {
        td__host_destroy(*out);
        *out = NULL;
    }
    return st;
}

td_status td__cuda_create(td_backend **out)
{
    return create_on(OPS.device, out);
}

/* ---- Its GPUs -------------------------------------------------------------------------------- */

static td_status count(int *out)
{
    TD_TRY(td__cuda_count(out));
    return *out > 0 ? TD_OK : TD_FAIL(TD_ENOTSUP, "there is no GPU");
}

static td_status describe(int number, td__gpu_info *out)
{
    td__cuda_kind kind;
    char lt[32], dnn[32];
    *out = (td__gpu_info){.memory = 0};
    TD_TRY(td__cuda_describe(number, &kind));
    int major = kind.driver / 1000, minor = kind.driver % 1000 / 10;
    out->memory = kind.memory;
    snprintf(out->name, sizeof out->name, "%s", kind.name);
    snprintf(out->what, sizeof out->what,
             "%s, compute capability %d.%d, %d multiprocessors, %.1f GiB, driver for CUDA %d.%d",
             kind.name, kind.major, kind.minor, kind.processors,
             (double)kind.memory / (1024.0 * 1024 * 1024), major, minor);
    td__cublaslt_held(lt);
    td__cudnn_held(dnn);
    snprintf(out->bits, sizeof out->bits, "%s, driver for CUDA %d.%d%s%s%s%s", kind.name, major,
             minor, *lt ? ", cuBLASLt " : "", lt, *dnn ? ", cuDNN " : "", dnn);
    return TD_OK;
}

static td_status runs_on(int number)
{
    td__cuda_kind kind;
    TD_TRY(td__cuda_describe(number, &kind));
    return td__cuda_runs_on(&kind);
}

static void libraries(char *out, size_t room)
{
    char lt[32], dnn[32];
    td__cublaslt_look(lt);
    td__cudnn_look(dnn);
    snprintf(out, room, "cuBLASLt %s, cuDNN %s", *lt ? lt : "missing (products are slow)",
             *dnn       ? dnn
             : TD_CUDNN ? "missing (convolutions and attention are slow)"
                        : "left out of this build");
}

const td__gpus td__cuda_gpus = {.count = count,
                                .describe = describe,
                                .runs_on = runs_on,
                                .libraries = libraries,
                                .create = create_on};
