/* npy.c -- reading and writing .npy; see npy.h for the format.
 *
 * The header is a Python literal, but every writer makes the same few tokens: quoted strings
 * without escapes, True and False, and a tuple of integers. Nothing else is accepted. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor/npy.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/fail.h"
#include "base/file.h"
#include "tensor/strided.h"

enum { PREFIX = 8, ALIGN = 64, HEADER_LIMIT = 1 << 20 };

static const char MAGIC[] = "\x93NUMPY";

/* NumPy's type codes, without the byte order. */
static const struct {
    const char *code;
    td_dtype dtype;
} CODES[] = {
    {"f4", TD_F32}, {"f2", TD_F16}, {"f8", TD_F64},  {"i4", TD_I32},
    {"i8", TD_I64}, {"u1", TD_U8},  {"b1", TD_BOOL},
};

typedef struct npy_header {
    td_dtype dtype;
    bool swap, fortran;
    td_shape shape;
} npy_header;

/* The rest of the header to be read. */
typedef struct cursor {
    const char *p, *end;
    const char *where;
} cursor;

static void skip_spaces(cursor *c)
{
    while (c->p < c->end && (*c->p == ' ' || *c->p == '\t' || *c->p == '\n' || *c->p == '\r'))
        c->p++;
}

/* Take this token, after spaces, if it comes next. */
static bool take(cursor *c, const char *token)
{
    size_t n = strlen(token);

    skip_spaces(c);
    if ((size_t)(c->end - c->p) < n || memcmp(c->p, token, n) != 0)
        return false;
    c->p += n;
    return true;
}

/* A quoted string of at most size-1 characters; false if there is none such. */
static bool take_string(cursor *c, char *buf, size_t size)
{
    skip_spaces(c);
    if (c->p == c->end || (*c->p != '\'' && *c->p != '"'))
        return false;
    char quote = *c->p++;
    size_t n = 0;
    for (; c->p < c->end && *c->p != quote; c->p++) {
        if (n + 1 >= size || *c->p == '\\')
            return false;
        buf[n++] = *c->p;
    }
    buf[n] = 0;
    return take(c, (char[]){quote, 0});
}

static bool take_size(cursor *c, int64_t *out)
{
    int64_t x = 0;

    skip_spaces(c);
    const char *start = c->p;
    for (; c->p < c->end && *c->p >= '0' && *c->p <= '9'; c->p++)
        if (!td__i64_mul(x, 10, &x) || __builtin_add_overflow(x, *c->p - '0', &x))
            return false;
    *out = x;
    return c->p > start;
}

static td_status parse_descr(cursor *c, npy_header *h)
{
    char descr[32];

    if (!take_string(c, descr, sizeof descr))
        return TD_FAIL(TD_ENOTSUP, "%s: 'descr' is not a simple type", c->where);
    char order = descr[0];
    if (order && strchr("<>|=", order))
        for (int i = 0; i < TD_LEN(CODES); i++)
            if (strcmp(descr + 1, CODES[i].code) == 0) {
                h->dtype = CODES[i].dtype;
                h->swap = order == '>';
                return TD_OK;
            }
    return TD_FAIL(TD_ENOTSUP, "%s: element type '%s' is not supported", c->where, descr);
}

static td_status parse_order(cursor *c, npy_header *h)
{
    h->fortran = take(c, "True");
    if (!h->fortran && !take(c, "False"))
        return TD_FAIL(TD_EPROTO, "%s: 'fortran_order' is neither True nor False", c->where);
    return TD_OK;
}

static td_status parse_shape(cursor *c, npy_header *h)
{
    bool comma = true;

    if (!take(c, "("))
        return TD_FAIL(TD_EPROTO, "%s: 'shape' is not a tuple", c->where);
    h->shape = TD_SCALAR;
    while (!take(c, ")")) {
        int64_t size;
        if (!comma || !take_size(c, &size))
            return TD_FAIL(TD_EPROTO, "%s: bad size in 'shape'", c->where);
        if (h->shape.ndim == TD_MAX_DIMS)
            return TD_FAIL(TD_ENOTSUP, "%s: more than %d axes", c->where, TD_MAX_DIMS);
        h->shape.dim[h->shape.ndim++] = size;
        comma = take(c, ",");
    }
    return TD_OK;
}

static const struct {
    const char *key;
    td_status (*parse)(cursor *c, npy_header *h);
} KEYS[] = {
    {"descr", parse_descr},
    {"fortran_order", parse_order},
    {"shape", parse_shape},
};

static td_status parse_dict(cursor *c, npy_header *h)
{
    unsigned seen = 0;
    bool comma = true;

    if (!take(c, "{"))
        return TD_FAIL(TD_EPROTO, "%s: the header is not a dict", c->where);
    while (!take(c, "}")) {
        char key[16];
        int k = 0;
        if (!comma || !take_string(c, key, sizeof key) || !take(c, ":"))
            return TD_FAIL(TD_EPROTO, "%s: malformed header", c->where);
        while (k < TD_LEN(KEYS) && strcmp(key, KEYS[k].key) != 0)
            k++;
        if (k == TD_LEN(KEYS) || (seen & 1u << k))
            return TD_FAIL(TD_EPROTO, "%s: unknown or repeated key '%s'", c->where, key);
        TD_TRY(KEYS[k].parse(c, h));
        seen |= 1u << k;
        comma = take(c, ",");
    }
    skip_spaces(c);
    if (seen != (1u << TD_LEN(KEYS)) - 1 || c->p != c->end)
        return TD_FAIL(TD_EPROTO, "%s: incomplete header, or more after it", c->where);
    return TD_OK;
}

