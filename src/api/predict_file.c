/* predict_file.c -- predictions as a file. Text goes to a temporary file that is renamed at the
 * end; an array is kept in memory until then. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "api/predict_file.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/text.h"
#include "tandem/tensor.h"

typedef enum format { CSV, JSONL, NPY } format;

typedef struct predict_file {
    const char *path;
    format format;
    const td__dataset *samples;
    bool named; /* samples have files of their own */
    const td__field *fields;
    int n_fields;
    int64_t count;
    td_dtype dtype;
    td_shape shape;          /* of a row */
    int64_t width, last;     /* elements of a row, and of its last axis */
    const td__field *target; /* NULL: values, not classes */
    td_tensor all;           /* NPY: (count, shape...) */
    td__file_out out;        /* CSV, JSONL */
    bool begun, open;
    td__text text;
    td_tensor rows; /* f32, some rows */
} predict_file;

static td_status find_format(const char *path, format *out)
{
    static const char *const ENDINGS[] = {[CSV] = ".csv", [JSONL] = ".jsonl", [NPY] = ".npy"};
    const char *dot = strrchr(path, '.');

    for (int f = 0; f < TD_LEN(ENDINGS); f++)
        if (dot && strcmp(dot, ENDINGS[f]) == 0) {
            *out = (format)f;
            return TD_OK;
        }
    return TD_FAIL(TD_EINVAL,
                   "predictions: expected a name ending in .csv, .jsonl or .npy, found '%.200s'",
                   path);
}

td_status td__predict_file_check(const char *path)
{
    format f;
    return find_format(path, &f);
}

/* The target that the last axis has a number for each class of; "y" before others. */
static const td__field *find_target(const predict_file *p)
{
    const td__field *found = NULL;

    for (int i = 0; i < p->n_fields; i++) {
        const td__field *f = &p->fields[i];
        if (f->classes < 2 || f->classes != p->last || f->shape.ndim != p->shape.ndim - 1)
            continue;
        if (!found || strcmp(f->name, "y") == 0)
            found = f;
    }
    return found;
}

static void add_csv_text(td__text *t, const char *s)
{
    if (!strpbrk(s, ",\"\r\n")) {
        td__text_add(t, s);
        return;
    }
    td__text_add(t, "\"");
    for (; *s; s++)
        td__text_add(t, *s == '"' ? "\"\"" : (char[]){*s, 0});
    td__text_add(t, "\"");
}

static void add_class(predict_file *p, int64_t c, bool json)
{
    const char *const *names = p->target->class_names;
    if (!names)
        td__text_printf(&p->text, "%" PRId64, c);
    else if (json)
        td__text_json(&p->text, names[c]);
    else
        add_csv_text(&p->text, names[c]);
}

static void csv_head(predict_file *p)
{
    td__text *t = &p->text;

    td__text_add(t, p->target ? "row,prediction" : "row");
    for (int64_t i = 0; i < p->width; i++) {
        td__text_add(t, ",");
        if (p->target && p->target->class_names)
            add_csv_text(t, p->target->class_names[i]);
        else if (p->width == 1)
            td__text_add(t, "value");
        else
            td__text_printf(t, "%s%" PRId64, p->target ? "p" : "value", i);
    }
    td__text_add(t, p->named ? ",file\n" : "\n");
}

/* Called with the first rows: now it is known what they are. */
static td_status begin(predict_file *p)
{
    p->begun = true;
    p->width = td_shape_count(&p->shape);
    p->last = p->shape.ndim ? p->shape.dim[p->shape.ndim - 1] : 1;
    p->target = p->shape.ndim ? find_target(p) : NULL;
    if (p->format == NPY) {
        td_shape whole = {.ndim = p->shape.ndim + 1, .dim = {p->count}};
        if (whole.ndim > TD_MAX_DIMS)
            return TD_FAIL(TD_ENOTSUP, "%s: predictions have too many axes", p->path);
        for (int i = 0; i < p->shape.ndim; i++)
            whole.dim[i + 1] = p->shape.dim[i];
        return td_tensor_init(&p->all, TD_F32, whole);
    }
    if (p->format == CSV && p->shape.ndim > 1)
        return TD_FAIL(TD_EINVAL,
                       "%s: a prediction has %d axes, but a CSV row holds one; use "
                       ".jsonl or .npy",
                       p->path, p->shape.ndim);
    TD_TRY(td__file_out_open(&p->out, p->path));
    p->open = true;
    if (p->format == CSV)
        csv_head(p);
    return TD_OK;
}

static void softmax(float *x, int64_t n)
{
    float most = x[0];
    double sum = 0;
    for (int64_t i = 1; i < n; i++)
        most = x[i] > most ? x[i] : most;
    for (int64_t i = 0; i < n; i++)
        sum += exp((double)(x[i] - most));
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(exp((double)(x[i] - most)) / sum);
}

static int64_t likeliest(const float *x, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (x[i] > x[best])
            best = i;
    return best;
}

/* Nested as the shape says, from axis on; returns the first element that was not written. */
static const float *add_values(td__text *t, const td_shape *s, int axis, const float *x)
{
    if (axis == s->ndim) {
        td__text_json_number(t, *x, 9);
        return x + 1;
    }
    td__text_add(t, "[");
    for (int64_t i = 0; i < s->dim[axis]; i++) {
        td__text_add(t, i ? ", " : "");
        x = add_values(t, s, axis + 1, x);
    }
    td__text_add(t, "]");
    return x;
}

