/* torch.c -- a model as a PyTorch module: a file of Python. It can be imported without torch, for
 * what stands behind it (samples.py).
 *
 * Weights are parameters (states: buffers) under their names in the safetensors file, so that
 * load_state_dict takes it. forward() is one line for each node of the graph, in its order. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/alloc.h"
#include "base/fail.h"
#include "base/file.h"
#include "export/export_impl.h"

static const char HEAD[] =
    "import json\n"
    "import os\n"
    "\n"
    "try:\n"
    "    import torch\n"
    "    import torch.nn.functional as F\n"
    "    Module = torch.nn.Module\n"
    "except ModuleNotFoundError:  # samples() does without\n"
    "    torch, Module = None, object\n"
    "\n"
    "\n"
    "def read_safetensors(path):\n"
    "    data = bytearray(open(path, 'rb').read())\n"
    "    n = int.from_bytes(data[:8], 'little')\n"
    "    head, body = json.loads(data[8:8 + n]), memoryview(data)[8 + n:]\n"
    "    head.pop('__metadata__', None)\n"
    "    out = {}\n"
    "    for name, t in head.items():\n"
    "        a, b = t['data_offsets']\n"
    "        assert t['dtype'] == 'F32', name\n"
    "        flat = torch.frombuffer(body[a:b], dtype=torch.float32) if b > a else torch.zeros(0)\n"
    "        out[name] = flat.clone().reshape(t['shape'])\n"
    "    return out\n"
    "\n"
    "\n"
    "def bags(ids, table, mean):\n"
    "    mask = (ids >= 0).to(table.dtype)\n"
    "    rows = table[ids.clamp(min=0).long()] * mask[..., None]\n"
    "    total = rows.sum(1)\n"
    "    return total / mask.sum(1, keepdim=True).clamp(min=1) if mean else total\n"
    "\n"
    "\n";

static const char MODULE[] =
    "\n"
    "\n"
    "class Model(Module):\n"
    "    def __init__(self):\n"
    "        super().__init__()\n"
    "        for name, shape, trained in WEIGHTS:\n"
    "            *path, last = name.split('.')\n"
    "            at = self\n"
    "            for part in path:\n"
    "                if part not in at._modules:\n"
    "                    at.add_module(part, torch.nn.Module())\n"
    "                at = at._modules[part]\n"
    "            if trained:\n"
    "                at.register_parameter(last, torch.nn.Parameter(torch.zeros(shape)))\n"
    "            else:\n"
    "                at.register_buffer(last, torch.zeros(shape))\n"
    "\n"
    "    def weights(self):\n"
    "        return {**dict(self.named_parameters()), **dict(self.named_buffers())}\n"
    "\n";

static const char TAIL[] =
    "\n"
    "\n"
    "def load(path=os.path.join(os.path.dirname(os.path.abspath(__file__)), FILE)):\n"
    "    if torch is None:\n"
    "        raise ModuleNotFoundError('the model needs PyTorch; samples() does without')\n"
    "    model = Model()\n"
    "    weights = read_safetensors(path)\n"
    "    model.load_state_dict({name: weights[name] for name, _, _ in WEIGHTS})\n"
    "    return model.eval()\n";

static const char *dtype_of(td_dtype t)
{
    switch (t) {
    case TD_F32: return "torch.float32";
    case TD_F64: return "torch.float64";
    case TD_U8: return "torch.uint8";
    case TD_I32: return "torch.int32";
    case TD_I64: return "torch.int64";
    case TD_BOOL: return "torch.bool";
    default: return "torch.bfloat16";
    }
}

/* "3, 4" */
static void add_longs(td__text *t, const int64_t *v, int n)
{
    for (int i = 0; i < n; i++)
        td__text_printf(t, "%s%lld", i ? ", " : "", (long long)v[i]);
}

