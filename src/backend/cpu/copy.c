/* copy.c -- see copy.h. Three ways, by what the innermost axis looks like after merging:
 *   runs    both sides step by one: memcpy
 *   tiles   one side's unit axis is another one: a transposition, in squares of TILE x TILE so that
 *           both sides stay in the cache
 *   steps   anything else, element by element */
/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/copy.h"

#include <string.h>

enum { TILE = 16 };

void td__copy_simplify(td__copy *c)
{
    int n = 0;

    for (int i = 0; i < c->ndim; i++) {
        if (c->dim[i] == 1)
            continue;
        if (n > 0 && c->to[n - 1] == c->to[i] * c->dim[i] &&
            c->from[n - 1] == c->from[i] * c->dim[i])
            c->dim[n - 1] *= c->dim[i];
        else
            c->dim[n++] = c->dim[i];
        c->to[n - 1] = c->to[i];
        c->from[n - 1] = c->from[i];
    }
    if (n == 0) {
        c->dim[0] = c->to[0] = c->from[0] = 1;
        n = 1;
    }
    c->ndim = n;
}

/* A rectangle of rows x cols elements. */
typedef struct rect {
    int64_t rows, cols, to_row, to_col, from_row, from_col;
} rect;

#define COPY_RECT(T)                                                                         \
    static void copy_rect_##T(const rect *r, T *to, const T *from)                           \
    {                                                                                        \
        for (int64_t i = 0; i < r->rows; i++)                                                \
            for (int64_t j = 0; j < r->cols; j++)                                            \
                to[i * r->to_row + j * r->to_col] = from[i * r->from_row + j * r->from_col]; \
    }
COPY_RECT(uint8_t)
COPY_RECT(uint16_t)
COPY_RECT(uint32_t)
COPY_RECT(uint64_t)

static void copy_rect(const rect *r, void *to, const void *from, size_t size)
{
    if (size == 4)
        copy_rect_uint32_t(r, to, from);
    else if (size == 2)
        copy_rect_uint16_t(r, to, from);
    else if (size == 8)
        copy_rect_uint64_t(r, to, from);
    else
        copy_rect_uint8_t(r, to, from);
}

static void copy_tiles(const rect *all, char *to, const char *from, size_t size)
{
    for (int64_t i = 0; i < all->rows; i += TILE)
        for (int64_t j = 0; j < all->cols; j += TILE) {
            rect r = *all;

            r.rows = all->rows - i < TILE ? all->rows - i : TILE;
            r.cols = all->cols - j < TILE ? all->cols - j : TILE;
            copy_rect(&r, to + (i * all->to_row + j * all->to_col) * (int64_t)size,
                      from + (i * all->from_row + j * all->from_col) * (int64_t)size, size);
        }
}

void td__copy_run(const td__copy *c, void *to, const void *from)
{
    const int64_t size = (int64_t)c->size;
    const int last = c->ndim - 1;
    const bool runs = c->to[last] == 1 && c->from[last] == 1;
    int other = -1; /* the axis that makes a transposition with the last */
    int64_t index[TD_MAX_DIMS] = {0};
    char *t = (char *)to + c->to_first * size;
    const char *f = (const char *)from + c->from_first * size;

    for (int i = 0; i <= last; i++)
        if (c->dim[i] == 0)
            return;
    for (int i = 0; i < last && !runs; i++)
        if (c->from[i] == 1 || c->to[i] == 1)
            other = i;
    for (;;) {
        if (runs) {
            memcpy(t, f, (size_t)(c->dim[last] * size));
        } else if (other >= 0) {
            rect r = {c->dim[other], c->dim[last],   c->to[other],
                      c->to[last],   c->from[other], c->from[last]};
            copy_tiles(&r, t, f, c->size);
        } else {
            rect r = {1, c->dim[last], 0, c->to[last], 0, c->from[last]};
            copy_rect(&r, t, f, c->size);
        }
        int axis = last - 1;
        for (; axis >= 0; axis--) {
            if (axis == other)
                continue;
            t += c->to[axis] * size;
            f += c->from[axis] * size;
            if (++index[axis] < c->dim[axis])
                break;
            t -= c->to[axis] * c->dim[axis] * size;
            f -= c->from[axis] * c->dim[axis] * size;
            index[axis] = 0;
        }
        if (axis < 0)
            return;
    }
}
