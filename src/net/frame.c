/* frame.c -- sealing and opening frame headers. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "net/frame.h"

#include <string.h>

#include "base/crc32c.h"
#include "base/fail.h"

static const uint32_t MAGIC = 0x31464454; /* "TDF1" */

void td__frame_seal(td__frame *f)
{
    f->magic = MAGIC;
    f->version = TD_FRAME_VERSION;
    f->header_crc = td__crc32c(0, f, offsetof(td__frame, header_crc));
}

td_status td__frame_open(const void *wire, uint64_t max_length, td__frame *out)
{
    memcpy(out, wire, sizeof *out);
    if (out->magic != MAGIC)
        return TD_FAIL(TD_EPROTO, "frame: begins with %08x, not with the magic %08x", out->magic,
                       MAGIC);
    if (out->version != TD_FRAME_VERSION)
        return TD_FAIL(TD_EPROTO, "frame: version %d; this program has version %d", out->version,
                       TD_FRAME_VERSION);
    if (out->header_crc != td__crc32c(0, out, offsetof(td__frame, header_crc)))
        return TD_FAIL(TD_EPROTO, "frame: damaged header (crc32c differs)");
    if (out->length > max_length)
        return TD_FAIL(TD_EPROTO, "frame: %llu bytes of payload; at most %llu are accepted here",
                       (unsigned long long)out->length, (unsigned long long)max_length);
    return TD_OK;
}
