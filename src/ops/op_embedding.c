/* op_embedding.c -- looking rows up in a table, and the two forms of the table's gradient.
 *
 *     y[i, :] = table[ids[i], :]
 *
 * embedding_back  adds every dy[i, :] to its row of a dense (V, D) gradient.
 * embedding_rows  gives the rows that were looked up, sorted, each once, and their sums; the list
 *                 is as long as ids and padded with row -1 and zeros. Sums are taken in order of
 *                 appearance.
 *
 * An id below 0 is padding: a row of zeros, and no gradient. An id of V or more gives a row of NaN,
 * so that the run stops and names the node. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "ops/op_check.h"

static td_status embedding_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    const td_attr_embedding *at = a->attr;

    TD_TRY(td__want_index(a, 0, "ids"));
    TD_TRY(td__want_float(a, 1, "the table"));
    TD_TRY(td__want_ndim(a, 1, "the table", 2));
    TD_TRY(td__want_float_dtype(at->out_dtype, "out_dtype"));
    td_shape y = a->in_desc[0]->shape;
    if (y.ndim >= TD_MAX_DIMS)
        return TD_FAIL(TD_EINVAL, "ids have %d axes; at most %d are possible", y.ndim,
                       TD_MAX_DIMS - 1);
    y.dim[y.ndim++] = a->in_desc[1]->shape.dim[1];
    TD_TRY(td__want_count(&y, "y"));
    out[0] = td__desc(td__out_dtype(a->in_desc[1]->dtype, at->out_dtype), y);
    *n_out = 1;
    return TD_OK;
}

static void embedding_ref(const td_op_args *a)
{
    const double *table = a->in[1]; /* (V, D) */
    double *y = a->out[0];          /* (n, D) */
    int64_t n = td_shape_count(&a->in_desc[0]->shape);
    int64_t v = a->in_desc[1]->shape.dim[0], d = a->in_desc[1]->shape.dim[1];

    for (int64_t i = 0; i < n; i++) {
        int64_t id = td__ref_index(a->in_desc[0]->dtype, a->in[0], i);
        for (int64_t j = 0; j < d; j++)
            y[i * d + j] = id < 0 ? 0 : id < v ? table[id * d + j] : (double)NAN;
    }
}

static void embedding_grad(const td_grad_args *ga)
{
    td_node *ids = ga->y->in[0], *table = ga->y->in[1], *dy = ga->dy[0];
    td_attr_embedding at;

    if (!ga->need[1])
        return;
    memcpy(&at, ga->y->attr, sizeof at);
    at.out_dtype = table->out[0].dtype;
    at.rows = table->out[0].shape.dim[0];
    if (!at.sparse) {
        ga->dx[1] = TD__NODE(ga->g, TD_OP_EMBEDDING_BACK, &at, ids, dy);
        return;
    }
    int64_t n = td_shape_count(&ids->out[0].shape), d = table->out[0].shape.dim[1];
    ga->dx[1] = TD__NODE(ga->g, TD_OP_EMBEDDING_ROWS, &at, td_reshape(ga->g, ids, TD_SHAPE(n)),
                         td_reshape(ga->g, dy, TD_SHAPE(n, d)));
}

static td_status back_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    const td_attr_embedding *at = a->attr;
    const td_shape *dy = &a->in_desc[1]->shape;

    TD_TRY(td__want_index(a, 0, "ids"));
    TD_TRY(td__want_float(a, 1, "dy"));
    TD_TRY(td__want_min_ndim(a, 1, "dy", 1));
    TD_TRY(td__want_float_dtype(at->out_dtype, "out_dtype"));
    td_shape rows = td__shape_rows(dy);
    TD_TRY(td__want_shape(a, 0, "ids", &rows));
    td_shape table = TD_SHAPE(at->rows, td__last_dim(dy));
    TD_TRY(td__want_count(&table, "the table"));
    out[0] = td__desc(td__out_dtype(a->in_desc[1]->dtype, at->out_dtype), table);
    *n_out = 1;
    return TD_OK;
}

