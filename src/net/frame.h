/* frame.h -- the header before everything that is said on an authenticated connection.
 *
 *     offset  bytes  field
 *          0      4  magic        'T' 'D' 'F' '1'
 *          4      1  version      1
 *          5      1  kind         what the payload is; the protocol's own numbers
 *          6      2  flags        1: payload_crc is set
 *          8      8  length       bytes of payload that follow; bounded by the receiver
 *         16      8  total        bytes of the whole message, when it is cut over several streams
 *         24      4  tag
 *         28      4  sequence
 *         32      4  payload_crc  crc32c of the payload
 *         36      4  header_crc   crc32c of bytes 0..35
 *
 * Little-endian. A header is believed only when magic, version, crc and bound are right. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_NET_FRAME_H
#define TD_NET_FRAME_H

#include <assert.h>

#include "tandem/status.h"

enum { TD_FRAME_BYTES = 40, TD_FRAME_VERSION = 1, TD_FRAME_HAS_CRC = 1 };

typedef struct td__frame {
    uint32_t magic;
    uint8_t version;
    uint8_t kind;
    uint16_t flags;
    uint64_t length;
    uint64_t total;
    uint32_t tag;
    uint32_t sequence;
    uint32_t payload_crc;
    uint32_t header_crc;
} td__frame;

static_assert(sizeof(td__frame) == TD_FRAME_BYTES, "no padding");
static_assert(offsetof(td__frame, kind) == 5 && offsetof(td__frame, flags) == 6, "wire");
static_assert(offsetof(td__frame, length) == 8 && offsetof(td__frame, total) == 16, "wire");
static_assert(offsetof(td__frame, tag) == 24 && offsetof(td__frame, sequence) == 28, "wire");
static_assert(offsetof(td__frame, payload_crc) == 32 && offsetof(td__frame, header_crc) == 36,
              "wire");
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "structs are the wire format");

/* Fills magic, version and header_crc: f is then the wire format. */
void td__frame_seal(td__frame *f);
/* From the wire. TD_EPROTO when it is no header of ours, or longer than max_length. */
TD_NODISCARD td_status td__frame_open(const void *wire, uint64_t max_length, td__frame *out);

#endif
