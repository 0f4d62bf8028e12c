/* series.c -- windows over the rows of a table; see series.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "data/series.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fail.h"

typedef struct series {
    td__dataset head;
    td__table *rows; /* own */
    td__series_opts o;
    int label;      /* field */
    int64_t *first; /* (samples) its first row, where rows were taken out; NULL: stride apart */
    int64_t *place; /* (rows) own */
} series;

static void series_destroy(td__dataset *d)
{
    series *s = (series *)d;

    td__table_destroy(s->rows);
    td__free(s->first);
    td__free(s->place);
    td__free(s);
}

/* Do rows a .. b, b > a, follow each other? Where there is no row b, they do not. */
static bool on_end(const series *s, int64_t a, int64_t b)
{
    return b < s->rows->head.count && (!s->place || s->place[b] - s->place[a] == b - a);
}

static int64_t first_row(const series *s, int64_t sample)
{
    return s->first ? s->first[sample] : sample * s->o.stride;
}

static td_status series_read(td__dataset *d, const int64_t *index, int64_t n, const td__draw *draw,
                             void *const *out)
{
    const series *s = (const series *)d;
    const td__table *t = s->rows;

    (void)draw;
    for (int f = 0; f < d->n_fields; f++) {
        size_t row = t->nbytes[f], each = td__field_nbytes(&d->fields[f]);
        for (int64_t i = 0; i < n; i++) {
            int64_t first = first_row(s, index[i]);
            int64_t at = f == s->label ? first + s->o.window - 1 + s->o.horizon : first;
            char *to = (char *)out[f] + (size_t)i * each;
            if (on_end(s, first, at))
                memcpy(to, t->column[f] + (size_t)at * row, each);
            else
                memset(to, 0, each);
        }
    }
    return TD_OK;
}

static const td__dataset_ops OPS = {.destroy = series_destroy, .read = series_read};

/* A further axis before those of a row. */
static td_status add_axis(td__field *f, int64_t window)
{
    if (f->shape.ndim == TD_MAX_DIMS)
        return TD_FAIL(TD_EINVAL, "field %s has no room for an axis of time", f->name);
    memmove(f->shape.dim + 1, f->shape.dim, (size_t)f->shape.ndim * sizeof *f->shape.dim);
    f->shape.dim[0] = window;
    f->shape.ndim++;
    f->in_time = true;
    int64_t count = td_shape_count(&f->shape);
    return count >= 0 && count <= INT32_MAX
               ? TD_OK
               : TD_FAIL(TD_EINVAL, "field %s: windows of %" PRId64 " rows are too large", f->name,
                         window);
}

/* The first rows of all windows within which no row was taken out. After a gap they begin anew. */
static td_status find_windows(series *s, int64_t reach)
{
    int64_t rows = s->rows->head.count, begin = 0, n = 0;

    s->place = td__malloc(((size_t)rows + 1) * sizeof *s->place);
    s->first = td__malloc(((size_t)rows + 1) * sizeof *s->first);
    if (!s->place || !s->first)
        return TD_FAIL(TD_ENOMEM, "no memory for windows over %" PRId64 " rows", rows);
    memcpy(s->place, s->o.place, (size_t)rows * sizeof *s->place);
    for (int64_t i = 0; i < rows; i++) {
        if (i && !on_end(s, i - 1, i))
            begin = i;
        if ((i - begin) % s->o.stride == 0 && on_end(s, i, i + reach))
            s->first[n++] = i;
    }
    s->head.count = n;
    return n ? TD_OK
             : TD_FAIL(TD_EINVAL,
                       "no %" PRId64 " rows on end are whole, as a window of %" PRId64
                       " and its label need: data.missing: drop has left out rows between them",
                       reach + 1, s->o.window);
}

static td_status set_up(series *s)
{
    int64_t rows = s->rows->head.count, stride = s->o.stride;
    int64_t reach = s->o.window - 1 + (s->o.beyond ? 0 : s->o.horizon); /* of a sample's last row */

    if (s->o.window < 1 || s->o.horizon < 0 || stride < 1)
        return TD_FAIL(TD_EINVAL, "windows of %" PRId64 " rows, %" PRId64 " ahead", s->o.window,
                       s->o.horizon);
    if (reach >= rows && s->o.beyond)
        return TD_FAIL(TD_EINVAL, "%" PRId64 " rows are too few for a window of %" PRId64, rows,
                       s->o.window);
    if (reach >= rows)
        return TD_FAIL(TD_EINVAL,
                       "%" PRId64 " rows are too few for a window of %" PRId64
                       " and a label %" PRId64 " rows later",
                       rows, s->o.window, s->o.horizon);
    s->label = td__dataset_field(&s->rows->head, "y");
    s->head.count = (rows - reach - 1) / stride + 1;
    if (s->o.place)
        TD_TRY(find_windows(s, reach));
    s->o.place = NULL;
    s->head.in_order = true;
    s->head.gap = (s->o.window - 1 + s->o.horizon + stride - 1) / stride;
    for (int f = 0; f < s->head.n_fields; f++)
        if (f != s->label)
            TD_TRY(add_axis(&s->head.fields[f], s->o.window));
    return TD_OK;
}

td_status td__series_create(td__table *rows, const td__series_opts *o, td__dataset **out)
{
    series *s = td__calloc(1, sizeof *s);

    *out = NULL;
    if (!s) {
        td__table_destroy(rows);
        return TD_FAIL(TD_ENOMEM, "no memory for windows over a table");
    }
    s->head = rows->head;
    s->head.ops = &OPS;
    s->rows = rows;
    s->o = *o;
    s->o.stride = o->stride ? o->stride : 1;
    td_status st = set_up(s);
    if (st) {
        series_destroy(&s->head);
        return st;
    }
    *out = &s->head;
    return TD_OK;
}

td__series_opts td__series_of(const td__source_opts *o, const int64_t *place)
{
    return (td__series_opts){.window = o->window,
                             .stride = o->stride,
                             .horizon = o->horizon < 0 ? 0
                                        : o->horizon   ? o->horizon
                                                       : 1,
                             .place = place};
}

void td__series_rows(const td__dataset *d, int64_t sample, int64_t *begin, int64_t *end)
{
    const series *s = (const series *)d;

    *begin = first_row(s, sample);
    *end = *begin + s->o.window + s->o.horizon;
}