static void back_ref(const td_op_args *a)
{
    const td_attr_embedding *at = a->attr;
    const double *dy = a->in[1]; /* (n, D) */
    double *dtable = a->out[0];  /* (V, D) */
    int64_t n = td_shape_count(&a->in_desc[0]->shape), d = td__last_dim(&a->in_desc[1]->shape);

    for (int64_t i = 0; i < at->rows * d; i++)
        dtable[i] = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t id = td__ref_index(a->in_desc[0]->dtype, a->in[0], i);
        for (int64_t j = 0; j < d && id >= 0 && id < at->rows; j++)
            dtable[id * d + j] += dy[i * d + j];
    }
}

static td_status rows_infer(const td_op_args *a, td_desc *out, int *n_out)
{
    const td_attr_embedding *at = a->attr;

    TD_TRY(td__want_index(a, 0, "ids"));
    TD_TRY(td__want_ndim(a, 0, "ids", 1));
    TD_TRY(td__want_float(a, 1, "dy"));
    TD_TRY(td__want_ndim(a, 1, "dy", 2));
    TD_TRY(td__want_float_dtype(at->out_dtype, "out_dtype"));
    TD_TRY(td__want_vector(a, 0, "ids", a->in_desc[1]->shape.dim[0]));
    if (at->rows < 0 || at->rows > INT32_MAX)
        return TD_FAIL(TD_ENOTSUP, "a table of %lld rows; row numbers have 31 bits",
                       (long long)at->rows);
    out[0] = td__desc(td__out_dtype(a->in_desc[1]->dtype, at->out_dtype), a->in_desc[1]->shape);
    out[1] = td__desc(TD_I32, a->in_desc[0]->shape);
    *n_out = 2;
    return TD_OK;
}

/* Heap sort: in place and without recursion, so that the reference needs no memory of its own. */
static void sift_down(int32_t *v, int64_t root, int64_t n)
{
    for (int64_t child; (child = 2 * root + 1) < n; root = child) {
        child += child + 1 < n && v[child + 1] > v[child];
        if (v[root] >= v[child])
            return;
        int32_t swap = v[root];
        v[root] = v[child];
        v[child] = swap;
    }
}

static void sort(int32_t *v, int64_t n)
{
    for (int64_t i = n / 2 - 1; i >= 0; i--)
        sift_down(v, i, n);
    for (int64_t i = n - 1; i > 0; i--) {
        int32_t swap = v[0];
        v[0] = v[i];
        v[i] = swap;
        sift_down(v, 0, i);
    }
}

static int64_t find(const int32_t *v, int64_t n, int64_t id)
{
    int64_t lo = 0;

    while (n > 0) {
        int64_t half = n / 2;
        if (v[lo + half] < id) {
            lo += half + 1;
            n -= half + 1;
        } else {
            n = half;
        }
    }
    return lo;
}

static void rows_ref(const td_op_args *a)
{
    const td_attr_embedding *at = a->attr;
    const double *dy = a->in[1]; /* (n, D) */
    double *values = a->out[0];  /* (n, D) */
    int32_t *rows = a->out[1];   /* (n) */
    int64_t n = a->in_desc[1]->shape.dim[0], d = a->in_desc[1]->shape.dim[1];
    int64_t valid = 0, unique = 0;

    for (int64_t i = 0; i < n; i++) {
        int64_t id = td__ref_index(a->in_desc[0]->dtype, a->in[0], i);
        if (id >= 0 && id < at->rows)
            rows[valid++] = (int32_t)id;
    }
    sort(rows, valid);
    for (int64_t i = 0; i < valid; i++)
        if (i == 0 || rows[i] != rows[unique - 1])
            rows[unique++] = rows[i];
    for (int64_t i = unique; i < n; i++)
        rows[i] = -1;
    for (int64_t i = 0; i < n * d; i++)
        values[i] = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t id = td__ref_index(a->in_desc[0]->dtype, a->in[0], i);
        if (id < 0 || id >= at->rows)
            continue;
        double *value = values + find(rows, unique, id) * d;
        for (int64_t j = 0; j < d; j++)
            value[j] += dy[i * d + j];
    }
}

TD_API td_node *td_embedding(td_graph *g, td_node *ids, td_node *table, bool sparse)
{
    td_attr_embedding at;

    memset(&at, 0, sizeof at);
    at.out_dtype = table ? table->out[0].dtype : TD_F32;
    at.sparse = sparse;
    return TD__NODE(g, TD_OP_EMBEDDING, &at, ids, table);
}

static const td_attr_embedding V7 = {.rows = 7}, V40 = {.rows = 40};

