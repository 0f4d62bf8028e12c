/* product_onednn.c -- a matrix product by oneDNN's matmul; see product.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/engine_onednn.h"
#include "backend/cpu/kernels/gemm_post.h"
#include "backend/cpu/onednn.h"
#include "base/alloc.h"
#include "base/fail.h"

typedef struct td__product_onednn {
    td__dnnl matmul, reorder;
} primitives;

/* oneDNN's primitive; bias and relu are done by it, gelu afterwards by us. */
static td_status init_matmul(const td__product *p, const dnnl_memory_desc_t *b,
                             dnnl_engine_t engine, dnnl_primitive_desc_t *pd)
{
    const td__product_spec *s = &p->spec;
    const int64_t a_strides[] = {s->a_trans ? 1 : s->lda, s->a_trans ? s->lda : 1};
    dnnl_memory_desc_t a, c, bias;
    dnnl_matmul_desc_t desc;
    dnnl_primitive_attr_t attr;
    dnnl_post_ops_t ops = NULL;
    td_status st;

    TD_TRY(td__dnnl_md(&a, 2, (int64_t[]){s->m, s->k}, s->a_dtype, a_strides));
    TD_TRY(td__dnnl_md(&c, 2, (int64_t[]){s->m, s->n}, s->c_dtype, NULL));
    TD_TRY(td__dnnl_md(&bias, 2, (int64_t[]){1, s->n}, TD_F32, NULL));
    TD__DNNL_TRY(dnnl_matmul_desc_init(&desc, &a, b, s->has_bias ? &bias : NULL, &c));
    TD_TRY(td__dnnl_attr(&attr));
    if (s->act == TD_ACT_RELU) {
        TD_TRY_OR(st, done, td__dnnl_status(dnnl_post_ops_create(&ops), "dnnl_post_ops_create"));
        TD_TRY_OR(st, done,
                  td__dnnl_status(dnnl_post_ops_append_eltwise(ops, 1.0f, dnnl_eltwise_relu, 0, 0),
                                  "dnnl_post_ops_append_eltwise"));
        TD_TRY_OR(st, done,
                  td__dnnl_status(dnnl_primitive_attr_set_post_ops(attr, ops),
                                  "dnnl_primitive_attr_set_post_ops"));
    }
    TD_TRY_OR(st, done,
              td__dnnl_status(dnnl_primitive_desc_create(pd, &desc, attr, engine, NULL),
                              "dnnl_primitive_desc_create"));
done:
    if (ops)
        dnnl_post_ops_destroy(ops);
    dnnl_primitive_attr_destroy(attr);
    return st;
}

static td_status init(td__product *p)
{
    const td__product_spec *s = &p->spec;
    primitives *own = p->onednn;
    const int args[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS};
    const int reorder_args[] = {DNNL_ARG_FROM, DNNL_ARG_TO};
    const int64_t dims[] = {s->k, s->n};
    const int64_t strides[] = {s->b_trans ? 1 : s->ldb, s->b_trans ? s->ldb : 1};
    const bool prepack = td__product_prepacks(s);
    dnnl_memory_desc_t plain, b;
    dnnl_primitive_desc_t pd, reorder_pd;
    dnnl_primitive_attr_t attr;
    dnnl_engine_t engine;
    td_status st;

    /* gelu is done by us, from f32; weights of another type are rounded when they are packed. */
    if ((s->act != TD_ACT_NONE && s->act != TD_ACT_RELU && s->c_dtype != TD_F32) ||
        (s->a_dtype != s->b_dtype && !prepack))
        return TD_ENOTSUP;
    TD_TRY(td__dnnl_engine(&engine));
    TD_TRY(td__dnnl_md(&plain, 2, dims, s->b_dtype, strides));
    b = plain;
    if (prepack)
        TD_TRY(td__dnnl_md_any(&b, 2, dims, s->a_dtype));
    TD_TRY(init_matmul(p, &b, engine, &pd));
    b = *dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
    TD_TRY(td__dnnl_init(&own->matmul, pd, args, s->has_bias ? 4 : 3));
    p->impl = own->matmul.info;
    p->scratch = own->matmul.scratch;
    if (!prepack || dnnl_memory_desc_equal(&plain, &b))
        return TD_OK;
    TD_TRY(td__dnnl_attr(&attr));
    st = td__dnnl_status(
        dnnl_reorder_primitive_desc_create(&reorder_pd, &plain, engine, &b, engine, attr),
        "dnnl_reorder_primitive_desc_create");
    dnnl_primitive_attr_destroy(attr);
    TD_TRY(st);
    TD_TRY(td__dnnl_init(&own->reorder, reorder_pd, reorder_args, 2));
    if (p->scratch < own->reorder.scratch)
        p->scratch = own->reorder.scratch;
    p->packed = dnnl_memory_desc_get_size(&b);
    return TD_OK;
}

void td__product_onednn_fini(td__product *p)
{
    td__dnnl_fini(&p->onednn->matmul);
    td__dnnl_fini(&p->onednn->reorder);
    td__free(p->onednn);
    p->onednn = NULL;
}

td_status td__product_onednn_init(td__product *p)
{
    p->onednn = td__calloc(1, sizeof *p->onednn);
    if (!p->onednn)
        return TD_FAIL(TD_ENOMEM, "no memory for a product");
    td__dnnl_lock();
    const td_status st = init(p);
    td__dnnl_unlock();
    if (st)
        td__product_onednn_fini(p);
    return st;
}

td_status td__product_onednn_pack(const td__product *p, void *packed, const void *b, void *scratch)
{
    return td__dnnl_run(&p->onednn->reorder, (void *[]){(void *)(uintptr_t)b, packed}, scratch);
}

td_status td__product_onednn_run(const td__product *p, void *c, void *pre, const void *a,
                                 const void *b, const float *bias, void *scratch)
{
    const td__product_spec *s = &p->spec;
    const bool later = s->act == TD_ACT_GELU || s->act == TD_ACT_GELU_TANH;
    void *sums = pre ? pre : c;

    TD_TRY(td__dnnl_run(
        &p->onednn->matmul,
        (void *[]){(void *)(uintptr_t)a, (void *)(uintptr_t)b, sums, (void *)(uintptr_t)bias},
        scratch));
    if (later || pre)
        TD_ISA_PICK(s->isa, td__gemm_post_block)
    (c, s->n, TD_F32, sums, s->n, s->m, s->n,
     &(td__gemm_post){.act = later ? s->act : TD_ACT_NONE});
    return TD_OK;
}
