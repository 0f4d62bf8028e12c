/* conv_onednn.c -- f32 convolutions by oneDNN.
 *
 * Activations stay in the layout that the program gives them. The weight is stored (O, I, H, W);
 * oneDNN wants it in blocks of its own choosing, so it is reordered once per change of the params
 * (prepare), or in each run where it is no param. A weight gradient comes out in such blocks and is
 * reordered back. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/conv.h"
#include "backend/cpu/onednn.h"
#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"

typedef struct onednn_conv {
    td__dnnl conv, reorder;
    bool reordered; /* else oneDNN takes the weight as it is */
    bool packed;    /* the reordered weight lies in packed, else at the start of scratch */
    bool bias;
    size_t weight_bytes; /* reordered, rounded up; 0 if none lies in scratch */
} onednn_conv;

static void fini_state(void *state)
{
    onednn_conv *s = state;
    if (!s)
        return;
    td__dnnl_fini(&s->conv);
    td__dnnl_fini(&s->reorder);
    td__free(s);
}

static void *unconst(const void *p)
{
    return (void *)(uintptr_t)p; /* oneDNN takes all pointers as writable */
}

static void reorder(const td_kernel_call *c, const onednn_conv *s, const void *from, void *to,
                    void *scratch)
{
    td__kernel_check(c, td__dnnl_run(&s->reorder, (void *[]){unconst(from), to}, scratch));
}

static void prepare_weight(const td_kernel_call *c)
{
    reorder(c, c->kernel->state, c->in[1], c->packed, c->scratch);
}

/* The weight as the primitive wants it. */
static void *weight_of(const td_kernel_call *c, const onednn_conv *s)
{
    if (!s->reordered)
        return unconst(c->in[1]);
    if (s->packed)
        return c->packed;
    reorder(c, s, c->in[1], c->scratch, (char *)c->scratch + s->weight_bytes);
    return c->scratch;
}

static void run_forward(const td_kernel_call *c)
{
    const onednn_conv *s = c->kernel->state;
    void *ptr[] = {unconst(c->in[0]), weight_of(c, s), c->out[0],
                   s->bias ? unconst(c->in[2]) : NULL};

    td__kernel_check(c, td__dnnl_run(&s->conv, ptr, (char *)c->scratch + s->weight_bytes));
}

static void run_back_data(const td_kernel_call *c)
{
    const onednn_conv *s = c->kernel->state;
    void *ptr[] = {unconst(c->in[0]), weight_of(c, s), c->out[0]};

    td__kernel_check(c, td__dnnl_run(&s->conv, ptr, (char *)c->scratch + s->weight_bytes));
}

static void run_back_weight(const td_kernel_call *c)
{
    const onednn_conv *s = c->kernel->state;
    char *scratch = (char *)c->scratch + s->weight_bytes;
    void *ptr[] = {unconst(c->in[0]), unconst(c->in[1]), s->reordered ? c->scratch : c->out[0],
                   s->bias ? c->out[1] : NULL};

    td__kernel_check(c, td__dnnl_run(&s->conv, ptr, scratch));
    if (s->reordered)
        reorder(c, s, c->scratch, c->out[0], scratch);
}

/* The primitive descriptor, with the weight in any layout. */
static td_status make_desc(const td__conv *v, const dnnl_memory_desc_t *w,
                           dnnl_primitive_attr_t attr, dnnl_engine_t engine,
                           dnnl_primitive_desc_t *out)
{
    dnnl_memory_desc_t x, y, b;
    dnnl_convolution_desc_t d, forward;
    const dnnl_dims_t stride = {v->stride[0], v->stride[1]}, pad = {v->pad[0], v->pad[1]};
    const dnnl_dims_t dilation = {v->dilation[0] - 1, v->dilation[1] - 1};
    const int64_t extent[] = {v->h, v->w}, taps[] = {v->kh, v->kw}, outputs[] = {v->oh, v->ow};
    dnnl_dims_t pad_end = {0};
    const dnnl_memory_desc_t *bias = v->bias ? &b : NULL;
    dnnl_primitive_desc_t hint = NULL;

    /* The forward pass drops what does not fill a stride; here the padding must fit exactly. */
    for (int i = 0; i < 2; i++)
        pad_end[i] = (outputs[i] - 1) * v->stride[i] + (taps[i] - 1) * v->dilation[i] + 1 -
                     extent[i] - v->pad[i];
    TD_TRY(td__dnnl_md_desc(&x, &v->x));
    TD_TRY(td__dnnl_md_desc(&y, &v->y));
    TD_TRY(td__dnnl_md(&b, 1, &v->o, TD_F32, NULL));
    TD__DNNL_TRY(dnnl_dilated_convolution_forward_desc_init(&forward, dnnl_forward_training,
                                                            dnnl_convolution_direct, &x, w, bias,
                                                            &y, stride, dilation, pad, pad_end));
    if (v->pass == TD__CONV_FORWARD) {
        TD__DNNL_TRY(dnnl_primitive_desc_create(out, &forward, attr, engine, NULL));
        return TD_OK;
    }
    if (v->pass == TD__CONV_BACK_DATA)
        TD__DNNL_TRY(dnnl_dilated_convolution_backward_data_desc_init(
            &d, dnnl_convolution_direct, &x, w, &y, stride, dilation, pad, pad_end));
    else
        TD__DNNL_TRY(dnnl_dilated_convolution_backward_weights_desc_init(
            &d, dnnl_convolution_direct, &x, w, bias, &y, stride, dilation, pad, pad_end));
    TD__DNNL_TRY(dnnl_primitive_desc_create(&hint, &forward, NULL, engine, NULL));
    td_status st = td__dnnl_status(dnnl_primitive_desc_create(out, &d, attr, engine, hint),
                                   "dnnl_primitive_desc_create");
    dnnl_primitive_desc_destroy(hint);
    return st;
}

