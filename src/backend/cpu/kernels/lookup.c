/* lookup.c -- see lookup.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/kernels/lookup.h"

#include <math.h>
#include <string.h>

#include "backend/cpu/kernels/widen.h"

static int64_t index_at(td_dtype t, const void *p, int64_t i)
{
    return t == TD_I32 ? ((const int32_t *)p)[i] : ((const int64_t *)p)[i];
}

/* y += a x */
static void add_row(float *restrict y, const float *restrict x, float a, int64_t d)
{
    for (int64_t j = 0; j < d; j++)
        y[j] += a * x[j];
}

static size_t size_of(td_dtype t)
{
    return t == TD_F32 ? sizeof(float) : sizeof(td_bf16);
}

void TD_ISA_SYM(td__lookup_rows)(const td__lookup *p, void *y, const void *ids, const float *table)
{
    const int64_t d = p->width;
    const size_t row_bytes = (size_t)d * size_of(p->dtype);

    for (int64_t i = 0; i < p->n; i++) {
        int64_t id = index_at(p->id_dtype, ids, i);
        char *to = (char *)y + (size_t)i * row_bytes;

        if (id < 0)
            memset(to, 0, row_bytes);
        else if (id >= p->rows)
            memset(to, 0xff, row_bytes); /* all bits set is NaN in every type */
        else if (p->dtype == TD_F32)
            memcpy(to, table + id * d, row_bytes);
        else
            narrow_end(table + id * d, p->dtype, y, i * d, d);
    }
}

void TD_ISA_SYM(td__lookup_back)(const td__lookup *p, float *dtable, const void *ids,
                                 const void *dy, float *scratch)
{
    const int64_t d = p->width;

    memset(dtable, 0, (size_t)(p->rows * d) * sizeof *dtable);
    for (int64_t i = 0; i < p->n; i++) {
        int64_t id = index_at(p->id_dtype, ids, i);

        if (id >= 0 && id < p->rows)
            add_row(dtable + id * d, widen_at(scratch, p->dtype, dy, i * d, d), 1.0f, d);
    }
}

/* Sort pairs (id << 32 | position), already in order of position, by id: least digit first, as many
 * digits as V has. Returns the array that holds the result. */
static uint64_t *sort_pairs(uint64_t *a, uint64_t *b, int64_t n, int64_t rows)
{
    enum { BITS = 8, BINS = 1 << BITS };

    for (int shift = 32; shift < 64 && (rows - 1) >> (shift - 32); shift += BITS) {
        int64_t first[BINS + 1] = {0};

        for (int64_t i = 0; i < n; i++)
            first[(a[i] >> shift & (BINS - 1)) + 1]++;
        for (int k = 0; k < BINS; k++)
            first[k + 1] += first[k];
        for (int64_t i = 0; i < n; i++)
            b[first[a[i] >> shift & (BINS - 1)]++] = a[i];
        uint64_t *swap = a;
        a = b;
        b = swap;
    }
    return a;
}

void TD_ISA_SYM(td__lookup_sparse)(const td__lookup *p, float *values, int32_t *rows,
                                   const void *ids, const void *dy, void *scratch)
{
    const int64_t d = p->width;
    uint64_t *pairs = scratch;
    float *buf = (float *)(pairs + 2 * p->n);
    int64_t valid = 0, unique = 0;

    for (int64_t i = 0; i < p->n; i++) {
        int64_t id = index_at(p->id_dtype, ids, i);

        if (id >= 0 && id < p->rows)
            pairs[valid++] = (uint64_t)id << 32 | (uint64_t)i;
    }
    const uint64_t *sorted = sort_pairs(pairs, pairs + p->n, valid, p->rows);

    for (int64_t i = 0; i < valid; i++) {
        int32_t id = (int32_t)(sorted[i] >> 32);
        int64_t at = (int64_t)(sorted[i] & UINT32_MAX);

        if (unique == 0 || rows[unique - 1] != id) {
            rows[unique++] = id;
            memset(values + (unique - 1) * d, 0, (size_t)d * sizeof *values);
        }
        add_row(values + (unique - 1) * d, widen_at(buf, p->dtype, dy, at * d, d), 1.0f, d);
    }
    memset(values + unique * d, 0, (size_t)((p->n - unique) * d) * sizeof *values);
    for (int64_t i = unique; i < p->n; i++)
        rows[i] = -1;
}

