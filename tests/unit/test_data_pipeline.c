/* Splits, map stages, caches: the data of a job as a whole. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "data/data.h"
#include "data/loader.h"
#include "data/map.h"
#include "support/check.h"
#include "support/hostile.h"

/* x,y rows: x = 10 i, 10 i + 1; y = i % 5 */
static void write_rows(int n)
{
    FILE *f = fopen(check_path("a.csv"), "w");

    fprintf(f, "u,v,y\n");
    for (int i = 0; i < n; i++)
        fprintf(f, "%d,%d,%d\n", 10 * i, 10 * i + 1, i % 5);
    fclose(f);
}

static td__data_opts rows(void)
{
    return (td__data_opts){.source = "csv",
                           .source_opts = {.dir = check_tmpdir(), .train = "a.csv"}};
}

static void read_one(td__dataset *d, int64_t i, const td__draw *draw, void *x, int32_t *y)
{
    CHECK_OK(td__dataset_read(d, &i, 1, draw, (void *[]){x, y}));
}

TEST(splits_are_disjoint_and_complete)
{
    enum { N = 103 };
    td__data_opts o = rows();
    int first[N];

    o.valid_fraction = 0.2;
    o.test_fraction = 0.1;
    write_rows(N);
    for (int round = 0; round < 3; round++) {
        td__data *d;
        int role[N], moved = 0;
        o.seed = round == 2;
        CHECK_OK(td__data_open(&o, &d));
        memset(role, 0xff, sizeof role);
        CHECK_EQ_INT(td__data_part(d, TD_PART_VALID)->count, 21);
        CHECK_EQ_INT(td__data_part(d, TD_PART_TEST)->count, 10);
        for (int p = 0; p < TD_PART_COUNT; p++)
            for (int64_t i = 0; i < td__data_part(d, (td__part)p)->count; i++) {
                float x[2];
                int32_t y;
                read_one(td__data_part(d, (td__part)p), i, NULL, x, &y);
                int sample = (int)x[0] / 10;
                CHECK(role[sample] == -1, "sample %d is in two parts", sample);
                role[sample] = p;
            }
        for (int i = 0; i < N; i++) {
            CHECK(role[i] >= 0, "sample %d is in no part", i);
            moved += role[i] != first[i];
        }
        if (round == 0)
            memcpy(first, role, sizeof role);
        else
            CHECK(round == 1 ? moved == 0 : moved > 10, "seed %d: %d moved", round == 2, moved);
        td__data_close(d);
    }
    check_tmpdir_remove();
}

TEST(windows_split_in_ranges_with_a_gap)
{
    td__data_opts o = {.source = "text",
                       .source_opts = {.dir = check_tmpdir(),
                                       .train = "t",
                                       .unit = "byte",
                                       .context = 4,
                                       .stride = 2},
                       .valid_fraction = 0.25};
    uint8_t text[205];
    td__data *d;
    int32_t x[4], y[4];

    for (int i = 0; i < 205; i++)
        text[i] = (uint8_t)i;
    check_write_file(check_path("t"), text, sizeof text);
    CHECK_OK(td__data_open(&o, &d)); /* 101 windows, 2 in the gap */
    td__dataset *train = td__data_part(d, TD_PART_TRAIN), *valid = td__data_part(d, TD_PART_VALID);
    CHECK_EQ_INT(valid->count, 25);
    CHECK_EQ_INT(train->count, 74);
    int64_t last = train->count - 1;
    CHECK_OK(td__dataset_read(train, &last, 1, NULL, (void *[]){x, y}));
    int32_t end = y[3];
    CHECK_OK(td__dataset_read(valid, (int64_t[]){0}, 1, NULL, (void *[]){x, y}));
    CHECK(end < x[0], "train ends with %d, valid begins with %d", end, x[0]);
    assert_null(td__data_part(d, TD_PART_TEST));
    td__data_close(d);
    check_tmpdir_remove();
}

