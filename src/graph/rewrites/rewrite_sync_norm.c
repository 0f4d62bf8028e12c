/* rewrite_sync_norm.c -- batch norms whose statistics are those of all micro-batches (td_attr_norm,
 * sync), as operators in which only the means know of other micro-batches:
 *
 *     mean = sync_mean(mean of x)          d = x - mean
 *     var = sync_mean(mean of d^2)         y = d gamma / sqrt(var + eps) + beta
 *
 * in f32. Autodiff does the rest: its means of gradients are over all micro-batches too. Before
 * epilogues are fused; programs for evaluation have other batch norms (rewrite_evaluate.c). */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/fail.h"
#include "graph/rewrite.h"

typedef struct made {
    td_node *y, *mean, *var, *rstd, *unbiased;
} made;

static bool is_sync(const td_node *n)
{
    return n->op == TD_OP_BATCH_NORM && ((const td_attr_norm *)n->attr)->sync;
}

/* The mean over all axes but 1, and over micro-batches. */
static td_node *mean_of(td_graph *g, td_node *x, td_node **unbiased)
{
    td_attr_sync_mean at;
    int axes[TD_MAX_DIMS], n = 0;
    td_shape s = td_node_shape(x);
    memset(&at, 0, sizeof at);
    at.count = s.dim[1] ? td_shape_count(&s) / s.dim[1] : 0;
    for (int i = 0; i < s.ndim; i++)
        if (i != 1)
            axes[n++] = i;
    td_node *y = TD__NODE(g, TD_OP_SYNC_MEAN, &at, td_mean(g, x, axes, n, false));
    if (unbiased && y)
        *unbiased = td__part(g, y, 1);
    return y;
}

/* (C) so that it meets x (N, C, ...). */
static td_node *channels(td_graph *g, td_node *c, const td_shape *x)
{
    td_shape s = *x;
    for (int i = 0; i < s.ndim; i++)
        s.dim[i] = i == 1 ? x->dim[1] : 1;
    return c ? td_reshape(g, c, s) : NULL;
}

static made lower(td__rewriter *rw, const td_node *old)
{
    const td_attr_norm *at = old->attr;
    td_graph *g = rw->to;
    td_node *x = rw->map[old->in[0]->id], *gamma = rw->map[old->in[1]->id];
    td_node *beta = rw->map[old->in[2]->id];
    td_dtype dtype = old->out[0].dtype;
    bool narrow = td_dtype_size(dtype) < sizeof(float);
    td_shape s = td_node_shape(old);
    made m = {0};

    x = narrow ? td_cast(g, x, TD_F32) : x;
    m.mean = mean_of(g, x, NULL);
    td_node *d = td_sub(g, x, channels(g, m.mean, &s));
    m.var = d ? mean_of(g, td_square(g, d), &m.unbiased) : NULL;
    m.rstd = td_rsqrt(g, td_affine(g, m.var, 1, at->eps));
    m.y = td_add(g, td_mul(g, d, channels(g, td_mul(g, gamma, m.rstd), &s)), channels(g, beta, &s));
    m.y = narrow ? td_cast(g, m.y, dtype) : m.y;
    return m;
}

td_status td__rewrite_sync_norm(const td_graph *g, td_graph **out)
{
    td__rewriter rw;
    TD_TRY(td__rewrite_begin(&rw, g));
    made *all = td__calloc((size_t)g->n_nodes + 1, sizeof *all);
    if (!all)
        td__graph_fail(rw.to, TD_ENOMEM, "td_graph", "no memory to rewrite batch norms");
    for (int i = 0; all && i < g->n_nodes && !rw.to->status; i++) {
        const td_node *n = td__rewrite_visit(&rw, i);
        if (is_sync(n)) {
            all[i] = lower(&rw, n);
            rw.map[i] = all[i].y;
        } else if (n->op == TD_OP_PART && is_sync(n->in[0])) {
            const made *m = &all[n->in[0]->id];
            int k = ((const td_attr_part *)n->attr)->index;
            rw.map[i] = k == 1 ? m->mean : k == 2 ? m->rstd : m->unbiased;
        } else
            td__rewrite_copy(&rw, n);
    }
    td__free(all);
    return td__rewrite_end(&rw, out);
}
