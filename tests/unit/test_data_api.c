/* The public pipeline (tandem/data.h): every way in, every stage, orders, ranks, failures. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/check.h"
#include "support/check.h"
#include "tandem/alloc.h"
#include "tandem/data.h"

enum { COUNT = 23 };

/* Sample i is x = (i, 10 i), y = i % 3. */
static float X[COUNT][2];
static int32_t Y[COUNT];
static const td_field FIELDS[] = {{.name = "x", .dtype = TD_F32, .shape = {1, {2}}},
                                  {.name = "y", .dtype = TD_I32, .classes = 3}};
static const void *const DATA[] = {X, Y};

static td_dataset *numbers(void)
{
    td_dataset *d;

    for (int i = 0; i < COUNT; i++) {
        X[i][0] = (float)i;
        X[i][1] = (float)(10 * i);
        Y[i] = i % 3;
    }
    CHECK_OK(td_dataset_memory(FIELDS, DATA, 2, COUNT, &d));
    return d;
}

/* The new one keeps the old one alive. */
static void replace(td_dataset **d, td_dataset *by)
{
    td_dataset_destroy(*d);
    *d = by;
}

static void shuffled(td_dataset **d, uint64_t seed)
{
    td_dataset *n;
    CHECK_OK(td_dataset_shuffle(*d, seed, &n));
    replace(d, n);
}

static void batched(td_dataset **d, int64_t rows, bool drop_last)
{
    td_dataset *n;
    CHECK_OK(td_dataset_batch(*d, rows, drop_last, &n));
    replace(d, n);
}

static void repeated(td_dataset **d, int64_t epochs)
{
    td_dataset *n;
    CHECK_OK(td_dataset_repeat(*d, epochs, &n));
    replace(d, n);
}

static void prefetched(td_dataset **d, int batches, int threads)
{
    td_dataset *n;
    CHECK_OK(td_dataset_prefetch(*d, batches, threads, &n));
    replace(d, n);
}

/* The first value of x of every row that is given out, up to `most`. */
static int drain(td_dataset *d, float *out, int most)
{
    const td_batch *b;
    int n = 0;

    while (n < most) {
        CHECK_OK(td_dataset_next(d, &b));
        if (!b)
            break;
        for (int64_t i = 0; i < b->rows && n < most; i++)
            out[n++] = ((const float *)b->field[0])[2 * i];
    }
    return n;
}

TEST(memory_is_given_out_in_batches)
{
    td_dataset *d = numbers();
    const td_batch *b;
    int64_t batches;

    CHECK_EQ_INT(td_dataset_count(d), COUNT);
    CHECK_EQ_INT(td_dataset_field_count(d), 2);
    CHECK(!strcmp(td_dataset_field(d, 1).name, "y"), "%s", td_dataset_field(d, 1).name);
    CHECK_EQ_INT(td_dataset_field(d, 1).classes, 3);
    batched(&d, 5, false);
    CHECK_OK(td_dataset_batches(d, &batches));
    CHECK_EQ_INT(batches, 5);
    for (int k = 0; k < 5; k++) {
        CHECK_OK(td_dataset_next(d, &b));
        CHECK_EQ_INT(b->rows, k < 4 ? 5 : 3);
        CHECK_EQ_INT(b->index, k);
        CHECK_EQ_INT(((const int32_t *)b->field[1])[1], (5 * k + 1) % 3);
    }
    CHECK_OK(td_dataset_next(d, &b));
    CHECK(!b, "a batch after the last");
    CHECK_OK(td_dataset_seek(d, 0, 2));
    CHECK_OK(td_dataset_next(d, &b));
    CHECK_EQ_INT(((const float *)b->field[0])[0], 10);
    batched(&d, 5, true);
    CHECK_OK(td_dataset_batches(d, &batches));
    CHECK_EQ_INT(batches, 4);
    td_dataset_destroy(d);
}