static td_status make_attr(const td__conv *v, dnnl_primitive_attr_t *out)
{
    dnnl_post_ops_t ops = NULL;
    td_status st = TD_OK;

    TD_TRY(td__dnnl_attr(out));
    if (!v->relu)
        return TD_OK;
    TD_TRY_OR(st, done, td__dnnl_status(dnnl_post_ops_create(&ops), "dnnl_post_ops_create"));
    TD_TRY_OR(
        st, done,
        td__dnnl_status(dnnl_post_ops_append_eltwise(ops, 1.0f, dnnl_eltwise_relu, 0.0f, 0.0f),
                        "dnnl_post_ops_append_eltwise"));
    TD_TRY_OR(st, done,
              td__dnnl_status(dnnl_primitive_attr_set_post_ops(*out, ops),
                              "dnnl_primitive_attr_set_post_ops"));
done:
    if (ops)
        dnnl_post_ops_destroy(ops);
    if (st)
        dnnl_primitive_attr_destroy(*out);
    return st;
}

static td_status make_reorder(td__dnnl *out, const dnnl_memory_desc_t *from,
                              const dnnl_memory_desc_t *to, dnnl_engine_t engine)
{
    dnnl_primitive_attr_t attr;
    dnnl_primitive_desc_t pd;

    TD_TRY(td__dnnl_attr(&attr));
    td_status st =
        td__dnnl_status(dnnl_reorder_primitive_desc_create(&pd, from, engine, to, engine, attr),
                        "dnnl_reorder_primitive_desc_create");
    dnnl_primitive_attr_destroy(attr);
    if (st)
        return st;
    return td__dnnl_init(out, pd, (int[]){DNNL_ARG_FROM, DNNL_ARG_TO}, 2);
}

/* oneDNN knows groups as a dimension of the weight in front. */
static int weight_dims(const td__conv *v, int64_t dims[5])
{
    int at = 0;
    if (v->groups > 1)
        dims[at++] = v->groups;
    dims[at++] = v->o / v->groups;
    dims[at++] = v->c / v->groups;
    dims[at++] = v->kh;
    dims[at++] = v->kw;
    return at;
}

static td_status make_state(onednn_conv *s, const td__conv *v)
{
    static const int ARGS[][4] = {
        [TD__CONV_FORWARD] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS},
        [TD__CONV_BACK_DATA] = {DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_SRC, 0},
        [TD__CONV_BACK_WEIGHT] = {DNNL_ARG_DIFF_DST, DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS,
                                  DNNL_ARG_DIFF_BIAS},
    };
    bool gradient = v->pass == TD__CONV_BACK_WEIGHT;
    dnnl_memory_desc_t any, plain, chosen;
    dnnl_primitive_attr_t attr;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_engine_t engine;
    int64_t dims[5];
    int ndims = weight_dims(v, dims);

    TD_TRY(td__dnnl_engine(&engine));
    TD_TRY(td__dnnl_md_any(&any, ndims, dims, TD_F32));
    TD_TRY(td__dnnl_md(&plain, ndims, dims, TD_F32, NULL));
    TD_TRY(make_attr(v, &attr));
    td_status st = make_desc(v, &any, attr, engine, &pd);
    dnnl_primitive_attr_destroy(attr);
    if (st)
        return st;
    chosen = *dnnl_primitive_desc_query_md(
        pd, gradient ? dnnl_query_diff_weights_md : dnnl_query_weights_md, 0);
    TD_TRY(td__dnnl_init(&s->conv, pd, ARGS[v->pass], v->bias ? 4 : 3));
    s->bias = v->bias;
    s->reordered = !dnnl_memory_desc_equal(&chosen, &plain);
    if (!s->reordered)
        return TD_OK;
    TD_TRY(gradient ? make_reorder(&s->reorder, &chosen, &plain, engine)
                    : make_reorder(&s->reorder, &plain, &chosen, engine));
    s->packed = v->weight_is_param;
    s->weight_bytes = td__align_up(dnnl_memory_desc_get_size(&chosen), 64);
    return TD_OK;
}

td_status td__conv_plan_onednn(const td__cpu *cpu, const td__conv *v, td_kernel *k)
{
    (void)cpu;
    if (v->x.dtype != TD_F32 || v->y.dtype != TD_F32 || v->w_dtype != TD_F32 ||
        v->x.layout != v->y.layout)
        return TD_ENOTSUP;
    onednn_conv *s = td__calloc(1, sizeof *s);
    if (!s)
        return TD_FAIL(TD_ENOMEM, "no memory to plan a convolution");
    td__dnnl_lock();
    td_status st = make_state(s, v);
    td__dnnl_unlock();
    if (st) {
        fini_state(s);
        return st;
    }
    size_t pads = s->conv.scratch > s->reorder.scratch ? s->conv.scratch : s->reorder.scratch;
    if (s->packed) {
        k->prepare = prepare_weight;
        k->packs = 1u << 1;
        k->packed = s->weight_bytes;
        s->weight_bytes = 0;
    }
    k->scratch = s->weight_bytes + pads;
    k->state = s;
    k->fini = fini_state;
    k->impl = s->conv.info;
    k->run = v->pass == TD__CONV_FORWARD     ? run_forward
             : v->pass == TD__CONV_BACK_DATA ? run_back_data
                                             : run_back_weight;
    return TD_OK;
}
