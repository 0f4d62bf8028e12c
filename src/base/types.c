/* types.c -- the dtype table and the arithmetic of shapes. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tandem/types.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"

static const struct {
    const char *name;
    size_t nbytes;
    bool is_float;
} DTYPES[TD_DTYPE_COUNT] = {
#define X(id, name, nbytes, is_float) [TD_##id] = {name, nbytes, is_float},
    TD_DTYPE_MAP(X)
#undef X
};

static bool known(td_dtype t)
{
    return (unsigned)t < TD_DTYPE_COUNT;
}

const char *td_dtype_name(td_dtype t)
{
    return known(t) ? DTYPES[t].name : "?";
}

size_t td_dtype_size(td_dtype t)
{
    return known(t) ? DTYPES[t].nbytes : 0;
}

bool td_dtype_is_float(td_dtype t)
{
    return known(t) && DTYPES[t].is_float;
}

bool td_dtype_parse(const char *name, td_dtype *out)
{
    for (int t = 0; t < TD_DTYPE_COUNT; t++) {
        if (strcmp(name, DTYPES[t].name) == 0) {
            *out = (td_dtype)t;
            return true;
        }
    }
    return false;
}

int64_t td_shape_count(const td_shape *s)
{
    int64_t count = 1;
    bool empty = false;

    if (s->ndim < 0 || s->ndim > TD_MAX_DIMS)
        return -1;
    for (int i = 0; i < s->ndim; i++) {
        if (s->dim[i] < 0)
            return -1;
        empty |= s->dim[i] == 0;
    }
    if (empty) /* whatever the product of the others */
        return 0;
    for (int i = 0; i < s->ndim; i++)
        if (!td__i64_mul(count, s->dim[i], &count))
            return -1;
    return count;
}

bool td_shape_equal(const td_shape *a, const td_shape *b)
{
    if (a->ndim != b->ndim)
        return false;
    for (int i = 0; i < a->ndim; i++)
        if (a->dim[i] != b->dim[i])
            return false;
    return true;
}

char *td_shape_text(const td_shape *s, char *buf, size_t nbytes)
{
    size_t used = 0;
    int ndim = s->ndim;

    if (!nbytes)
        return buf;
    if (ndim < 0 || ndim > TD_MAX_DIMS) {
        snprintf(buf, nbytes, "(%d dims)", ndim);
        return buf;
    }
    buf[0] = 0;
    for (int i = -1; i <= ndim && used < nbytes; i++) {
        int n;
        if (i < 0 || i == ndim)
            n = snprintf(buf + used, nbytes - used, i < 0 ? "(" : ")");
        else
            n = snprintf(buf + used, nbytes - used, "%s%" PRId64, i ? ", " : "", s->dim[i]);
        used += n > 0 ? (size_t)n : 0;
    }
    return buf;
}