/* The order depends on seed and epoch; not on batches, prefetching, or where a run begins. */
TEST(order_is_a_function_of_seed_and_epoch)
{
    float first[3 * COUNT], again[3 * COUNT], seen = 0;
    td_dataset *d = numbers();

    shuffled(&d, 7);
    repeated(&d, 3);
    CHECK_EQ_INT(drain(d, first, 3 * COUNT + 1), 3 * COUNT);
    for (int i = 0; i < COUNT; i++)
        seen += first[i];
    CHECK_EQ_INT(seen, COUNT * (COUNT - 1) / 2);
    CHECK(memcmp(first, first + COUNT, COUNT * sizeof *first) != 0, "epoch 1 repeats epoch 0");
    batched(&d, 4, false);
    prefetched(&d, 3, 2);
    CHECK_EQ_INT(drain(d, again, 3 * COUNT), 3 * COUNT);
    CHECK(!memcmp(first, again, sizeof first), "batches and threads change the order");
    repeated(&d, 0);
    CHECK_OK(td_dataset_seek(d, 2, 0));
    CHECK_EQ_INT(drain(d, again, COUNT), COUNT);
    CHECK(!memcmp(first + 2 * COUNT, again, COUNT * sizeof *again), "epoch 2 after a seek differs");
    shuffled(&d, 8);
    CHECK_EQ_INT(drain(d, again, COUNT), COUNT);
    CHECK(memcmp(first, again, COUNT * sizeof *again) != 0, "another seed, the same order");
    td_dataset_destroy(d);
}

/* Rows of all ranks, side by side, are the batches of one. */
TEST(ranks_share_the_batches_of_one)
{
    for (int world = 1; world <= 5; world++) {
        td_dataset *one = numbers(), *of[5];
        const td_batch *all, *own;

        shuffled(&one, 3);
        batched(&one, 4, false);
        for (int r = 0; r < world; r++) {
            CHECK_OK(td_dataset_for_rank(one, r, world, &of[r]));
            prefetched(&of[r], 2, r % 2);
        }
        for (int k = 0; k < 6; k++) {
            int64_t at = 0;
            CHECK_OK(td_dataset_next(one, &all));
            for (int r = 0; r < world; r++) {
                CHECK_OK(td_dataset_next(of[r], &own));
                CHECK_EQ_INT(own->first, at);
                CHECK_EQ_INT(own->batch_rows, all->rows);
                CHECK(!memcmp(own->field[1], (const int32_t *)all->field[1] + at,
                              (size_t)own->rows * sizeof(int32_t)),
                      "rank %d of %d, batch %d", r, world, k);
                at += own->rows;
            }
            CHECK_EQ_INT(at, all->rows);
        }
        for (int r = 0; r < world; r++)
            td_dataset_destroy(of[r]);
        td_dataset_destroy(one);
    }
}

static td_status read_number(void *user, int64_t index, void *const *fields)
{
    if (index == *(const int64_t *)user)
        return TD_EIO;
    ((float *)fields[0])[0] = (float)index;
    ((float *)fields[0])[1] = 0;
    *(int32_t *)fields[1] = 1;
    return TD_OK;
}

TEST(callbacks_give_samples_by_number)
{
    int64_t fail_at = -1;
    float x[COUNT];
    const td_batch *b;
    td_dataset *d;

    CHECK_OK(td_dataset_callback(FIELDS, 2, COUNT, read_number, &fail_at, &d));
    batched(&d, 6, false);
    CHECK_EQ_INT(drain(d, x, COUNT + 1), COUNT);
    for (int i = 0; i < COUNT; i++)
        CHECK_EQ_INT(x[i], i);
    fail_at = 7;
    prefetched(&d, 1, 1);
    CHECK_OK(td_dataset_next(d, &b));
    CHECK_STATUS(td_dataset_next(d, &b), TD_EIO);
    CHECK(strstr(td_last_error(), "sample 7"), "%s", td_last_error());
    td_dataset_destroy(d);
}

