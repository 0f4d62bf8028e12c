/* cudnn.c -- see cudnn.h.
 *
 * cudnn_choose.c has the choice of an engine. One handle serves all threads, under a lock: in a
 * taped step cuDNN is called once. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/cudnn.h"

#if TD_CUDNN
#include "backend/cuda/cudnn_impl.h"
#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "base/log.h"

/* ---- Descriptors ----------------------------------------------------------------------------- */

td_status td__dnn_create(td__cuda *b, td__dnn **out)
{
    td__cuda_enter(b->base.device);
    if (!b->dnn_asked) {
        b->dnn_asked = true; /* whatever comes of it */
        TD_TRY(td__cudnn_get(b->base.device, &b->dnn));
    }
    if (!b->dnn)
        return TD_ENOTSUP;
    td__dnn *d = td__calloc(1, sizeof *d);
    if (!d)
        return TD_FAIL(TD_ENOMEM, "no memory for a graph of cuDNN");
    d->l = b->dnn;
    d->nondeterministic = b->base.nondeterministic;
    d->key = 0xcbf29ce484222325u;
    *out = d;
    return TD_OK;
}

void td__dnn_check(td__dnn *d, cudnnStatus_t st, const char *what)
{
    char text[512] = "";
    if (!st || d->failed)
        return;
    d->l->cudnnGetLastErrorString(text, sizeof text);
    TD_LOG(DEBUG, BACKEND, "cuDNN: %s: status %d: %s", what, (int)st, text);
    d->failed = true;
}

descriptor td__dnn_make(td__dnn *d, cudnnBackendDescriptorType_t type)
{
    descriptor made = NULL;
    if (d->failed)
        return NULL;
    TD_ASSERT(d->n_made < MOST_MADE, "%d descriptors", d->n_made);
    td__dnn_check(d, d->l->cudnnBackendCreateDescriptor(type, &made), "a descriptor");
    if (!d->failed)
        d->made[d->n_made++] = made;
    return made;
}

