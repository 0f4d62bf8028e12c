/* rewrite_bf16.c -- a program that keeps its activations in bf16.
 *
 * Each operator says how it meets bf16 (td_bf16_rule). Products (COMPUTE) take bf16 activations and
 * give bf16; weights stay f32 beside them and are rounded by the kernel, so that gradients of
 * weights come out in f32. Operators that FOLLOW take bf16 when one of their activations is bf16
 * already. Losses and metrics (KEEP) read bf16 and answer in f32. Outputs that the user asked for
 * are cast back to the type that the graph promised. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/fail.h"
#include "graph/rewrite.h"

static bool is_weight(const td_op_def *def, const td_node *in, int i)
{
    return (def->weights & (1u << i)) && in->out[0].dtype == TD_F32;
}

static td_node *as_bf16(td__rewriter *rw, td_node *n)
{
    return n && n->out[0].dtype == TD_F32 ? td_cast(rw->to, n, TD_BF16) : n;
}

/* Should this node's floating activations be bf16? */
static bool wants_bf16(const td_op_def *def, td_node *const *in, int n_in)
{
    if (def->bf16 != TD_BF16_FOLLOW)
        return def->bf16 == TD_BF16_COMPUTE;
    for (int i = 0; i < n_in; i++)
        if (in[i]->out[0].dtype == TD_BF16)
            return true;
    return false;
}

/* Attributes with the type of the result in them. */
static void set_out_dtype(td_opcode op, void *attr)
{
    switch (op) {
    case TD_OP_MATMUL: ((td_attr_matmul *)attr)->out_dtype = TD_BF16; break;
    case TD_OP_LINEAR: ((td_attr_linear *)attr)->out_dtype = TD_BF16; break;
    case TD_OP_CONV2D: ((td_attr_conv2d *)attr)->out_dtype = TD_BF16; break;
    case TD_OP_EMBEDDING:
    case TD_OP_EMBEDDING_BAG: ((td_attr_embedding *)attr)->out_dtype = TD_BF16; break;
    default: break;
    }
}

static void convert(td__rewriter *rw, const td_node *old)
{
    const td_op_def *def = td__op(old->op);
    td_node *in[TD_MAX_IN];
    for (int i = 0; i < old->n_in; i++)
        in[i] = rw->map[old->in[i]->id];
    bool lookup = old->op == TD_OP_EMBEDDING || old->op == TD_OP_EMBEDDING_BAG;
    if (!lookup && !wants_bf16(def, in, old->n_in)) {
        td__rewrite_copy_as(rw, old, old->attr, in, old->n_in);
        return;
    }
    for (int i = 0; !lookup && i < old->n_in; i++)
        if (!is_weight(def, in[i], i))
            in[i] = as_bf16(rw, in[i]);
    union { /* large enough for the attributes of every operator here, and aligned */
        td_attr_conv2d conv;
        td_attr_fused fused;
        char bytes[1];
    } attr;
    TD_ASSERT(def->attr_size <= sizeof attr, "attributes of %s", def->name);
    if (def->attr_size)
        memcpy(&attr, old->attr, def->attr_size);
    set_out_dtype(old->op, &attr);
    td__rewrite_copy_as(rw, old, &attr, in, old->n_in);
}

td_status td__rewrite_bf16(const td_graph *g, td_graph **out)
{
    td__rewriter rw;
    TD_TRY(td__rewrite_begin(&rw, g));
    for (int i = 0; i < g->n_nodes && !rw.to->status; i++)
        convert(&rw, td__rewrite_visit(&rw, i));
    for (int i = 0; i < g->n_roots && !rw.to->status; i++) {
        const td_node *old = td__rewrite_visit(&rw, g->roots[i].node->id);
        td_node *now = rw.map[old->id];
        if (now && now->out[0].dtype != old->out[0].dtype && g->roots[i].kind != TD_ROOT_TRACK)
            rw.map[old->id] = td_cast(rw.to, now, old->out[0].dtype);
    }
    return td__rewrite_end(&rw, out);
}
