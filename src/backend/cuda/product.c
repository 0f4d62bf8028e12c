/* product.c -- see product.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/product.h"

#include "backend/cuda/cublaslt.h"
#include "backend/cuda/kernels/convert.h"
#include "backend/cuda/kernels/product.h"
#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"

enum { TILE = 64 };

typedef struct own_product {
    td__cuda_action action;
    td__cuda_product p;
    td__product_args args;
    CUfunction fn;
    td__cuda_grid grid;
} own_product;

static void run_own(const td__cuda_action *action, const td_kernel_call *c)
{
    const own_product *o = (const own_product *)action;
    td__product_args a = o->args;
    a.a = td__cuda_address(c, o->p.a);
    a.b = td__cuda_address(c, o->p.b);
    a.c = td__cuda_address(c, o->p.c);
    a.pre = td__cuda_address(c, o->p.pre);
    a.bias = td__cuda_address(c, o->p.bias);
    a.residual = td__cuda_address(c, o->p.residual);
    a.slope_at = td__cuda_address(c, o->p.slope_at);
    td__cuda_launch(c->stream, o->fn, o->grid, &a);
}

static td_status add_own(td__cuda *b, td_kernel *k, const td__cuda_product *p)
{
    own_product *o = td__calloc(1, sizeof *o);
    if (!o)
        return TD_FAIL(TD_ENOMEM, "no memory for the kernel of %s", k->node->name);
    td_status st =
        td__cuda_find(b->base.device, p->in == TD_F32 ? "product_f32" : "product_bf16", &o->fn);
    if (st) {
        td__free(o);
        return st;
    }
    td__product_args *a = &o->args;
    *a = (td__product_args){.m = p->m,
                            .n = p->n,
                            .k = p->k,
                            .a_row = p->a_row,
                            .a_col = p->a_col,
                            .b_row = p->b_row,
                            .b_col = p->b_col,
                            .n_batch = p->n_batch};
    a->in_dtype = (int)p->in;
    a->out_dtype = (int)p->out;
    a->act = (int)p->act;
    int64_t batch = 1;
    for (int i = 0; i < p->n_batch; i++) {
        a->batch[i] = p->batch[i];
        a->a_step[i] = p->a_step[i];
        a->b_step[i] = p->b_step[i];
        batch *= p->batch[i];
    }
    o->action.run = run_own;
    o->p = *p;
    o->grid = (td__cuda_grid){.x = (unsigned)((p->n + TILE - 1) / TILE),
                              .y = (unsigned)((p->m + TILE - 1) / TILE),
                              .z = (unsigned)batch,
                              .threads = TD__CUDA_THREADS};
    if (!o->grid.y || !batch)
        o->grid.x = 0;
    td__cuda_push(k, &o->action);
    k->impl = k->impl ? k->impl : "own product";
    return TD_OK;
}

/* By cuBLASLt, with the activation as a pass of its own behind. */
static td_status add_split(td__cuda *b, td_kernel *k, const td__cuda_product *p, size_t scratch)
{
    td__cuda_product plain = *p;
    plain.act = TD_ACT_NONE;
    plain.pre = plain.slope_at = (td__cuda_at){0};
    plain.c = p->pre.space ? p->pre : p->c;
    TD_TRY(td__cublaslt_add(b, k, &plain, scratch));
    int64_t count = p->m * p->n;
    for (int i = 0; i < p->n_batch; i++)
        count *= p->batch[i];
    own_product *o = td__calloc(1, sizeof *o);
    if (!o)
        return TD_FAIL(TD_ENOMEM, "no memory for the kernel of %s", k->node->name);
    td_status st = td__cuda_find(b->base.device, "product_act", &o->fn);
    if (st) {
        td__free(o);
        return st;
    }
    o->action.run = run_own;
    o->p = (td__cuda_product){.a = plain.c, .c = p->c, .slope_at = p->slope_at};
    o->args = (td__product_args){.n = count};
    o->args.out_dtype = (int)p->out;
    o->args.act = (int)p->act;
    o->grid = td__cuda_grid_for(b, count);
    td__cuda_push(k, &o->action);
    return TD_OK;
}

td_status td__cuda_add_product(td__cuda *b, td_kernel *k, const td__cuda_product *p, size_t scratch)
{
    td_status st = TD_ENOTSUP;
    if (b->lt)
        st = td__cublaslt_add(b, k, p, scratch);
    if (b->lt && st == TD_ENOTSUP && p->act != TD_ACT_NONE)
        st = add_split(b, k, p, scratch);
    return st == TD_ENOTSUP ? add_own(b, k, p) : st;
}

td_status td__cuda_add_weight(td__cuda *b, td_kernel *k, int i, bool is_param, td_dtype t,
                              size_t *scratch, td__cuda_at *out)
{
    const td_desc *w = td__in_desc_of(k->node, i);
    td__convert_args a = {.n = td__desc_count(w)};
    size_t nbytes = td__align_up((size_t)a.n * 2, 256);
    *out = TD__IN(i);
    if (w->dtype == t)
        return TD_OK;
    if (w->dtype != TD_F32 || t != TD_BF16)
        return TD_ENOTSUP;
    if (is_param) {
        *out = TD__PACKED(k->packed);
        k->packed += nbytes;
        k->packs |= 1u << i;
        td__cuda_preparing(k, true);
    } else {
        *out = TD__SCRATCH(*scratch);
        *scratch += nbytes;
        td__cuda_want_scratch(k, *scratch);
    }
    td_status st =
        td__cuda_add_bound(b, k, "to_bf16s", TD_DTYPE_COUNT, td__cuda_grid_for(b, a.n / 8 + 8), &a,
                           sizeof a, &(td__cuda_bind){.in = {TD__IN(i)}, .out = {*out}});
    if (is_param)
        td__cuda_preparing(k, false);
    k->impl = NULL;
    return st;
}
