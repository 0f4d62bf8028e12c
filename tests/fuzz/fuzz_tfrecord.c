/* fuzz_tfrecord.c -- tf.train.Example messages, and TFRecord files around them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "data/format/tfrecord.h"
#include "fuzz/fuzz_file.h"

static bool see(void *user, const td__example_feature *f)
{
    size_t nbytes = 0;

    (void)user;
    if (f->kind == TD_EXAMPLE_BYTES) {
        td__example_bytes(f, &nbytes);
    } else if (f->kind != TD_EXAMPLE_NONE) {
        double *v = malloc((size_t)f->count * sizeof *v + 1);
        if (v)
            td__example_numbers(f, v);
        free(v);
    }
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    td__tfrecords t = {.data = data, .nbytes = nbytes, .where = "fuzz"};
    bool end = false;

    td__example_walk(data, nbytes, see, NULL);
    while (!end && td__tfrecord_next(&t, &end) == TD_OK)
        if (!end)
            td__example_walk(t.record, t.record_nbytes, see, NULL);
    return 0;
}