TEST(normalize_measures_train_alone)
{
    td__map_opts maps[] = {{.name = "normalize"}};
    td__data_opts o = rows();
    double sum[2] = {0}, square[2] = {0};
    td__data *d;
    float x[2];
    int32_t y;

    write_rows(50);
    o.valid_fraction = 0.5;
    o.maps = maps;
    o.n_maps = 1;
    CHECK_OK(td__data_open(&o, &d));
    td__dataset *train = td__data_part(d, TD_PART_TRAIN);
    for (int64_t i = 0; i < train->count; i++) {
        read_one(train, i, NULL, x, &y);
        for (int k = 0; k < 2; k++) {
            sum[k] += (double)x[k] / 25;
            square[k] += (double)x[k] * (double)x[k] / 25;
        }
    }
    for (int k = 0; k < 2; k++) /* per feature */
        CHECK(fabs(sum[k]) < 1e-5 && fabs(square[k] - 1) < 1e-5, "mean %g, mean square %g", sum[k],
              square[k]);
    td__data_close(d);
    maps[0].a = 100; /* given */
    maps[0].b = 10;
    CHECK_OK(td__data_open(&o, &d));
    read_one(td__data_part(d, TD_PART_TRAIN), 0, NULL, x, &y);
    assert_true(fabsf(x[1] - x[0] - 0.1f) < 1e-6f);
    td__data_close(d);
    check_tmpdir_remove();
}

static td_status read_number(void *user, int64_t index, void *const *fields)
{
    int64_t *calls = user;

    ++*calls;
    *(float *)fields[0] = (float)index;
    return TD_OK;
}

/* Samples that take work are looked at from the first to the last, not all. */
TEST(normalize_spreads_what_it_reads)
{
    enum { COUNT = 40000 };
    static const td_field X = {.name = "x", .dtype = TD_F32, .shape = {.ndim = 1, .dim = {1}}};
    td_dataset *all, *mapped;
    int64_t calls = 0;
    const td_batch *b;

    CHECK_OK(td_dataset_callback(&X, 1, COUNT, read_number, &calls, &all));
    CHECK_OK(td_dataset_map(all, "normalize", NULL, &mapped));
    CHECK_EQ_INT(calls, 2 * 10000); /* means, then deviations */
    CHECK_OK(td_dataset_next(mapped, &b));
    const float *x = b->field[0];
    CHECK(fabsf(x[0] + 1.732f) < 1e-3f, "the first is %g deviations from the mean", (double)x[0]);
    td_dataset_destroy(mapped);
    td_dataset_destroy(all);
}

/* A stage on one value of this field. */
static void apply(const td__map_opts *o, const td__field *in, const void *x, const td__draw *draw,
                  td__field *out, void *y)
{
    td__dataset fake = {.count = 0, .n_fields = 1, .fields = {*in}};
    td__map *m;

    CHECK_OK(td__map_open(o, 0, &fake, NULL, &m));
    *out = m->out;
    m->def->apply(m, (int64_t[]){7}, 1, draw, x, y);
    td__map_close(m);
}

TEST(stages_do_what_they_say)
{
    static const uint8_t IMAGE[2][3][4] = {{{1, 2, 3, 4}, {5, 6, 7, 8}, {9, 10, 11, 12}},
                                           {{21, 22, 23, 24}, {25, 26, 27, 28}, {29, 30, 31, 32}}};
    const td__field image = {.name = "x", .dtype = TD_U8, .shape = TD_SHAPE(2, 3, 4)};
    const td__field class = {.name = "x", .dtype = TD_I32, .classes = 3};
    const td__field vector = {.name = "x", .dtype = TD_F32, .shape = TD_SHAPE(2)};
    const td__field text = {.name = "x", .dtype = TD_U8, .shape = TD_SHAPE(4)};
    uint8_t bytes[1024];
    float floats[16];
    int32_t ints[16];
    td__field out;

    apply(&(td__map_opts){.name = "crop", .size = 1, .size2 = 2}, &image, IMAGE, NULL, &out, bytes);
    assert_true(td_shape_equal(&out.shape, &TD_SHAPE(2, 1, 2)));
    assert_memory_equal(bytes, ((uint8_t[]){6, 7, 26, 27}), 4);
    apply(&(td__map_opts){.name = "flip"}, &image, IMAGE, NULL, &out, bytes);
    assert_memory_equal(bytes, IMAGE, sizeof IMAGE);
    apply(&(td__map_opts){.name = "flip", .a = 1}, &image, IMAGE, &(td__draw){1, 1}, &out, bytes);
    assert_memory_equal(bytes, ((uint8_t[]){4, 3, 2, 1, 8, 7, 6, 5}), 8);
    apply(&(td__map_opts){.name = "pad", .pad = 1, .a = 99}, &image, IMAGE, NULL, &out, bytes);
    assert_true(td_shape_equal(&out.shape, &TD_SHAPE(2, 5, 6)));
    assert_memory_equal(bytes + 6, ((uint8_t[]){99, 1, 2, 3, 4, 99, 99, 5}), 8);
    CHECK_EQ_INT(bytes[30], 99);
    CHECK_EQ_INT(bytes[37], 21);
    apply(&(td__map_opts){.name = "pad", .size = 4, .a = -1}, &vector, (float[]){1, 2}, NULL, &out,
          floats);
    assert_memory_equal(floats, ((float[]){1, 2, -1, -1}), 16);
    apply(&(td__map_opts){.name = "one_hot"}, &class, (int32_t[]){2}, NULL, &out, floats);
    assert_memory_equal(floats, ((float[]){0, 0, 1}), 12);
    CHECK_EQ_INT(out.dtype, TD_F32);
    apply(&(td__map_opts){.name = "tokenize", .text = "byte", .size = 5}, &text, "hi\0\0", NULL,
          &out, ints);
    assert_memory_equal(ints, ((int32_t[]){'h', 'i', 0, 0, 0}), 20);
    CHECK_EQ_INT(out.classes, 256);
}

