/* store_wire.c -- taking apart what a client of the store says. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "net/store_wire.h"

#include <string.h>

#include "base/fail.h"

td_status td__store_parse(const td__frame *f, const void *payload, td__store_parts *out)
{
    td__store_request r;
    const uint8_t *at = payload;

    memset(out, 0, sizeof *out);
    if (f->kind >= TD_STORE_OP_COUNT || f->length < sizeof r)
        return TD_FAIL(TD_EPROTO, "store: request %d of %llu bytes", f->kind,
                       (unsigned long long)f->length);
    memcpy(&r, at, sizeof r);
    at += sizeof r;
    size_t left = (size_t)f->length - sizeof r;
    if (r.key_nbytes > TD_STORE_KEY_BYTES || r.key_nbytes > left ||
        r.expect_nbytes > left - r.key_nbytes)
        return TD_FAIL(TD_EPROTO, "store: key of %u and value of %u bytes in %zu", r.key_nbytes,
                       r.expect_nbytes, left);
    memcpy(out->key, at, r.key_nbytes);
    if (strlen(out->key) != r.key_nbytes)
        return TD_FAIL(TD_EPROTO, "store: a key with a zero byte");
    at += r.key_nbytes;
    out->op = (td__store_op)f->kind;
    out->id = f->tag;
    out->number = r.number;
    out->expect = r.flags & TD_STORE_HAS_EXPECT ? at : NULL;
    out->expect_nbytes = r.expect_nbytes;
    out->value = at + r.expect_nbytes;
    out->nbytes = left - r.key_nbytes - r.expect_nbytes;
    if (out->expect_nbytes > TD_STORE_VALUE_BYTES || out->nbytes > TD_STORE_VALUE_BYTES)
        return TD_FAIL(TD_EPROTO, "store: a value of %zu bytes", out->nbytes);
    return TD_OK;
}
