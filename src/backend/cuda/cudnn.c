/* cudnn.c -- see cudnn.h.
 *
 * The engine is the first that cuDNN's heuristic names and that takes the graph: a function of
 * graph, GPU and version. One handle serves all threads, under a lock: in a taped step cuDNN is
 * called once. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/cudnn.h"

#if TD_CUDNN
#include "backend/cuda/cudnn_library.h"
#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "base/log.h"

typedef cudnnBackendDescriptor_t descriptor;

enum { MOST_TENSORS = 64, MOST_OPS = 48, MOST_MADE = 192, MOST_CONFIGS = 16, ALIGNED = 16 };
static const int64_t MOST_WORKSPACE = 2LL << 30;

typedef struct tensor {
    descriptor desc;
    td__cuda_at at;
    float value;
    bool inner, by_value;
} tensor;

struct td__dnn {
    td__cuda_action action;
    td__cudnn *l; /* the backend's, which outlives its kernels */
    tensor tensors[MOST_TENSORS];
    descriptor ops[MOST_OPS], made[MOST_MADE];
    descriptor plan; /* the library's */
    int n_tensors, n_ops, n_made;
    uint64_t key;
    bool rounded; /* it has operands in bf16 */
    bool failed;
    td__cuda_at workspace;
};

/* ---- Descriptors ----------------------------------------------------------------------------- */

td_status td__dnn_create(td__cuda *b, td__dnn **out)
{
    td__cuda_enter(b->base.device);
    if (!b->dnn_asked) {
        b->dnn_asked = true; /* whatever comes of it */
        TD_TRY(td__cudnn_get(&b->dnn));
    }
    if (!b->dnn)
        return TD_ENOTSUP;
    td__dnn *d = td__calloc(1, sizeof *d);
    if (!d)
        return TD_FAIL(TD_ENOMEM, "no memory for a graph of cuDNN");
    d->l = b->dnn;
    d->key = 0xcbf29ce484222325u;
    *out = d;
    return TD_OK;
}

static void check(td__dnn *d, cudnnStatus_t st, const char *what)
{
    char text[512] = "";
    if (!st || d->failed)
        return;
    d->l->cudnnGetLastErrorString(text, sizeof text);
    TD_LOG(DEBUG, BACKEND, "cuDNN: %s: status %d: %s", what, (int)st, text);
    d->failed = true;
}

