/* warm_start.c -- see warm_start.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/warm_start.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/pattern.h"
#include "graph/params.h"
#include "tandem/tensor.h"

/* By its name here, as the first rename says that fits, or as it is. */
static int find_named(const td_safetensors *s, const td__warm_start_opts *o, const char *name)
{
    char theirs[512];

    for (int r = 0; r < o->n_renames; r++) {
        const char *ours = o->rename[r][1];
        size_t n = strlen(ours);
        if (strncmp(name, ours, n) != 0)
            continue;
        int len = snprintf(theirs, sizeof theirs, "%s%s", o->rename[r][0], name + n);
        int k = len < (int)sizeof theirs ? td_safetensors_find(s, theirs) : -1;
        if (k >= 0)
            return k;
    }
    return td_safetensors_find(s, name);
}

/* The tensor that fits param i; -1: none. */
static int find(const td_params *ps, const td_safetensors *s, const td__warm_start_opts *o, int i)
{
    td_param_info info = td_params_info(ps, i);

    if (td__patterns_find(o->fresh, o->n_fresh, info.name) >= 0)
        return -1;
    int k = find_named(s, o, info.name);
    if (k < 0)
        return -1;
    td_tensor t = td_safetensors_tensor(s, k);
    return td_shape_equal(&t.shape, &info.shape) && td_dtype_is_float(t.dtype) ? k : -1;
}

static td_status copy(td_params *ps, const td_safetensors *s, int i, int k)
{
    td_param_info info = td_params_info(ps, i);
    td_tensor from = td_safetensors_tensor(s, k), to;
    td__mapping map;

    TD_TRY(td__params_map_tensor(ps, i, TD_MAP_WRITE, &map));
    td_status st = td_tensor_wrap(&to, TD_F32, info.shape, map.at);
    if (!st)
        st = td_tensor_copy(&from, &to);
    if (!st)
        return td__params_unmap_tensor(ps, i, &map);
    td__mem_map_drop(&map);
    return st;
}

static td_status load(td_params *ps, const td_safetensors *s, const char *path,
                      const td__warm_start_opts *o, td__warm_start *out)
{
    int n = td_params_count(ps);

    for (int i = 0; i < n; i++) {
        int k = find(ps, s, o, i);
        out->taken += k >= 0;
        if (k < 0 && !out->kept++)
            snprintf(out->first_kept, sizeof out->first_kept, "%s", td_params_info(ps, i).name);
        if (k >= 0)
            TD_TRY(copy(ps, s, i, k));
    }
    if (!out->taken)
        return TD_FAIL(TD_EINVAL,
                       "%s: no tensor has the name and shape of a weight of this model, as '%s'",
                       path, out->first_kept);
    td_params_touch(ps);
    return TD_OK;
}

td_status td__warm_start_load(td_params *ps, const char *path, const td__warm_start_opts *o,
                              td__warm_start *out)
{
    td_safetensors *s;

    *out = (td__warm_start){0};
    TD_TRY(td_safetensors_open(path, &s));
    td_status st = load(ps, s, path, o, out);
    td_safetensors_close(s);
    return st;
}
