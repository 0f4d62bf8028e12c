/* params_file.c -- params as a safetensors file, and their digest.
 *
 * Both see names, shapes and values alone: not the order in the block, which belongs to one
 * program, nor the padding between tensors. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/sha256.h"
#include "graph/params.h"
#include "graph/program_impl.h"
#include "tandem/tensor.h"
#include "tensor/safetensors.h"

static int compare(const void *a, const void *b)
{
    return strcmp((*(const td_param_info *const *)a)->name,
                  (*(const td_param_info *const *)b)->name);
}

td_status td__params_by_name(const td_params *ps, const td_param_info ***out)
{
    const td_param_info **order = td__calloc((size_t)ps->count + 1, sizeof *order);
    *out = order;
    if (!order)
        return TD_FAIL(TD_ENOMEM, "no memory for the names of %d tensors", ps->count);
    for (int i = 0; i < ps->count; i++)
        order[i] = &ps->info[i];
    qsort(order, (size_t)ps->count, sizeof *order, compare);
    return TD_OK;
}

int td__params_index(const td_params *ps, const td_param_info *info)
{
    return (int)(info - ps->info);
}

/* sha256 over, for each tensor in order of name: name with its final 0, number of dimensions and
 * sizes as 64-bit integers, values. */
td_status td_params_digest(const td_params *ps, char hex[65])
{
    return td__params_digest(ps, NULL, NULL, hex);
}

td_status td__params_digest(const td_params *ps, td_status (*before)(void *, int), void *user,
                            char hex[65])
{
    hex[0] = 0;
    const td_param_info **order;
    TD_TRY(td__params_by_name(ps, &order));
    td__sha256 h;
    td_status st = td__sha256_init(&h);
    bool made = !st;
    for (int i = 0; i < ps->count && !st; i++) {
        int64_t ndim = order[i]->shape.ndim;
        if (before && (st = before(user, td__params_index(ps, order[i]))))
            break;
        td__sha256_update(&h, order[i]->name, strlen(order[i]->name) + 1);
        td__sha256_update(&h, &ndim, sizeof ndim);
        td__sha256_update(&h, order[i]->shape.dim, (size_t)ndim * sizeof(int64_t));
        td__mapping map;
        if ((st = td__params_map_tensor(ps, td__params_index(ps, order[i]), TD_MAP_READ, &map)))
            break;
        td__sha256_update(&h, map.at, map.nbytes);
        td__mem_map_drop(&map);
    }
    if (!st) {
        uint8_t digest[TD_SHA256_BYTES];
        td__sha256_final(&h, digest);
        td__sha256_hex(digest, hex);
    } else if (made) {
        td__sha256_fini(&h);
    }
    td__free(order);
    return st;
}

/* A file being written: one param is mapped at a time. */
typedef struct shown {
    const td_params *ps;
    td_tensor *tensors;
    td__mapping map;
    td_status (*before)(void *, int);
    void *user;
} shown;

static td_status show_param(void *user, int i)
{
    shown *s = user;
    td__mem_map_drop(&s->map);
    if (s->before)
        TD_TRY(s->before(s->user, i));
    TD_TRY(td__params_map_tensor(s->ps, i, TD_MAP_READ, &s->map));
    s->tensors[i].data = s->map.at;
    return TD_OK;
}

td_status td__params_save(const td_params *ps, td_status (*before)(void *, int), void *user,
                          const char *path)
{
    size_t n = (size_t)ps->count + 1;
    static float nowhere; /* an address for params that are not mapped yet */
    td_named_tensor *items = td__calloc(n, sizeof *items);
    shown s = {
        .ps = ps, .tensors = td__calloc(n, sizeof *s.tensors), .before = before, .user = user};
    td_status st = s.tensors && items ? TD_OK : TD_FAIL(TD_ENOMEM, "td_params_save: no memory");
    for (int i = 0; i < ps->count && !st; i++) {
        st = td_tensor_wrap(&s.tensors[i], TD_F32, ps->info[i].shape, &nowhere);
        items[i] = (td_named_tensor){.name = ps->info[i].name, .tensor = &s.tensors[i]};
    }
    if (!st)
        st = td__safetensors_save(path, items, ps->count, NULL, 0, &(td__st_show){show_param, &s});
    td__mem_map_drop(&s.map);
    td__free(s.tensors);
    td__free(items);
    return st;
}

td_status td_params_save(const td_params *ps, const char *path)
{
    return td__params_save(ps, NULL, NULL, path);
}

/* Everything is checked before the first number changes: a file that does not fit leaves the
 * params as they were. */
td_status td__params_check_file(const td_params *ps, const td_safetensors *s, const char *path)
{
    for (int i = 0; i < ps->count; i++) {
        const td_param_info *info = &ps->info[i];
        int k = td_safetensors_find(s, info->name);
        if (k < 0)
            return TD_FAIL(TD_EINVAL, "td_params_load: %s holds no '%s'", path, info->name);
        td_tensor t = td_safetensors_tensor(s, k);
        char have[128], want[128];
        if (!td_shape_equal(&t.shape, &info->shape) || !td_dtype_is_float(t.dtype))
            return TD_FAIL(TD_EINVAL, "td_params_load: '%s' is %s%s in %s and f32%s here",
                           info->name, td_dtype_name(t.dtype),
                           td_shape_text(&t.shape, have, sizeof have), path,
                           td_shape_text(&info->shape, want, sizeof want));
    }
    for (int k = 0; k < td_safetensors_count(s); k++)
        if (td_params_find(ps, td_safetensors_name(s, k)) < 0)
            return TD_FAIL(TD_EINVAL, "td_params_load: %s holds '%s', which this model has not",
                           path, td_safetensors_name(s, k));
    return TD_OK;
}

static td_status load_param(td_params *ps, const td_safetensors *s, int i)
{
    const td_param_info *info = &ps->info[i];
    td_tensor from = td_safetensors_tensor(s, td_safetensors_find(s, info->name)), to;
    td__mapping map;
    TD_TRY(td__params_map_tensor(ps, i, TD_MAP_WRITE, &map));
    td_status st = td_tensor_wrap(&to, TD_F32, info->shape, map.at);
    if (!st)
        st = td_tensor_copy(&from, &to);
    if (!st)
        return td__params_unmap_tensor(ps, i, &map);
    td__mem_map_drop(&map);
    return st;
}

td_status td__params_load(td_params *ps, td_status (*before)(void *, int), void *user,
                          const char *path)
{
    td_safetensors *s;
    TD_TRY(td_safetensors_open(path, &s));
    td_status st = td__params_check_file(ps, s, path);
    for (int i = 0; i < ps->count && !st; i++) {
        if (before)
            st = before(user, i);
        if (!st)
            st = load_param(ps, s, i);
    }
    td_safetensors_close(s);
    if (!st)
        td_params_touch(ps);
    return st;
}

td_status td_params_load(td_params *ps, const char *path)
{
    return td__params_load(ps, NULL, NULL, path);
}
