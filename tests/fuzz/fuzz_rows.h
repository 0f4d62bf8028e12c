/* fuzz_rows.h -- a source of rows on the fuzzer's bytes: the first byte chooses the options, the
 * rest is the file. Whatever opens must read. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TD_TESTS_FUZZ_ROWS_H
#define TD_TESTS_FUZZ_ROWS_H

#include "data/source.h"
#include "fuzz/fuzz_file.h"

static inline void fuzz_read_all(td__dataset *d)
{
    void *out[TD__MAX_FIELDS] = {0};

    for (int f = 0; f < d->n_fields; f++)
        out[f] = malloc(td__field_nbytes(&d->fields[f]) + 1);
    for (int64_t i = 0; i < d->count; i++) {
        if (td__dataset_read(d, &i, 1, NULL, out))
            abort();
        int y = td__dataset_field(d, "y");
        if (y >= 0 && d->fields[y].classes &&
            (*(int32_t *)out[y] < 0 || *(int32_t *)out[y] >= d->fields[y].classes))
            abort();
    }
    for (int f = 0; f < d->n_fields; f++)
        free(out[f]);
}

static inline int fuzz_rows(const char *source, const uint8_t *data, size_t nbytes)
{
    static const char *const COLUMN[] = {"a"};
    uint8_t how = nbytes ? data[0] : 0;
    fuzz_file file;
    td__dataset *d;

    fuzz_file_open(&file, data + (nbytes > 0), nbytes - (nbytes > 0));
    td__source_opts o = {.train = file.path,
                         .no_header = how & 1,
                         .delimiter = how & 2 ? ';' : 0,
                         .target = how & 4 ? "number" : NULL,
                         .label = how & 8 ? "b" : NULL,
                         .columns = how & 16 ? COLUMN : NULL,
                         .n_columns = how & 16 ? 1 : 0,
                         .valid = how & 32 ? file.path : NULL};
    if (td__source_find(source)->open(&o, how & 32 ? "valid" : "train", &d) == TD_OK) {
        fuzz_read_all(d);
        td__dataset_destroy(d);
    }
    fuzz_file_close(&file);
    return 0;
}

#endif
