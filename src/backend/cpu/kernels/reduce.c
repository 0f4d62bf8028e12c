/* reduce.c -- see reduce.h.
 *
 * Runs are summed in blocks of f32 partial sums (rows.h) that are added up in double. Columns are
 * summed FOLD rows at a time in f32, and these sums then added up, so that rounding errors grow
 * with rows / FOLD + FOLD instead of rows. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/kernels/reduce.h"

#include "backend/cpu/kernels/rows.h"
#include "backend/cpu/kernels/widen.h"

enum { BLOCK = 4096, FOLD = 64 };

/* ---- Walking over axes. ---- */

typedef struct walk {
    int64_t index[TD_MAX_DIMS];
    int64_t at; /* element */
} walk;

static void walk_next(const td__axes *a, walk *w)
{
    for (int i = a->n - 1; i >= 0; i--) {
        w->at += a->step[i];
        if (++w->index[i] < a->dim[i])
            return;
        w->at -= a->step[i] * a->dim[i];
        w->index[i] = 0;
    }
}

static int64_t walk_count(const td__axes *a)
{
    int64_t n = 1;

    for (int i = 0; i < a->n; i++)
        n *= a->dim[i];
    return n;
}

/* ---- Last axis reduced. ---- */

/* NaN, once there, stays. */
static inline float larger(float x, float top)
{
    return x > top || x != x ? x : top;
}

static float run_max(const float *x, int64_t n)
{
    td__vf m = td__vf_set(-INFINITY);
    float a[TD_VEC_LANES], top = -INFINITY;
    int64_t i = 0;

    for (; i + TD_VEC_LANES <= n; i += TD_VEC_LANES) {
        td__vf v = td__vf_load(x + i);
        td__vi take = (v > m) | (v != v);

        m = (td__vf)(((td__vi)v & take) | ((td__vi)m & ~take));
    }
    td__vf_store(a, m);
    for (int k = 0; k < TD_VEC_LANES; k++)
        top = larger(a[k], top);
    for (; i < n; i++)
        top = larger(x[i], top);
    return top;
}

static void store_one(const td__reduce *p, void *y, int64_t at, float v)
{
    if (p->out == TD_F32)
        ((float *)y)[at] = v;
    else
        narrow_end(&v, p->out, y, at, 1);
}

static void reduce_runs(const td__reduce *p, void *y, const void *x)
{
    const int64_t n_kept = walk_count(&p->kept), n_reduced = walk_count(&p->reduced);
    _Alignas(64) float buf[BLOCK];
    walk kept = {.at = 0};

    for (int64_t k = 0; k < n_kept; k++, walk_next(&p->kept, &kept)) {
        walk reduced = {.at = kept.at};
        double total = 0;
        float top = -INFINITY;

        for (int64_t r = 0; r < n_reduced; r++, walk_next(&p->reduced, &reduced))
            for (int64_t i = 0; i < p->last; i += BLOCK) {
                int64_t n = p->last - i < BLOCK ? p->last - i : BLOCK;
                const float *v = widen_at(buf, p->in, x, reduced.at + i, n);

                if (p->is_max)
                    top = larger(run_max(v, n), top);
                else
                    total += (double)row_sum(v, n);
            }
        store_one(p, y, k, p->is_max ? top : (float)(total * (double)p->scale));
    }
}

/* ---- Last axis kept. ---- */

static void add_to(float *restrict y, const float *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] += x[i];
}

static void max_to(float *restrict y, const float *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float top = x[i] > y[i] ? x[i] : y[i];

        /* top is y where either is NaN; take x if it is the one. */
        y[i] = x[i] != x[i] ? x[i] : top;
    }
}

static void set_all(float *y, float v, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = v;
}

/* Columns [col, col + n) of one result row, whose elements begin at `at`. */
static void reduce_columns(const td__reduce *p, float *total, const void *x, int64_t at,
                           int64_t n_reduced, int64_t n)
{
    _Alignas(64) float buf[BLOCK];
    _Alignas(64) float part[BLOCK];
    walk reduced = {.at = at};

    set_all(total, p->is_max ? -INFINITY : 0.0f, n);
    set_all(part, 0.0f, n);
    for (int64_t r = 0; r < n_reduced; r++, walk_next(&p->reduced, &reduced)) {
        const float *v = widen_at(buf, p->in, x, reduced.at, n);

        if (p->is_max) {
            max_to(total, v, n);
            continue;
        }
        add_to(part, v, n);
        if (r % FOLD == FOLD - 1 || r == n_reduced - 1) {
            add_to(total, part, n);
            set_all(part, 0.0f, n);
        }
    }
    for (int64_t i = 0; i < n; i++)
        total[i] *= p->scale;
}

void TD_ISA_SYM(td__reduce)(const td__reduce *p, void *y, const void *x)
{
    const int64_t n_kept = walk_count(&p->kept), n_reduced = walk_count(&p->reduced);
    _Alignas(64) float total[BLOCK];
    walk kept = {.at = 0};

    if (p->last_reduced) {
        reduce_runs(p, y, x);
        return;
    }
    for (int64_t k = 0; k < n_kept; k++, walk_next(&p->kept, &kept))
        for (int64_t col = 0; col < p->last; col += BLOCK) {
            int64_t n = p->last - col < BLOCK ? p->last - col : BLOCK;
            int64_t at = k * p->last + col;
            float *to = narrow_begin(total, p->out, y, at);

            reduce_columns(p, to, x, kept.at + col, n_reduced, n);
            narrow_end(to, p->out, y, at, n);
        }
}
