/* attention.c -- the row work of attention; see attention.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/kernels/attention.h"

#include "backend/cpu/kernels/rows.h"
#include "backend/cpu/kernels/vmath.h"
#include "backend/cpu/kernels/widen.h"

static void scale_and_mask(const td__attention_row *r)
{
    float *x = r->scores;
    const float scale = r->scale;

    if (r->mask)
        for (int64_t i = 0; i < r->seen; i++)
            x[i] = x[i] * scale + r->mask[i];
    else
        for (int64_t i = 0; i < r->seen; i++)
            x[i] *= scale;
}

/* Floats x of the seen keys, and zeros for the rest, into row y. */
static void store_row(const td__attention_row *r, void *y, const float *x)
{
    if (r->dtype == TD_BF16)
        narrow_bf16(y, x, r->seen);
    else if (x != y)
        memcpy(y, x, (size_t)r->seen * sizeof *x);
    size_t size = td_dtype_size(r->dtype);
    memset((char *)y + (size_t)r->seen * size, 0, (size_t)(r->width - r->seen) * size);
}

float TD_ISA_SYM(td__attention_softmax)(const td__attention_row *r, void *p)
{
    float *x = r->scores;
    float scale = r->scale;

    if (r->mask || scale < 0) { /* else scaling is part of the pass that exponentiates */
        scale_and_mask(r);
        scale = 1.0f;
    }
    float top = row_max(x, r->seen);
    if (top == -INFINITY) { /* a query that sees no key */
        memset(x, 0, (size_t)r->seen * sizeof *x);
        store_row(r, p, x);
        return -INFINITY;
    }
    for (int64_t i = 0; i < r->seen; i++)
        x[i] = v_exp_neg((x[i] - top) * scale);
    float sum = row_sum(x, r->seen), share = 1.0f / sum;
    for (int64_t i = 0; i < r->seen; i++)
        x[i] *= share;
    store_row(r, p, x);
    return top * scale + v_log(sum);
}

void TD_ISA_SYM(td__attention_back)(const td__attention_row *r, float lse, float delta, float *dp,
                                    void *p, void *ds)
{
    float *restrict x = r->scores;
    float *restrict g = dp;
    float scale = r->scale;

    if (r->mask) {
        scale_and_mask(r);
        scale = 1.0f;
    }
    if (lse == -INFINITY)
        memset(x, 0, (size_t)r->seen * sizeof *x);
    else
        for (int64_t i = 0; i < r->seen; i++)
            x[i] = v_exp_neg(x[i] * scale - lse);
    for (int64_t i = 0; i < r->seen; i++)
        g[i] = x[i] * (g[i] - delta) * r->scale;
    store_row(r, p, x);
    store_row(r, ds, dp);
}

float TD_ISA_SYM(td__attention_delta)(const void *d_out, const void *out, td_dtype t, int64_t d)
{
    if (t == TD_F32)
        return row_dot(d_out, out, d);
    float total = 0;
    const td_bf16 *a = d_out, *b = out;
#define V(i) (td__vf_load_bf16(a + (i)) * td__vf_load_bf16(b + (i)))
#define T(i) (td__bf16_to_f32(a[i]) * td__bf16_to_f32(b[i]))
    ROW_SUM(total, d, V, T);
#undef V
#undef T
    return total;
}

void TD_ISA_SYM(td__attention_store)(void *y, int64_t ld, td_dtype t, const float *x, int64_t n,
                                     int64_t d)
{
    for (int64_t i = 0; i < n; i++) {
        if (t == TD_BF16)
            narrow_bf16((td_bf16 *)y + i * ld, x + i * d, d);
        else
            memcpy((float *)y + i * ld, x + i * d, (size_t)d * sizeof *x);
    }
}
