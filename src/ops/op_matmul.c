/* op_matmul.c -- batched matrix product.
 *
 *     C = op(A) op(B),   op(X) = X or X' (last two axes swapped)
 *
 * A (..., M, K) and B (..., K, N) before transposition; leading sizes broadcast as in NumPy. With
 * dC the gradient of C, and sums over broadcast axes taken afterwards:
 *
 *     dA = dC op(B)'   or, if A was transposed,  op(B) dC'
 *     dB = op(A)' dC   or, if B was transposed,  dC' op(A) */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "ops/op_check.h"

/* Sizes of one product and of its batch. */
typedef struct dims {
    int64_t m, n, k;
    td_shape batch;
} dims;

static td_status matmul_dims(const td_op_args *a, dims *d)
{
    const td_attr_matmul *at = a->attr;
    const td_shape *sa = &a->in_desc[0]->shape, *sb = &a->in_desc[1]->shape;
    bool ta = at->ta, tb = at->tb;
    char ta_text[128], tb_text[128];

    TD_TRY(td__want_min_ndim(a, 0, "a", 2));
    TD_TRY(td__want_min_ndim(a, 1, "b", 2));
    d->m = sa->dim[sa->ndim - (ta ? 1 : 2)];
    d->k = sa->dim[sa->ndim - (ta ? 2 : 1)];
    d->n = sb->dim[sb->ndim - (tb ? 2 : 1)];
    int64_t kb = sb->dim[sb->ndim - (tb ? 1 : 2)];
    if (kb != d->k)
        return TD_FAIL(TD_EINVAL, "inner sizes differ: %lld of a %s%s and %lld of b %s%s",
                       (long long)d->k, td_shape_text(sa, ta_text, sizeof ta_text),
                       ta ? " transposed" : "", (long long)kb,
                       td_shape_text(sb, tb_text, sizeof tb_text), tb ? " transposed" : "");

    memset(&d->batch, 0, sizeof d->batch);
    d->batch.ndim = (sa->ndim > sb->ndim ? sa->ndim : sb->ndim) - 2;
    for (int i = 0; i < d->batch.ndim; i++) {
        int ia = i - (d->batch.ndim - (sa->ndim - 2)), ib = i - (d->batch.ndim - (sb->ndim - 2));
        int64_t na = ia >= 0 ? sa->dim[ia] : 1, nb = ib >= 0 ? sb->dim[ib] : 1;
        if (na != nb && na != 1 && nb != 1)
            return TD_FAIL(TD_EINVAL, "batch sizes do not broadcast: a %s, b %s",
                           td_shape_text(sa, ta_text, sizeof ta_text),
                           td_shape_text(sb, tb_text, sizeof tb_text));
        d->batch.dim[i] = na == 1 ? nb : na;
    }
    return TD_OK;
}

static td_status matmul_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    const td_attr_matmul *at = a->attr;
    dims d;

    TD_TRY(td__want_float(a, 0, "a"));
    TD_TRY(td__want_same_dtype(a, 1, "b"));
    TD_TRY(td__want_float_dtype(at->out_dtype, "out_dtype"));
    TD_TRY(matmul_dims(a, &d));
    out[0] =
        (td_desc){.dtype = td__out_dtype(a->in_desc[0]->dtype, at->out_dtype), .shape = d.batch};
    out[0].shape.dim[out[0].shape.ndim++] = d.m;
    out[0].shape.dim[out[0].shape.ndim++] = d.n;
    TD_TRY(td__want_count(&out[0].shape, "the product"));
    *n_out = 1;
    return TD_OK;
}

/* Where, in matrices, the operand of shape s lies for batch element `index` of `batch`. */
static int64_t batch_offset(const td_shape *s, const td_shape *batch, int64_t index)
{
    int64_t offset = 0, stride = 1;

    for (int i = batch->ndim - 1, j = s->ndim - 3; i >= 0; i--, j--) {
        int64_t at = index % batch->dim[i];
        index /= batch->dim[i];
        if (j >= 0) {
            offset += s->dim[j] == 1 ? 0 : at * stride;
            stride *= s->dim[j];
        }
    }
    return offset;
}

static void matmul_ref(const td_op_args *a)
{
    const td_attr_matmul *at = a->attr;
    dims d;

    if (matmul_dims(a, &d))
        return;
    int64_t n_batch = td_shape_count(&d.batch);
    for (int64_t b = 0; b < n_batch; b++) {
        const double *x = a->in[0], *y = a->in[1];
        double *z = a->out[0]; /* (M, N) */
        x += batch_offset(&a->in_desc[0]->shape, &d.batch, b) * d.m * d.k;
        y += batch_offset(&a->in_desc[1]->shape, &d.batch, b) * d.k * d.n;
        z += b * d.m * d.n;
        for (int64_t i = 0; i < d.m; i++)
            for (int64_t j = 0; j < d.n; j++) {
                double sum = 0;
                for (int64_t k = 0; k < d.k; k++)
                    sum += (at->ta ? x[k * d.m + i] : x[i * d.k + k]) *
                           (at->tb ? y[j * d.k + k] : y[k * d.n + j]);
                z[i * d.n + j] = sum;
            }
    }
}

