/* winograd.c -- see winograd.h. The transforms of F(2x2, 3x3).
 *
 * A vector holds neighbouring channels; a 4x4 block of vectors is transformed in registers. Pixels
 * outside the image are read from a row of zeros, so that border tiles need no other code. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/kernels/winograd.h"

#include "backend/cpu/isa.h"
#include "backend/cpu/kernels/turn16.h"
#include "backend/cpu/kernels/vec.h"

enum { LANES = TD_VEC_LANES };

typedef struct place {
    int64_t n, i, j; /* sample, row and column of a tile */
} place;

TD_INLINE place place_of(const td__wino *g, int64_t t)
{
    int64_t per = g->rows * g->cols;
    return (place){t / per, t % per / g->cols, t % g->cols};
}

TD_INLINE place next_place(const td__wino *g, place p)
{
    if (++p.j == g->cols) {
        p.j = 0;
        if (++p.i == g->rows) {
            p.i = 0;
            p.n++;
        }
    }
    return p;
}

/* Pointers to pixels (row + r, col + s) of sample n, r and s < size; zeros outside the image. */
TD_INLINE void pixels(const void **px, const void *x, const void *zeros, int64_t n, int64_t row,
                      int64_t col, int64_t h, int64_t w, int64_t c, const int size, const int bf16)
{
    const int64_t bytes = c * (bf16 ? 2 : 4);
    const char *base = (const char *)x + ((n * h + row) * w + col) * bytes;

    if (row >= 0 && row + size <= h && col >= 0 && col + size <= w) {
        for (int r = 0; r < size; r++)
            for (int s = 0; s < size; s++)
                px[r * size + s] = base + (r * w + s) * bytes;
        return;
    }
    for (int r = 0; r < size; r++) {
        for (int s = 0; s < size; s++) {
            bool inside = row + r >= 0 && row + r < h && col + s >= 0 && col + s < w;
            px[r * size + s] = inside ? base + (r * w + s) * bytes : zeros;
        }
    }
}

/* B' applied to four vectors. */
TD_INLINE void bt(td__vf *o0, td__vf *o1, td__vf *o2, td__vf *o3, td__vf a, td__vf b, td__vf c,
                  td__vf d)
{
    *o0 = a - c;
    *o1 = b + c;
    *o2 = c - b;
    *o3 = b - d;
}

/* B' applied down two neighbouring columns, of which px holds the four rows each. */
TD_INLINE void input_columns(td__vf m[4][4], const int to, const void *const *px, int64_t c,
                             const int bf16)
{
#pragma GCC unroll 2
    for (int s = to; s < to + 2; s++)
        bt(&m[0][s], &m[1][s], &m[2][s], &m[3][s], td__vf_get(px[s], c, bf16),
           td__vf_get(px[4 + s], c, bf16), td__vf_get(px[8 + s], c, bf16),
           td__vf_get(px[12 + s], c, bf16));
}

/* B' d B of one tile, its column transform in m, row r of it in out. */
TD_INLINE void input_row(td__vf out[4], td__vf m[4][4], const int r)
{
    bt(&out[0], &out[1], &out[2], &out[3], m[r][0], m[r][1], m[r][2], m[r][3]);
}

/* A run of `count` <= RUN tiles that lie side by side: the right two columns of a tile are the left
 * two of the next, and are transformed once. */
enum { RUN = 16 };

