/* idx.c -- the IDX format of MNIST; see idx.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "data/sources/idx.h"

#include <inttypes.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "data/files.h"

enum { PREFIX = 4, TYPE_U8 = 8, HEADER_MAX = PREFIX + 4 * TD_MAX_DIMS };

static td_status parse_header(td__idx *x, const uint8_t *h, size_t nbytes, const char *where,
                              size_t *header)
{
    char text[128];

    if (nbytes < PREFIX || h[0] || h[1])
        return TD_FAIL(TD_EPROTO, "%s: not an IDX file", where);
    if (h[2] != TYPE_U8)
        return TD_FAIL(TD_EPROTO, "%s: elements of type 0x%02x; only bytes (0x08) are supported",
                       where, h[2]);
    int ndim = h[3];
    if (ndim < 1 || ndim > TD_MAX_DIMS)
        return TD_FAIL(TD_EPROTO, "%s: %d axes; expected 1 to %d", where, ndim, TD_MAX_DIMS);
    *header = PREFIX + 4 * (size_t)ndim;
    if (nbytes < *header)
        return TD_FAIL(TD_EPROTO, "%s: truncated in its header", where);
    x->shape.ndim = ndim;
    for (int i = 0; i < ndim; i++) {
        const uint8_t *b = h + PREFIX + 4 * i;
        x->shape.dim[i] = (int64_t)b[0] << 24 | (int64_t)b[1] << 16 | (int64_t)b[2] << 8 | b[3];
    }
    int64_t count = td_shape_count(&x->shape);
    if (count < 0 || count > PTRDIFF_MAX / 2)
        return TD_FAIL(TD_EPROTO, "%s: impossible sizes %s", where,
                       td_shape_text(&x->shape, text, sizeof text));
    x->nbytes = (size_t)count;
    return TD_OK;
}

static td_status unpack(td__idx *x, const uint8_t *data, size_t nbytes, const char *where)
{
    uint8_t head[HEADER_MAX];
    size_t header, got, most;

    TD_TRY(td__gunzip(data, nbytes, where, head, sizeof head, &got));
    TD_TRY(parse_header(x, head, got, where, &header));
    if (td__size_mul(nbytes, TD__GZIP_MOST, &most) && x->nbytes > most)
        return TD_FAIL(TD_EPROTO, "%s: %zu bytes, but its header says %zu", where, nbytes,
                       x->nbytes);
    x->own = td__malloc(header + x->nbytes + 1);
    if (!x->own)
        return TD_FAIL(TD_ENOMEM, "%s: no memory to unpack %zu bytes", where, x->nbytes);
    TD_TRY(td__gunzip(data, nbytes, where, x->own, header + x->nbytes + 1, &got));
    if (got != header + x->nbytes)
        return TD_FAIL(TD_EPROTO, "%s: its header says %zu bytes, but it has %s", where, x->nbytes,
                       got < header + x->nbytes ? "less" : "more");
    x->data = x->own + header;
    return TD_OK;
}

td_status td__idx_parse(td__idx *x, const uint8_t *data, size_t nbytes, const char *where)
{
    size_t header;

    *x = (td__idx){0};
    if (td__is_gzip(data, nbytes)) {
        td_status st = unpack(x, data, nbytes, where);
        if (st)
            td__idx_fini(x);
        return st;
    }
    TD_TRY(parse_header(x, data, nbytes, where, &header));
    if (x->nbytes != nbytes - header)
        return TD_FAIL(TD_EPROTO, "%s: its header says %zu bytes, but it has %zu", where, x->nbytes,
                       nbytes - header);
    x->data = data + header;
    return TD_OK;
}

void td__idx_fini(td__idx *x)
{
    td__free(x->own);
    *x = (td__idx){0};
}