static descriptor new_descriptor(td__dnn *d, cudnnBackendDescriptorType_t type)
{
    descriptor made = NULL;
    if (d->failed)
        return NULL;
    TD_ASSERT(d->n_made < MOST_MADE, "%d descriptors", d->n_made);
    check(d, d->l->cudnnBackendCreateDescriptor(type, &made), "a descriptor");
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

static void set(td__dnn *d, descriptor to, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t count, const void *value)
{
    int as_int = (int)name;
    mix(d, &as_int, sizeof as_int);
    mix(d, value, (size_t)count * size_of(type));
    if (!d->failed)
        check(d, d->l->cudnnBackendSetAttribute(to, name, type, count, value), "an attribute");
}

static void set_desc(td__dnn *d, descriptor to, cudnnBackendAttributeName_t name, descriptor value)
{
    set(d, to, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, (const void *)&value);
}

static void set_type(td__dnn *d, descriptor to, cudnnBackendAttributeName_t name,
                     cudnnDataType_t value)
{
    set(d, to, name, CUDNN_TYPE_DATA_TYPE, 1, &value);
}

static void finish(td__dnn *d, descriptor made, const char *what)
{
    if (!d->failed)
        check(d, d->l->cudnnBackendFinalize(made), what);
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

static int add_tensor(td__dnn *d, td_dtype t, const td__dnn_size *s, const tensor *kind)
{
    int64_t id = d->n_tensors + 1, aligned = ALIGNED;
    descriptor made = new_descriptor(d, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    TD_ASSERT(d->n_tensors < MOST_TENSORS, "%d tensors", d->n_tensors);
    set_type(d, made, CUDNN_ATTR_TENSOR_DATA_TYPE, type_of(t));
    set(d, made, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, s->dim);
    set(d, made, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, s->step);
    set(d, made, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    set(d, made, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &aligned);
    set(d, made, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &kind->inner);
    set(d, made, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &kind->by_value);
    finish(d, made, "a tensor");
    d->rounded = d->rounded || t == TD_BF16;
    d->tensors[d->n_tensors] = *kind;
    d->tensors[d->n_tensors].desc = made;
    return d->n_tensors++;
}

int td__dnn_at(td__dnn *d, td_dtype t, td__dnn_size s, td__cuda_at at)
{
    return add_tensor(d, t, &s, &(tensor){.at = at});
}

int td__dnn_inner(td__dnn *d, td_dtype t, td__dnn_size s)
{
    return add_tensor(d, t, &s, &(tensor){.inner = true});
}

int td__dnn_value(td__dnn *d, float value)
{
    static const td__dnn_size ONE = {{1, 1, 1, 1}, {1, 1, 1, 1}};
    return add_tensor(d, TD_F32, &ONE, &(tensor){.by_value = true, .value = value});
}

/* ---- Operations ------------------------------------------------------------------------------ */

static void add_op(td__dnn *d, descriptor op, const char *what)
{
    finish(d, op, what);
    TD_ASSERT(d->n_ops < MOST_OPS, "%d operations", d->n_ops);
    d->ops[d->n_ops++] = op;
}

static void operand(td__dnn *d, descriptor op, cudnnBackendAttributeName_t name, int i)
{
    mix(d, &i, sizeof i);
    if (i >= 0)
        set_desc(d, op, name, d->tensors[i].desc);
}

void td__dnn_product(td__dnn *d, int a, int b, int to)
{
    descriptor how = new_descriptor(d, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    set_type(d, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
    finish(d, how, "a product");
    descriptor op = new_descriptor(d, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set_desc(d, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
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
    descriptor how = new_descriptor(d, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(d, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set_type(d, how, CUDNN_ATTR_POINTWISE_MATH_PREC,
             compares ? CUDNN_DATA_BOOLEAN : CUDNN_DATA_FLOAT);
    if (axis >= 0)
        set(d, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &along);
    finish(d, how, "an elementwise operation");
    descriptor op = new_descriptor(d, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_desc(d, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
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
    descriptor how = new_descriptor(d, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    set_type(d, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    set(d, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &operator);
    finish(d, how, "a reduction");
    descriptor op = new_descriptor(d, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set_desc(d, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
    operand(d, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    operand(d, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, to);
    add_op(d, op, "a reduction");
}

void td__dnn_view(td__dnn *d, int x, int to)
{
    descriptor op = new_descriptor(d, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
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
    descriptor how = new_descriptor(d, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    set_type(d, how, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    set(d, how, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    set(d, how, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &axes);
    set(d, how, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, c->pad);
    set(d, how, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, c->pad);
    set(d, how, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, c->stride);
    set(d, how, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, c->dilation);
    finish(d, how, "a convolution");
    descriptor op = new_descriptor(d, KINDS[kind].type);
    set_desc(d, op, KINDS[kind].conv, how);
    operand(d, op, KINDS[kind].x, x);
    operand(d, op, KINDS[kind].w, w);
    operand(d, op, KINDS[kind].y, y);
    set(d, op, KINDS[kind].alpha, CUDNN_TYPE_FLOAT, 1, &one);
    set(d, op, KINDS[kind].beta, CUDNN_TYPE_FLOAT, 1, &zero);
    add_op(d, op, "a convolution");
}

/* ---- Plans ----------------------------------------------------------------------------------- */

/* Engines that are not used: sums in an order that changes from run to run, sums of lower
 * precision, and for f32 what rounds the operands or computes in another domain. */
static bool unwanted(const td__dnn *d, cudnnBackendNumericalNote_t note)
{
    switch (note) {
    case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC: return true;
    case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION: return true;
    case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
    case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
    case CUDNN_NUMERICAL_NOTE_FFT:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13: return !d->rounded;
    default: return false;
    }
}

static bool takes(td__dnn *d, descriptor config)
{
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t n = 0, engines = 0;
    bool good = true;
    descriptor engine = new_descriptor(d, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    if (d->failed ||
        d->l->cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engines,
                                       (void *)&engine) ||
        d->l->cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                       CUDNN_TYPE_NUMERICAL_NOTE, TD_LEN(notes), &n, notes))
        return false;
    for (int64_t i = 0; i < n; i++)
        good = good && !unwanted(d, notes[i]);
    return good;
}

/* The plan of this choice, if it has one that can be. */
static bool try_config(td__dnn *d, descriptor config, int64_t *workspace)
{
    td__cudnn *l = d->l;
    descriptor plan = NULL;
    int64_t n;
    if (!takes(d, config) ||
        l->cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan))
        return false;
    bool good =
        !l->cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1,
                                     (const void *)&l->handle) &&
        !l->cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, (const void *)&config) &&
        !l->cudnnBackendFinalize(plan) &&
        !l->cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                     CUDNN_TYPE_INT64, 1, &n, workspace) &&
        *workspace <= MOST_WORKSPACE;
    if (good)
        d->plan = plan;
    else
        l->cudnnBackendDestroyDescriptor(plan);
    return good;
}

static bool try_heuristic(td__dnn *d, descriptor graph, cudnnBackendHeurMode_t mode,
                          int64_t *workspace)
{
    descriptor configs[MOST_CONFIGS];
    int64_t n = 0;
    bool found = false;
    descriptor heuristic = new_descriptor(d, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set_desc(d, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    set(d, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    finish(d, heuristic, "a heuristic");
    for (int i = 0; i < MOST_CONFIGS; i++)
        configs[i] = new_descriptor(d, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (!d->failed)
        check(d,
              d->l->cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                             CUDNN_TYPE_BACKEND_DESCRIPTOR, MOST_CONFIGS, &n,
                                             (void *)configs),
              "engines");
    for (int64_t i = 0; i < n && !d->failed && !found; i++)
        found = try_config(d, configs[i], workspace);
    TD_LOG(DEBUG, BACKEND, "cuDNN: %lld engines of heuristic %d, %s", (long long)n, (int)mode,
           found ? "one taken" : "none taken");
    return found;
}

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

static void run(const td__cuda_action *action, const td_kernel_call *c)
{
    const td__dnn *d = (const td__dnn *)action;
    td__cudnn *l = d->l;
    descriptor pack = NULL;
    int64_t ids[MOST_TENSORS];
    const void *at[MOST_TENSORS];
    const void *workspace = td__cuda_address(c, d->workspace);
    int n = 0;
    for (int i = 0; i < d->n_tensors; i++) {
        const tensor *t = &d->tensors[i];
        if (t->inner)
            continue;
        ids[n] = i + 1;
        at[n++] = t->by_value ? (const void *)&t->value : td__cuda_address(c, t->at);
    }
    pthread_mutex_lock(&l->lock);
    cudnnStatus_t st = l->cudnnSetStream(l->handle, (cudaStream_t)td__cuda_stream(c->stream));
    if (!st)
        st = l->cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);
    if (!st)
        st = l->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64,
                                         n, ids);
    if (!st)
        st = l->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                         CUDNN_TYPE_VOID_PTR, n, (const void *)at);
    if (!st)
        st = l->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                                         CUDNN_TYPE_VOID_PTR, 1, (const void *)&workspace);
    if (!st)
        st = l->cudnnBackendFinalize(pack);
    if (!st)
        st = l->cudnnBackendExecute(l->handle, d->plan, pack);
    if (pack)
        l->cudnnBackendDestroyDescriptor(pack);
    pthread_mutex_unlock(&l->lock);
    if (st)
        td__kernel_check(c, TD_FAIL(TD_EIO, "cuDNN: status %d", (int)st));
}

/* A plan for the graph, made now or before. */
static bool find_plan(td__dnn *d, int64_t *workspace)
{
    descriptor graph = new_descriptor(d, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(d, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, d->n_ops,
        (const void *)d->ops);
    set(d, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1,
        (const void *)&d->l->handle);
    for (int i = 0; i < d->l->n_plans; i++)
        if (d->l->plans[i].key == d->key) {
            d->plan = d->l->plans[i].plan;
            *workspace = d->l->plans[i].workspace;
            return true;
        }
    uint64_t key = d->key;
    finish(d, graph, "a graph");
    if (d->failed || d->l->n_plans == TD__CUDNN_PLANS ||
        (!try_heuristic(d, graph, CUDNN_HEUR_MODE_A, workspace) &&
         !try_heuristic(d, graph, CUDNN_HEUR_MODE_FALLBACK, workspace)))
        return false;
    d->l->plans[d->l->n_plans++] = (td__cudnn_plan){key, d->plan, *workspace};
    return true;
}

td_status td__dnn_add_take(td__dnn *d, td__cuda *b, td_kernel *k, size_t scratch)
{
    int64_t workspace = 0;
    td__cuda_enter(b->base.device);
    pthread_mutex_lock(&d->l->lock);
    bool found = find_plan(d, &workspace);
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

td_status td__cudnn_add_attention(td__cuda *b, td_kernel *k, const td__attention_args *a, bool back)
{
    (void)b, (void)k, (void)a, (void)back;
    return TD_ENOTSUP;
}

td_status td__cudnn_add_conv(td__cuda *b, td_kernel *k, const td__cudnn_conv *c, size_t scratch)
{
    (void)b, (void)k, (void)c, (void)scratch;
    return TD_ENOTSUP;
}
#endif
