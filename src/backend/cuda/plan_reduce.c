/* plan_reduce.c -- reductions (kernels/reduce.cu), and sums of columns for other planners. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/kernels/reduce.h"
#include "backend/cuda/sums.h"
#include "base/check.h"
#include "base/fail.h"

/* Enough parts to keep the threads of a GPU busy, none shorter than 32 rows. */
int td__cuda_splits(int64_t rows, int64_t columns)
{
    enum { BUSY = 1 << 17, SHORT = 32, MOST = 256 };
    int64_t splits = columns ? BUSY / columns : 1, most = rows / SHORT;
    splits = splits < most ? splits : most;
    return splits < 1 ? 1 : splits > MOST ? MOST : (int)splits;
}

td__cuda_grid td__cuda_grid_columns(int64_t columns, int lot, int splits)
{
    int64_t each = lot ? 32 * lot : TD__CUDA_THREADS;
    return (td__cuda_grid){.x = (unsigned)((columns + each - 1) / each),
                           .y = (unsigned)splits,
                           .threads = TD__CUDA_THREADS};
}

size_t td__cuda_column_scratch(int64_t rows, int64_t columns)
{
    return (size_t)(td__cuda_splits(rows, columns) * columns) * sizeof(float);
}

/* One block for 32 results. */
static td__cuda_grid finish_grid(int64_t results)
{
    return td__cuda_grid_each((results + 31) / 32);
}

td_status td__cuda_add_finish(td__cuda *b, td_kernel *k, const td__cuda_at from[2], int n,
                              int splits, int64_t columns, const td__cuda_at to[2],
                              td_dtype out_dtype)
{
    td__finish_args a = {.results = columns, .splits = splits, .scale = 1};
    td__cuda_grid grid = finish_grid(columns);
    td__cuda_bind bind = {.in = {from[0], from[n - 1]}, .out = {to[0], to[n - 1]}};
    a.out_dtype = (int)out_dtype;
    grid.y = (unsigned)n;
    return td__cuda_add_bound(b, k, "reduce_finish", TD_DTYPE_COUNT, grid, &a, sizeof a, &bind);
}

/* As columns: a's axes are set; in parts to scratch, which is finished. */
static td_status add_columns(td__cuda *b, td_kernel *k, td__reduce_args *a, td_dtype dtype,
                             td__cuda_at from, td__cuda_at to, size_t scratch)
{
    a->splits = td__cuda_splits(a->count, a->results);
    a->per_split = (a->count + a->splits - 1) / a->splits;
    bool wide = a->op == TD__REDUCE_SUM && a->n_kept == 1 && a->kept_step[0] == 1 &&
                a->n_reduced == 1 && a->reduced_step[0] == a->results &&
                a->results % td__cuda_lot(dtype) == 0;
    td__cuda_grid grid =
        td__cuda_grid_columns(a->results, wide ? td__cuda_lot(dtype) : 0, a->splits);
    td__cuda_bind bind = {.in = {from}, .out = {TD__SCRATCH(scratch)}};
    td__cuda_want_scratch(k, scratch + td__cuda_column_scratch(a->count, a->results));
    TD_TRY(td__cuda_add_bound(b, k, wide ? "reduce_wide" : "reduce_columns", dtype, grid, a,
                              sizeof *a, &bind));
    td__finish_args f = {.results = a->results,
                         .op = a->op,
                         .splits = a->splits,
                         .out_dtype = a->out_dtype,
                         .scale = a->scale};
    return td__cuda_add_bound(b, k, "reduce_finish", TD_DTYPE_COUNT, finish_grid(a->results), &f,
                              sizeof f,
                              &(td__cuda_bind){.in = {TD__SCRATCH(scratch)}, .out = {to}});
}

td_status td__cuda_add_column_sums(td__cuda *b, td_kernel *k, td__cuda_at from, td_dtype dtype,
                                   int64_t rows, int64_t columns, td__cuda_at to,
                                   td_dtype out_dtype, size_t scratch)
{
    td__reduce_args a = {.results = columns,
                         .count = rows,
                         .n_kept = 1,
                         .n_reduced = 1,
                         .kept = {columns},
                         .kept_step = {1},
                         .reduced = {rows},
                         .reduced_step = {columns},
                         .scale = 1};
    a.out_dtype = (int)out_dtype;
    return add_columns(b, k, &a, dtype, from, to, scratch);
}

