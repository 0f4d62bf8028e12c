/* cublaslt.c -- see cublaslt.h.
 *
 * cuBLASLt thinks in columns: a product c = a b whose rows lie after each other is c' = b' a'
 * there, so that its first operand is our b and its bias, one number per row of c', is one per
 * column of ours. cublaslt_choose.c has the choice of an algorithm.
 *
 * Products in f32 are in f32 all through, not in tf32. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/cublaslt.h"

#include <stdio.h>

#include "backend/cuda/cublaslt_impl.h"
#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"

enum { SMALL = 4096 /* multiplications: our own kernel is as good, and takes every alignment */ };

/* ---- Loading --------------------------------------------------------------------------------- */

static td_status open_lt(td__held *held)
{
    td__cublaslt *lt = (td__cublaslt *)held;
    cublasStatus_t st = lt->cublasLtCreate(&lt->handle);
    if (st)
        return TD_FAIL(TD_EIO, "cuBLASLt cannot be initialised (status %d)", (int)st);
    size_t v = lt->cublasLtGetVersion();
    snprintf(held->version, sizeof held->version, "%zu.%zu.%zu", v / 10000, v / 100 % 100, v % 100);
    return TD_OK;
}

static void close_lt(td__held *held)
{
    td__cublaslt *lt = (td__cublaslt *)held;
    if (lt->handle)
        lt->cublasLtDestroy(lt->handle);
}

static const td__library_function FUNCTIONS[] = {
#define TD_LT(name) {#name, offsetof(td__cublaslt, name)},
#include "backend/cuda/cublaslt.def"
#undef TD_LT
};
static const char *const NAMES[] = {"libcublasLt.so.13", "libcublasLt.so.12"};
static td__library library = {.what = "cuBLASLt",
                              .without = "products run on kernels of our own, which are slow",
                              .names = NAMES,
                              .n_names = TD_LEN(NAMES),
                              .functions = FUNCTIONS,
                              .n_functions = TD_LEN(FUNCTIONS),
                              .nbytes = sizeof(td__cublaslt),
                              .version = "cublasLtGetVersion",
                              .open = open_lt,
                              .close = close_lt,
                              .lock = PTHREAD_MUTEX_INITIALIZER};

td_status td__cublaslt_get(const td_device *d, td__cublaslt **out)
{
    td__held *held;
    td__cuda_enter(d);
    td_status st = td__library_get(&library, d, &held);
    *out = (td__cublaslt *)held;
    return st;
}

void td__cublaslt_release(td__cublaslt *lt)
{
    td__library_release(&library, (td__held *)lt);
}

void td__cublaslt_look(char version[32])
{
    td__library_look(&library, version);
}

void td__cublaslt_held(char version[32])
{
    td__library_version(&library, version);
}

/* ---- Products -------------------------------------------------------------------------------- */

static void fini(td__cuda_action *action)
{
    td__lt_product *l = (td__lt_product *)action;
    if (l->desc)
        l->lt->cublasLtMatmulDescDestroy(l->desc);
    if (l->a)
        l->lt->cublasLtMatrixLayoutDestroy(l->a);
    if (l->b)
        l->lt->cublasLtMatrixLayoutDestroy(l->b);
    if (l->c)
        l->lt->cublasLtMatrixLayoutDestroy(l->c);
}

/* The descriptor is copied, since threads that run the same program have addresses of their own. */
static void run(const td__cuda_action *action, const td_kernel_call *c)
{
    const td__lt_product *l = (const td__lt_product *)action;
    const float one = 1, zero = 0;
    cublasLtMatmulDescOpaque_t desc = *l->desc;
    const void *bias = td__cuda_address(c, l->p.bias);
    void *to = td__cuda_address(c, l->p.c), *added = td__cuda_address(c, l->p.residual);
    const void *pre = td__cuda_address(c, l->p.slope_at.space ? l->p.slope_at : l->p.pre);
    if (bias)
        l->lt->cublasLtMatmulDescSetAttribute(&desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                              sizeof bias);
    if (pre)
        l->lt->cublasLtMatmulDescSetAttribute(&desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
                                              &pre, sizeof pre);
    cublasStatus_t st = l->lt->cublasLtMatmul(
        l->lt->handle, &desc, &one, td__cuda_address(c, l->p.b), l->a, td__cuda_address(c, l->p.a),
        l->b, added ? &one : &zero, added ? added : to, l->c, to, l->c, &l->algo,
        td__cuda_address(c, l->workspace), l->workspace_bytes,
        (cudaStream_t)td__cuda_stream(c->stream));
    if (st)
        td__kernel_check(c, TD_FAIL(TD_EIO,
                                    "cuBLASLt: status %d for a product of (%lld, %lld) and "
                                    "(%lld, %lld)",
                                    (int)st, (long long)l->p.m, (long long)l->p.k,
                                    (long long)l->p.k, (long long)l->p.n));
}

/* A batch as one axis: how many, and the steps. False: its operands do not lie so. */
static bool one_batch(const td__cuda_product *p, int *count, int64_t *a_step, int64_t *b_step)
{
    int64_t total = 1;
    *a_step = *b_step = 0;
    for (int i = p->n_batch - 1; i >= 0; i--) {
        if (p->batch[i] == 1)
            continue;
        if (total == 1) {
            *a_step = p->a_step[i];
            *b_step = p->b_step[i];
        } else if (p->a_step[i] != *a_step * total || p->b_step[i] != *b_step * total) {
            return false;
        }
        total *= p->batch[i];
    }
    *count = (int)total;
    return total <= INT32_MAX;
}