static td_node *product(td_graph *g, td_node *a, td_node *b, bool ta, bool tb, const td_node *like)
{
    td_attr_matmul at;

    memset(&at, 0, sizeof at);
    at.out_dtype = like->out[0].dtype;
    at.ta = ta;
    at.tb = tb;
    return td__sum_to(g, TD__NODE(g, TD_OP_MATMUL, &at, a, b), like);
}

static void matmul_grad(const td_grad_args *ga)
{
    const td_attr_matmul *at = ga->y->attr;
    td_node *a = ga->y->in[0], *b = ga->y->in[1];
    td_node *dc = td__cast_to(ga->g, ga->dy[0], a->out[0].dtype);

    if (ga->need[0])
        ga->dx[0] = at->ta ? product(ga->g, b, dc, at->tb, true, a)
                           : product(ga->g, dc, b, false, !at->tb, a);
    if (ga->need[1])
        ga->dx[1] = at->tb ? product(ga->g, dc, a, true, at->ta, b)
                           : product(ga->g, a, dc, !at->ta, false, b);
}

TD_API td_node *td_matmul(td_graph *g, td_node *a, td_node *b, bool ta, bool tb)
{
    td_attr_matmul at;

    memset(&at, 0, sizeof at);
    at.out_dtype = a ? a->out[0].dtype : TD_F32;
    at.ta = ta;
    at.tb = tb;
    return TD__NODE(g, TD_OP_MATMUL, &at, a, b);
}

static const td_attr_matmul NN = {.out_dtype = TD_F32}, TN = {.ta = true}, NT = {.tb = true},
                            TT = {.ta = true, .tb = true};
#define BIG .no_grad = TD__ALL_INPUTS
static const td_op_sample SAMPLES[] = {
    {.n_in = 2, .in = {TD__FLOATS(5, 7), TD__FLOATS(7, 3)}, .attr = &NN},
    {.n_in = 2, .in = {TD__FLOATS(7, 5), TD__FLOATS(7, 3)}, .attr = &TN},
    {.n_in = 2, .in = {TD__FLOATS(5, 7), TD__FLOATS(3, 7)}, .attr = &NT},
    {.n_in = 2, .in = {TD__FLOATS(7, 5), TD__FLOATS(3, 7)}, .attr = &TT},
    {.n_in = 2, .in = {TD__FLOATS(1, 1), TD__FLOATS(1, 1)}, .attr = &NN},
    {.n_in = 2, .in = {TD__FLOATS(4, 0), TD__FLOATS(0, 3)}, .attr = &NN},    /* sums of nothing */
    {.n_in = 2, .in = {TD__FLOATS(0, 4, 5), TD__FLOATS(5, 3)}, .attr = &NN}, /* no batch */
    {.n_in = 2, .in = {TD__FLOATS(3, 4, 5), TD__FLOATS(3, 5, 2)}, .attr = &NN},
    {.n_in = 2, .in = {TD__FLOATS(3, 4, 5), TD__FLOATS(5, 2)}, .attr = &NN}, /* b is shared */
    {.n_in = 2, .in = {TD__FLOATS(4, 5), TD__FLOATS(2, 3, 2, 5)}, .attr = &NT},
    {.n_in = 2, .in = {TD__FLOATS(2, 1, 4, 3), TD__FLOATS(3, 3, 2)}, .attr = &NN},
    {.n_in = 2, .in = {TD__FLOATS(2, 1, 4, 3), TD__FLOATS(3, 2, 4)}, .attr = &TT},
    {.n_in = 2, .in = {TD__FLOATS(65, 130), TD__FLOATS(130, 70)}, .attr = &NN, BIG},
    {.n_in = 2, .in = {TD__FLOATS(130, 65), TD__FLOATS(130, 70)}, .attr = &TN, BIG},
    {.n_in = 2, .in = {TD__FLOATS(65, 130), TD__FLOATS(70, 130)}, .attr = &NT, BIG},
    {.n_in = 2, .in = {TD__FLOATS(6, 33, 64), TD__FLOATS(6, 64, 48)}, .attr = &NN, BIG},
    {.n_in = 2, .in = {TD__FLOATS(1, 300), TD__FLOATS(300, 257)}, .attr = &NN, BIG}, /* one row */
};

const td_op_def td__op_matmul = {
    .name = "matmul",
    .n_in_min = 2,
    .n_in_max = 2,
    .attr_size = sizeof(td_attr_matmul),
    .infer = matmul_infer,
    .ref = matmul_ref,
    .grad = matmul_grad,
    .bf16 = TD_BF16_COMPUTE,
    .layout = TD_LAYOUT_RULE_PLAIN,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};