/* Crops under a draw: zeros or the image, in every place, and a pure function of the key. */
TEST(random_crops)
{
    const td__field image = {.name = "x", .dtype = TD_U8, .shape = TD_SHAPE(1, 2, 2)};
    const td__map_opts o = {.name = "crop", .size = 2, .pad = 1};
    int places[4] = {0}; /* where pixel (0, 0) = 1 lands; else nowhere */
    int flips = 0;

    for (uint64_t epoch = 0; epoch < 300; epoch++) {
        uint8_t y[4], again[4];
        td__field out;
        apply(&o, &image, (uint8_t[]){1, 2, 3, 4}, &(td__draw){3, epoch}, &out, y);
        apply(&o, &image, (uint8_t[]){1, 2, 3, 4}, &(td__draw){3, epoch}, &out, again);
        assert_memory_equal(y, again, 4);
        for (int i = 0; i < 4; i++)
            places[i] += y[i] == 1;
        apply(&(td__map_opts){.name = "flip"}, &image, (uint8_t[]){1, 2, 3, 4},
              &(td__draw){3, epoch}, &out, y);
        flips += y[0] == 2;
    }
    for (int i = 0; i < 4; i++) /* 1/9 each */
        CHECK(places[i] > 12 && places[i] < 60, "place %d: %d", i, places[i]);
    CHECK(flips > 110 && flips < 190, "%d flips", flips);
}

TEST(filters_and_words)
{
    td__map_opts maps[2] = {{.name = "filter", .text = "y >= 3"}};
    td__data_opts o = rows();
    td__data *d;
    int32_t y, x[4];

    write_rows(20);
    o.maps = maps;
    o.n_maps = 1;
    CHECK_OK(td__data_open(&o, &d));
    CHECK_EQ_INT(td__data_part(d, TD_PART_TRAIN)->count, 8);
    float u[2];
    read_one(td__data_part(d, TD_PART_TRAIN), 7, NULL, u, &y);
    assert_true(y == 4 && u[0] == 190);
    td__data_close(d);
    static const char *const BAD[] = {"", "y", "y <", "y < fish", "z < 3", "x < 3", "y ~ 3"};
    for (int i = 0; i < TD_LEN(BAD); i++) {
        maps[0].text = BAD[i];
        CHECK_STATUS(td__data_open(&o, &d), TD_EINVAL);
    }
    maps[0].text = "y > 9"; /* nothing is left */
    CHECK_STATUS(td__data_open(&o, &d), TD_EINVAL);

    check_write_file(check_path("a.csv"), "t,y\nbA a,n\nAc,p\n", 15);
    for (int lower = 0; lower < 2; lower++) { /* " Aabc", " abc" */
        maps[0] = (td__map_opts){.name = "tokenize", .text = lower ? "lower" : "char", .size = 4};
        o.n_maps = 1;
        CHECK_OK(td__data_open(&o, &d));
        CHECK_EQ_INT(td__data_part(d, TD_PART_TRAIN)->fields[0].classes, lower ? 6 : 7);
        read_one(td__data_part(d, TD_PART_TRAIN), 0, NULL, x, &y);
        assert_memory_equal(x, lower ? ((int32_t[]){4, 3, 2, 3}) : ((int32_t[]){5, 3, 2, 4}), 16);
        td__data_close(d);
    }
    check_write_file(check_path("a.csv"), "t,y\nb a a,n\na b c,p\n", 19);
    maps[0] = (td__map_opts){.name = "tokenize", .size = 4, .size2 = 4};
    maps[1] = (td__map_opts){.name = "filter", .text = "y == p"};
    o.n_maps = 2;
    CHECK_OK(td__data_open(&o, &d));
    CHECK_EQ_INT(td__data_part(d, TD_PART_TRAIN)->fields[0].classes, 4);
    read_one(td__data_part(d, TD_PART_TRAIN), 0, NULL, x, &y);
    assert_memory_equal(x, ((int32_t[]){2, 3, 1, 0}), 16); /* a is most frequent, c unknown */
    td__data_close(d);
    check_tmpdir_remove();
}