static td_status next_number(void *user, void *const *fields, bool *end)
{
    int *at = user;
    *end = *at == COUNT;
    if (*at == -1)
        return TD_EPROTO;
    ((float *)fields[0])[0] = (float)*at;
    ((float *)fields[0])[1] = 0;
    *(int32_t *)fields[1] = (*at)++ % 3;
    return TD_OK;
}

TEST(iterators_are_read_to_their_end)
{
    int at = 0;
    float x[COUNT];
    td_dataset *d;

    CHECK_OK(td_dataset_iterator(FIELDS, 2, next_number, &at, &d));
    CHECK_EQ_INT(td_dataset_count(d), COUNT);
    CHECK_EQ_INT(drain(d, x, COUNT), COUNT);
    for (int i = 0; i < COUNT; i++)
        CHECK_EQ_INT(x[i], i);
    td_dataset_destroy(d);
    at = -1;
    CHECK_STATUS(td_dataset_iterator(FIELDS, 2, next_number, &at, &d), TD_EPROTO);
    CHECK(!d, "a dataset in spite of it");
}

enum { LARGE = 1 << 12, LARGES = 1 << 10 }; /* floats of a sample, samples: 16 MB */

static td_status next_large(void *user, void *const *fields, bool *end)
{
    int *at = user;
    *end = *at == LARGES;
    if (!*end)
        for (int i = 0; i < LARGE; i++)
            ((float *)fields[0])[i] = (float)(*at + i);
    *at += !*end;
    return TD_OK;
}

/* Samples that are large together need no memory of ours: they wait in a file. */
TEST(iterators_need_no_memory_for_their_samples)
{
    static const td_field FIELD = {.name = "x", .dtype = TD_F32, .shape = {1, {LARGE}}};
    int at = 0;
    td_dataset *d;
    const td_batch *b;
    uint64_t before = td_alloc_get_stats().live_bytes, n = 0;

    CHECK_OK(td_dataset_iterator(&FIELD, 1, next_large, &at, &d));
    CHECK_EQ_INT(td_dataset_count(d), LARGES);
    CHECK(td_alloc_get_stats().peak_bytes < before + (4u << 20), "%d bytes for 16 MB of samples",
          (int)(td_alloc_get_stats().peak_bytes - before));
    for (;;) {
        CHECK_OK(td_dataset_next(d, &b));
        if (!b)
            break;
        for (int64_t r = 0; r < b->rows; r++, n++)
            CHECK_EQ_INT(((const float *)b->field[0])[r * LARGE + 7], n + 7);
    }
    CHECK_EQ_INT(n, LARGES);
    td_dataset_destroy(d);
}

/* Twice x's first value, plus what is drawn. */
static td_status twice(void *user, const td_sample *s, const void *const *in, void *const *out)
{
    (void)user;
    *(double *)out[0] =
        2 * (double)((const float *)in[0])[0] + (s->random ? 1000.0 * (double)s->epoch : 0);
    return TD_OK;
}

static bool is_even(void *user, int64_t index, const void *const *fields)
{
    (void)user;
    return (int)((const float *)fields[0])[0] % 2 == 0 && index >= 4;
}