/* The likeliest classes of all positions of a row, nested likewise but for the last axis. */
static const float *add_classes(predict_file *p, int axis, const float *x)
{
    if (axis == p->shape.ndim - 1) {
        add_class(p, likeliest(x, p->last), true);
        return x + p->last;
    }
    td__text_add(&p->text, "[");
    for (int64_t i = 0; i < p->shape.dim[axis]; i++) {
        td__text_add(&p->text, i ? ", " : "");
        x = add_classes(p, axis + 1, x);
    }
    td__text_add(&p->text, "]");
    return x;
}

static const char *name_of(const predict_file *p, int64_t row)
{
    const char *name = td__dataset_name(p->samples, row);
    return name ? name : "";
}

static void json_row(predict_file *p, int64_t row, const float *x)
{
    td__text *t = &p->text;

    td__text_printf(t, "{\"row\": %" PRId64, row);
    if (p->named) {
        td__text_add(t, ", \"file\": ");
        td__text_json(t, name_of(p, row));
    }
    if (!p->target) {
        td__text_add(t, ", \"value\": ");
        add_values(t, &p->shape, 0, x);
    } else {
        td__text_add(t, ", \"prediction\": ");
        add_classes(p, 0, x);
        if (p->shape.ndim == 1) { /* not for every position of a sequence */
            td__text_add(t, ", \"probability\": ");
            td__text_json_number(t, x[likeliest(x, p->last)], 9);
            td__text_add(t, ", \"probabilities\": ");
            add_values(t, &p->shape, 0, x);
        }
    }
    td__text_add(t, "}\n");
}

static void csv_row(predict_file *p, int64_t row, const float *x)
{
    td__text_printf(&p->text, "%" PRId64, row);
    if (p->target) {
        td__text_add(&p->text, ",");
        add_class(p, likeliest(x, p->last), false);
    }
    for (int64_t i = 0; i < p->width; i++)
        td__text_printf(&p->text, ",%.9g", (double)x[i]);
    if (p->named) {
        td__text_add(&p->text, ",");
        add_csv_text(&p->text, name_of(p, row));
    }
    td__text_add(&p->text, "\n");
}

/* Rows of any type as f32 in p->rows. */
static td_status convert(predict_file *p, int64_t rows, const void *output)
{
    td_tensor in;
    td_status st;

    td_tensor_fini(&p->rows);
    TD_TRY(td_tensor_wrap(&in, p->dtype, TD_SHAPE(rows, p->width), (void *)(uintptr_t)output));
    TD_TRY_OR(st, out, td_tensor_init(&p->rows, TD_F32, TD_SHAPE(rows, p->width)));
    st = td_tensor_copy(&in, &p->rows);
out:
    td_tensor_fini(&in);
    return st;
}

static td_status take_rows(void *file, int64_t first, int64_t rows, const void *output,
                           size_t row_nbytes)
{
    predict_file *p = file;

    (void)row_nbytes;
    if (!p->begun)
        TD_TRY(begin(p));
    TD_TRY(convert(p, rows, output));
    float *x = p->rows.data;
    if (p->target)
        for (int64_t i = 0; i < rows * p->width; i += p->last)
            softmax(x + i, p->last);
    if (p->format == NPY) {
        TD_ASSERT(first >= 0 && rows <= p->count - first, "row %" PRId64 " of %" PRId64,
                  first + rows, p->count);
        memcpy((float *)p->all.data + first * p->width, x,
               (size_t)(rows * p->width) * sizeof(float));
        return TD_OK;
    }
    for (int64_t i = 0; i < rows; i++) {
        if (p->format == CSV)
            csv_row(p, first + i, x + i * p->width);
        else
            json_row(p, first + i, x + i * p->width);
    }
    TD_TRY(td__text_status(&p->text));
    td__file_out_write(&p->out, p->text.data, p->text.used);
    td__text_clear(&p->text);
    return TD_OK;
}

static td_status commit(predict_file *p)
{
    if (!p->begun)
        return TD_FAIL(TD_EINVAL, "%s: no samples to predict", p->path);
    if (p->format == NPY)
        return td_npy_save(p->path, &p->all);
    p->open = false;
    return td__file_out_commit(&p->out);
}

td_status td__predict_file_write(td__trainer *t, td__dataset *d, const td__field *fields,
                                 int n_fields, const char *path)
{
    predict_file p = {.path = path,
                      .samples = d,
                      .named = d->count && td__dataset_name(d, 0),
                      .fields = fields,
                      .n_fields = n_fields,
                      .count = d->count};

    TD_TRY(find_format(path, &p.format));
    td_status st = td__trainer_predict_to_first(t, d, take_rows, &p, &p.dtype, &p.shape);
    if (!st)
        st = commit(&p);
    if (p.open)
        td__file_out_abandon(&p.out);
    td_tensor_fini(&p.all);
    td_tensor_fini(&p.rows);
    td__text_fini(&p.text);
    return st;
}

td_status td__predict_file_help(td__trainer *t, td__dataset *d)
{
    td_dtype dtype;
    td_shape row;
    return td__trainer_predict_to_first(t, d, NULL, NULL, &dtype, &row);
}
