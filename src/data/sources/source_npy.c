/* source_npy.c -- NumPy arrays: every array is a field, its first axis counts the samples.
 *
 * Files     train, valid and test name a .npz archive, whose members are the fields, or a list of
 *           .npy files: "x=images.npy,y=labels.npy". In an archive that names parts ("x_train",
 *           "x_test", as some archives of MNIST do), members without the part's ending are left
 *           out; then test and valid need no file of their own.
 * Fields    Integers of one axis named `label` (by default y) are classes, from 0 up to the largest
 *           in train, unless target is "number". Other integers are ids unless one is negative.
 *           f64, f16 and truth values become f32; bytes stay bytes. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "data/files.h"
#include "data/fit_json.h"
#include "data/map.h"
#include "data/table.h"
#include "tandem/tensor.h"

#define EXPECTED "a .npz archive, or a list such as x=images.npy,y=labels.npy"

/* The arrays of one part. */
typedef struct arrays {
    int n;
    char name[TD__MAX_FIELDS][TD__FIELD_NAME];
    td_tensor tensor[TD__MAX_FIELDS];
} arrays;

static void fini_arrays(arrays *a)
{
    for (int i = 0; i < a->n; i++)
        td_tensor_fini(&a->tensor[i]);
    a->n = 0;
}

static td_status add_name(arrays *a, const char *name, size_t n, const char *path)
{
    if (a->n == TD__MAX_FIELDS)
        return TD_FAIL(TD_EINVAL, "%s: more than %d arrays", path, TD__MAX_FIELDS);
    if (n == 0 || n >= TD__FIELD_NAME)
        return TD_FAIL(TD_EINVAL, "%s: the name of an array has %zu bytes, expected 1 to %d", path,
                       n, TD__FIELD_NAME - 1);
    memcpy(a->name[a->n], name, n);
    a->name[a->n][n] = 0;
    return TD_OK;
}

/* Does name end in _part? Gives the length of what is before. */
static bool of_part(const char *name, const char *part, size_t *n)
{
    size_t all = strlen(name), end = strlen(part) + 1;

    *n = all > end ? all - end : 0;
    return *n && name[*n] == '_' && strcmp(name + *n + 1, part) == 0;
}

static td_status load_npz(arrays *a, const char *path, const char *part, bool own_file)
{
    td_npz *z;
    td_status st = TD_OK;
    bool parted = false;
    size_t n;

    TD_TRY(td_npz_open(path, &z));
    for (int i = 0; i < td_npz_count(z); i++)
        parted |= of_part(td_npz_name(z, i), "train", &n);
    if (!parted && !own_file) {
        st = TD_FAIL(TD_ENOTSUP, "%s: no arrays for part %s", path, part);
        goto done;
    }
    for (int i = 0; i < td_npz_count(z); i++) {
        const char *name = td_npz_name(z, i);
        n = strlen(name);
        if (parted && !of_part(name, part, &n))
            continue;
        TD_TRY_OR(st, done, add_name(a, name, n, path));
        TD_TRY_OR(st, done, td_npz_load(z, i, &a->tensor[a->n]));
        a->n++;
    }
    if (a->n == 0)
        st = own_file ? TD_FAIL(TD_EINVAL, "%s: no arrays for part %s", path, part)
                      : TD_FAIL(TD_ENOTSUP, "%s: no arrays for part %s", path, part);
done:
    td_npz_close(z);
    return st;
}

/* "x=images.npy,y=labels.npy" */
static td_status load_list(arrays *a, const char *dir, const char *list)
{
    char path[TD__PATH], file[TD__PATH];

    while (*list) {
        size_t n = strcspn(list, ",");
        const char *equals = memchr(list, '=', n);
        size_t name = equals ? (size_t)(equals - list) : 0;
        if (!equals || n - name - 1 >= sizeof file || name + 1 == n)
            return TD_FAIL(TD_EINVAL, "npy: '%s': expected %s", list, EXPECTED);
        memcpy(file, equals + 1, n - name - 1);
        file[n - name - 1] = 0;
        TD_TRY(td__data_path(dir, file, path));
        if (!td__is_file(path))
            return TD_FAIL(TD_EINVAL, "%s: no such file; expected an array in NumPy's format",
                           path);
        TD_TRY(add_name(a, list, name, path));
        TD_TRY(td_npy_load(path, &a->tensor[a->n]));
        a->n++;
        list += n + (list[n] == ',');
    }
    return TD_OK;
}