/* FNV-1a */
static void mix(td__dnn *d, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        d->key = (d->key ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3u;
}

static size_t size_of(cudnnBackendAttributeType_t type)
{
    switch (type) {
    case CUDNN_TYPE_INT64: return sizeof(int64_t);
    case CUDNN_TYPE_BOOLEAN: return sizeof(bool);
    case CUDNN_TYPE_BACKEND_DESCRIPTOR: /* addresses: operands are counted by their numbers */
    case CUDNN_TYPE_HANDLE: return 0;
    default: return sizeof(int); /* enums, and floats */
    }
}

void td__dnn_set(td__dnn *d, descriptor to, cudnnBackendAttributeName_t name,
                 cudnnBackendAttributeType_t type, int64_t count, const void *value)
{
    int as_int = (int)name;
    mix(d, &as_int, sizeof as_int);
    mix(d, value, (size_t)count * size_of(type));
    if (!d->failed)
        td__dnn_check(d, d->l->cudnnBackendSetAttribute(to, name, type, count, value),
                      "an attribute");
}

void td__dnn_set_desc(td__dnn *d, descriptor to, cudnnBackendAttributeName_t name, descriptor value)
{
    td__dnn_set(d, to, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, (const void *)&value);
}

static void set_type(td__dnn *d, descriptor to, cudnnBackendAttributeName_t name,
                     cudnnDataType_t value)
{
    td__dnn_set(d, to, name, CUDNN_TYPE_DATA_TYPE, 1, &value);
}

void td__dnn_finish(td__dnn *d, descriptor made, const char *what)
{
    if (!d->failed)
        td__dnn_check(d, d->l->cudnnBackendFinalize(made), what);
}

static cudnnDataType_t type_of(td_dtype t)
{
    switch (t) {
    case TD_BF16: return CUDNN_DATA_BFLOAT16;
    case TD_I32: return CUDNN_DATA_INT32;
    case TD_BOOL: return CUDNN_DATA_BOOLEAN;
    default: TD_ASSERT(t == TD_F32, "type %d", (int)t); return CUDNN_DATA_FLOAT;
    }
}

static int add_tensor(td__dnn *d, td_dtype t, const td__dnn_size *s, const td__dnn_tensor *kind)
{
    enum { ALIGNED = 16 };
    int64_t id = d->n_tensors + 1, aligned = ALIGNED, last = 0;
    descriptor made = td__dnn_make(d, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    TD_ASSERT(d->n_tensors < MOST_TENSORS, "%d tensors", d->n_tensors);
    set_type(d, made, CUDNN_ATTR_TENSOR_DATA_TYPE, type_of(t));
    td__dnn_set(d, made, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, s->dim);
    td__dnn_set(d, made, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, s->step);
    td__dnn_set(d, made, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    td__dnn_set(d, made, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &aligned);
    td__dnn_set(d, made, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &kind->inner);
    td__dnn_set(d, made, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &kind->by_value);
    if (kind->summed) {
        cudnnBackendTensorReordering_t order = CUDNN_TENSOR_REORDERING_F16x16;
        td__dnn_set(d, made, CUDNN_ATTR_TENSOR_REORDERING_MODE, CUDNN_TYPE_TENSOR_REORDERING_MODE,
                    1, &order);
    }
    td__dnn_finish(d, made, "a tensor");
    d->rounded = d->rounded || t == TD_BF16;
    d->tensors[d->n_tensors] = *kind;
    d->tensors[d->n_tensors].desc = made;
    for (int i = 0; i < 4; i++)
        last += (s->dim[i] - 1) * s->step[i];
    d->tensors[d->n_tensors].type = t;
    d->tensors[d->n_tensors].nbytes = (size_t)(last + 1) * td_dtype_size(t);
    return d->n_tensors++;
}

int td__dnn_at(td__dnn *d, td_dtype t, td__dnn_size s, td__cuda_at at)
{
    return add_tensor(d, t, &s, &(td__dnn_tensor){.at = at});
}

int td__dnn_summed(td__dnn *d, td__dnn_size s, td__cuda_at at)
{
    return add_tensor(d, TD_F32, &s, &(td__dnn_tensor){.at = at, .summed = true});
}

int td__dnn_inner(td__dnn *d, td_dtype t, td__dnn_size s)
{
    return add_tensor(d, t, &s, &(td__dnn_tensor){.inner = true});
}

int td__dnn_value(td__dnn *d, float value)
{
    static const td__dnn_size ONE = {{1, 1, 1, 1}, {1, 1, 1, 1}};
    return add_tensor(d, TD_F32, &ONE, &(td__dnn_tensor){.by_value = true, .value = value});
}

/* ---- Operations ------------------------------------------------------------------------------ */

static void add_op(td__dnn *d, descriptor op, const char *what)
{
    td__dnn_finish(d, op, what);
    TD_ASSERT(d->n_ops < MOST_OPS, "%d operations", d->n_ops);
    d->ops[d->n_ops++] = op;
}

static void operand(td__dnn *d, descriptor op, cudnnBackendAttributeName_t name, int i)
{
    mix(d, &i, sizeof i);
    if (i >= 0)
        td__dnn_set_desc(d, op, name, d->tensors[i].desc);
}

void td__dnn_product(td__dnn *d, int a, int b, int to)
{
    descriptor how = td__dnn_make(d, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    set_type(d, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
    td__dnn_finish(d, how, "a product");
    descriptor op = td__dnn_make(d, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    td__dnn_set_desc(d, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
    operand(d, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    operand(d, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    operand(d, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, to);
    add_op(d, op, "a product");
}

static void add_pointwise(td__dnn *d, cudnnPointwiseMode_t mode, int axis, int x, int b, int t,
                          int to)
{
    bool compares = mode == CUDNN_POINTWISE_CMP_GE;
    int64_t along = axis;
    descriptor how = td__dnn_make(d, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    td__dnn_set(d, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set_type(d, how, CUDNN_ATTR_POINTWISE_MATH_PREC,
             compares ? CUDNN_DATA_BOOLEAN : CUDNN_DATA_FLOAT);
    if (axis >= 0)
        td__dnn_set(d, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &along);
    td__dnn_finish(d, how, "an elementwise operation");
    descriptor op = td__dnn_make(d, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    td__dnn_set_desc(d, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    operand(d, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    operand(d, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    operand(d, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t);
    operand(d, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, to);
    add_op(d, op, "an elementwise operation");
}

void td__dnn_pointwise(td__dnn *d, cudnnPointwiseMode_t mode, int x, int b, int t, int to)
{
    add_pointwise(d, mode, -1, x, b, t, to);
}

void td__dnn_index(td__dnn *d, int axis, int x, int to)
{
    add_pointwise(d, CUDNN_POINTWISE_GEN_INDEX, axis, x, -1, -1, to);
}

void td__dnn_reduce(td__dnn *d, cudnnReduceTensorOp_t operator, int x, int to)
{
    descriptor how = td__dnn_make(d, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    set_type(d, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    td__dnn_set(d, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1,
                &operator);
    td__dnn_finish(d, how, "a reduction");
    descriptor op = td__dnn_make(d, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    td__dnn_set_desc(d, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
    operand(d, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    operand(d, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, to);
    add_op(d, op, "a reduction");
}

void td__dnn_view(td__dnn *d, int x, int to)
{
    descriptor op = td__dnn_make(d, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    operand(d, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    operand(d, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, to);
    add_op(d, op, "a view");
}

void td__dnn_convolve(td__dnn *d, td__dnn_conv_kind kind, const td__dnn_conv *c, int x, int w,
                      int y)
{
    static const struct {
        cudnnBackendDescriptorType_t type;
        cudnnBackendAttributeName_t conv, x, w, y, alpha, beta;
    } KINDS[] = {
        {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
        {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
        {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
    };
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const int64_t axes = 2;
    const float one = 1, zero = 0;
    descriptor how = td__dnn_make(d, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    set_type(d, how, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    td__dnn_set(d, how, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    td__dnn_set(d, how, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &axes);
    td__dnn_set(d, how, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, c->pad);
    td__dnn_set(d, how, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, c->pad);
    td__dnn_set(d, how, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, c->stride);
    td__dnn_set(d, how, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, c->dilation);
    td__dnn_finish(d, how, "a convolution");
    descriptor op = td__dnn_make(d, KINDS[kind].type);
    td__dnn_set_desc(d, op, KINDS[kind].conv, how);
    operand(d, op, KINDS[kind].x, x);
    operand(d, op, KINDS[kind].w, w);
    operand(d, op, KINDS[kind].y, y);
    td__dnn_set(d, op, KINDS[kind].alpha, CUDNN_TYPE_FLOAT, 1, &one);
    td__dnn_set(d, op, KINDS[kind].beta, CUDNN_TYPE_FLOAT, 1, &zero);
    add_op(d, op, "a convolution");
}

/* ---- Actions --------------------------------------------------------------------------------- */

static void destroy_made(td__dnn *d)
{
    for (int i = d->n_made - 1; i >= 0; i--)
        d->l->cudnnBackendDestroyDescriptor(d->made[i]);
    d->n_made = 0;
}

static void fini(td__cuda_action *action)
{
    destroy_made((td__dnn *)action);
}

cudnnStatus_t td__dnn_execute(const td__dnn *d, descriptor plan, const void *const *at,
                              const void *workspace, CUstream stream)
{
    td__cudnn *l = d->l;
    descriptor pack = NULL;
    int64_t ids[MOST_TENSORS];
    const void *addresses[MOST_TENSORS];
    int n = 0;
    for (int i = 0; i < d->n_tensors; i++) {
        const td__dnn_tensor *t = &d->tensors[i];
        if (t->inner)
            continue;
        ids[n] = i + 1;
        addresses[n++] = t->by_value ? (const void *)&t->value : at[i];
    }
    cudnnStatus_t st = l->cudnnSetStream(l->handle, (cudaStream_t)stream);
    if (!st)
        st = l->cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);
    if (!st)
        st = l->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64,
                                         n, ids);
    if (!st)
        st = l->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                         CUDNN_TYPE_VOID_PTR, n, (const void *)addresses);
    if (!st)
        st = l->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                                         CUDNN_TYPE_VOID_PTR, 1, (const void *)&workspace);
    if (!st)
        st = l->cudnnBackendFinalize(pack);
    if (!st)
        st = l->cudnnBackendExecute(l->handle, plan, pack);
    if (pack)
        l->cudnnBackendDestroyDescriptor(pack);
    return st;
}

static void run(const td__cuda_action *action, const td_kernel_call *c)
{
    const td__dnn *d = (const td__dnn *)action;
    const void *at[MOST_TENSORS];
    for (int i = 0; i < d->n_tensors; i++)
        at[i] = td__cuda_address(c, d->tensors[i].at);
    pthread_mutex_lock(&d->l->lock);
    cudnnStatus_t st = td__dnn_execute(d, d->plan, at, td__cuda_address(c, d->workspace),
                                       td__cuda_stream(c->stream));
    pthread_mutex_unlock(&d->l->lock);
    if (st)
        td__kernel_check(c, TD_FAIL(TD_EIO, "cuDNN: status %d", (int)st));
}

td_status td__dnn_add_take(td__dnn *d, td__cuda *b, td_kernel *k, size_t scratch)
{
    int64_t workspace = 0;
    td__cuda_enter(b->base.device);
    pthread_mutex_lock(&d->l->lock);
    bool found = td__dnn_choose(b->base.device, d, &workspace);
    pthread_mutex_unlock(&d->l->lock);
    destroy_made(d); /* a plan has what it needs */
    if (!found) {
        td__free(d);
        return TD_ENOTSUP;
    }
    d->action = (td__cuda_action){.run = run, .fini = fini};
    d->workspace = TD__SCRATCH(td__align_up(scratch, 256));
    td__cuda_want_scratch(k, d->workspace.offset + (size_t)workspace);
    td__cuda_push(k, &d->action);
    k->impl = "cudnn";
    return TD_OK;
}

#else

td_status td__cudnn_add_attention(td__cuda *b, td_kernel *k, const td__attention_args *a,
                                  const td__cuda_bind *at, bool back)
{
    (void)b, (void)k, (void)a, (void)at, (void)back;
    return TD_ENOTSUP;
}

td_status td__cudnn_add_conv(td__cuda *b, td_kernel *k, const td__cudnn_conv *c, size_t scratch)
{
    (void)b, (void)k, (void)c, (void)scratch;
    return TD_ENOTSUP;
}
#endif
