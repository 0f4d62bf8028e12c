/* fuzz_safetensors.c -- safetensors files: what opens lies inside the file. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "fuzz/fuzz_file.h"
#include "tandem/tensor.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    fuzz_file file;
    td_safetensors *s;
    unsigned sum = 0;

    fuzz_file_open(&file, data, nbytes);
    if (td_safetensors_open(file.path, &s) == TD_OK) {
        for (int i = 0; i < td_safetensors_count(s); i++) {
            td_tensor t = td_safetensors_tensor(s, i);
            for (size_t k = 0; k < td_tensor_nbytes(&t); k++)
                sum += ((const uint8_t *)t.data)[k];
            if (td_safetensors_find(s, td_safetensors_name(s, i)) < 0)
                abort();
        }
        for (int i = 0; i < td_safetensors_metadata_count(s); i++)
            sum += (unsigned)strlen(td_safetensors_metadata(s, i).value);
        if (sum > nbytes * 256)
            abort();
        td_safetensors_close(s);
    }
    fuzz_file_close(&file);
    return 0;
}