/* Where header and elements lie. */
static td_status find_header(const uint8_t *data, size_t nbytes, const char *where, size_t *begin,
                             size_t *end)
{
    if (nbytes < PREFIX + 2 || memcmp(data, MAGIC, 6) != 0)
        return TD_FAIL(TD_EPROTO, "%s: not a .npy file", where);
    int major = data[6];
    if (major < 1 || major > 3)
        return TD_FAIL(TD_ENOTSUP, "%s: .npy version %d", where, major);

    size_t width = major == 1 ? 2 : 4, len = 0;
    if (nbytes < PREFIX + width)
        return TD_FAIL(TD_EPROTO, "%s: truncated in its header", where);
    for (size_t i = 0; i < width; i++)
        len |= (size_t)data[PREFIX + i] << (8 * i);
    if (len > HEADER_LIMIT || len > nbytes - PREFIX - width)
        return TD_FAIL(TD_EPROTO, "%s: impossible header length %zu", where, len);
    *begin = PREFIX + width;
    *end = *begin + len;
    return TD_OK;
}

static void swap_bytes(uint8_t *p, size_t size, size_t count)
{
    for (size_t i = 0; i < count; i++, p += size) {
        for (size_t a = 0, b = size - 1; a < b; a++, b--) {
            uint8_t x = p[a];
            p[a] = p[b];
            p[b] = x;
        }
    }
}

td_status td__npy_parse(const uint8_t *data, size_t nbytes, const char *where, td_tensor *out)
{
    npy_header h = {0};
    size_t begin, end, need;
    char text[128];

    *out = (td_tensor){0};
    TD_TRY(find_header(data, nbytes, where, &begin, &end));
    cursor c = {(const char *)data + begin, (const char *)data + end, where};
    TD_TRY(parse_dict(&c, &h));
    if (td_shape_count(&h.shape) < 0 ||
        !td__size_mul((size_t)td_shape_count(&h.shape), td_dtype_size(h.dtype), &need) ||
        need != nbytes - end)
        return TD_FAIL(TD_EPROTO, "%s: %zu bytes do not hold %s of %s", where, nbytes - end,
                       td_shape_text(&h.shape, text, sizeof text), td_dtype_name(h.dtype));

    /* The file's bytes as a tensor, then a row-major copy. */
    td_tensor file;
    TD_TRY(td_tensor_wrap(&file, h.dtype, h.shape, (void *)(uintptr_t)(data + end)));
    int64_t step = 1;
    for (int i = 0; h.fortran && need && i < h.shape.ndim; i++) {
        file.stride[i] = step;
        step *= h.shape.dim[i];
    }
    TD_TRY(td_tensor_init(out, h.dtype, h.shape));
    td__strided_copy(out, &file);
    if (h.swap)
        swap_bytes(out->data, td_dtype_size(h.dtype), (size_t)td_tensor_count(out));
    return TD_OK;
}

td_status td__npy_header(const td_tensor *t, uint8_t header[TD_NPY_HEADER_MAX], size_t *nbytes)
{
    char sizes[160] = "", dict[TD_NPY_HEADER_MAX - PREFIX - 2];
    size_t used = 0;
    int k = 0;

    while (k < TD_LEN(CODES) && CODES[k].dtype != t->dtype)
        k++;
    if (k == TD_LEN(CODES))
        return TD_FAIL(TD_ENOTSUP, "NumPy has no %s: convert to f32, or save as safetensors",
                       td_dtype_name(t->dtype));
    for (int i = 0; i < t->shape.ndim; i++) {
        int n = snprintf(sizes + used, sizeof sizes - used, "%s%" PRId64 "%s", i ? " " : "",
                         t->shape.dim[i], i + 1 < t->shape.ndim || i == 0 ? "," : "");
        used += (size_t)n;
    }
    int len =
        snprintf(dict, sizeof dict, "{'descr': '%c%s', 'fortran_order': False, 'shape': (%s), }",
                 td_dtype_size(t->dtype) == 1 ? '|' : '<', CODES[k].code, sizes);
    TD_ASSERT(len > 0 && (size_t)len < sizeof dict, "%d characters of header", len);

    /* Spaces up to the newline bring the elements to a multiple of 64. */
    size_t total = td__align_up(PREFIX + 2 + (size_t)len + 1, ALIGN);
    memset(header, ' ', total);
    memcpy(header, MAGIC, 6);
    header[6] = 1;
    header[7] = 0;
    header[8] = (uint8_t)((total - PREFIX - 2) & 0xff);
    header[9] = (uint8_t)((total - PREFIX - 2) >> 8);
    memcpy(header + PREFIX + 2, dict, (size_t)len);
    header[total - 1] = '\n';
    *nbytes = total;
    return TD_OK;
}

td_status td_npy_load(const char *path, td_tensor *out)
{
    td__file_map map;

    *out = (td_tensor){0};
    TD_TRY(td__file_map_open(&map, path));
    td_status st = td__npy_parse(map.data, map.nbytes, path, out);
    td__file_map_close(&map);
    return st;
}

td_status td_npy_save(const char *path, const td_tensor *t)
{
    uint8_t header[TD_NPY_HEADER_MAX];
    size_t header_bytes;
    td_tensor dense = {0};
    td__file_out f;
    td_status st;

    TD_TRY(td__npy_header(t, header, &header_bytes));
    TD_TRY(td_tensor_contiguous(t, &dense));
    TD_TRY_OR(st, out, td__file_out_open(&f, path));
    td__file_out_write(&f, header, header_bytes);
    td__file_out_write(&f, dense.data, td_tensor_nbytes(&dense));
    st = td__file_out_commit(&f);
out:
    td_tensor_fini(&dense);
    return st;
}
