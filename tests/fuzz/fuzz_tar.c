/* fuzz_tar.c -- tar archives of images as a data source. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "data/source.h"
#include "data/sources/tar.h"
#include "fuzz/fuzz_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    td__tar t = {.data = data, .nbytes = nbytes, .where = "fuzz"};
    bool end = false;
    fuzz_file file;
    td__dataset *d;

    while (!end && td__tar_next(&t, &end) == TD_OK)
        if (!end &&
            (t.file < data || t.file_nbytes > nbytes || t.file + t.file_nbytes > data + nbytes))
            abort();
    fuzz_file_open(&file, data, nbytes);
    td__source_opts o = {.train = file.path, .size = 4};
    if (td__source_find("webdataset")->open(&o, "train", &d) == TD_OK) {
        uint8_t x[3 * 4 * 4];
        int32_t y;
        void *out[] = {x, &y};
        for (int64_t i = 0; i < d->count && i < 16; i++)
            if (td__dataset_read(d, &i, 1, NULL, out) == TD_OK &&
                (y < 0 || y >= d->fields[1].classes))
                abort();
        td__dataset_destroy(d);
    }
    fuzz_file_close(&file);
    return 0;
}
