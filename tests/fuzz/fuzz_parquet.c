/* fuzz_parquet.c -- Parquet files as a data source, under several options. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz/fuzz_rows.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    return fuzz_rows("parquet", data, nbytes);
}