TEST(wrong_options)
{
    static const struct {
        double valid, test;
        td__map_opts map;
        const char *source;
    } BAD[] = {
        {.source = "nothing"},
        {.valid = -0.1},
        {.valid = 0.6, .test = 0.4},
        {.map = {.name = "nothing"}},
        {.map = {.name = "normalize", .field = "z"}},
        {.map = {.name = "normalize", .a = 1}},
        {.map = {.name = "crop", .size = 2}},
        {.map = {.name = "one_hot"}},
        {.map = {.name = "one_hot", .field = "y", .size = 3}},
        {.map = {.name = "tokenize"}},
        {.map = {.name = "pad"}},
        {.map = {.name = "flip", .a = 2}},
    };
    td__data_opts good = rows();
    td__data *d;

    write_rows(10);
    for (int i = 0; i < TD_LEN(BAD); i++) {
        td__data_opts o = good;
        o.valid_fraction = BAD[i].valid;
        o.test_fraction = BAD[i].test;
        o.maps = &BAD[i].map;
        o.n_maps = BAD[i].map.name != NULL;
        if (BAD[i].source)
            o.source = BAD[i].source;
        CHECK_STATUS(td__data_open(&o, &d), TD_EINVAL);
        assert_null(d);
    }
    check_tmpdir_remove();
}

/* Everything that a loader gives of a part, twice over. */
static void collect(td__data *d, int threads, float *x, int32_t *y)
{
    const td__batch *b;
    td__loader *l;
    int64_t n = 0;

    CHECK_OK(td__loader_create(
        td__data_part(d, TD_PART_TRAIN),
        &(td__loader_opts){
            .batch = 16, .shuffle = true, .augment = true, .threads = threads, .prefetch = 3},
        &l));
    for (int64_t k = 0; k < 2 * td__loader_batches(l); k++) {
        CHECK_OK(td__loader_next(l, &b));
        memcpy(x + n * 784, b->field[0], (size_t)b->rows * 784 * sizeof *x);
        memcpy(y + n, b->field[1], (size_t)b->rows * sizeof *y);
        n += b->rows;
    }
    td__loader_destroy(l);
}

static float first_of_row(const td__data_opts *o, int64_t row)
{
    float x = 0;
    int32_t y = 0;
    td__data *d;

    CHECK_OK(td__data_open(o, &d));
    td__dataset *train = td__data_part(d, TD_PART_TRAIN);
    CHECK_OK(td__dataset_read(train, &row, 1, NULL, (void *const[]){&x, &y}));
    td__data_close(d);
    return x;
}

/* One cell of a thousand is changed: neither the size nor what the cache looks at tells. */
TEST(a_changed_file_is_not_read_from_the_cache)
{
    enum { ROWS = 1000 };
    static char text[ROWS * 4 + 8];
    char cache[256];
    td__data_opts o = {
        .source = "csv", .source_opts = {.dir = check_tmpdir(), .train = "a.csv"}, .cache = cache};
    snprintf(cache, sizeof cache, "%s", check_path("cache"));
    for (int value = 1; value <= 2; value++) {
        int n = snprintf(text, sizeof text, "x,y\n");
        for (int i = 0; i < ROWS; i++)
            n += snprintf(text + n, sizeof text - (size_t)n, "%d,%d\n", i == 1 ? value : 0, i % 2);
        check_write_file(check_path("a.csv"), text, (size_t)n);
        struct timespec times[2] = {{.tv_sec = 1000 + value}, {.tv_sec = 1000 + value}};
        assert_int_equal(utimensat(AT_FDCWD, check_path("a.csv"), times, 0), 0);
        float x = first_of_row(&o, 1);
        CHECK(x == (float)value, "%g after the cell was set to %d", (double)x, value);
    }
    check_tmpdir_remove();
}