TD_INLINE void input_run(const td__wino *g, void *v, int64_t stride, const void *x,
                         const void *zeros, place p, int64_t count, const int bf16,
                         const int v_bf16)
{
    const void *px[RUN][16];

    for (int64_t t = 0; t < count; t++)
        pixels(px[t], x, zeros, p.n, 2 * p.i - g->pad[0], 2 * (p.j + t) - g->pad[1], g->h, g->w,
               g->c, 4, bf16);
    for (int64_t c = 0; c < g->c; c += LANES) {
        td__vf m[4][4];
        input_columns(m, 0, px[0], c, bf16);
        for (int64_t t = 0; t < count; t++) {
            input_columns(m, 2, px[t], c, bf16);
#pragma GCC unroll 4
            for (int r = 0; r < 4; r++) {
                td__vf out[4];
                int64_t at = r * 4 * stride + t * g->c + c;
                input_row(out, m, r);
#pragma GCC unroll 4
                for (int s = 0; s < 4; s++)
                    td__vf_put(v, at + s * stride, out[s], v_bf16);
                m[r][0] = m[r][2];
                m[r][1] = m[r][3];
            }
        }
    }
}

TD_INLINE void input_tiles(const td__wino *g, void *v, int64_t stride, const void *x,
                           const void *zeros, int64_t first, int64_t count, const int bf16,
                           const int v_bf16)
{
    const int64_t size = v_bf16 ? 2 : 4;

    for (int64_t t = 0, n; t < count; t += n) {
        place p = place_of(g, first + t);
        n = g->cols - p.j < count - t ? g->cols - p.j : count - t;
        n = n < RUN ? n : RUN;
        input_run(g, (char *)v + t * g->c * size, stride, x, zeros, p, n, bf16, v_bf16);
    }
}

static void wino_input(const td__wino *g, void *v, int64_t stride, const void *x, const void *zeros,
                       int64_t first, int64_t count)
{
    if (g->v_bf16)
        input_tiles(g, v, stride, x, zeros, first, count, 1, 1);
    else if (g->bf16)
        input_tiles(g, v, stride, x, zeros, first, count, 1, 0);
    else
        input_tiles(g, v, stride, x, zeros, first, count, 0, 0);
}

static void wino_input_pairs(const td__wino *g, void *v, int64_t stride, const void *x,
                             const void *zeros, int64_t first, int64_t count)
{
    place p = place_of(g, first);

    for (int64_t t = 0; t < count; t += 2) {
        const void *px[2][16];
        for (int k = 0; k < 2; k++, p = next_place(g, p)) {
            if (t + k < count)
                pixels(px[k], x, zeros, p.n, 2 * p.i - g->pad[0], 2 * p.j - g->pad[1], g->h, g->w,
                       g->c, 4, 1);
            else
                for (int s = 0; s < 16; s++)
                    px[k][s] = zeros;
        }
        for (int64_t c = 0; c < g->c; c += LANES) {
            td__vf m[2][4][4];
#pragma GCC unroll 2
            for (int k = 0; k < 2; k++) {
                input_columns(m[k], 0, px[k], c, 1);
                input_columns(m[k], 2, px[k], c, 1);
            }
#pragma GCC unroll 4
            for (int r = 0; r < 4; r++) {
                td__vf out[2][4];
                input_row(out[0], m[0], r);
                input_row(out[1], m[1], r);
#pragma GCC unroll 4
                for (int s = 0; s < 4; s++) {
                    td__vu pair = td__vf_pair_bf16(out[0][s], out[1][s]);
                    int64_t at = (r * 4 + s) * stride + t / 2 * g->c + c;
                    memcpy((uint32_t *)v + at, &pair, sizeof pair);
                }
            }
        }
    }
}

