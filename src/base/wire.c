/* wire.c -- see wire.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/wire.h"

#include <string.h>

void td__wire_varint(td__text *t, uint64_t v)
{
    char buf[10];
    size_t n = 0;

    do {
        buf[n] = (char)(v & 0x7f);
        v >>= 7;
        if (v)
            buf[n] = (char)(buf[n] | (char)0x80);
        n++;
    } while (v);
    td__text_append(t, buf, n);
}

void td__wire_little(td__text *t, uint64_t v, size_t nbytes)
{
    char buf[8];

    for (size_t i = 0; i < nbytes; i++)
        buf[i] = (char)(v >> (8 * i) & 0xff);
    td__text_append(t, buf, nbytes);
}

void td__wire_key(td__text *t, unsigned field, unsigned wire)
{
    td__wire_varint(t, field << 3 | wire);
}

void td__wire_int(td__text *t, unsigned field, int64_t v)
{
    td__wire_key(t, field, TD_WIRE_VARINT);
    td__wire_varint(t, (uint64_t)v);
}

void td__wire_float(td__text *t, unsigned field, float v)
{
    uint32_t bits;

    memcpy(&bits, &v, sizeof bits);
    td__wire_key(t, field, TD_WIRE_FIXED32);
    td__wire_little(t, bits, sizeof bits);
}

void td__wire_bytes(td__text *t, unsigned field, const void *data, size_t nbytes)
{
    td__wire_key(t, field, TD_WIRE_BYTES);
    td__wire_varint(t, nbytes);
    if (nbytes)
        td__text_append(t, data, nbytes);
}

void td__wire_text(td__text *t, unsigned field, const char *s)
{
    td__wire_bytes(t, field, s, strlen(s));
}

void td__wire_part(td__text *t, unsigned field, const td__text *part)
{
    td__wire_bytes(t, field, part->data, part->used);
}
