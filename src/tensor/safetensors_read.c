/* safetensors_read.c -- opening a safetensors file: everything is checked once, here.
 *
 * The JSON parser refuses repeated keys, bad UTF-8, NUL characters and deep nesting; we refuse
 * everything that is not exactly of the form in safetensors.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "base/file.h"
#include "tensor/name_index.h"
#include "tensor/safetensors.h"
#include "tensor/strided.h"

typedef struct entry {
    const char *name;
    td_dtype dtype;
    td_shape shape;
    uint64_t begin, end;
} entry;

struct td_safetensors {
    td__file_map map;
    td__arena *arena;
    char *path;
    const uint8_t *data; /* what offsets count from */
    uint64_t nbytes;     /* of it */
    entry *entries;      /* by offset */
    td__named *by_name;  /* sorted */
    int count;
    td_metadata *metadata;
    int n_metadata;
};

static td_status no_memory(const td_safetensors *s)
{
    return TD_FAIL(TD_ENOMEM, "%s: no memory for its header", s->path);
}

static td_status parse_dtype(const td_safetensors *s, const json_t *j, entry *e)
{
    const char *name = json_string_value(j);

    if (!name)
        return TD_FAIL(TD_EPROTO, "%s: '%s' has no dtype", s->path, e->name);
    for (int t = 0; t < TD_DTYPE_COUNT; t++) {
        if (strcmp(name, td__st_dtype_name((td_dtype)t)) == 0) {
            e->dtype = (td_dtype)t;
            return TD_OK;
        }
    }
    return TD_FAIL(TD_ENOTSUP, "%s: '%s' has dtype '%s', which is not supported", s->path, e->name,
                   name);
}

static td_status parse_shape(const td_safetensors *s, const json_t *j, entry *e)
{
    if (!json_is_array(j))
        return TD_FAIL(TD_EPROTO, "%s: '%s' has no shape", s->path, e->name);
    if (json_array_size(j) > TD_MAX_DIMS)
        return TD_FAIL(TD_ENOTSUP, "%s: '%s' has more than %d axes", s->path, e->name, TD_MAX_DIMS);
    e->shape = TD_SCALAR;
    for (size_t i = 0; i < json_array_size(j); i++) {
        const json_t *size = json_array_get(j, i);
        if (!json_is_integer(size) || json_integer_value(size) < 0)
            return TD_FAIL(TD_EPROTO, "%s: '%s' has a bad size in its shape", s->path, e->name);
        e->shape.dim[e->shape.ndim++] = json_integer_value(size);
    }
    return TD_OK;
}

static td_status parse_offsets(const td_safetensors *s, const json_t *j, entry *e)
{
    const json_t *begin = json_array_get(j, 0), *end = json_array_get(j, 1);
    int64_t count = td_shape_count(&e->shape);
    size_t need;
    char text[128];

    if (json_array_size(j) != 2 || !json_is_integer(begin) || !json_is_integer(end) ||
        json_integer_value(begin) < 0 || json_integer_value(end) < json_integer_value(begin))
        return TD_FAIL(TD_EPROTO, "%s: '%s' has bad data_offsets", s->path, e->name);
    e->begin = (uint64_t)json_integer_value(begin);
    e->end = (uint64_t)json_integer_value(end);
    if (e->end > s->nbytes)
        return TD_FAIL(TD_EPROTO, "%s: '%s' ends at byte %" PRIu64 " of %" PRIu64, s->path, e->name,
                       e->end, s->nbytes);
    if (count < 0 || !td__size_mul((size_t)count, td_dtype_size(e->dtype), &need) ||
        need != e->end - e->begin)
        return TD_FAIL(TD_EPROTO, "%s: '%s': %" PRIu64 " bytes do not hold %s of %s", s->path,
                       e->name, e->end - e->begin, td_shape_text(&e->shape, text, sizeof text),
                       td_dtype_name(e->dtype));
    return TD_OK;
}

static td_status parse_entry(const td_safetensors *s, const json_t *j, entry *e)
{
    if (!json_is_object(j) || json_object_size(j) != 3)
        return TD_FAIL(TD_EPROTO, "%s: '%s' is not {dtype, shape, data_offsets}", s->path, e->name);
    TD_TRY(parse_dtype(s, json_object_get(j, "dtype"), e));
    TD_TRY(parse_shape(s, json_object_get(j, "shape"), e));
    TD_TRY(parse_offsets(s, json_object_get(j, "data_offsets"), e));
    return TD_OK;
}

static td_status parse_metadata(td_safetensors *s, json_t *j)
{
    const char *key;
    json_t *value;

    if (!json_is_object(j))
        return TD_FAIL(TD_EPROTO, "%s: " TD_ST_METADATA " is not an object", s->path);
    s->metadata = td__arena_alloc(s->arena, json_object_size(j) * sizeof *s->metadata);
    if (!s->metadata)
        return no_memory(s);
    json_object_foreach(j, key, value)
    {
        if (!json_is_string(value))
            return TD_FAIL(TD_EPROTO, "%s: " TD_ST_METADATA " '%s' is not a string", s->path, key);
        td_metadata *m = &s->metadata[s->n_metadata];
        m->key = td__arena_strdup(s->arena, key);
        m->value = td__arena_strdup(s->arena, json_string_value(value));
        if (!m->key || !m->value)
            return no_memory(s);
        s->n_metadata++;
    }
    return TD_OK;
}

static int compare_offsets(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end) /* empty ones come first */
        return x->end < y->end ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Sort, and check that the tensors follow each other from 0 to the end of the file. */
