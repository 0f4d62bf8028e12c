/* loader.c -- the data pipeline alone: how many samples a second a loader gives.
 *
 *     data_loader --work images|text|folder|parquet --path PATH --threads N --seconds S
 *
 * images: IDX files in the folder PATH, normalised, in shuffled batches of 64. text: the file PATH,
 * windows of 256 bytes, in shuffled batches of 64. folder: JPEG images in the folder PATH/train, a
 * random part of each scaled to 224 x 224 and normalised, in shuffled batches of 64. parquet: the
 * file PATH in order in batches of 64. These two are opened and read to their end, again and again,
 * and the first time does not count; their time is that of the processor. Every batch is looked at
 * (its first and last values), as a model would. Threads 0: read in next(). Prints one JSON
 * object. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "data/data.h"
#include "data/loader.h"

enum { BATCH = 64, CONTEXT = 256, SIDE = 224 };

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int fail(void)
{
    fprintf(stderr, "data_loader: %s\n", td_last_error());
    return 1;
}

static int measure(const td__data_opts *data, int threads, double seconds)
{
    const td__batch *b;
    td__data *d;
    td__loader *l;
    double sum = 0, began = now_s(), elapsed = 0;
    int64_t rows = 0;

    if (td__data_open(data, &d))
        return fail();
    double open_s = now_s() - began;
    td__loader_opts o = {.batch = BATCH,
                         .shuffle = true,
                         .augment = true,
                         .seed = 1,
                         .threads = threads,
                         .prefetch = threads ? 8 : -1};
    if (td__loader_create(td__data_part(d, TD_PART_TRAIN), &o, &l))
        return fail();
    size_t nbytes = td__field_nbytes(td__loader_field(l, 0));
    for (began = now_s(); elapsed < seconds; elapsed = now_s() - began) {
        if (td__loader_next(l, &b))
            return fail();
        sum += ((const uint8_t *)b->field[0])[0] +
               ((const uint8_t *)b->field[0])[nbytes * (size_t)b->rows - 1];
        rows += b->rows;
    }
    printf("{\"per_second\": %.1f, \"open_s\": %.4f, \"sum\": %.0f}\n", (double)rows / elapsed,
           open_s, sum);
    td__loader_destroy(l);
    td__data_close(d);
    return 0;
}

static double used_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* One epoch, from opening. */
static int pass(const td__data_opts *data, td__loader_opts o, int64_t *rows, double *sum)
{
    const td__batch *b;
    td__data *d;
    td__loader *l;

    if (td__data_open(data, &d))
        return fail();
    td__dataset *train = td__data_part(d, TD_PART_TRAIN);
    o.epochs = 1; /* nothing is read ahead for another one */
    if (td__loader_create(train, &o, &l))
        return fail();
    size_t nbytes = td__field_nbytes(td__loader_field(l, 0));
    for (;;) {
        if (td__loader_next(l, &b))
            return fail();
        if (!b)
            break;
        *rows += b->rows;
        *sum += ((const uint8_t *)b->field[0])[nbytes * (size_t)b->rows - 1];
    }
    td__loader_destroy(l);
    td__data_close(d);
    return 0;
}

/* Whole passes, each from opening, by the time of the processor with all threads: as one core is
 * asked for, whoever else is on the machine. */
static int measure_passes(const td__data_opts *data, td__loader_opts o, double seconds)
{
    double sum = 0, began = 0, elapsed = 0;
    int64_t rows = 0;

    if (pass(data, o, &rows, &sum))
        return 1;
    rows = 0;
    for (began = used_s(); elapsed < seconds; elapsed = used_s() - began)
        if (pass(data, o, &rows, &sum))
            return 1;
    printf("{\"per_second\": %.1f, \"sum\": %.0f}\n", (double)rows / elapsed, sum);
    return 0;
}

int main(int argc, char **argv)
{
    static const td__map_opts NORMALIZE = {.name = "normalize", .a = 0.1307, .b = 0.3081};
    const char *work = "images", *path = ".";
    double seconds = 1;
    int threads = 0;

    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--work") == 0)
            work = argv[i + 1];
        else if (strcmp(argv[i], "--path") == 0)
            path = argv[i + 1];
        else if (strcmp(argv[i], "--threads") == 0)
            threads = (int)strtol(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--seconds") == 0)
            seconds = strtod(argv[i + 1], NULL);
        else
            return 2;
    }
    if (strcmp(work, "images") == 0)
        return measure(
            &(td__data_opts){
                .source = "idx", .source_opts.dir = path, .maps = &NORMALIZE, .n_maps = 1},
            threads, seconds);
    td__loader_opts in_order = {
        .batch = BATCH, .seed = 1, .threads = threads, .prefetch = threads ? 8 : -1};
    if (strcmp(work, "parquet") == 0)
        return measure_passes(
            &(td__data_opts){.source = "parquet",
                             .source_opts = {.train = path, .label = "y", .target = "number"}},
            in_order, seconds);
    td__loader_opts drawn = in_order;
    drawn.shuffle = drawn.augment = true;
    if (strcmp(work, "folder") == 0)
        return measure_passes(
            &(td__data_opts){.source = "images",
                             .source_opts = {.dir = path, .size = SIDE, .resize = "random"},
                             .maps = &NORMALIZE,
                             .n_maps = 1},
            drawn, seconds);
    return measure(
        &(td__data_opts){
            .source = "text",
            .source_opts = {.train = path, .unit = "byte", .context = CONTEXT, .stride = 1}},
        threads, seconds);
}
