/* libFuzzer: frame headers and the store's requests behind them, as an authenticated but hostile
 * member would send them. A header that opens must seal to the same bytes. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "net/frame.h"
#include "net/store_wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    td__frame f, again;
    td__store_parts p;

    if (nbytes < sizeof f)
        return 0;
    if (td__frame_open(data, TD_STORE_REQUEST_BYTES, &f) == TD_OK) {
        again = f;
        td__frame_seal(&again);
        if (memcmp(&again, data, sizeof again) != 0 || f.length > TD_STORE_REQUEST_BYTES)
            abort();
    }
    /* The checksum keeps a fuzzer out; so the rest is also tried with a header that is right. */
    memcpy(&f, data, sizeof f);
    f.length = nbytes - sizeof f;
    td__frame_seal(&f);
    if (td__frame_open(&f, TD_STORE_REQUEST_BYTES, &again) != TD_OK)
        return 0;
    const uint8_t *payload = data + sizeof f, *end = data + nbytes;
    if (td__store_parse(&again, payload, &p) != TD_OK)
        return 0;
    const uint8_t *value = p.value, *expect = p.expect;
    if (strlen(p.key) > TD_STORE_KEY_BYTES || value < payload || value + p.nbytes != end ||
        (expect && (expect < payload || expect + p.expect_nbytes > end)))
        abort();
    return 0;
}