/* The function with the same inputs and no options. */
static const char *plain(td_opcode op)
{
    switch (op) {
    case TD_OP_ADD: return "torch.add";
    case TD_OP_SUB: return "torch.sub";
    case TD_OP_MUL: return "torch.mul";
    case TD_OP_DIV: return "torch.div";
    case TD_OP_POW: return "torch.pow";
    case TD_OP_MAXIMUM: return "torch.maximum";
    case TD_OP_MINIMUM: return "torch.minimum";
    case TD_OP_EQUAL: return "torch.eq";
    case TD_OP_LESS: return "torch.lt";
    case TD_OP_LESS_EQUAL: return "torch.le";
    case TD_OP_WHERE: return "torch.where";
    case TD_OP_NEG: return "torch.neg";
    case TD_OP_ABS: return "torch.abs";
    case TD_OP_EXP: return "torch.exp";
    case TD_OP_LOG: return "torch.log";
    case TD_OP_SQRT: return "torch.sqrt";
    case TD_OP_RSQRT: return "torch.rsqrt";
    case TD_OP_SQUARE: return "torch.square";
    case TD_OP_RECIPROCAL: return "torch.reciprocal";
    case TD_OP_SIN: return "torch.sin";
    case TD_OP_COS: return "torch.cos";
    case TD_OP_ERF: return "torch.erf";
    case TD_OP_SIGN: return "torch.sign";
    case TD_OP_FLOOR: return "torch.floor";
    case TD_OP_RELU: return "F.relu";
    case TD_OP_GELU: return "F.gelu";
    case TD_OP_SILU: return "F.silu";
    case TD_OP_SIGMOID: return "torch.sigmoid";
    case TD_OP_TANH: return "torch.tanh";
    case TD_OP_SOFTPLUS: return "F.softplus";
    default: return NULL;
    }
}

typedef struct name {
    char text[24];
} name;

static name var(const td_node *n)
{
    name v;

    snprintf(v.text, sizeof v.text, "v%d", n->id);
    return v;
}
#define IN(i) (var(n->in[i]).text)

static void linear(td__text *t, const td_node *n)
{
    const td_attr_linear *a = n->attr;

    td__text_printf(t, "%sF.linear(%s, %s, %s)%s",
                    a->act == TD_ACT_NONE   ? ""
                    : a->act == TD_ACT_RELU ? "F.relu("
                                            : "F.gelu(",
                    IN(0), IN(1), a->has_bias ? IN(2) : "None",
                    a->act == TD_ACT_NONE        ? ""
                    : a->act == TD_ACT_GELU_TANH ? ", approximate='tanh')"
                                                 : ")");
}

static void conv2d(td__text *t, const td_node *n)
{
    const td_attr_conv2d *a = n->attr;

    td__text_printf(t, "F.conv2d(%s, %s, %s, (%d, %d), (%d, %d), (%d, %d), %d)", IN(0), IN(1),
                    a->has_bias ? IN(2) : "None", a->stride[0], a->stride[1], a->pad[0], a->pad[1],
                    a->dilation[0], a->dilation[1], a->groups);
}

static void pool(td__text *t, const td_node *n)
{
    const td_attr_pool2d *a = n->attr;

    td__text_printf(t, "F.%s_pool2d(%s, (%d, %d), (%d, %d), (%d, %d))",
                    n->op == TD_OP_MAX_POOL2D ? "max" : "avg", IN(0), a->size[0], a->size[1],
                    a->stride[0], a->stride[1], a->pad[0], a->pad[1]);
}

static td_status norm(td__text *t, const td_node *n)
{
    const td_attr_norm *a = n->attr;
    long long width = (long long)n->out[0].shape.dim[n->out[0].shape.ndim - 1];

    switch (n->op) {
    case TD_OP_BATCH_NORM:
        if (!a->has_running || a->has_residual || a->act)
            return td__export_refuse(n, "PyTorch");
        td__text_printf(t, "F.batch_norm(%s, %s, %s, %s, %s, self.training, %.9g, %.9g)", IN(0),
                        IN(3), IN(4), IN(1), IN(2), a->momentum, a->eps);
        break;
    case TD_OP_LAYER_NORM:
        td__text_printf(t, "F.layer_norm(%s, (%lld,), %s, %s, %.9g)", IN(0), width, IN(1), IN(2),
                        a->eps);
        break;
    case TD_OP_RMS_NORM:
        td__text_printf(t, "%s * torch.rsqrt(torch.mean(%s * %s, -1, keepdim=True) + %.9g) * %s",
                        IN(0), IN(0), IN(0), a->eps, IN(1));
        break;
    default:
        td__text_printf(t, "F.group_norm(%s, %d, %s, %s, %.9g)", IN(0), a->groups, IN(1), IN(2),
                        a->eps);
    }
    return TD_OK;
}

static td_status embedding_bag(td__text *t, const td_node *n)
{
    const td_attr_embedding *a = n->attr;
    long long length = (long long)td__export_bag_length(n);

    if (!length)
        return td__export_refuse(n, "PyTorch");
    td__text_printf(t, "bags(%s.reshape(-1, %lld), %s, %s)", IN(0), length, IN(2),
                    a->mode == TD_BAG_MEAN ? "True" : "False");
    return TD_OK;
}

