/* Orders, batches, prefetching and partitions, on the generators: no files. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "data/loader.h"
#include "data/partition.h"
#include "data/permute.h"
#include "data/source.h"
#include "support/check.h"

/* A dataset whose sample i is the number i, and (i, i+1, .. i+6) for cuts by feature. */
typedef struct numbers {
    td__dataset head;
    int64_t fail_at; /* -1: never */
} numbers;

enum { WIDTH = 7 };

static void numbers_destroy(td__dataset *d)
{
    free(d);
}

static td_status numbers_read(td__dataset *d, const int64_t *index, int64_t n, const td__draw *draw,
                              void *const *out)
{
    (void)draw;
    for (int64_t i = 0; i < n; i++) {
        ((int64_t *)out[0])[i] = index[i];
        for (int64_t j = 0; j < WIDTH; j++)
            ((int32_t *)out[1])[i * WIDTH + j] = (int32_t)(index[i] + j);
        if (index[i] == ((numbers *)d)->fail_at)
            return TD_EIO;
    }
    return TD_OK;
}

static const td__dataset_ops NUMBERS = {.destroy = numbers_destroy, .read = numbers_read};

static td__dataset *make_numbers(int64_t count)
{
    numbers *d = calloc(1, sizeof *d);
    d->head = (td__dataset){.ops = &NUMBERS,
                            .count = count,
                            .n_fields = 2,
                            .fields = {{.name = "i", .dtype = TD_I64},
                                       {.name = "x", .dtype = TD_I32, .shape = {1, {WIDTH}}}}};
    d->fail_at = -1;
    return &d->head;
}

static const int64_t COUNTS[] = {1, 2, 3, 5, 8, 64, 100, 1000, 4097};

TEST(every_epoch_is_a_permutation)
{
    for (int c = 0; c < TD_LEN(COUNTS); c++) {
        int64_t n = COUNTS[c], moved = 0;
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            td__permute p;
            char *seen = calloc((size_t)n, 1);
            td__permute_init(&p, n, 7, TD__STREAM_ORDER, epoch);
            for (int64_t i = 0; i < n; i++) {
                int64_t s = td__permute_at(&p, i);
                CHECK(s >= 0 && s < n && !seen[s], "%lld of %lld twice", (long long)s,
                      (long long)n);
                seen[s] = 1;
                moved += s != i;
            }
            free(seen);
        }
        CHECK(n < 64 || moved > 2 * n, "%lld of %lld moved", (long long)moved, (long long)(3 * n));
    }
}

/* Positions land evenly over the epochs: no place is preferred. */
TEST(orders_differ_by_epoch_and_seed)
{
    enum { N = 16, EPOCHS = 4000 };
    int hits[N][N] = {{0}};

    for (uint64_t e = 0; e < EPOCHS; e++) {
        td__permute p;
        td__permute_init(&p, N, e / 2, TD__STREAM_ORDER, e);
        for (int i = 0; i < N; i++)
            hits[i][td__permute_at(&p, i)]++;
    }
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) /* 250 expected, deviation 15.3 */
            CHECK(hits[i][j] > 165 && hits[i][j] < 335, "%d at %d: %d times", j, i, hits[i][j]);
}

/* Read `epochs` epochs into one list of sample numbers. */
static int64_t read_all(td__loader *l, int64_t batches, int64_t *out)
{
    const td__batch *b;
    int64_t n = 0;

    for (int64_t k = 0; k < batches; k++) {
        CHECK_OK(td__loader_next(l, &b));
        assert_non_null(b);
        assert_int_equal((uintptr_t)b->field[1] % 64, 0);
        memcpy(out + n, b->field[0], (size_t)b->rows * sizeof *out);
        for (int64_t i = 0; i < b->rows * WIDTH; i++)
            CHECK_EQ_INT(((int32_t *)b->field[1])[i], out[n + i / WIDTH] + i % WIDTH);
        n += b->rows;
    }
    return n;
}

