/* fuzz_npy.c -- .npy files, and .npz archives when the bytes begin like a zip. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz/fuzz_file.h"
#include "tensor/npy.h"

static void archive(const uint8_t *data, size_t nbytes)
{
    fuzz_file file;
    td_npz *z;
    td_tensor t;

    fuzz_file_open(&file, data, nbytes);
    if (td_npz_open(file.path, &z) == TD_OK) {
        for (int i = 0; i < td_npz_count(z); i++) {
            if (td_npz_find(z, td_npz_name(z, i)) < 0)
                abort();
            if (td_npz_load(z, i, &t) == TD_OK)
                td_tensor_fini(&t);
        }
        td_npz_close(z);
    }
    fuzz_file_close(&file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    td_tensor t;

    if (nbytes > 2 && data[0] == 'P' && data[1] == 'K') {
        archive(data, nbytes);
    } else if (td__npy_parse(data, nbytes, "fuzz", &t) == TD_OK) {
        if (!td_tensor_is_contiguous(&t) || td_tensor_nbytes(&t) > nbytes)
            abort();
        td_tensor_fini(&t);
    }
    return 0;
}
