/* fuzz_csv.c -- CSV files as a data source, under several options. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz/fuzz_rows.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    return fuzz_rows("csv", data, nbytes);
}