TEST(prefetching_changes_nothing)
{
    enum { N = 103, BATCH = 10, BATCHES = 33 };
    static const struct {
        int prefetch, threads;
    } HOW[] = {{-1, 0}, {0, 0}, {1, 1}, {3, 2}, {2, 5}, {9, 4}};
    td__dataset *d = make_numbers(N);
    int64_t want[BATCH * BATCHES], got[BATCH * BATCHES];

    for (int h = 0; h < TD_LEN(HOW); h++) {
        td__loader *l;
        td__loader_opts o = {.batch = BATCH,
                             .shuffle = true,
                             .seed = 3,
                             .prefetch = HOW[h].prefetch,
                             .threads = HOW[h].threads};
        CHECK_OK(td__loader_create(d, &o, &l));
        CHECK_EQ_INT(td__loader_batches(l), 11);
        int64_t n = read_all(l, BATCHES, h == 0 ? want : got);
        CHECK_EQ_INT(n, 3 * N); /* the last batch of an epoch is short */
        if (h > 0)
            assert_memory_equal(want, got, (size_t)n * sizeof *got);
        for (int64_t i = 0; i < n; i++)
            CHECK_EQ_INT(want[i], td__loader_sample(l, (uint64_t)(i / N), i % N));
        td__loader_destroy(l);
    }
    td__dataset_destroy(d);
}

TEST(seek_equals_reading_through)
{
    enum { N = 50, BATCH = 8, PER_EPOCH = 7 };
    td__dataset *d = make_numbers(N);
    const td__batch *b;

    for (int threads = 0; threads < 4; threads++) {
        td__loader *l;
        td__loader_opts o = {.batch = BATCH,
                             .shuffle = true,
                             .seed = 9,
                             .prefetch = threads ? 3 : -1,
                             .threads = threads};
        CHECK_OK(td__loader_create(d, &o, &l));
        for (int round = 0; round < 40; round++) {
            uint64_t epoch = (uint64_t)(round * 5 % 4);
            int64_t index = round * 3 % PER_EPOCH, by = 1 + round / 3 % 3;
            if (by > 1)
                td__loader_seek_by(l, epoch, index, by);
            else
                td__loader_seek(l, epoch, index);
            for (int k = 0; k < 1 + round % 4; k++) {
                uint64_t of = epoch + (uint64_t)((index + k * by) / PER_EPOCH);
                int64_t at = (index + k * by) % PER_EPOCH;
                CHECK(td__loader_is_at(l, of, at) && !td__loader_is_at(l, of, at + 1),
                      "batch %lld of epoch %llu", (long long)at, (unsigned long long)of);
                CHECK_OK(td__loader_next(l, &b));
                CHECK_EQ_INT(b->epoch, of);
                CHECK_EQ_INT(b->index, at);
                for (int64_t i = 0; i < b->rows; i++)
                    CHECK_EQ_INT(((int64_t *)b->field[0])[i],
                                 td__loader_sample(l, b->epoch, b->index * BATCH + i));
            }
        }
        td__loader_destroy(l);
    }
    td__dataset_destroy(d);
}

TEST(once_drop_last_and_empty)
{
    td__dataset *d = make_numbers(25);
    const td__batch *b;
    td__loader *l;

    CHECK_OK(
        td__loader_create(d, &(td__loader_opts){.batch = 10, .drop_last = true, .epochs = 1}, &l));
    CHECK_EQ_INT(td__loader_batches(l), 2);
    for (int round = 0; round < 2; round++) {
        for (int k = 0; k < 2; k++) {
            CHECK_OK(td__loader_next(l, &b));
            CHECK_EQ_INT(b->rows, 10);
            CHECK_EQ_INT(((int64_t *)b->field[0])[0], k * 10); /* no shuffle: file order */
        }
        for (int k = 0; k < 2; k++) {
            CHECK_OK(td__loader_next(l, &b));
            assert_null(b);
        }
        td__loader_seek(l, 5, 0);
    }
    td__loader_destroy(l);
    CHECK_STATUS(td__loader_create(d, &(td__loader_opts){.batch = 26, .drop_last = true}, &l),
                 TD_EINVAL);
    CHECK_STATUS(td__loader_create(d, &(td__loader_opts){.batch = 0}, &l), TD_EINVAL);
    CHECK_STATUS(td__loader_create(d, &(td__loader_opts){.batch = 1, .prefetch = -2}, &l),
                 TD_EINVAL);
    td__dataset_destroy(d);

    d = make_numbers(0);
    CHECK_STATUS(td__loader_create(d, &(td__loader_opts){.batch = 4}, &l), TD_EINVAL);
    CHECK_OK(td__loader_create(d, &(td__loader_opts){.batch = 4, .epochs = 1}, &l));
    CHECK_OK(td__loader_next(l, &b));
    assert_null(b);
    td__loader_destroy(l);
    td__dataset_destroy(d);
}

