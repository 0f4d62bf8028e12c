/* fuzz_fit.c -- preprocessing.json of a checkpoint: whatever is taken for one must read rows. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "data/data.h"
#include "fuzz/fuzz_file.h"

static void read_rows(td__data *d)
{
    td__dataset *p = td__data_part(d, TD_PART_TEST);
    void *out[TD__MAX_FIELDS] = {0};

    for (int f = 0; f < p->n_fields; f++)
        out[f] = malloc(td__field_nbytes(&p->fields[f]) + 1);
    for (int64_t i = 0; i < p->count; i++)
        if (td__dataset_read(p, &i, 1, NULL, out))
            abort();
    for (int f = 0; f < p->n_fields; f++)
        free(out[f]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    static const char ROWS[] = "u,city,y\n1,Oslo,a\n2,Rome,a\n";
    static const td__map_opts NORMALIZE = {.name = "normalize"};
    fuzz_file file;
    td__fit *fit;
    td__data *d;

    if (td__fit_parse((const char *)data, nbytes, "fuzz", &fit))
        return 0;
    fuzz_file_open(&file, (const uint8_t *)ROWS, strlen(ROWS));
    td__data_opts o = {.source = "csv",
                       .source_opts = {.train = file.path},
                       .maps = &NORMALIZE,
                       .n_maps = 1,
                       .input = file.path,
                       .fit = fit};
    if (td__data_open(&o, &d) == TD_OK) {
        read_rows(d);
        td__data_close(d);
    }
    td__fit_destroy(fit);
    fuzz_file_close(&file);
    return 0;
}