static td_status attention(td__text *t, const td_node *n)
{
    const td_attr_attention *a = n->attr;

    if (n->in[0]->out[0].shape.dim[2] != n->in[1]->out[0].shape.dim[2] ||
        (a->has_mask && (n->in[3]->out[0].shape.ndim != 2 || a->causal)))
        return td__export_refuse(n, "PyTorch");
    td__text_printf(t,
                    "F.scaled_dot_product_attention(%s.transpose(1, 2), %s.transpose(1, 2), "
                    "%s.transpose(1, 2), attn_mask=%s, is_causal=%s, scale=%.9g).transpose(1, 2)",
                    IN(0), IN(1), IN(2), a->has_mask ? IN(3) : "None", a->causal ? "True" : "False",
                    a->scale);
    return TD_OK;
}

static td_status recurrent(td__text *t, const td_node *n)
{
    const td_node *in = td__export_recurrent(n);
    bool lstm = n->op == TD_OP_LSTM;
    long long hidden = (long long)n->out[0].shape.dim[2];

    if (!in)
        return td__export_refuse(n, "PyTorch");
    name x = var(in->in[0]);
    td__text_printf(t, "torch.%s(%s, ", lstm ? "lstm" : "gru", x.text);
    for (int i = 0; i < 1 + lstm; i++)
        td__text_printf(t, "%s%s.new_zeros(1, %s.shape[1], %lld)%s", lstm && !i ? "(" : "", x.text,
                        x.text, hidden, lstm && i ? "), " : ", ");
    td__text_printf(t, "[%s, %s, %s, %s], True, 1, 0.0, False, False, False)[0]",
                    var(in->in[1]).text, IN(lstm ? 3 : 2), var(in->in[2]).text, IN(lstm ? 4 : 3));
    return TD_OK;
}

static void reduce(td__text *t, const td_node *n)
{
    const td_attr_reduce *a = n->attr;
    bool first = true;

    td__text_printf(t, "%s(%s, (",
                    n->op == TD_OP_SUM    ? "torch.sum"
                    : n->op == TD_OP_MEAN ? "torch.mean"
                                          : "torch.amax",
                    IN(0));
    for (int i = 0; i < n->in[0]->out[0].shape.ndim; i++)
        if (a->axes & (1u << i)) {
            td__text_printf(t, "%s%d", first ? "" : ", ", i);
            first = false;
        }
    td__text_printf(t, ",), keepdim=%s)", a->keep ? "True" : "False");
}

static void slice(td__text *t, const td__export_node *at)
{
    const td_node *n = at->n;
    const td_attr_slice *a = n->attr;

    td__text_printf(t, "%s[", IN(0));
    for (int i = 0; i < a->axis; i++)
        td__text_add(t, ":, ");
    td__text_printf(t, "%lld:", (long long)a->start);
    if (!td__export_open(at, a->axis))
        td__text_printf(t, "%lld", (long long)a->stop);
    td__text_printf(t, ":%lld]", (long long)a->step);
}

static void pad(td__text *t, const td_node *n)
{
    const td_attr_pad *a = n->attr;
    int d = n->out[0].shape.ndim;

    td__text_printf(t, "F.pad(%s, (", IN(0));
    for (int i = d - 1; i >= 0; i--)
        td__text_printf(t, "%s%lld, %lld", i < d - 1 ? ", " : "", (long long)a->before[i],
                        (long long)a->after[i]);
    td__text_printf(t, "), value=%.9g)", a->value);
}

static td_status shape(td__text *t, const td__export_node *at)
{
    const td_node *n = at->n;
    int64_t dims[TD_MAX_DIMS];

    TD_TRY(td__export_target(at, dims));
    td__text_printf(t, "%s.%s(", IN(0), n->op == TD_OP_RESHAPE ? "reshape" : "expand");
    if (!n->out[0].shape.ndim)
        td__text_add(t, "()");
    add_longs(t, dims, n->out[0].shape.ndim);
    td__text_add(t, ")");
    return TD_OK;
}

static void all_inputs(td__text *t, const td_node *n)
{
    for (int i = 0; i < n->n_in; i++)
        td__text_printf(t, "%s%s", i ? ", " : "", IN(i));
}

