/* plan_lookup.c -- embeddings (kernels/lookup.cu). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/cuda.h"
#include "backend/cuda/kernels/lookup.h"
#include "base/check.h"
#include "base/fail.h"

static bool is_ids(const td_desc *d)
{
    return d->dtype == TD_I32 || d->dtype == TD_I64 || d->dtype == TD_U8;
}

/* Of many ids, into the places that add_sort() has for them. */
static td_status add_sort_by_rows(td__cuda *b, td_kernel *k, const td__lookup_args *a,
                                  td__cuda_at positions, td__cuda_at keys, size_t *used)
{
    size_t rows = td__align_up((size_t)(a->rows + 1) * sizeof(int), 256);
    td__cuda_at counts = TD__SCRATCH(*used), begins = TD__SCRATCH(*used + rows);
    td__cuda_at next = TD__SCRATCH(*used + 2 * rows), places = TD__SCRATCH(*used + 3 * rows);
    td__cuda_grid grid = td__cuda_grid_each((a->n + TD__CUDA_THREADS - 1) / TD__CUDA_THREADS);
    td__cuda_bind count = {.in = {TD__IN(0)}, .out = {counts}};
    td__cuda_bind begin = {.in = {counts}, .out = {begins, next}};
    td__cuda_bind scatter = {.in = {TD__IN(0)}, .out = {next, places}};
    td__cuda_bind order = {.in = {TD__IN(0), begins, places}, .out = {positions, keys}};
    *used += 3 * rows + td__align_up((size_t)a->n * sizeof(int), 256);
    td__cuda_want_scratch(k, *used);
    TD_TRY(td__cuda_add_zero(k, counts, rows));
    TD_TRY(td__cuda_add_bound(b, k, "lookup_count", TD_DTYPE_COUNT, grid, a, sizeof *a, &count));
    TD_TRY(td__cuda_add_bound(b, k, "lookup_begins", TD_DTYPE_COUNT, td__cuda_grid_each(1), a,
                              sizeof *a, &begin));
    TD_TRY(
        td__cuda_add_bound(b, k, "lookup_scatter", TD_DTYPE_COUNT, grid, a, sizeof *a, &scatter));
    return td__cuda_add_bound(b, k, "lookup_order", TD_DTYPE_COUNT, grid, a, sizeof *a, &order);
}

/* Positions in the order of their ids into scratch, the ids behind; *used: bytes of scratch. */
static td_status add_sort(td__cuda *b, td_kernel *k, const td__lookup_args *a,
                          td__cuda_at *positions, td__cuda_at *keys, size_t *used)
{
    size_t part = td__align_up((size_t)a->n * sizeof(int), 256);
    td__cuda_grid grid = td__cuda_grid_each((a->n + TD__CUDA_THREADS - 1) / TD__CUDA_THREADS);
    *positions = TD__SCRATCH(*used);
    *keys = TD__SCRATCH(*used + part);
    *used += 2 * part;
    td__cuda_want_scratch(k, *used);
    enum { FEW = 100, ROWS_OF_AN_ID = 64 };
    if (a->n > FEW && a->rows / ROWS_OF_AN_ID <= a->n)
        return add_sort_by_rows(b, k, a, *positions, *keys, used);
    return td__cuda_add_bound(b, k, "lookup_sort", TD_DTYPE_COUNT, grid, a, sizeof *a,
                              &(td__cuda_bind){.in = {TD__IN(0)}, .out = {*positions, *keys}});
}

/* dtable (out 0) from rows of dy, in the order of their ids. */
static td_status add_back(td__cuda *b, const td_node *n, td_kernel *k, const td__lookup_args *a,
                          td__cuda_at dy, td_dtype t, size_t used)
{
    td__cuda_at positions, keys;
    TD_TRY(td__cuda_add_zero(k, TD__OUT(0), td__desc_bytes(&n->out[0])));
    TD_TRY(add_sort(b, k, a, &positions, &keys, &used));
    return td__cuda_add_bound(b, k, "embedding_back", t, td__cuda_grid_each(a->n), a, sizeof *a,
                              &(td__cuda_bind){.in = {positions, keys, dy}, .out = {TD__OUT(0)}});
}