TD_INLINE void output_tiles(const td__wino *g, void *y, const float *m, int64_t stride,
                            const float *bias, const int relu, int64_t first, int64_t count,
                            const int bf16)
{
    place p = place_of(g, first);

    for (int64_t t = 0; t < count; t++, p = next_place(g, p)) {
        bool down = 2 * p.i + 1 < g->oh, right = 2 * p.j + 1 < g->ow;
        int64_t at = ((p.n * g->oh + 2 * p.i) * g->ow + 2 * p.j) * g->o;
        for (int64_t o = 0; o < g->o; o += LANES) {
            td__vf a[4], b[4]; /* A' m: two rows of four */
            td__vf add = bias ? td__vf_load(bias + o) : td__vf_set(0.0f);
#pragma GCC unroll 4
            for (int s = 0; s < 4; s++) {
                const float *q = m + s * stride + t * g->o + o;
                td__vf m0 = td__vf_load(q), m1 = td__vf_load(q + 4 * stride);
                td__vf m2 = td__vf_load(q + 8 * stride), m3 = td__vf_load(q + 12 * stride);
                a[s] = m0 + m1 + m2;
                b[s] = m1 - m2 - m3;
            }
            td__vf y00 = a[0] + a[1] + a[2] + add, y01 = a[1] - a[2] - a[3] + add;
            td__vf y10 = b[0] + b[1] + b[2] + add, y11 = b[1] - b[2] - b[3] + add;
            td__vf_put(y, at + o, relu ? td__vf_relu(y00) : y00, bf16);
            if (right)
                td__vf_put(y, at + g->o + o, relu ? td__vf_relu(y01) : y01, bf16);
            if (down)
                td__vf_put(y, at + g->ow * g->o + o, relu ? td__vf_relu(y10) : y10, bf16);
            if (down && right)
                td__vf_put(y, at + (g->ow + 1) * g->o + o, relu ? td__vf_relu(y11) : y11, bf16);
        }
    }
}

static void wino_output(const td__wino *g, void *y, const float *m, int64_t stride,
                        const float *bias, bool relu, int64_t first, int64_t count)
{
    switch ((relu ? 2 : 0) + (g->bf16 ? 1 : 0)) {
    case 0: output_tiles(g, y, m, stride, bias, 0, first, count, 0); break;
    case 1: output_tiles(g, y, m, stride, bias, 0, first, count, 1); break;
    case 2: output_tiles(g, y, m, stride, bias, 1, first, count, 0); break;
    default: output_tiles(g, y, m, stride, bias, 1, first, count, 1); break;
    }
}

/* Rows that share a unit of a packed matrix: two in bf16. */
TD_INLINE int rows_per_unit(const int bf16)
{
    return bf16 ? 2 : 1;
}

/* Store columns n.. of a unit row of packed matrix f; v0 and v1 are its rows (v1: bf16 only). */
TD_INLINE void put_unit(void *u, const td__wino_packing *p, int64_t f, int64_t unit, int64_t n,
                        td__vf v0, td__vf v1, const int bf16)
{
    int64_t at = (n / p->panel * p->units + unit) * p->panel + n % p->panel;

    if (bf16) {
        td__vu pair = td__vf_pair_bf16(v0, v1);
        memcpy((td_bf16 *)u + f * p->matrix + at * 2, &pair, sizeof pair);
    } else {
        td__vf_store((float *)u + f * p->matrix + at, v0);
    }
}

/* A dy A' of one tile, row r. */
TD_INLINE void gradient_row(td__vf out[4], const td__vf d[4], const int r)
{
    td__vf left = r == 0 ? d[0] : r == 1 ? d[0] + d[2] : r == 2 ? d[0] - d[2] : -d[2];
    td__vf right = r == 0 ? d[1] : r == 1 ? d[1] + d[3] : r == 2 ? d[1] - d[3] : -d[3];
    out[0] = left;
    out[1] = left + right;
    out[2] = left - right;
    out[3] = -right;
}