TEST(maps_and_filters_make_other_samples)
{
    const td_field out = {.name = "z", .dtype = TD_F64};
    td_dataset *d = numbers(), *n;
    const td_batch *b;

    CHECK_OK(td_dataset_filter(d, "y == 1", &n));
    CHECK_EQ_INT(td_dataset_count(n), 8);
    td_dataset_destroy(n);
    CHECK_OK(td_dataset_filter_fn(d, is_even, NULL, &n));
    CHECK_EQ_INT(td_dataset_count(n), 10); /* 4, 6, ... 22 */
    replace(&d, n);
    batched(&d, 64, false); /* in any sequence */
    CHECK_OK(td_dataset_map_fn(d, &out, 1, twice, NULL, &n));
    replace(&d, n);
    CHECK_OK(td_dataset_next(d, &b));
    CHECK_EQ_INT(b->rows, 10);
    CHECK_EQ_INT(((const double *)b->field[0])[1], 12);
    shuffled(&d, 1); /* stages may draw */
    CHECK_OK(td_dataset_seek(d, 3, 0));
    CHECK_OK(td_dataset_next(d, &b));
    CHECK(((const double *)b->field[0])[0] > 3000, "%g", ((const double *)b->field[0])[0]);
    const int64_t some[] = {9, 0};
    CHECK_OK(td_dataset_subset(d, some, 2, &n));
    CHECK_EQ_INT(td_dataset_count(n), 2);
    td_dataset_destroy(n);
    td_dataset_destroy(d);
}

TEST(stages_measure_what_they_are_fit_to)
{
    td_dataset *d = numbers(), *few, *n;
    const int64_t last[] = {COUNT - 1};
    const td_batch *b;
    float mean = 0;

    CHECK_OK(td_dataset_subset(d, last, 1, &few));
    CHECK_OK(td_dataset_map(few, "normalize", &(td_map_opts){.fit = d}, &n));
    CHECK_OK(td_dataset_next(n, &b));
    mean = ((const float *)b->field[0])[0];
    CHECK(mean > -2 && mean < 2 && mean != 0, "%g", (double)mean);
    td_dataset_destroy(few); /* n keeps alive what it is made from */
    td_dataset_destroy(d);
    CHECK_OK(td_dataset_seek(n, 0, 0));
    CHECK_OK(td_dataset_next(n, &b));
    CHECK(mean == ((const float *)b->field[0])[0], "%g", (double)((const float *)b->field[0])[0]);
    td_dataset_destroy(n);
}

TEST(sources_and_stages_are_found_by_name)
{
    td_dataset *d, *n;
    const td_batch *b;
    int sources = 0, stages = 0;

    while (td_source_list(sources)) {
        CHECK(*td_source_help(td_source_list(sources)), "no help");
        CHECK(td_source_options(td_source_list(sources)), "no options");
        sources++;
    }
    while (td_map_list(stages))
        stages++;
    CHECK(sources >= 10 && stages >= 6, "%d sources, %d stages", sources, stages);
    CHECK_OK(td_dataset_source("digits", "train", &(td_source_opts){.count = 40}, &d));
    CHECK_EQ_INT(td_dataset_count(d), 40);
    CHECK_OK(td_dataset_map(d, "one_hot", &(td_map_opts){.field = "y"}, &n));
    replace(&d, n);
    CHECK_OK(td_dataset_map(d, "crop", &(td_map_opts){.size = 24}, &n));
    replace(&d, n);
    CHECK_EQ_INT(td_dataset_field(d, 0).shape.dim[1], 24);
    CHECK_EQ_INT(td_dataset_field(d, 1).shape.dim[0], 10);
    CHECK_OK(td_dataset_next(d, &b));
    CHECK_EQ_INT(b->rows, 1);
    td_dataset_destroy(d);
}