static const td_op_sample SAMPLES[] = {
    {.n_in = 2, .in = {TD__INTS(5), TD__FLOATS(7, 3)}, .attr = &V7, .ihi = 7},
    {.n_in = 2, .in = {TD__LONGS(2, 4), TD__FLOATS(7, 3)}, .attr = &V7, .ihi = 7},
    {.n_in = 2, .in = {TD__INTS(9), TD__FLOATS(7, 5)}, .attr = &V7, .ilo = -3, .ihi = 7},
    {.n_in = 2, .in = {TD__INTS(0), TD__FLOATS(7, 3)}, .attr = &V7, .ihi = 7},
    {.n_in = 2, .in = {{.dtype = TD_I32}, TD__FLOATS(7, 3)}, .attr = &V7, .ihi = 7},
    {.n_in = 2,
     .in = {TD__INTS(3, 50), TD__FLOATS(40, 67)},
     .attr = &V40,
     .ihi = 40,
     .no_grad = TD__ALL_INPUTS},
};

static const td_op_sample BACK_SAMPLES[] = {
    {.n_in = 2, .in = {TD__INTS(5), TD__FLOATS(5, 3)}, .attr = &V7, .ihi = 7},
    {.n_in = 2, .in = {TD__LONGS(2, 4), TD__FLOATS(2, 4, 3)}, .attr = &V7, .ihi = 7},
    {.n_in = 2, .in = {TD__INTS(9), TD__FLOATS(9, 5)}, .attr = &V7, .ilo = -3, .ihi = 7},
    {.n_in = 2, .in = {TD__INTS(0), TD__FLOATS(0, 3)}, .attr = &V7, .ihi = 7},
    {.n_in = 2, .in = {TD__INTS(150), TD__FLOATS(150, 67)}, .attr = &V40, .ihi = 40},
};

static const td_op_sample ROWS_SAMPLES[] = {
    {.n_in = 2, .in = {TD__INTS(5), TD__FLOATS(5, 3)}, .attr = &V7, .ihi = 7},
    {.n_in = 2, .in = {TD__LONGS(30), TD__FLOATS(30, 4)}, .attr = &V7, .ihi = 7},
    {.n_in = 2, .in = {TD__INTS(9), TD__FLOATS(9, 5)}, .attr = &V7, .ilo = -3, .ihi = 7},
    {.n_in = 2, .in = {TD__INTS(4), TD__FLOATS(4, 5)}, .attr = &V7, .ilo = -3, .ihi = 0},
    {.n_in = 2, .in = {TD__INTS(0), TD__FLOATS(0, 3)}, .attr = &V7, .ihi = 7},
    {.n_in = 2, .in = {TD__INTS(150), TD__FLOATS(150, 67)}, .attr = &V40, .ihi = 40},
};

const td_op_def td__op_embedding = {
    .name = "embedding",
    .n_in_min = 2,
    .n_in_max = 2,
    .attr_size = sizeof(td_attr_embedding),
    .infer = embedding_infer,
    .ref = embedding_ref,
    .grad = embedding_grad,
    .weights = TD__BIT(1),
    .bf16 = TD_BF16_COMPUTE,
    .layout = TD_LAYOUT_RULE_PLAIN,
    .samples = SAMPLES,
    .n_samples = TD_LEN(SAMPLES),
};

const td_op_def td__op_embedding_back = {
    .name = "embedding_back",
    .n_in_min = 2,
    .n_in_max = 2,
    .attr_size = sizeof(td_attr_embedding),
    .infer = back_infer,
    .ref = back_ref,
    .grad = NULL,
    .bf16 = TD_BF16_KEEP,
    .layout = TD_LAYOUT_RULE_PLAIN,
    .samples = BACK_SAMPLES,
    .n_samples = TD_LEN(BACK_SAMPLES),
};

const td_op_def td__op_embedding_rows = {
    .name = "embedding_rows",
    .n_in_min = 2,
    .n_in_max = 2,
    .attr_size = sizeof(td_attr_embedding),
    .infer = rows_infer,
    .ref = rows_ref,
    .grad = NULL,
    .bf16 = TD_BF16_KEEP,
    .layout = TD_LAYOUT_RULE_PLAIN,
    .samples = ROWS_SAMPLES,
    .n_samples = TD_LEN(ROWS_SAMPLES),
};