TD_INLINE void gradient_tiles(const td__wino *g, void *z, const td__wino_packing *pk,
                              const void *dy, const void *zeros, int64_t first, int64_t count,
                              const int bf16, const int v_bf16)
{
    const int per = rows_per_unit(v_bf16); /* a last odd tile is paired with zeros */
    place p = place_of(g, first);

    for (int64_t t = 0; t < count; t += per) {
        const void *px[2][4] = {{zeros, zeros, zeros, zeros}, {zeros, zeros, zeros, zeros}};
        for (int k = 0; k < per && t + k < count; k++, p = next_place(g, p))
            pixels(px[k], dy, zeros, p.n, 2 * p.i, 2 * p.j, g->oh, g->ow, g->o, 2, bf16);
        for (int64_t o = 0; o < g->o; o += LANES) {
            td__vf d[2][4], row[2][4];
#pragma GCC unroll 4
            for (int r = 0; r < 4; r++) {
                d[0][r] = td__vf_get(px[0][r], o, bf16);
                d[1][r] = per == 2 ? td__vf_get(px[1][r], o, bf16) : d[0][r];
            }
#pragma GCC unroll 4
            for (int r = 0; r < 4; r++) {
                gradient_row(row[0], d[0], r);
                gradient_row(row[1], d[1], r);
#pragma GCC unroll 4
                for (int s = 0; s < 4; s++)
                    put_unit(z, pk, r * 4 + s, t / per, o, row[0][s], row[1][s], v_bf16);
            }
        }
    }
}

static void wino_gradient(const td__wino *g, void *z, const td__wino_packing *p, const void *dy,
                          const void *zeros, int64_t first, int64_t count)
{
    if (g->v_bf16)
        gradient_tiles(g, z, p, dy, zeros, first, count, 1, 1);
    else if (g->bf16)
        gradient_tiles(g, z, p, dy, zeros, first, count, 1, 0);
    else
        gradient_tiles(g, z, p, dy, zeros, first, count, 0, 0);
}

/* Taps of a weight are read and written for BLOCK input channels at a time: whole blocks of floats
 * that are transposed. */
enum { BLOCK = 16 };

/* to[j][i] = from[i row + j], j < n, for LANES filters i. */
TD_INLINE void gather(float (*to)[LANES], const float *from, int64_t row, const int n)
{
#if TD_VEC_LANES == 16
    const void *lines[16];
    for (int j = 0; j < n; j += 16) {
        for (int i = 0; i < 16; i++)
            lines[i] = from + i * row + j;
        td__turn16(to[j], sizeof to[j], n - j < 16 ? n - j : 16, lines);
    }
#else
    for (int j = 0; j < n; j++)
        for (int i = 0; i < LANES; i++)
            to[j][i] = from[i * row + j];
#endif
}

/* to[i row + j] = from[j][i], j < 9 BLOCK. */
TD_INLINE void scatter(float *to, int64_t row, float (*from)[LANES])
{
#if TD_VEC_LANES == 16
    const void *lines[16];
    for (int j = 0; j < 9 * BLOCK; j += 16) {
        for (int i = 0; i < 16; i++)
            lines[i] = from[j + i];
        td__turn16(to + j, row * (int64_t)sizeof *to, 16, lines);
    }
#else
    for (int i = 0; i < LANES; i++)
        for (int j = 0; j < 9 * BLOCK; j++)
            to[i * row + j] = from[j][i];
#endif
}

/* G applied to three vectors. */
TD_INLINE void gt(td__vf out[4], td__vf a, td__vf b, td__vf c)
{
    td__vf even = (a + c) * 0.5f, odd = b * 0.5f;
    out[0] = a;
    out[1] = even + odd;
    out[2] = even - odd;
    out[3] = c;
}

/* Row r of G w G', from the nine taps. */
TD_INLINE void weight_row(td__vf out[4], const td__vf taps[9], const int r)
{
    td__vf m[3];
#pragma GCC unroll 3
    for (int s = 0; s < 3; s++) {
        td__vf column[4];
        gt(column, taps[s], taps[3 + s], taps[6 + s]);
        m[s] = column[r];
    }
    gt(out, m[0], m[1], m[2]);
}