TEST(mistakes_are_one_line)
{
    const td_field twins[] = {{.name = "x", .dtype = TD_F32}, {.name = "x", .dtype = TD_F32}};
    td_dataset *d = numbers(), *n = d;

    CHECK_STATUS(td_dataset_source("nowhere", "train", NULL, &n), TD_EINVAL);
    CHECK(!n && strstr(td_last_error(), "nowhere"), "%s", td_last_error());
    CHECK_STATUS(td_dataset_source("digits", "dev", NULL, &n), TD_EINVAL);
    CHECK_STATUS(td_dataset_source("csv", "train", NULL, &n), TD_EINVAL);
    CHECK_STATUS(td_dataset_memory(twins, DATA, 2, 1, &n), TD_EINVAL);
    CHECK_STATUS(td_dataset_memory(FIELDS, DATA, 0, 1, &n), TD_EINVAL);
    CHECK_STATUS(td_dataset_memory(FIELDS, DATA, 17, 1, &n), TD_EINVAL);
    CHECK_STATUS(td_dataset_memory(FIELDS, DATA, 2, -1, &n), TD_EINVAL);
    CHECK_STATUS(td_dataset_map(d, "filter", NULL, &n), TD_EINVAL);
    CHECK_STATUS(td_dataset_map(d, "blur", NULL, &n), TD_EINVAL);
    CHECK_STATUS(td_dataset_map(d, "crop", NULL, &n), TD_EINVAL); /* no image */
    CHECK_STATUS(td_dataset_filter(d, "z > 1", &n), TD_EINVAL);
    CHECK_STATUS(td_dataset_subset(d, (const int64_t[]){COUNT}, 1, &n), TD_EINVAL);
    CHECK_STATUS(td_dataset_batch(d, 0, false, &n), TD_EINVAL);
    CHECK_STATUS(td_dataset_repeat(d, -1, &n), TD_EINVAL);
    CHECK_STATUS(td_dataset_prefetch(d, 0, 1, &n), TD_EINVAL);
    CHECK_STATUS(td_dataset_for_rank(d, 2, 2, &n), TD_EINVAL);
    CHECK_STATUS(td_dataset_seek(d, 0, COUNT), TD_EINVAL);
    td_dataset_destroy(d);
    td_dataset_destroy(NULL);
}

/* A whole pipeline, or a failure, and nothing left behind. */
static td_status build_and_read(void)
{
    int at = 0;
    td_dataset *d[8] = {0};
    const td_batch *b;
    const td_field out = {.name = "z", .dtype = TD_F64};
    td_status st = td_dataset_iterator(FIELDS, 2, next_number, &at, &d[0]);

    if (!st)
        st = td_dataset_map(d[0], "normalize", NULL, &d[1]);
    if (!st)
        st = td_dataset_filter_fn(d[1], is_even, NULL, &d[2]);
    if (!st)
        st = td_dataset_filter(d[0], "y < 2", &d[3]);
    if (!st)
        st = td_dataset_map_fn(d[3], &out, 1, twice, NULL, &d[4]);
    if (!st)
        st = td_dataset_batch(d[4], 4, false, &d[5]);
    for (int i = 0; i < 3 && !st; i++)
        st = td_dataset_next(d[5], &b);
    for (int i = 0; i < TD_LEN(d); i++)
        td_dataset_destroy(d[i]);
    return st;
}

TEST(out_of_memory_is_a_status)
{
    int64_t before = (int64_t)td_alloc_get_stats().live_bytes;

    for (uint64_t n = 1;; n++) {
        td_alloc_fail_at(n);
        td_status st = build_and_read();
        td_alloc_fail_at(0);
        CHECK_EQ_INT(td_alloc_get_stats().live_bytes, before);
        if (!st)
            break;
        CHECK_EQ_INT(st, TD_ENOMEM);
        CHECK(n < 1000, "never enough");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_given_out_in_batches),
        cmocka_unit_test(order_is_a_function_of_seed_and_epoch),
        cmocka_unit_test(ranks_share_the_batches_of_one),
        cmocka_unit_test(callbacks_give_samples_by_number),
        cmocka_unit_test(iterators_need_no_memory_for_their_samples),
        cmocka_unit_test(iterators_are_read_to_their_end),
        cmocka_unit_test(maps_and_filters_make_other_samples),
        cmocka_unit_test(stages_measure_what_they_are_fit_to),
        cmocka_unit_test(sources_and_stages_are_found_by_name),
        cmocka_unit_test(mistakes_are_one_line),
        cmocka_unit_test(out_of_memory_is_a_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