TEST(caches_change_nothing)
{
    enum { N = 100 };
    const td__map_opts maps[] = {
        {.name = "normalize", .a = 0.1, .b = 0.3}, {.name = "crop", .pad = 2}, {.name = "flip"}};
    td__data_opts o = {.source = "digits", .source_opts = {.count = N}, .maps = maps, .n_maps = 3};
    size_t nbytes = 2 * N * 784 * sizeof(float);
    float *want = malloc(nbytes), *got = malloc(nbytes);
    int32_t y[2 * N], z[2 * N];
    char path[4200];
    struct stat before, after;
    td__data *d;

    CHECK_OK(td__data_open(&o, &d));
    collect(d, 1, want, y);
    td__data_close(d);
    check_tmpdir();
    snprintf(path, sizeof path, "%s", check_path("cache"));
    for (int round = 0; round < 4; round++) { /* memory, file made, file found, file damaged */
        o.cache = round ? path : "memory";
        CHECK_OK(td__data_open(&o, &d));
        memset(got, 0, nbytes);
        collect(d, 1 + round, got, z);
        assert_memory_equal(want, got, nbytes);
        assert_memory_equal(y, z, sizeof y);
        td__data_close(d);
        if (round == 1)
            assert_int_equal(stat(check_path("cache.train"), &before), 0);
        if (round == 2) {
            assert_int_equal(stat(check_path("cache.train"), &after), 0);
            CHECK(before.st_ino == after.st_ino, "the cache was made again");
            size_t n;
            char *file = check_read_file(check_path("cache.train"), &n);
            file[n / 2] ^= 1;
            check_write_file(check_path("cache.train"), file, n);
            free(file);
        }
    }
    /* other data: made anew */
    assert_int_equal(stat(check_path("cache.train"), &before), 0);
    o.source_opts.seed = 1;
    CHECK_OK(td__data_open(&o, &d));
    assert_int_equal(stat(check_path("cache.train"), &after), 0);
    assert_true(before.st_ino != after.st_ino);
    td__data_close(d);
    o.cache = "/nowhere/cache";
    CHECK_STATUS(td__data_open(&o, &d), TD_EIO);
    check_tmpdir_remove();
    free(want);
    free(got);
}

static td_status open_and_read(void *arg)
{
    const td__batch *b;
    td__loader *l = NULL;
    td__data *d;
    td_status st = td__data_open(arg, &d);

    if (!st)
        st = td__loader_create(td__data_part(d, TD_PART_TRAIN),
                               &(td__loader_opts){.batch = 4, .prefetch = -1}, &l);
    if (!st)
        st = td__loader_next(l, &b);
    td__loader_destroy(l);
    td__data_close(d);
    return st;
}

TEST(every_allocation_may_fail)
{
    static const td__map_opts MAPS[] = {{.name = "normalize"}, {.name = "filter", .text = "y > 0"}};
    td__data_opts o = rows();

    write_rows(12);
    o.maps = MAPS;
    o.n_maps = 2;
    o.valid_fraction = 0.3;
    o.cache = "memory";
    check_every_allocation(open_and_read, &o);
    check_tmpdir_remove();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(splits_are_disjoint_and_complete),
        cmocka_unit_test(windows_split_in_ranges_with_a_gap),
        cmocka_unit_test(normalize_measures_train_alone),
        cmocka_unit_test(normalize_spreads_what_it_reads),
        cmocka_unit_test(stages_do_what_they_say),
        cmocka_unit_test(random_crops),
        cmocka_unit_test(filters_and_words),
        cmocka_unit_test(wrong_options),
        cmocka_unit_test(caches_change_nothing),
        cmocka_unit_test(a_changed_file_is_not_read_from_the_cache),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