static td_status index_entries(td_safetensors *s)
{
    uint64_t at = 0;

    qsort(s->entries, (size_t)s->count, sizeof *s->entries, compare_offsets);
    for (int i = 0; i < s->count; i++) {
        const entry *e = &s->entries[i];
        if (e->begin != at)
            return TD_FAIL(TD_EPROTO,
                           "%s: '%s' begins at byte %" PRIu64 ", not at %" PRIu64
                           ": overlap or hole",
                           s->path, e->name, e->begin, at);
        at = e->end;
        s->by_name[i] = (td__named){e->name, i};
    }
    if (at != s->nbytes)
        return TD_FAIL(TD_EPROTO, "%s: tensors end at byte %" PRIu64 " of %" PRIu64, s->path, at,
                       s->nbytes);
    td__names_sort(s->by_name, s->count);
    return TD_OK;
}

static td_status parse_header(td_safetensors *s, json_t *root)
{
    size_t n = json_object_size(root);
    const char *key;
    json_t *value;

    if (!json_is_object(root) || n > INT32_MAX)
        return TD_FAIL(TD_EPROTO, "%s: the header is not an object", s->path);
    s->entries = td__arena_alloc(s->arena, n * sizeof *s->entries);
    s->by_name = td__arena_alloc(s->arena, n * sizeof *s->by_name);
    if (!s->entries || !s->by_name)
        return no_memory(s);
    json_object_foreach(root, key, value)
    {
        if (strcmp(key, TD_ST_METADATA) == 0) {
            TD_TRY(parse_metadata(s, value));
            continue;
        }
        entry *e = &s->entries[s->count];
        e->name = td__arena_strdup(s->arena, key);
        if (!e->name)
            return no_memory(s);
        TD_TRY(parse_entry(s, value, e));
        s->count++;
    }
    return index_entries(s);
}

static td_status read_file(td_safetensors *s)
{
    const uint8_t *p = s->map.data;
    size_t n = s->map.nbytes;
    uint64_t len = 0;
    json_error_t error;

    if (n < TD_ST_PREFIX)
        return TD_FAIL(TD_EPROTO, "%s: too short for a safetensors file", s->path);
    for (int i = 0; i < TD_ST_PREFIX; i++)
        len |= (uint64_t)p[i] << (8 * i);
    if (len > TD_ST_HEADER_MAX || len > n - TD_ST_PREFIX)
        return TD_FAIL(TD_EPROTO,
                       "%s: not a safetensors file, or damaged: a header of %" PRIu64
                       " bytes in a file of %zu",
                       s->path, len, n);
    if (len < 2 || p[TD_ST_PREFIX] != '{')
        return TD_FAIL(TD_EPROTO, "%s: the header is not an object", s->path);
    s->data = p + TD_ST_PREFIX + len;
    s->nbytes = n - TD_ST_PREFIX - len;

    json_t *root =
        json_loadb((const char *)p + TD_ST_PREFIX, (size_t)len, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        return TD_FAIL(json_error_code(&error) == json_error_out_of_memory ? TD_ENOMEM : TD_EPROTO,
                       "%s: header, byte %d: %s", s->path, error.position, error.text);
    td_status st = parse_header(s, root);
    json_decref(root);
    return st;
}

td_status td_safetensors_open(const char *path, td_safetensors **out)
{
    td__arena *arena = NULL;
    td_status st;

    *out = NULL;
    TD_TRY(td__arena_create(&arena));
    td_safetensors *s = td__arena_alloc(arena, sizeof *s);
    char *copy = s ? td__arena_strdup(arena, path) : NULL;
    if (!copy) {
        td__arena_destroy(arena);
        return TD_FAIL(TD_ENOMEM, "%s: no memory to open it", path);
    }
    s->arena = arena;
    s->path = copy;
    TD_TRY_OR(st, fail, td__file_map_open(&s->map, path));
    TD_TRY_OR(st, fail, read_file(s));
    *out = s;
    return TD_OK;
fail:
    td_safetensors_close(s);
    return st;
}

void td_safetensors_close(td_safetensors *s)
{
    if (!s)
        return;
    td__file_map_close(&s->map);
    td__arena_destroy(s->arena); /* s lies in it */
}

int td_safetensors_count(const td_safetensors *s)
{
    return s->count;
}

const char *td_safetensors_name(const td_safetensors *s, int i)
{
    return i >= 0 && i < s->count ? s->entries[i].name : NULL;
}

int td_safetensors_find(const td_safetensors *s, const char *name)
{
    return td__names_find(s->by_name, s->count, name);
}

td_tensor td_safetensors_tensor(const td_safetensors *s, int i)
{
    TD_ASSERT(i >= 0 && i < s->count, "tensor %d of %d", i, s->count);
    const entry *e = &s->entries[i];
    td_tensor t = {
        .dtype = e->dtype,
        .shape = e->shape,
        .data = (void *)(uintptr_t)(s->data + e->begin),
    };
    td__row_major(&t.shape, t.stride);
    return t;
}

void td__safetensors_forget(const td_safetensors *s, int i)
{
    const entry *e = &s->entries[i];
    size_t head = (size_t)(s->data - s->map.data);
    td__file_map_forget(&s->map, head + (size_t)e->begin, (size_t)(e->end - e->begin));
}

int td_safetensors_metadata_count(const td_safetensors *s)
{
    return s->n_metadata;
}

td_metadata td_safetensors_metadata(const td_safetensors *s, int i)
{
    TD_ASSERT(i >= 0 && i < s->n_metadata, "metadata %d of %d", i, s->n_metadata);
    return s->metadata[i];
}
