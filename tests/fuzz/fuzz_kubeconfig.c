/* Fuzzer: kubeconfig files, and what credential plug-ins print. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>
#include <stdint.h>

#include "service/track/kubeconfig.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    const char *token, *cert, *key;
    td__kubeconfig *k;
    int64_t expires;
    td__arena *a;

    if (td__kubeconfig_parse((const char *)data, nbytes, "fuzz", NULL, &k) == TD_OK)
        td__kubeconfig_destroy(k);
    if (td__arena_create(&a) == TD_OK) {
        (void)!td__kubeconfig_credential(a, (const char *)data, nbytes, &token, &cert, &key,
                                         &expires);
        td__arena_destroy(a);
    }
    return 0;
}