TEST(errors_reach_the_reader)
{
    td__dataset *d = make_numbers(40);
    const td__batch *b;

    ((numbers *)d)->fail_at = 25;
    for (int prefetch = -1; prefetch < 2; prefetch++) {
        td__loader *l;
        CHECK_OK(td__loader_create(d, &(td__loader_opts){.batch = 10, .prefetch = prefetch}, &l));
        CHECK_OK(td__loader_next(l, &b));
        CHECK_OK(td__loader_next(l, &b));
        assert_int_equal(td__loader_next(l, &b), TD_EIO);
        assert_null(b);
        CHECK_OK(td__loader_next(l, &b)); /* the batch after it */
        CHECK_EQ_INT(b->index, 3);
        td__loader_destroy(l);
    }
    td__dataset_destroy(d);
}

/* Worker `w` of `workers` reads its share of the rows of each batch. */
typedef struct share {
    int worker, workers;
} share;

static td__row_range rows_of_share(const void *user, int64_t index, int64_t rows)
{
    const share *s = user;
    (void)index;
    return (td__row_range){rows * s->worker / s->workers, rows * (s->worker + 1) / s->workers};
}

TEST(rows_of_a_batch_may_be_read_alone)
{
    td__dataset *d = make_numbers(25);
    for (int workers = 1; workers <= 12; workers += 3)
        for (int worker = 0; worker < workers; worker++) {
            share mine = {worker, workers};
            td__loader_opts o = {
                .batch = 10, .shuffle = true, .seed = 3, .prefetch = worker % 3 - 1};
            td__loader *all, *some;
            const td__batch *a, *b;
            CHECK_OK(td__loader_create(d, &o, &all));
            o.rows = rows_of_share;
            o.rows_user = &mine;
            CHECK_OK(td__loader_create(d, &o, &some));
            for (int k = 0; k < 7; k++) {
                CHECK_OK(td__loader_next(all, &a));
                CHECK_OK(td__loader_next(some, &b));
                td__row_range want = rows_of_share(&mine, k, a->rows);
                CHECK(a->here.begin == 0 && a->here.end == a->rows, "all rows");
                CHECK(b->rows == a->rows && b->index == a->index && b->epoch == a->epoch &&
                          b->here.begin == want.begin && b->here.end == want.end,
                      "batch %d", k);
                for (int64_t i = want.begin; i < want.end; i++)
                    CHECK_EQ_INT(((int64_t *)b->field[0])[i - want.begin],
                                 ((int64_t *)a->field[0])[i]);
            }
            td__loader_destroy(all);
            td__loader_destroy(some);
        }
    td__dataset_destroy(d);
}

/* How often each sample is seen by all workers together in one epoch. */
static void count_views(td__dataset *d, td__partition p, int *seen, int64_t *sizes)
{
    for (p.worker = 0; p.worker < p.workers; p.worker++) {
        const td__batch *b;
        td__loader *l;
        CHECK_OK(td__loader_create(
            d,
            &(td__loader_opts){.batch = 4, .shuffle = true, .epochs = 1, .seed = 1, .partition = p},
            &l));
        sizes[p.worker] = 0;
        for (;;) {
            CHECK_OK(td__loader_next(l, &b));
            if (!b)
                break;
            sizes[p.worker] += b->rows;
            for (int64_t i = 0; i < b->rows; i++)
                seen[((int64_t *)b->field[0])[i]]++;
        }
        td__loader_destroy(l);
    }
}