/* ---- Bags. ---- */

typedef struct bag {
    int64_t begin, end;
    float share; /* of each id in the bag's result */
} bag;

static int64_t offset_at(const td__lookup *p, const void *offsets, int64_t b)
{
    if (b == p->bags)
        return p->n;
    int64_t at = index_at(p->offset_dtype, offsets, b);

    return at < 0 ? 0 : at > p->n ? p->n : at;
}

static bag bag_at(const td__lookup *p, const void *ids, const void *offsets, int64_t b)
{
    bag g = {offset_at(p, offsets, b), offset_at(p, offsets, b + 1), 1.0f};
    int64_t live = 0;

    for (int64_t i = g.begin; p->mean && i < g.end; i++)
        live += index_at(p->id_dtype, ids, i) >= 0;
    if (live > 0)
        g.share = 1.0f / (float)live;
    return g;
}

void TD_ISA_SYM(td__lookup_bags)(const td__lookup *p, void *y, const void *ids, const void *offsets,
                                 const float *table, float *scratch)
{
    const int64_t d = p->width;

    for (int64_t b = 0; b < p->bags; b++) {
        bag g = bag_at(p, ids, offsets, b);
        float *sum = narrow_begin(scratch, p->dtype, y, b * d);

        memset(sum, 0, (size_t)d * sizeof *sum);
        for (int64_t i = g.begin; i < g.end; i++) {
            int64_t id = index_at(p->id_dtype, ids, i);

            if (id >= p->rows)
                memset(sum, 0xff, (size_t)d * sizeof *sum); /* NaN, and stays it */
            else if (id >= 0)
                add_row(sum, table + id * d, g.share, d);
        }
        narrow_end(sum, p->dtype, y, b * d, d);
    }
}

void TD_ISA_SYM(td__lookup_bags_back)(const td__lookup *p, float *dtable, const void *ids,
                                      const void *offsets, const void *dy, float *scratch)
{
    const int64_t d = p->width;

    memset(dtable, 0, (size_t)(p->rows * d) * sizeof *dtable);
    for (int64_t b = 0; b < p->bags; b++) {
        bag g = bag_at(p, ids, offsets, b);
        const float *from = widen_at(scratch, p->dtype, dy, b * d, d);

        for (int64_t i = g.begin; i < g.end; i++) {
            int64_t id = index_at(p->id_dtype, ids, i);

            if (id >= 0 && id < p->rows)
                add_row(dtable + id * d, from, g.share, d);
        }
    }
}

void TD_ISA_SYM(td__lookup_bags_spread)(const td__lookup *p, void *spread, const void *ids,
                                        const void *offsets, const void *dy, float *scratch)
{
    const int64_t d = p->width;

    memset(spread, 0, (size_t)(p->n * d) * size_of(p->dtype));
    for (int64_t b = 0; b < p->bags; b++) {
        bag g = bag_at(p, ids, offsets, b);
        const float *from = widen_at(scratch, p->dtype, dy, b * d, d);

        for (int64_t i = g.begin; i < g.end; i++) {
            if (index_at(p->id_dtype, ids, i) < 0)
                continue;
            /* Added, not set: bags may overlap. */
            float *to = narrow_begin(scratch + d, p->dtype, spread, i * d);
            if (to == scratch + d)
                widen_at(to, p->dtype, spread, i * d, d);
            add_row(to, from, g.share, d);
            narrow_end(to, p->dtype, spread, i * d, d);
        }
    }
}
