/* safetensors_write.c -- saving tensors as safetensors.
 *
 * Tensors are ordered by element size, largest first, then by name, and the header is padded to a
 * multiple of 8: so every tensor is aligned to its element, and the same tensors give the same
 * bytes in whatever order they are given. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "base/file.h"
#include "tensor/safetensors.h"

enum { ALIGN = 8 };

static int compare_items(const void *a, const void *b)
{
    const td_named_tensor *x = *(const td_named_tensor *const *)a;
    const td_named_tensor *y = *(const td_named_tensor *const *)b;
    size_t xs = td_dtype_size(x->tensor->dtype), ys = td_dtype_size(y->tensor->dtype);
    if (xs != ys)
        return xs > ys ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Add `value`, which is taken, under a new key. */
static td_status add(const char *path, json_t *object, const char *key, json_t *value)
{
    if (!key || json_object_get(object, key)) {
        json_decref(value);
        return TD_FAIL(TD_EINVAL, "%s: the name '%s' is missing or given twice", path,
                       key ? key : "");
    }
    if (!value || json_object_set_new(object, key, value) != 0)
        return TD_FAIL(TD_EINVAL, "%s: '%s' is not valid UTF-8, or there is no memory", path, key);
    return TD_OK;
}

static td_status add_metadata(const char *path, json_t *root, const td_metadata *metadata, int n)
{
    json_t *object = json_object();

    TD_TRY(add(path, root, TD_ST_METADATA, object));
    for (int i = 0; i < n; i++)
        TD_TRY(add(path, object, metadata[i].key,
                   metadata[i].value ? json_string(metadata[i].value) : NULL));
    return TD_OK;
}

static td_status add_tensor(const char *path, json_t *root, const td_named_tensor *item,
                            uint64_t *offset)
{
    const td_tensor *t = item->tensor;
    uint64_t end = *offset + td_tensor_nbytes(t);
    json_t *shape = json_array();

    for (int i = 0; i < t->shape.ndim; i++)
        if (json_array_append_new(shape, json_integer(t->shape.dim[i])) != 0) {
            json_decref(shape);
            return TD_FAIL(TD_ENOMEM, "%s: no memory for its header", path);
        }
    TD_TRY(add(path, root, item->name,
               json_pack("{s:s, s:o, s:[I, I]}", "dtype", td__st_dtype_name(t->dtype), "shape",
                         shape, "data_offsets", (json_int_t)*offset, (json_int_t)end)));
    *offset = end;
    return TD_OK;
}

/* The padded header; *out is released with free(). */
static td_status make_header(const char *path, const td_named_tensor *const *items, int n,
                             const td_metadata *metadata, int n_metadata, char **out)
{
    json_t *root = json_object();
    uint64_t offset = 0;
    td_status st = TD_OK;

    if (n_metadata > 0)
        TD_TRY_OR(st, done, add_metadata(path, root, metadata, n_metadata));
    for (int i = 0; i < n; i++)
        TD_TRY_OR(st, done, add_tensor(path, root, items[i], &offset));
    *out = json_dumps(root, JSON_COMPACT);
    if (!*out)
        st = TD_FAIL(TD_ENOMEM, "%s: no memory for its header", path);
done:
    json_decref(root);
    return st;
}

static td_status write_tensor(td__file_out *f, const td_tensor *t)
{
    td_tensor dense;

    TD_TRY(td_tensor_contiguous(t, &dense));
    td__file_out_write(f, dense.data, td_tensor_nbytes(&dense));
    td_tensor_fini(&dense);
    return TD_OK;
}

/* items[i] is one of `all`, which `show` knows by their numbers. */
static td_status write_file(const char *path, const char *header,
                            const td_named_tensor *const *items, int n, const td_named_tensor *all,
                            const td__st_show *show)
{
    uint8_t prefix[TD_ST_PREFIX];
    size_t len = strlen(header), padded = td__align_up(len, ALIGN);
    td__file_out f;
    td_status st;

    if (padded > TD_ST_HEADER_MAX)
        return TD_FAIL(TD_EINVAL, "%s: a header of %zu bytes is too long", path, padded);
    for (int i = 0; i < TD_ST_PREFIX; i++)
        prefix[i] = (uint8_t)((uint64_t)padded >> (8 * i));
    TD_TRY(td__file_out_open(&f, path));
    td__file_out_write(&f, prefix, sizeof prefix);
    td__file_out_write(&f, header, len);
    td__file_out_write(&f, "       ", padded - len);
    for (int i = 0; i < n; i++) {
        if (show)
            TD_TRY_OR(st, fail, show->fn(show->user, (int)(items[i] - all)));
        TD_TRY_OR(st, fail, write_tensor(&f, items[i]->tensor));
    }
    return td__file_out_commit(&f);
fail:
    td__file_out_abandon(&f);
    return st;
}

td_status td_safetensors_save(const char *path, const td_named_tensor *items, int n,
                              const td_metadata *metadata, int n_metadata)
{
    return td__safetensors_save(path, items, n, metadata, n_metadata, NULL);
}

td_status td__safetensors_save(const char *path, const td_named_tensor *items, int n,
                               const td_metadata *metadata, int n_metadata, const td__st_show *show)
{
    const td_named_tensor **sorted = NULL;
    char *header = NULL;
    td_status st;

    if (n < 0 || n_metadata < 0)
        return TD_FAIL(TD_EINVAL, "%s: negative number of tensors", path);
    for (int i = 0; i < n; i++) {
        if (!items[i].name || strcmp(items[i].name, TD_ST_METADATA) == 0)
            return TD_FAIL(TD_EINVAL, "%s: tensor %d has no usable name", path, i);
        if (td_tensor_count(items[i].tensor) < 0 || !td_dtype_size(items[i].tensor->dtype))
            return TD_FAIL(TD_EINVAL, "%s: '%s' is not a tensor", path, items[i].name);
    }
    sorted = td__calloc((size_t)n + 1, sizeof(*sorted));
    if (!sorted)
        return TD_FAIL(TD_ENOMEM, "%s: no memory for %d names", path, n);
    for (int i = 0; i < n; i++)
        sorted[i] = &items[i];
    qsort(sorted, (size_t)n, sizeof(*sorted), compare_items);
    TD_TRY_OR(st, done, make_header(path, sorted, n, metadata, n_metadata, &header));
    st = write_file(path, header, sorted, n, items, show);
done:
    free(header); /* jansson's memory, not ours */
    td__free(sorted);
    return st;
}