TEST(partitions_cover_the_data)
{
    enum { N = 101, WORKERS = 4 };
    static const double WEIGHTS[WORKERS] = {1, 0, 2, 1};
    static const int64_t WANT[TD_PARTITION_COUNT][WORKERS] = {
        {25, 25, 25, 26}, {25, 0, 51, 25}, {25, 25, 25, 26}, {26, 25, 25, 25}, {N, N, N, N}};
    td__dataset *d = make_numbers(N);

    for (int mode = 0; mode < TD_PARTITION_COUNT; mode++) {
        int seen[N] = {0}, distinct = 0;
        int64_t sizes[WORKERS];
        count_views(d,
                    (td__partition){.mode = (td__partition_mode)mode,
                                    .workers = WORKERS,
                                    .field = 1,
                                    .weights = WEIGHTS},
                    seen, sizes);
        for (int w = 0; w < WORKERS; w++)
            CHECK(sizes[w] == WANT[mode][w], "%s: worker %d sees %lld",
                  td__partition_name((td__partition_mode)mode), w, (long long)sizes[w]);
        for (int i = 0; i < N; i++) {
            distinct += seen[i] > 0;
            CHECK(mode == TD_PARTITION_REPLACEMENT ||
                      seen[i] == (mode == TD_PARTITION_FEATURES ? WORKERS : 1),
                  "%s: sample %d is seen %d times", td__partition_name((td__partition_mode)mode), i,
                  seen[i]);
        }
        /* 1 - 1/e of all are expected: 64 of 101 */
        CHECK(mode != TD_PARTITION_REPLACEMENT || (distinct > 45 && distinct < 85), "%d", distinct);
    }
    td__dataset_destroy(d);
}

TEST(features_are_dealt_out_in_ranges)
{
    enum { N = 11, WORKERS = 3 };
    static const int BEGIN[WORKERS + 1] = {0, 2, 4, 7};
    td__dataset *d = make_numbers(N);
    const td__batch *b;
    td__loader *l;

    for (int w = 0; w < WORKERS; w++) {
        td__partition p = {TD_PARTITION_FEATURES, w, WORKERS, NULL, 1};
        CHECK_OK(td__loader_create(d, &(td__loader_opts){.batch = N, .partition = p}, &l));
        int64_t width = td__loader_field(l, 1)->shape.dim[0];
        CHECK_EQ_INT(width, BEGIN[w + 1] - BEGIN[w]);
        CHECK_OK(td__loader_next(l, &b));
        for (int64_t i = 0; i < N * width; i++)
            CHECK_EQ_INT(((int32_t *)b->field[1])[i], i / width + BEGIN[w] + i % width);
        td__loader_destroy(l);
    }
    const td__partition BAD[] = {
        {TD_PARTITION_FEATURES, 0, 8, NULL, 1},
        {TD_PARTITION_FEATURES, 0, 2, NULL, 0},
        {TD_PARTITION_FEATURES, 0, 2, NULL, 2},
        {TD_PARTITION_EVEN, 2, 2, NULL, 0},
        {TD_PARTITION_WEIGHTED, 0, 2, NULL, 0},
        {TD_PARTITION_COUNT, 0, 2, NULL, 0},
        {TD_PARTITION_EVEN, -1, 2, NULL, 0},
        {TD_PARTITION_EVEN, 0, -2, NULL, 0},
        {TD_PARTITION_WEIGHTED, 0, 2, (const double[]){0, 0}, 0},
        {TD_PARTITION_WEIGHTED, 0, 2, (const double[]){1, -1}, 0},
    };
    for (int i = 0; i < TD_LEN(BAD); i++)
        CHECK_STATUS(td__loader_create(d, &(td__loader_opts){.batch = 4, .partition = BAD[i]}, &l),
                     TD_EINVAL);
    td__dataset_destroy(d);
}

static td__row_range quarter(const void *user, int64_t index, int64_t rows)
{
    int w = *(const int *)user;
    (void)index;
    return (td__row_range){rows * w / 4, rows * (w + 1) / 4};
}

