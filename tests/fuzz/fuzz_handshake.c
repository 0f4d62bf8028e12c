/* libFuzzer: the handshake before anything is trusted. The first byte chooses our role and service,
 * the rest is what the stranger says, in whatever pieces. Nobody gets in without the secret. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "net/handshake.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    static const td__secret SECRET = {{0x5e, 0xc3, 0xe7}};
    td__handshake h;
    td_status st = TD_OK;

    if (nbytes < 1)
        return 0;
    td__hs_role role = data[0] & 1 ? TD_HS_CLIENT : TD_HS_SERVER;
    td__hs_service service = (td__hs_service)(1 + (data[0] >> 1) % 3);
    if (td__handshake_init(&h, &SECRET, role, service, NULL))
        return 0;
    data++;
    nbytes--;
    while (st == TD_OK && nbytes > 0 && !h.done) {
        size_t want = h.in_want - h.in_used;
        if (want == 0 || h.in_want > sizeof h.in || h.out_used > sizeof h.out)
            abort();
        size_t take = nbytes < want ? nbytes : want;
        memcpy(h.in + h.in_used, data, take);
        h.in_used += take;
        data += take;
        nbytes -= take;
        st = td__handshake_advance(&h);
    }
    if (h.done)
        abort();
    return 0;
}