static td_status constant(td__text *t, const td__export_node *at)
{
    const td_node *n = at->n;
    const td_attr_leaf *a = n->attr;
    int64_t count = td__desc_count(&n->out[0]);

    for (int i = 0; i < n->out[0].shape.ndim; i++)
        if (td__export_open(at, i))
            return td__export_refuse(n, "PyTorch");
    td__text_add(t, "torch.tensor([");
    for (int64_t i = 0; i < count; i++) {
        if (n->out[0].dtype == TD_F32)
            td__text_printf(t, "%s%.9g", i ? ", " : "",
                            a->data ? (double)((const float *)a->data)[i] : 0.0);
        else if (n->out[0].dtype == TD_I32)
            td__text_printf(t, "%s%d", i ? ", " : "", a->data ? ((const int32_t *)a->data)[i] : 0);
        else if (n->out[0].dtype == TD_I64)
            td__text_printf(t, "%s%lld", i ? ", " : "",
                            a->data ? (long long)((const int64_t *)a->data)[i] : 0LL);
        else
            return td__export_refuse(n, "PyTorch");
    }
    td__text_printf(t, "], dtype=%s, device=device).reshape(", dtype_of(n->out[0].dtype));
    td__text_add(t, n->out[0].shape.ndim ? "" : "()");
    add_longs(t, n->out[0].shape.dim, n->out[0].shape.ndim);
    td__text_add(t, ")");
    return TD_OK;
}

/* The expression of one node. */
static td_status expression(td__text *t, const td__export_node *at)
{
    const td_node *n = at->n;
    const char *call = plain(n->op);

    if (call) {
        td__text_printf(t, "%s(", call);
        all_inputs(t, n);
        td__text_add(t, ")");
        return TD_OK;
    }
    switch (n->op) {
    case TD_OP_PARAM:
    case TD_OP_STATE:
        td__text_add(t, "w[");
        td__text_json(t, n->name); /* a text of Python too */
        td__text_add(t, "]");
        return TD_OK;
    case TD_OP_CONSTANT: return constant(t, at);
    case TD_OP_AFFINE:
        td__text_printf(t, "%s * %.9g + %.9g", IN(0), ((const td_attr_affine *)n->attr)->scale,
                        ((const td_attr_affine *)n->attr)->shift);
        return TD_OK;
    case TD_OP_CLAMP:
        td__text_printf(t, "torch.clamp(%s, %.9g, %.9g)", IN(0),
                        ((const td_attr_clamp *)n->attr)->lo, ((const td_attr_clamp *)n->attr)->hi);
        return TD_OK;
    case TD_OP_LEAKY_RELU:
        td__text_printf(t, "F.leaky_relu(%s, %.9g)", IN(0),
                        ((const td_attr_slope *)n->attr)->slope);
        return TD_OK;
    case TD_OP_GELU_TANH: td__text_printf(t, "F.gelu(%s, approximate='tanh')", IN(0)); return TD_OK;
    case TD_OP_CAST:
        td__text_printf(t, "%s.to(%s)", IN(0), dtype_of(n->out[0].dtype));
        return TD_OK;
    case TD_OP_DROPOUT:
        td__text_printf(t, "F.dropout(%s, %.9g, self.training)", IN(0),
                        ((const td_attr_dropout *)n->attr)->p);
        return TD_OK;
    case TD_OP_MATMUL:
        td__text_printf(t, "torch.matmul(%s%s, %s%s)", IN(0),
                        ((const td_attr_matmul *)n->attr)->ta ? ".transpose(-1, -2)" : "", IN(1),
                        ((const td_attr_matmul *)n->attr)->tb ? ".transpose(-1, -2)" : "");
        return TD_OK;
    case TD_OP_LINEAR: linear(t, n); return TD_OK;
    case TD_OP_CONV2D: conv2d(t, n); return TD_OK;
    case TD_OP_MAX_POOL2D:
    case TD_OP_AVG_POOL2D: pool(t, n); return TD_OK;
    case TD_OP_GLOBAL_AVG_POOL:
        td__text_printf(t, "torch.mean(%s, (2, 3), keepdim=True)", IN(0));
        return TD_OK;
    case TD_OP_BATCH_NORM:
    case TD_OP_LAYER_NORM:
    case TD_OP_RMS_NORM:
    case TD_OP_GROUP_NORM: return norm(t, n);
    case TD_OP_SOFTMAX: td__text_printf(t, "torch.softmax(%s, -1)", IN(0)); return TD_OK;
    case TD_OP_LOG_SOFTMAX: td__text_printf(t, "torch.log_softmax(%s, -1)", IN(0)); return TD_OK;
    case TD_OP_EMBEDDING: td__text_printf(t, "%s[%s.long()]", IN(1), IN(0)); return TD_OK;
    case TD_OP_EMBEDDING_BAG: return embedding_bag(t, n);
    case TD_OP_ATTENTION: return attention(t, n);
    case TD_OP_LSTM:
    case TD_OP_GRU: return recurrent(t, n);
    case TD_OP_SUM:
    case TD_OP_MEAN:
    case TD_OP_MAX: reduce(t, n); return TD_OK;
    case TD_OP_RESHAPE:
    case TD_OP_EXPAND: return shape(t, at);
    case TD_OP_PERMUTE:
        td__text_printf(t, "%s.permute(", IN(0));
        for (int i = 0; i < n->out[0].shape.ndim; i++)
            td__text_printf(t, "%s%d", i ? ", " : "", ((const td_attr_permute *)n->attr)->axes[i]);
        td__text_add(t, ")");
        return TD_OK;
    case TD_OP_SLICE: slice(t, at); return TD_OK;
    case TD_OP_CONCAT:
        td__text_add(t, "torch.cat((");
        all_inputs(t, n);
        td__text_printf(t, "), %d)", ((const td_attr_axis *)n->attr)->axis);
        return TD_OK;
    case TD_OP_GATHER:
        td__text_printf(t, "torch.gather(%s, %d, %s.long())", IN(0),
                        ((const td_attr_axis *)n->attr)->axis, IN(1));
        return TD_OK;
    case TD_OP_PAD: pad(t, n); return TD_OK;
    default: return td__export_refuse(n, "PyTorch");
    }
}