/* Workers read their rows of common batches from samples of their own. */
TEST(partitions_in_step)
{
    enum { N = 96, WORKERS = 4, BATCH = 8, EACH = N / WORKERS };
    static const double WEIGHTS[WORKERS] = {1, 2, 1, 4};
    static const int FROM[WORKERS + 1] = {0, 12, 36, 48, N};
    td__dataset *d = make_numbers(N);

    for (int mode = 0; mode < TD_PARTITION_COUNT; mode++) {
        int seen[N] = {0};
        for (int w = 0; w < WORKERS; w++) {
            td__loader *l;
            const td__batch *b;
            td__loader_opts o = {.batch = BATCH,
                                 .shuffle = true,
                                 .seed = 5,
                                 .prefetch = -1,
                                 .in_step = true,
                                 .rows = quarter,
                                 .rows_user = &w,
                                 .partition = {(td__partition_mode)mode, w, WORKERS, WEIGHTS, 1}};
            CHECK_OK(td__loader_create(d, &o, &l));
            CHECK_EQ_INT(td__loader_batches(l), N / BATCH);
            CHECK_EQ_INT(td__loader_field(l, 1)->shape.dim[0], WIDTH);
            for (int k = 0; k < N / BATCH; k++) {
                CHECK_OK(td__loader_next(l, &b));
                CHECK_EQ_INT(b->here.end - b->here.begin, BATCH / WORKERS);
                for (int i = 0; i < BATCH / WORKERS; i++) {
                    int64_t at = ((int64_t *)b->field[0])[i];
                    const int32_t *x = (int32_t *)b->field[1] + (int64_t)i * WIDTH;
                    seen[at]++;
                    CHECK(mode != TD_PARTITION_EVEN || at / EACH == w, "%d has %lld", w,
                          (long long)at);
                    CHECK(mode != TD_PARTITION_WEIGHTED || (FROM[w] <= at && at < FROM[w + 1]),
                          "%d has %lld", w, (long long)at);
                    for (int j = 0; j < WIDTH; j++) {
                        bool own = mode != TD_PARTITION_FEATURES ||
                                   (j >= WIDTH * w / WORKERS && j < WIDTH * (w + 1) / WORKERS);
                        CHECK_EQ_INT(x[j], own ? at + j : 0);
                    }
                }
            }
            td__loader_destroy(l);
        }
        for (int i = 0; i < N && mode != TD_PARTITION_REPLACEMENT; i++)
            CHECK(mode == TD_PARTITION_WEIGHTED
                      ? i < 12 || (36 <= i && i < 48) ? seen[i] == 2 : seen[i] <= 1
                      : seen[i] == 1,
                  "mode %d: sample %d is seen %d times", mode, i, seen[i]);
    }
    td__dataset_destroy(d);
}

/* All 120 orders of 5 samples, and all 24 of 4 (of which the fast way has the even half more
 * often), within four standard deviations. */
TEST(uniform_orders)
{
    for (int n = 3; n <= 5; n++) {
        enum { DRAWN = 24000 };
        int count[120] = {0}, orders = n == 3 ? 6 : n == 4 ? 24 : 120;
        for (uint64_t e = 0; e < DRAWN; e++) {
            td__permute p;
            int place[5], rank = 0;
            td__permute_init_uniform(&p, n, 3, TD__STREAM_ORDER, e);
            for (int i = 0; i < n; i++)
                place[i] = (int)td__permute_at(&p, i);
            for (int i = 0; i < n; i++) {
                int less = 0;
                for (int k = i + 1; k < n; k++)
                    less += place[k] < place[i];
                rank = rank * (n - i) + less;
            }
            count[rank]++;
        }
        double mean = (double)DRAWN / orders, most = 0;
        for (int i = 0; i < orders; i++)
            most = fabs(count[i] - mean) > most ? fabs(count[i] - mean) : most;
        CHECK(most < 4 * sqrt(mean), "%d samples: an order is %g times off the mean %g", n, most,
              mean);
    }
    for (int64_t n = 1; n < 300; n += 7) { /* a permutation at all */
        td__permute p;
        bool seen[300] = {false};
        td__permute_init_uniform(&p, n, 9, TD__STREAM_ORDER, 2);
        for (int64_t i = 0; i < n; i++) {
            int64_t at = td__permute_at(&p, i);
            CHECK(at >= 0 && at < n && !seen[at], "%d of %d", (int)at, (int)n);
            seen[at] = true;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(uniform_orders),
        cmocka_unit_test(every_epoch_is_a_permutation),
        cmocka_unit_test(orders_differ_by_epoch_and_seed),
        cmocka_unit_test(prefetching_changes_nothing),
        cmocka_unit_test(seek_equals_reading_through),
        cmocka_unit_test(once_drop_last_and_empty),
        cmocka_unit_test(errors_reach_the_reader),
        cmocka_unit_test(rows_of_a_batch_may_be_read_alone),
        cmocka_unit_test(partitions_cover_the_data),
        cmocka_unit_test(features_are_dealt_out_in_ranges),
        cmocka_unit_test(partitions_in_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