static td_status load(arrays *a, const td__source_opts *o, const char *part)
{
    bool train = strcmp(part, "train") == 0, own_file = true;
    char path[TD__PATH];
    const char *name;

    *a = (arrays){0};
    if (!train && !o->valid && !o->test && o->train) { /* perhaps one archive has them all */
        name = o->train;
        own_file = false;
    } else {
        TD_TRY(td__part_file("npy", o, part, EXPECTED, &name));
    }
    size_t n = strlen(name);
    if (n < 4 || strcmp(name + n - 4, ".npz") != 0) {
        char alone[TD__PATH + 2];
        if (!own_file)
            return TD_FAIL(TD_ENOTSUP, "npy: no files for part %s", part);
        if (strchr(name, '='))
            return load_list(a, o->dir, name);
        snprintf(alone, sizeof alone, "x=%s", name); /* new samples: an array alone is x */
        return load_list(a, o->dir, o->unlabelled && strcmp(part, "test") == 0 ? alone : name);
    }
    TD_TRY(td__data_path(o->dir, name, path));
    if (!td__is_file(path))
        return TD_FAIL(TD_EINVAL, "%s: no such file; expected %s", path, EXPECTED);
    return load_npz(a, path, part, own_file);
}

static bool is_class(const td__source_opts *o, const char *name, const td_tensor *t)
{
    return strcmp(name, o->label ? o->label : "y") == 0 && t->shape.ndim == 1 &&
           !td_dtype_is_float(t->dtype) && !(o->target && strcmp(o->target, "number") == 0);
}

/* Truth values are 0 and 1: as bytes they would be scaled like pixels. */
static td_dtype field_dtype(td_dtype t)
{
    return td_dtype_is_float(t) || t == TD_BOOL ? TD_F32 : t;
}

/* Element i of a vector of integers. */
static int64_t class_at(const td_tensor *t, int64_t i)
{
    i *= t->stride[0];
    return t->dtype == TD_I64   ? ((const int64_t *)t->data)[i]
           : t->dtype == TD_I32 ? ((const int32_t *)t->data)[i]
                                : ((const uint8_t *)t->data)[i];
}

/* Converts to i32 and finds the largest. */
static td_status read_classes(const td__source_opts *o, const char *name, const td_tensor *t,
                              int32_t *y, int64_t *classes)
{
    for (int64_t i = 0; i < t->shape.dim[0]; i++) {
        int64_t class = class_at(t, i);
        if (o->no_class < 0 && class == o->no_class) {
            y[i] = (int32_t) class;
            continue;
        }
        if (class < 0 || class >= INT32_MAX)
            return TD_FAIL(TD_EPROTO, "npy: sample %" PRId64 " of %s: class %" PRId64 " is %s", i,
                           name, class, class < 0 ? "negative" : "too large");
        y[i] = (int32_t) class;
        *classes = class >= *classes ? class + 1 : *classes;
    }
    return TD_OK;
}

static td_status check_finite(const char *name, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return TD_FAIL(TD_EPROTO, "npy: element %" PRId64 " of %s is not a finite number", i,
                           name);
    return TD_OK;
}

/* Whole numbers from 0 on may be ids: an embedding finds its vocabulary in the field. */
static void count_ids(td__field *f, const void *x, int64_t n)
{
    double most = -1;

    for (int64_t i = 0; i < n; i++) {
        double id = td__element(x, f->dtype, i);
        if (id < 0 || id >= INT32_MAX)
            return;
        most = id > most ? id : most;
    }
    f->classes = (int64_t)most + 1;
}

static td_status add_field(td__table *t, const td__source_opts *o, const char *name,
                           const td_tensor *from)
{
    td__field f = {.dtype = field_dtype(from->dtype), .shape.ndim = from->shape.ndim - 1};
    bool class = is_class(o, name, from);
    td_tensor to;
    int at = t->head.n_fields;

    if (from->shape.ndim < 1 || from->shape.dim[0] != t->head.count)
        return TD_FAIL(TD_EINVAL, "npy: array %s has %" PRId64 " samples, expected %" PRId64, name,
                       from->shape.ndim < 1 ? 0 : from->shape.dim[0], t->head.count);
    for (int i = 1; i < from->shape.ndim; i++)
        f.shape.dim[i - 1] = from->shape.dim[i];
    snprintf(f.name, sizeof f.name, "%s", name);
    if (class)
        f.dtype = TD_I32;
    TD_TRY(td__table_add(t, &f));
    if (class)
        return read_classes(o, name, from, (int32_t *)(void *)t->column[at],
                            &t->head.fields[at].classes);
    TD_TRY(td_tensor_wrap(&to, f.dtype, from->shape, t->column[at]));
    TD_TRY(td_tensor_copy(from, &to));
    bool label = strcmp(name, o->label ? o->label : "y") == 0;
    if (!label && (f.dtype == TD_I32 || f.dtype == TD_I64))
        count_ids(&t->head.fields[at], t->column[at], td_tensor_count(&to));
    if (f.dtype == TD_F32)
        TD_TRY(
            check_finite(name, (const float *)(const void *)t->column[at], td_tensor_count(&to)));
    return TD_OK;
}

