/* fit.c -- what was measured on the training part, as JSON; see fit.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "data/fit_json.h"

#define FORMAT "tandem preprocessing"
enum { VERSION = 1 };

/* ---- The whole ------------------------------------------------------------------------------- */

td_status td__fit_bad(const td__fit *f, const char *what)
{
    return TD_FAIL(TD_EPROTO, "%s: not the preprocessing of a run: %s", f->where, what);
}

static bool is_text(const json_t *root, const char *key, const char *value)
{
    const char *text = json_string_value(json_object_get(root, key));
    return text && (!value || strcmp(text, value) == 0);
}

td_status td__fit_parse(const char *text, size_t nbytes, const char *where, td__fit **out)
{
    td__fit *f = td__calloc(1, sizeof *f);
    json_error_t error;

    *out = NULL;
    if (!f)
        return TD_FAIL(TD_ENOMEM, "%s: no memory for it", where);
    snprintf(f->where, sizeof f->where, "%s", where);
    f->root = json_loadb(text, nbytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    if (!f->root || !is_text(f->root, "format", FORMAT) || !is_text(f->root, "source", NULL) ||
        json_integer_value(json_object_get(f->root, "version")) != VERSION ||
        !json_is_object(json_object_get(f->root, "parts")) ||
        !json_is_array(json_object_get(f->root, "maps"))) {
        td_status st = td__fit_bad(f, f->root ? "another format or version" : error.text);
        td__fit_destroy(f);
        return st;
    }
    *out = f;
    return TD_OK;
}

void td__fit_destroy(td__fit *f)
{
    if (!f)
        return;
    json_decref(f->root);
    td__free(f);
}

static int append(const char *data, size_t nbytes, void *text)
{
    td__text_append(text, data, nbytes);
    return 0;
}

td_status td__fit_dump(const json_t *root, td__text *out)
{
    if (!root || json_dump_callback(root, append, out, JSON_INDENT(1) | JSON_REAL_PRECISION(17)))
        return TD_FAIL(TD_ENOMEM, "no memory for the preprocessing of the data");
    td__text_add(out, "\n");
    return td__text_status(out);
}

const json_t *td__fit_measured(const td__fit *f)
{
    return json_object_get(f->root, "measured");
}

const json_t *td__fit_map(const td__fit *f, int i, const char *name)
{
    const json_t *m = json_array_get(json_object_get(f->root, "maps"), (size_t)i);
    return is_text(m, "map", name) ? m : NULL;
}

/* ---- Texts and numbers ----------------------------------------------------------------------- */

json_t *td__fit_save_text(const char *text, size_t nbytes)
{
    json_t *v = json_stringn(text, nbytes);
    td__text hex = {0};

    if (v)
        return v;
    for (size_t i = 0; i < nbytes; i++)
        td__text_printf(&hex, "%02x", (unsigned)(unsigned char)text[i]);
    v = hex.failed ? NULL : json_pack("{s:s}", "hex", hex.data ? hex.data : "");
    td__text_fini(&hex);
    return v;
}

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

const char *td__fit_load_text(const json_t *v, td__arena *a, size_t *nbytes)
{
    const char *hex = json_string_value(json_object_get(v, "hex"));
    size_t n = hex ? strlen(hex) / 2 : json_string_length(v);
    char *text = hex || json_is_string(v) ? td__arena_alloc(a, n + 1) : NULL;

    if (!text)
        return NULL;
    if (!hex && n)
        memcpy(text, json_string_value(v), n);
    for (size_t i = 0; hex && i < n; i++) {
        int high = digit(hex[2 * i]), low = digit(hex[2 * i + 1]);
        if (high < 0 || low < 0)
            return NULL;
        text[i] = (char)(high << 4 | low);
    }
    if (nbytes)
        *nbytes = n;
    return text;
}

json_t *td__fit_save_numbers(const double *x, int64_t n)
{
    json_t *list = json_array();

    for (int64_t i = 0; i < n; i++)
        json_array_append_new(list, json_real(x[i]));
    return list;
}

bool td__fit_load_numbers(const json_t *v, double *x, int64_t n)
{
    if (!json_is_array(v) || json_array_size(v) != (size_t)n)
        return false;
    for (int64_t i = 0; i < n; i++) {
        const json_t *number = json_array_get(v, (size_t)i);
        x[i] = json_number_value(number);
        if (!json_is_number(number) || !isfinite(x[i]))
            return false;
    }
    return true;
}

/* ---- Fields ---------------------------------------------------------------------------------- */

json_t *td__fit_save_fields(const td__dataset *d)
{
    json_t *list = json_array();

    for (int i = 0; i < d->n_fields; i++) {
        const td__field *f = &d->fields[i];
        json_t *shape = json_array();
        for (int k = 0; k < f->shape.ndim; k++)
            json_array_append_new(shape, json_integer(f->shape.dim[k]));
        json_t *field =
            json_pack("{s:s, s:s, s:o, s:I}", "name", f->name, "dtype", td_dtype_name(f->dtype),
                      "shape", shape, "classes", (json_int_t)f->classes);
        if (f->class_names) {
            json_t *names = json_array();
            for (int64_t c = 0; c < f->classes; c++)
                json_array_append_new(
                    names, td__fit_save_text(f->class_names[c], strlen(f->class_names[c])));
            json_object_set_new(field, "names", names);
        }
        json_array_append_new(list, field);
    }
    return list;
}

static bool load_dtype(const json_t *field, td_dtype *out)
{
    const char *name = json_string_value(json_object_get(field, "dtype"));

    for (int t = 0; name && t < TD_DTYPE_COUNT; t++)
        if (strcmp(td_dtype_name((td_dtype)t), name) == 0) {
            *out = (td_dtype)t;
            return true;
        }
    return false;
}

static bool load_shape(const json_t *list, td_shape *out)
{
    size_t n = json_array_size(list);

    if (!json_is_array(list) || n > TD_MAX_DIMS)
        return false;
    *out = (td_shape){.ndim = (int)n};
    for (size_t i = 0; i < n; i++) {
        out->dim[i] = json_integer_value(json_array_get(list, i));
        if (out->dim[i] < 0)
            return false;
    }
    int64_t count = td_shape_count(out);
    return count >= 0 && count <= INT32_MAX;
}

static bool load_names(const json_t *list, td__arena *a, td__field *out)
{
    if (!list)
        return true;
    if (!json_is_array(list) || (int64_t)json_array_size(list) != out->classes)
        return false;
    const char **names = td__arena_alloc(a, ((size_t)out->classes + 1) * sizeof *names);
    for (int64_t c = 0; names && c < out->classes; c++) {
        names[c] = td__fit_load_text(json_array_get(list, (size_t)c), a, NULL);
        if (!names[c])
            return false;
    }
    out->class_names = names;
    return names;
}

static bool load_field(const json_t *field, td__arena *a, td__field *out)
{
    const char *name = json_string_value(json_object_get(field, "name"));

    *out = (td__field){.classes = json_integer_value(json_object_get(field, "classes"))};
    return name && snprintf(out->name, sizeof out->name, "%s", name) < TD__FIELD_NAME &&
           out->classes >= 0 && out->classes <= INT32_MAX && load_dtype(field, &out->dtype) &&
           load_shape(json_object_get(field, "shape"), &out->shape) &&
           load_names(json_object_get(field, "names"), a, out);
}

td_status td__fit_fields(const td__fit *f, td__arena *a, td__field out[TD__MAX_FIELDS], int *n)
{
    const json_t *list = json_object_get(f->root, "fields");

    *n = (int)json_array_size(list);
    if (!json_is_array(list) || json_array_size(list) > TD__MAX_FIELDS)
        return td__fit_bad(f, "its fields");
    for (int i = 0; i < *n; i++)
        if (!load_field(json_array_get(list, (size_t)i), a, &out[i]))
            return td__fit_bad(f, "its fields");
    return TD_OK;
}

static const char *field_difference(const td__field *a, const td__field *b)
{
    if (strcmp(a->name, b->name) != 0)
        return "another name";
    if (a->dtype != b->dtype || !td_shape_equal(&a->shape, &b->shape))
        return "another type or shape";
    if (a->classes != b->classes || !a->class_names != !b->class_names)
        return "other classes";
    for (int64_t c = 0; a->class_names && c < a->classes; c++)
        if (strcmp(a->class_names[c], b->class_names[c]) != 0)
            return "other classes";
    return NULL;
}

td_status td__fit_check_fields(const td__fit *f, const td__dataset *d)
{
    td__field fields[TD__MAX_FIELDS];
    td__arena *a;
    int n;

    TD_TRY(td__arena_create(&a));
    td_status st = td__fit_fields(f, a, fields, &n);
    if (!st && n != d->n_fields)
        st = TD_FAIL(TD_EINVAL, "the data have %d fields, but the model was trained on %d",
                     d->n_fields, n);
    for (int i = 0; !st && i < n; i++) {
        const char *difference = field_difference(&fields[i], &d->fields[i]);
        if (difference)
            st = TD_FAIL(TD_EINVAL,
                         "field %s of the data has %s than in the data that the model was trained "
                         "on",
                         d->fields[i].name, difference);
    }
    td__arena_destroy(a);
    return st;
}