/* Columns n.. of a unit row of all 16 packed matrices, from the taps of its one or two rows. */
TD_INLINE void weight_unit(void *u, const td__wino_packing *p, int64_t unit, int64_t n,
                           float (*taps)[LANES], const int flipped, const int bf16)
{
    const int second = bf16 ? 9 : 0;
    td__vf v[2][9];
#pragma GCC unroll 9
    for (int j = 0; j < 9; j++) {
        v[0][j] = td__vf_load(taps[flipped ? 8 - j : j]);
        v[1][j] = td__vf_load(taps[second + (flipped ? 8 - j : j)]);
    }
#pragma GCC unroll 4
    for (int r = 0; r < 4; r++) {
        td__vf row[2][4];
        weight_row(row[0], v[0], r);
        weight_row(row[1], v[1], r);
#pragma GCC unroll 4
        for (int s = 0; s < 4; s++)
            put_unit(u, p, r * 4 + s, unit, n, row[0][s], row[1][s], bf16);
    }
}

TD_INLINE void weight_all(void *u, const td__wino_packing *p, const float *w, int64_t o, int64_t c,
                          const int flipped, const int bf16)
{
    int64_t rows = flipped ? o : c, columns = flipped ? c : o;
    const int per = rows_per_unit(bf16); /* rows is even */

    for (int64_t n = 0; n < columns; n += LANES) {
        for (int64_t first = 0; first < rows; first += BLOCK) {
            float taps[BLOCK * 9][LANES];
            if (flipped)
                for (int k = 0; k < BLOCK; k++)
                    gather(taps + k * 9, w + ((first + k) * c + n) * 9, 9, 9);
            else
                gather(taps, w + (n * c + first) * 9, c * 9, BLOCK * 9);
            for (int k = 0; k < BLOCK; k += per)
                weight_unit(u, p, (first + k) / per, n, taps + k * 9, flipped, bf16);
        }
    }
}

static void wino_weight(void *u, const td__wino_packing *p, const float *w, int64_t o, int64_t c,
                        bool flipped, bool bf16)
{
    switch ((flipped ? 2 : 0) + (bf16 ? 1 : 0)) {
    case 0: weight_all(u, p, w, o, c, 0, 0); break;
    case 1: weight_all(u, p, w, o, c, 0, 1); break;
    case 2: weight_all(u, p, w, o, c, 1, 0); break;
    default: weight_all(u, p, w, o, c, 1, 1); break;
    }
}

/* G' applied to four vectors. */
TD_INLINE void gtb(td__vf out[3], td__vf a, td__vf b, td__vf c, td__vf d)
{
    td__vf half = (b + c) * 0.5f;
    out[0] = a + half;
    out[1] = (b - c) * 0.5f;
    out[2] = half + d;
}

/* The nine taps of columns n.. of row k of the weight's gradient. */
TD_INLINE void weight_back_taps(float (*taps)[LANES], const float *du, int64_t stride)
{
    td__vf m[4][3];
#pragma GCC unroll 4
    for (int s = 0; s < 4; s++)
        gtb(m[s], td__vf_load(du + s * stride), td__vf_load(du + (4 + s) * stride),
            td__vf_load(du + (8 + s) * stride), td__vf_load(du + (12 + s) * stride));
#pragma GCC unroll 3
    for (int r = 0; r < 3; r++) {
        td__vf out[3];
        gtb(out, m[0][r], m[1][r], m[2][r], m[3][r]);
        td__vf_store(taps[r * 3], out[0]);
        td__vf_store(taps[r * 3 + 1], out[1]);
        td__vf_store(taps[r * 3 + 2], out[2]);
    }
}

static void wino_weight_back(float *dw, const float *du, int64_t stride, int64_t o, int64_t c)
{
    for (int64_t n = 0; n < o; n += LANES) {
        for (int64_t first = 0; first < c; first += BLOCK) {
            float taps[BLOCK * 9][LANES];
            for (int k = 0; k < BLOCK; k++)
                weight_back_taps(taps + k * 9, du + (first + k) * o + n, stride);
            scatter(dw + (n * c + first) * 9, c * 9, taps);
        }
    }
}

const td__wino_kernels TD_ISA_SYM(td__wino) = {
    .input = wino_input,
    .input_pairs = wino_input_pairs,
    .output = wino_output,
    .gradient = wino_gradient,
    .weight = wino_weight,
    .weight_back = wino_weight_back,
};