static int find_array(const arrays *a, const char *name)
{
    for (int i = 0; i < a->n; i++)
        if (strcmp(a->name[i], name) == 0)
            return i;
    return -1;
}

/* What the fields of train are: other parts have the same, in the same order. */
typedef struct likeness {
    td__field field[TD__MAX_FIELDS];
    int n;
    td__arena *arena; /* of a fit's texts; NULL: none */
} likeness;

static td_status like_train(likeness *like, const td__source_opts *o)
{
    arrays train;
    td__table *t = NULL;
    td_status st = TD_OK;

    TD_TRY_OR(st, done, load(&train, o, "train"));
    for (int i = 0; i < train.n; i++) {
        const td_shape *s = &train.tensor[i].shape;
        td__table_destroy(t);
        TD_TRY_OR(st, done, td__table_create(s->ndim < 1 ? 0 : s->dim[0], &t));
        TD_TRY_OR(st, done, add_field(t, o, train.name[i], &train.tensor[i]));
        like->field[like->n++] = t->head.fields[0];
    }
done:
    td__table_destroy(t);
    fini_arrays(&train);
    return st;
}

static td_status like_fit(likeness *like, const td__fit *fit)
{
    TD_TRY(td__arena_create(&like->arena));
    return td__fit_fields(fit, like->arena, like->field, &like->n);
}

/* A field of train in another part: with train's classes, and zeros where new samples have no
 * labels. */
static td_status add_field_like(td__table *t, const td__source_opts *o, const td__field *f,
                                const arrays *a)
{
    bool label = strcmp(f->name, o->label ? o->label : "y") == 0;
    int k = find_array(a, f->name), at = t->head.n_fields;

    if (k < 0 && !(label && o->unlabelled))
        return TD_FAIL(TD_EINVAL, "npy: the array %s of train is missing", f->name);
    if (k >= 0)
        TD_TRY(add_field(t, o, f->name, &a->tensor[k]));
    else
        TD_TRY(td__table_add(t, f));
    td__field *own = &t->head.fields[at];
    if (own->classes > f->classes && label)
        return TD_FAIL(TD_EINVAL, "npy: class %" PRId64 " of %s does not occur in train",
                       own->classes - 1, f->name);
    own->unknown = f->classes && own->classes > f->classes ? own->classes - 1 : 0;
    own->classes = f->classes;
    return TD_OK;
}

static td_status add_fields_like(td__table *t, const td__source_opts *o, const likeness *like,
                                 const arrays *a)
{
    for (int i = 0; i < a->n; i++) {
        bool known = false;
        for (int k = 0; k < like->n; k++)
            known = known || strcmp(like->field[k].name, a->name[i]) == 0;
        if (!known)
            return TD_FAIL(TD_EINVAL, "npy: train has no array %s", a->name[i]);
    }
    for (int i = 0; i < like->n; i++)
        TD_TRY(add_field_like(t, o, &like->field[i], a));
    return TD_OK;
}

static td_status open_part(const td__source_opts *o, const char *part, const td__fit *fit,
                           td__dataset **out)
{
    arrays a;
    likeness like = {0};
    td__table *t = NULL;
    td_status st = TD_OK;
    bool is_train = !fit && strcmp(part, "train") == 0;

    *out = NULL;
    TD_TRY_OR(st, done, load(&a, o, part));
    if (a.n == 0 || a.tensor[0].shape.ndim < 1) {
        st = TD_FAIL(TD_EINVAL, "npy: no array with samples for part %s", part);
        goto done;
    }
    TD_TRY_OR(st, done, td__table_create(a.tensor[0].shape.dim[0], &t));
    if (!is_train)
        TD_TRY_OR(st, done, fit ? like_fit(&like, fit) : like_train(&like, o));
    for (int i = 0; is_train && i < a.n; i++)
        TD_TRY_OR(st, done, add_field(t, o, a.name[i], &a.tensor[i]));
    if (!is_train)
        TD_TRY_OR(st, done, add_fields_like(t, o, &like, &a));
    *out = &t->head;
    t = NULL;
done:
    td__table_destroy(t);
    td__arena_destroy(like.arena);
    fini_arrays(&a);
    return st;
}

static td_status npy_open(const td__source_opts *o, const char *part, td__dataset **out)
{
    return open_part(o, part, NULL, out);
}

const td__source_def td__source_npy = {
    .name = "npy",
    .help =
        "NumPy arrays: a .npz archive, or \"x=images.npy,y=labels.npy\"; the first axis is samples",
    .reads = "dir train valid test label target",
    .open = npy_open,
    .open_fitted = open_part,
};