static void add_weights(td__text *t, const td__export_node *at, int n)
{
    td__text_add(t, "\nWEIGHTS = [\n");
    for (int i = 0; i < n; i++) {
        const td_node *w = at[i].n;
        if (w->op != TD_OP_PARAM && w->op != TD_OP_STATE)
            continue;
        td__text_add(t, "    (");
        td__text_json(t, w->name);
        td__text_add(t, ", [");
        add_longs(t, w->out[0].shape.dim, w->out[0].shape.ndim);
        td__text_printf(t, "], %s),\n", w->op == TD_OP_PARAM ? "True" : "False");
    }
    td__text_add(t, "]\n");
}

/* The data fields that forward() takes, in its order. */
static void add_inputs(td__text *t, const td__export_node *at, int n)
{
    const char *between = "";

    td__text_add(t, "INPUTS = [");
    for (int i = 0; i < n; i++) {
        if (at[i].n->op != TD_OP_INPUT)
            continue;
        td__text_add(t, between);
        td__text_json(t, at[i].n->name);
        between = ", ";
    }
    td__text_add(t, "]\n");
}

static td_status add_forward(td__text *t, const td__export_node *at, int n)
{
    const td_node *first = NULL;

    td__text_add(t, "    def forward(self");
    for (int i = 0; i < n; i++)
        if (at[i].n->op == TD_OP_INPUT) {
            first = first ? first : at[i].n;
            td__text_printf(t, ", %s", var(at[i].n).text);
        }
    td__text_add(t, "):\n");
    for (int i = 0; i < n; i++)
        if (at[i].n->op == TD_OP_INPUT) {
            char text[128];
            td__text_printf(t, "        # %s: the data field ", var(at[i].n).text);
            td__text_printable(t, at[i].n->name);
            td__text_printf(t, ", %s%s, the first size is open\n", dtype_of(at[i].n->out[0].dtype),
                            td_shape_text(&at[i].n->out[0].shape, text, sizeof text));
        }
    if (!first)
        return TD_FAIL(TD_EINVAL, "the model reads no data");
    td__text_printf(t, "        w, device = self.weights(), %s.device\n", var(first).text);
    for (int i = 0; i < n; i++) {
        if (at[i].n->op == TD_OP_INPUT)
            continue;
        td__text_printf(t, "        %s = ", var(at[i].n).text);
        TD_TRY(expression(t, &at[i]));
        td__text_add(t, "  # ");
        td__text_printable(t, at[i].n->name);
        td__text_add(t, "\n");
    }
    td__text_printf(t, "        return %s\n", var(at[n - 1].n).text);
    return TD_OK;
}

td_status td__export_torch(const td__export *e, const char *weights, const char *more,
                           const char *path)
{
    td__text t = {0};
    td__export_node *at;
    int n;

    TD_TRY(td__export_walk(e, &at, &n));
    td__text_printf(&t, "# %s\n", e->about);
    td__text_add(&t, HEAD);
    td__text_add(&t, "FILE = ");
    td__text_json(&t, weights);
    td__text_add(&t, "\n");
    add_inputs(&t, at, n);
    add_weights(&t, at, n);
    td__text_add(&t, MODULE);
    td_status st = add_forward(&t, at, n);
    td__text_add(&t, TAIL);
    td__text_add(&t, more);
    if (!st)
        st = td__text_status(&t);
    if (!st)
        st = td__file_save(path, t.data, t.used);
    td__free(at);
    td__text_fini(&t);
    return st;
}