static bool set_layout(td__cublaslt *lt, cublasLtMatrixLayout_t *to, td_dtype t, int64_t rows,
                       int64_t cols, int64_t ld, int batch, int64_t step)
{
    cudaDataType type = t == TD_F32 ? CUDA_R_32F : CUDA_R_16BF;
    return !lt->cublasLtMatrixLayoutCreate(to, type, (uint64_t)rows, (uint64_t)cols, ld) &&
           !lt->cublasLtMatrixLayoutSetAttribute(*to, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch,
                                                 sizeof batch) &&
           !lt->cublasLtMatrixLayoutSetAttribute(*to, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                 &step, sizeof step);
}

static bool set_epilogue(td__lt_product *l)
{
    const td__cuda_product *p = &l->p;
    bool bias = p->bias.space != TD__AT_NONE, slope = p->slope_at.space != TD__AT_NONE;
    bool pre = slope || p->pre.space != TD__AT_NONE;
    cublasLtEpilogue_t epilogue = bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    if (p->act == TD_ACT_RELU)
        epilogue = bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
    if (p->act == TD_ACT_GELU_TANH)
        epilogue = pre    ? bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX
                   : bias ? CUBLASLT_EPILOGUE_GELU_BIAS
                          : CUBLASLT_EPILOGUE_GELU;
    if (slope)
        epilogue = CUBLASLT_EPILOGUE_DGELU;
    l->epilogue = (int)epilogue;
    const void *at = (const void *)256; /* its alignment is looked at */
    td__cublaslt *lt = l->lt;
    return !lt->cublasLtMatmulDescSetAttribute(l->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                               sizeof epilogue) &&
           (!bias || !lt->cublasLtMatmulDescSetAttribute(l->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                                         &at, sizeof at)) &&
           (!pre || (!lt->cublasLtMatmulDescSetAttribute(
                         l->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &at, sizeof at) &&
                     !lt->cublasLtMatmulDescSetAttribute(
                         l->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &p->n, sizeof p->n)));
}

/* The operands as cuBLASLt sees them. False: it does not take this product. */
static bool describe(td_device *device, td__lt_product *l)
{
    const td__cuda_product *p = &l->p;
    int64_t a_step, b_step;
    int batch;
    bool b_plain = p->b_col == 1, a_plain = p->a_col == 1;
    cublasOperation_t first = b_plain ? CUBLAS_OP_N : CUBLAS_OP_T;
    cublasOperation_t second = a_plain ? CUBLAS_OP_N : CUBLAS_OP_T;
    if ((!b_plain && p->b_row != 1) || (!a_plain && p->a_row != 1) ||
        !one_batch(p, &batch, &a_step, &b_step))
        return false;
    l->batch = batch;
    td__cublaslt *lt = l->lt;
    return !lt->cublasLtMatmulDescCreate(&l->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F) &&
           !lt->cublasLtMatmulDescSetAttribute(l->desc, CUBLASLT_MATMUL_DESC_TRANSA, &first,
                                               sizeof first) &&
           !lt->cublasLtMatmulDescSetAttribute(l->desc, CUBLASLT_MATMUL_DESC_TRANSB, &second,
                                               sizeof second) &&
           set_layout(lt, &l->a, p->in, b_plain ? p->n : p->k, b_plain ? p->k : p->n,
                      b_plain ? p->b_row : p->b_col, batch, b_step) &&
           set_layout(lt, &l->b, p->in, a_plain ? p->k : p->m, a_plain ? p->m : p->k,
                      a_plain ? p->a_row : p->a_col, batch, a_step) &&
           set_layout(lt, &l->c, p->out, p->n, p->m, p->n, batch, p->m * p->n) && set_epilogue(l) &&
           td__lt_choose(device, l);
}

/* Activations that it has, in the precision that is wanted. */
static bool takes_act(const td__cuda_product *p)
{
    bool pre = p->pre.space != TD__AT_NONE || p->slope_at.space != TD__AT_NONE;
    switch (p->act) {
    case TD_ACT_NONE:
    case TD_ACT_RELU: return !pre;
    case TD_ACT_GELU_TANH: return p->out == TD_BF16 && (!pre || p->n % 8 == 0);
    default: return false;
    }
}

td_status td__cublaslt_add(td__cuda *b, td_kernel *k, const td__cuda_product *p, size_t scratch)
{
    if (p->m * p->n * p->k < SMALL || !takes_act(p))
        return TD_ENOTSUP;
    td__lt_product *l = td__calloc(1, sizeof *l);
    if (!l)
        return TD_FAIL(TD_ENOMEM, "no memory for the kernel of %s", k->node->name);
    *l = (td__lt_product){.action = {.run = run, .fini = fini}, .lt = b->lt, .p = *p};
    td__cuda_enter(b->base.device);
    if (!describe(b->base.device, l)) {
        fini(&l->action);
        td__free(l);
        return TD_ENOTSUP;
    }
    l->workspace = TD__SCRATCH(td__align_up(scratch, 256));
    td__cuda_want_scratch(k, l->workspace.offset + l->workspace_bytes);
    td__cuda_push(k, &l->action);
    k->impl = "cublaslt";
    return TD_OK;
}
