/* 06 -- a data pipeline: from a source to the batches of an epoch, for one rank or several.
 *
 * New here: a source by name, a filter, a built-in map stage, one of the caller's own, shuffling,
 * batches that are read ahead, and ranks that share them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>

#include "tandem/tandem.h"

enum { RANKS = 2, BATCH = 32, SIDE = 20 };

static void check(td_status st)
{
    if (st) {
        fprintf(stderr, "%s: %s\n", td_status_name(st), td_last_error());
        exit(1);
    }
}

/* The darkness of every row of an image, instead of the image; the class stays. */
static td_status darkness(void *user, const td_sample *s, const void *const *in, void *const *out)
{
    const float *image = in[0];
    float *rows = out[0];

    (void)user;
    (void)s;
    for (int i = 0; i < SIDE; i++) {
        rows[i] = 0;
        for (int j = 0; j < SIDE; j++)
            rows[i] += image[i * SIDE + j];
    }
    *(int32_t *)out[1] = *(const int32_t *)in[1];
    return TD_OK;
}

int main(void)
{
    const td_field fields[] = {{.name = "x", .dtype = TD_F32, .shape = TD_SHAPE(SIDE)},
                               {.name = "y", .dtype = TD_I32, .classes = 10}};
    td_dataset *digits, *few, *cropped, *rows, *shuffled, *batches, *own[RANKS], *ahead[RANKS];
    int64_t samples = 0, together = 0;
    double sum = 0, shared = 0;
    const td_batch *b;

    check(td_dataset_source("digits", "train", &(td_source_opts){.count = 1000}, &digits));
    check(td_dataset_filter(digits, "y < 5", &few));
    check(td_dataset_map(few, "crop", &(td_map_opts){.size = SIDE}, &cropped));
    check(td_dataset_map_fn(cropped, fields, 2, darkness, NULL, &rows));
    check(td_dataset_shuffle(rows, 1, &shuffled));
    check(td_dataset_batch(shuffled, BATCH, false, &batches));
    printf("%lld of %lld samples\n", (long long)td_dataset_count(few),
           (long long)td_dataset_count(digits));

    for (;;) {
        check(td_dataset_next(batches, &b));
        if (!b)
            break;
        samples += b->rows;
        sum += (double)*(const float *)b->field[0];
    }

    /* The same epoch by two ranks, each of which reads only its rows, ahead of time. */
    for (int r = 0; r < RANKS; r++) {
        check(td_dataset_for_rank(batches, r, RANKS, &own[r]));
        check(td_dataset_prefetch(own[r], 4, 1, &ahead[r]));
        for (;;) {
            check(td_dataset_next(ahead[r], &b));
            if (!b)
                break;
            together += b->rows;
            shared += b->first == 0 ? (double)*(const float *)b->field[0] : 0;
        }
    }
    printf(
        "one rank: %lld samples, %d ranks: %lld; the first rows of batches add up to %g and %g\n",
        (long long)samples, RANKS, (long long)together, sum, shared);

    td_dataset *all[] = {digits,  few,    cropped, rows,     shuffled,
                         batches, own[0], own[1],  ahead[0], ahead[1]};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        td_dataset_destroy(all[i]);
    return samples == together && sum == shared && samples > 400 ? 0 : 1;
}
