/* wire.h -- writing protobuf messages without a compiler for them: keys and values appended to a
 * text of bytes. Wire types: 0 varint, 1 eight bytes, 2 length and bytes, 5 four bytes. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_BASE_WIRE_H
#define TD_BASE_WIRE_H

#include <stdint.h>

#include "base/text.h"

enum { TD_WIRE_VARINT = 0, TD_WIRE_FIXED64 = 1, TD_WIRE_BYTES = 2, TD_WIRE_FIXED32 = 5 };

void td__wire_varint(td__text *t, uint64_t v);
void td__wire_little(td__text *t, uint64_t v, size_t nbytes);
void td__wire_key(td__text *t, unsigned field, unsigned wire);
/* A field with its key. */
void td__wire_int(td__text *t, unsigned field, int64_t v);
void td__wire_float(td__text *t, unsigned field, float v);
void td__wire_bytes(td__text *t, unsigned field, const void *data, size_t nbytes);
void td__wire_text(td__text *t, unsigned field, const char *s);
/* A message, as the bytes of `part`. */
void td__wire_part(td__text *t, unsigned field, const td__text *part);

#endif