static td_status add_rows(td__cuda *b, const td_node *n, td_kernel *k, const td__lookup_args *a,
                          td_dtype t)
{
    td__cuda_at positions, keys;
    size_t used = 0;
    TD_TRY(td__cuda_add_zero(k, TD__OUT(0), td__desc_bytes(&n->out[0])));
    TD_TRY(add_sort(b, k, a, &positions, &keys, &used));
    td__cuda_at number = TD__SCRATCH(used);
    td__cuda_want_scratch(k, used + (size_t)a->n * sizeof(int));
    TD_TRY(td__cuda_add_bound(
        b, k, "lookup_unique", TD_DTYPE_COUNT, td__cuda_grid_each(1), a, sizeof *a,
        &(td__cuda_bind){.in = {positions, keys}, .out = {TD__OUT(1), number}}));
    return td__cuda_add_bound(
        b, k, "embedding_rows", t, td__cuda_grid_each(a->n), a, sizeof *a,
        &(td__cuda_bind){.in = {positions, keys, TD__IN(1), number}, .out = {TD__OUT(0)}});
}

td_status td__cuda_plan_embedding(td__cuda *b, const td_node *n, const bool *is_param, td_kernel *k)
{
    const td_attr_embedding *at = n->attr;
    const td_desc *ids = td__in_desc_of(n, 0), *x = td__in_desc_of(n, 1);
    td__lookup_args a = {.n = td__desc_count(ids), .rows = at->rows};
    (void)is_param;
    if (!is_ids(ids) || !td__cuda_takes(x->dtype) || !td__cuda_takes(n->out[0].dtype))
        return TD_ENOTSUP;
    a.width = x->shape.dim[x->shape.ndim - 1];
    a.ids = (int)ids->dtype;
    a.out_dtype = (int)n->out[0].dtype;
    if (n->op == TD_OP_EMBEDDING_BACK)
        return add_back(b, n, k, &a, TD__IN(1), x->dtype, 0);
    if (n->op == TD_OP_EMBEDDING_ROWS)
        return add_rows(b, n, k, &a, x->dtype);
    a.rows = x->shape.dim[0];
    return td__cuda_add(b, k, "embedding", x->dtype, td__cuda_grid_for(b, a.n * a.width), &a,
                        sizeof a);
}

td_status td__cuda_plan_embedding_bag(td__cuda *b, const td_node *n, const bool *is_param,
                                      td_kernel *k)
{
    const td_attr_embedding *at = n->attr;
    const td_desc *ids = td__in_desc_of(n, 0), *offsets = td__in_desc_of(n, 1);
    const td_desc *x = td__in_desc_of(n, 2);
    td__lookup_args a = {.n = td__desc_count(ids), .rows = at->rows};
    (void)is_param;
    if (!is_ids(ids) || !is_ids(offsets) || !td__cuda_takes(x->dtype) ||
        !td__cuda_takes(n->out[0].dtype))
        return TD_ENOTSUP;
    a.width = x->shape.dim[1];
    a.bags = offsets->shape.dim[0];
    a.ids = (int)ids->dtype;
    a.offsets = (int)offsets->dtype;
    a.out_dtype = (int)n->out[0].dtype;
    a.mean = at->mode == TD_BAG_MEAN;
    if (n->op == TD_OP_EMBEDDING_BAG) {
        a.rows = x->shape.dim[0];
        return td__cuda_add(b, k, "embedding_bag", x->dtype, td__cuda_grid_each(a.bags), &a,
                            sizeof a);
    }
    if (n->op == TD_OP_EMBEDDING_BAG_SPREAD)
        return td__cuda_add(b, k, "embedding_bag_spread", x->dtype, td__cuda_grid_each(a.n), &a,
                            sizeof a);
    size_t used = td__align_up((size_t)(a.n * a.width) * sizeof(float), 256);
    td__lookup_args spread = a;
    spread.out_dtype = (int)TD_F32;
    td__cuda_want_scratch(k, used);
    TD_TRY(td__cuda_add_bound(
        b, k, "embedding_bag_spread", x->dtype, td__cuda_grid_each(a.n), &spread, sizeof spread,
        &(td__cuda_bind){.in = {TD__IN(0), TD__IN(1), TD__IN(2)}, .out = {TD__SCRATCH(0)}}));
    return add_back(b, n, k, &a, TD__SCRATCH(0), TD_F32, used);
}
