/* fuzz_idx.c -- IDX files, packed and not: all bytes that a header promises are there. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "data/sources/idx.h"
#include "fuzz/fuzz_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    td__idx x;
    unsigned sum = 0;

    if (td__idx_parse(&x, data, nbytes, "fuzz") == TD_OK) {
        for (size_t i = 0; i < x.nbytes; i++)
            sum += x.data[i];
        if ((size_t)td_shape_count(&x.shape) != x.nbytes || sum > x.nbytes * 255)
            abort();
        td__idx_fini(&x);
    }
    return 0;
}