/* ---- The operators --------------------------------------------------------------------------- */

/* Neighbours that are both kept or both reduced are one axis. */
static void take_axes(const td_shape *x, unsigned axes, td__reduce_args *a)
{
    long long step = 1;
    int last = -1; /* of the axis behind: was it reduced? */
    a->results = a->count = 1;
    long long kept[TD__IO_DIMS], reduced[TD__IO_DIMS], ks[TD__IO_DIMS], rs[TD__IO_DIMS];
    for (int i = x->ndim - 1; i >= 0; i--) {
        int is = axes >> i & 1u;
        int *n = is ? &a->n_reduced : &a->n_kept;
        long long *dim = is ? reduced : kept, *steps = is ? rs : ks;
        if (is == last) {
            dim[*n - 1] *= x->dim[i];
        } else {
            dim[*n] = x->dim[i];
            steps[(*n)++] = step;
        }
        *(is ? &a->count : &a->results) *= x->dim[i];
        step *= x->dim[i];
        last = is;
    }
    for (int i = 0; i < a->n_kept; i++) { /* found from the last to the first */
        a->kept[i] = kept[a->n_kept - 1 - i];
        a->kept_step[i] = ks[a->n_kept - 1 - i];
    }
    for (int i = 0; i < a->n_reduced; i++) {
        a->reduced[i] = reduced[a->n_reduced - 1 - i];
        a->reduced_step[i] = rs[a->n_reduced - 1 - i];
    }
}

td_status td__cuda_plan_reduce(td__cuda *b, const td_node *n, const bool *is_param, td_kernel *k)
{
    const td_attr_reduce *r = n->attr;
    const td_desc *x = td__in_desc_of(n, 0);
    td__reduce_args a = {.scale = 1, .out_dtype = (int)n->out[0].dtype};
    (void)is_param;
    if (!td__cuda_takes(x->dtype) || !td__cuda_takes(n->out[0].dtype))
        return TD_ENOTSUP;
    a.op = n->op == TD_OP_MAX ? TD__REDUCE_MAX : TD__REDUCE_SUM;
    take_axes(&x->shape, r->axes, &a);
    if (n->op == TD_OP_MEAN)
        a.scale = (float)(1 / (double)a.count);
    bool columns = x->shape.ndim > 0 && !(r->axes >> (x->shape.ndim - 1) & 1u) && a.results >= 32;
    if (columns)
        return add_columns(b, k, &a, x->dtype, TD__IN(0), TD__OUT(0), 0);
    return td__cuda_add(b, k, "reduce_rows", x->dtype, td__cuda_grid_each(a.results), &a, sizeof a);
}

td_status td__cuda_plan_max_back(td__cuda *b, const td_node *n, const bool *is_param, td_kernel *k)
{
    const td_attr_reduce *r = n->attr;
    const td_desc *x = td__in_desc_of(n, 0);
    td__reduce_args a = {.scale = 1};
    (void)is_param;
    if (!td__cuda_takes(x->dtype))
        return TD_ENOTSUP;
    take_axes(&x->shape, r->axes, &a);
    return td__cuda_add(b, k, "max_back", x->dtype, td__cuda_grid_each(a.results), &a, sizeof a);
}

td_status td__cuda_plan_argmax(td__cuda *b, const td_node *n, const bool *is_param, td_kernel *k)
{
    const td_attr_reduce *r = n->attr;
    const td_desc *x = td__in_desc_of(n, 0);
    int axis = __builtin_ctz(r->axes);
    td__argmax_args a = {.outer = td__cuda_extent(&x->shape, 0, axis),
                         .size = x->shape.dim[axis],
                         .inner = td__cuda_extent(&x->shape, axis + 1, x->shape.ndim)};
    (void)is_param;
    if (!td__cuda_takes(x->dtype))
        return TD_ENOTSUP;
    return td__cuda_add(b, k, "argmax", x->dtype, td__cuda_grid_for(b, a.outer * a.inner), &a,
                        sizeof a);
}
