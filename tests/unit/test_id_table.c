/* Rows of a table by id: first values, updates, filters, a table larger than its memory, and files
 * by delta, whole, damaged and of other tables. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "graph/init.h"
#include "ps/id_table.h"
#include "support/check.h"

enum { WIDTH = 6, VOCAB = 50 };
static const td_optim_opts SGD = {.name = "sgd"}, ADAGRAD = {.name = "adagrad"};

static td__id_table *table_of(td__id_table_opts o)
{
    td__id_table *t;
    o.name = "emb.weight";
    o.width = WIDTH;
    o.std = 0.5;
    o.seed = 7;
    o.optim = o.optim ? o.optim : &SGD;
    CHECK_OK(td__id_table_create(&o, &t));
    return t;
}

static void pull_one(td__id_table *t, int64_t id, bool train, float *out)
{
    CHECK_OK(td__id_table_pull(t, &id, 1, train, out));
}

/* Gradients that differ for every id and step. */
static void push_one(td__id_table *t, int64_t id, uint64_t step)
{
    float g[WIDTH];
    for (int i = 0; i < WIDTH; i++)
        g[i] = (float)((id * 7 + i * 3 + (int64_t)step) % 11 - 5);
    CHECK_OK(td__id_table_push(t, &id, g, 1, 0.25, step));
}

static void check_equal(const float *a, const float *b, const char *what, int64_t id)
{
    for (int i = 0; i < WIDTH; i++)
        CHECK(a[i] == b[i], "%s: element %d of row %lld is %g, not %g", what, i, (long long)id,
              (double)a[i], (double)b[i]);
}

TEST(rows_begin_as_those_of_an_embedding)
{
    td__id_table *t = table_of((td__id_table_opts){.min_count = 1});
    float all[VOCAB * WIDTH], got[WIDTH];
    td_init init = {.kind = TD_INIT_NORMAL, .b = 0.5};
    CHECK_OK(td__init_fill(&init, &TD_SHAPE(VOCAB, WIDTH), 7, "emb.weight", all));
    for (int64_t k = 0; k < VOCAB; k++) {
        int64_t id = (k * 17) % VOCAB;
        pull_one(t, id, k % 2, got);
        check_equal(got, all + id * WIDTH, "first values", id);
    }
    CHECK_EQ_INT(td__id_table_look(t).rows, VOCAB / 2);
    pull_one(t, INT64_C(99999999999), true, got); /* any id that is not negative */
    td__id_table_destroy(t);
}

TEST(updates_are_those_of_the_optimizer)
{
    td__id_table *t = table_of((td__id_table_opts){.min_count = 0});
    float before[WIDTH], after[WIDTH];
    pull_one(t, 3, true, before);
    push_one(t, 3, 1);
    push_one(t, 4, 1); /* which has no row */
    pull_one(t, 3, true, after);
    for (int i = 0; i < WIDTH; i++)
        CHECK(after[i] == before[i] - 0.25f * (float)((3 * 7 + i * 3 + 1) % 11 - 5),
              "element %d is %g, was %g", i, (double)after[i], (double)before[i]);
    CHECK_EQ_INT(td__id_table_look(t).rows, 1);
    td__id_table_destroy(t);
    td__id_table_opts o = {.name = "x", .width = 2, .optim = &(td_optim_opts){.momentum = 0.9}};
    CHECK_EQ_INT(td__id_table_create(&o, &t), TD_ENOTSUP);
    assert_non_null(strstr(td_last_error(), "momentum"));
}

TEST(filters)
{
    td__id_table *t = table_of((td__id_table_opts){.min_count = 3, .expire = 10});
    float got[WIDTH], zero[WIDTH] = {0};
    for (uint64_t step = 1; step <= 2; step++) {
        for (int worker = 0; worker < 3; worker++) { /* of one batch, in whatever order */
            pull_one(t, 8, true, got);
            check_equal(got, zero, "seen too rarely", 8);
        }
        push_one(t, 8, step);
    }
    pull_one(t, 8, false, got); /* to look is not to use */
    CHECK_EQ_INT(td__id_table_look(t).waiting, 1);
    pull_one(t, 8, true, got);
    CHECK(got[0] != 0, "seen three times, and no row");
    CHECK_EQ_INT(td__id_table_look(t).rows, 1);
    push_one(t, 8, 2);
    CHECK_OK(td__id_table_expire(t, 12));
    CHECK_EQ_INT(td__id_table_look(t).rows, 1);
    CHECK_OK(td__id_table_expire(t, 13));
    CHECK_EQ_INT(td__id_table_look(t).rows, 0);
    CHECK_EQ_INT(td__id_table_look(t).dropped, 1);
    pull_one(t, 8, false, got);
    check_equal(got, zero, "dropped", 8);
    td__id_table_destroy(t);
}

enum { MANY = 5000 };

/* The same updates on both. */
static void train(td__id_table *a, td__id_table *b, uint64_t steps)
{
    unsigned seed = 5;
    float got[WIDTH];
    for (uint64_t step = 1; step <= steps; step++)
        for (int k = 0; k < MANY / 4; k++) {
            int64_t id = (int64_t)((seed = seed * 1103515245U + 12345U) >> 8) % MANY;
            pull_one(a, id, true, got);
            push_one(a, id, step);
            if (!b)
                continue;
            pull_one(b, id, true, got);
            push_one(b, id, step);
        }
}

static void check_same(td__id_table *a, td__id_table *b, const char *what)
{
    float x[WIDTH], y[WIDTH];
    CHECK_EQ_INT(td__id_table_look(a).rows, td__id_table_look(b).rows);
    for (int64_t id = 0; id < MANY; id++) {
        pull_one(a, id, false, x);
        pull_one(b, id, false, y);
        check_equal(x, y, what, id);
    }
}

TEST(a_table_larger_than_its_memory)
{
    td__id_table *all = table_of((td__id_table_opts){.optim = &ADAGRAD});
    td__id_table *few =
        table_of((td__id_table_opts){.optim = &ADAGRAD, .memory = 40000, .spill = check_tmpdir()});
    train(all, few, 12);
    CHECK(td__id_table_look(few).spilled > td__id_table_look(few).rows / 2,
          "%zu rows of %zu in the file", td__id_table_look(few).spilled,
          td__id_table_look(few).rows);
    CHECK_EQ_INT(td__id_table_look(all).spilled, 0);
    check_same(all, few, "spilled");
    td__id_table_destroy(all);
    td__id_table_destroy(few);
    check_tmpdir_remove();
}

static long size_of(const char *path)
{
    struct stat s;
    assert_int_equal(stat(path, &s), 0);
    return (long)s.st_size;
}

static bool even(const void *user, int64_t id)
{
    (void)user;
    return id % 2 == 0;
}

TEST(files_by_delta)
{
    const td__id_table_opts o = {.optim = &ADAGRAD, .expire = 3};
    td__id_table *t = table_of(o), *back = table_of(o), *half = table_of(o);
    float got[WIDTH];
    check_tmpdir();
    char first[512], second[512];
    snprintf(first, sizeof first, "%s", check_path("first"));
    snprintf(second, sizeof second, "%s", check_path("second"));
    train(t, NULL, 4);
    CHECK_OK(td__id_table_save(t, first, 4, false));
    for (int64_t id = 0; id < 10; id++) {
        pull_one(t, id, true, got);
        push_one(t, id, 100);
    }
    CHECK_OK(td__id_table_expire(t, 102)); /* all but these */
    CHECK_EQ_INT(td__id_table_look(t).rows, 10);
    CHECK_OK(td__id_table_save(t, second, 102, false));
    CHECK(size_of(second) < size_of(first) / 2, "a delta of %ld bytes after %ld", size_of(second),
          size_of(first));
    CHECK_OK(td__id_table_load(back, first, NULL, NULL));
    CHECK_OK(td__id_table_load(back, second, NULL, NULL));
    check_same(t, back, "read back");
    CHECK_OK(td__id_table_load(half, first, even, NULL));
    CHECK_OK(td__id_table_load(half, second, even, NULL));
    CHECK_EQ_INT(td__id_table_look(half).rows, 5);
    push_one(t, 4, 103); /* states came along */
    push_one(back, 4, 103);
    check_same(t, back, "after one more push");
    td__id_table_destroy(t);
    td__id_table_destroy(back);
    td__id_table_destroy(half);
    check_tmpdir_remove();
}

TEST(bad_files)
{
    td__id_table *t = table_of((td__id_table_opts){.min_count = 0}), *other;
    float got[WIDTH];
    check_tmpdir();
    const char *path = check_path("table");
    pull_one(t, 1, true, got);
    CHECK_OK(td__id_table_save(t, path, 1, true));
    long n = size_of(path);
    uint8_t *whole = malloc((size_t)n), *bad = malloc((size_t)n);
    FILE *f = fopen(path, "rb");
    assert_int_equal(fread(whole, 1, (size_t)n, f), n);
    fclose(f);
    for (long at = 0; at < n; at += 3) { /* every third byte wrong, then the file cut there */
        memcpy(bad, whole, (size_t)n);
        bad[at] ^= 0x40;
        check_write_file(path, bad, (size_t)n);
        CHECK_EQ_INT(td__id_table_load(t, path, NULL, NULL), TD_EPROTO);
        check_write_file(path, whole, (size_t)at);
        CHECK_EQ_INT(td__id_table_load(t, path, NULL, NULL), TD_EPROTO);
    }
    check_write_file(path, whole, (size_t)n);
    CHECK_OK(td__id_table_load(t, path, NULL, NULL));
    other = table_of((td__id_table_opts){.optim = &ADAGRAD});
    CHECK_EQ_INT(td__id_table_load(other, path, NULL, NULL), TD_EPROTO);
    assert_non_null(strstr(td_last_error(), "another table or optimizer"));
    td__id_table_destroy(other);
    td__id_table_destroy(t);
    free(whole);
    free(bad);
    check_tmpdir_remove();
}

static bool odd(const void *user, int64_t id)
{
    return !even(user, id);
}

/* A copy sees pushes alone, the first table pulls too, and both have the same rows, also of ids
 * that are rare; each saves its own. What one gives, another has, with the counts of the rare. */
TEST(copies)
{
    const td__id_table_opts o = {.optim = &ADAGRAD, .min_count = 3};
    td__id_table *t = table_of(o), *copy = table_of(o), *third = table_of(o);
    float a[WIDTH], b[WIDTH];
    unsigned char room[256];
    size_t nbytes;
    td__id_table_own(t, even, NULL);
    td__id_table_own(copy, odd, NULL);
    for (uint64_t step = 1; step <= 4; step++)
        for (int64_t id = 0; id < VOCAB; id++) {
            if (id % 5 >= (int64_t)step)
                continue;
            pull_one(t, id, true, a);
            push_one(t, id, step);
            push_one(copy, id, step);
        }
    CHECK_EQ_INT(td__id_table_look(copy).rows, td__id_table_look(t).rows);
    CHECK(td__id_table_look(copy).waiting > 0 && td__id_table_look(copy).rows > 0, "nothing rare");
    check_same(t, copy, "a copy");

    for (size_t place = 0;;) {
        CHECK_OK(td__id_table_give(copy, odd, NULL, &place, room, sizeof room, &nbytes));
        if (!nbytes)
            break;
        CHECK_OK(td__id_table_put(third, room, nbytes));
        CHECK_EQ_INT(td__id_table_put(third, room, nbytes - 1), TD_EPROTO);
    }
    CHECK_OK(td__id_table_keep(t, odd, NULL));
    for (int64_t id = 1; id < VOCAB; id += 2) {
        for (int n = 0; n < 3; n++) {
            pull_one(t, id, true, a);
            pull_one(third, id, true, b);
            check_equal(a, b, "given", id);
            push_one(t, id, 9);
            push_one(third, id, 9);
        }
    }
    CHECK_EQ_INT(td__id_table_look(third).rows, VOCAB / 2);
    td__id_table_destroy(t);
    td__id_table_destroy(copy);
    td__id_table_destroy(third);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_begin_as_those_of_an_embedding),
        cmocka_unit_test(updates_are_those_of_the_optimizer),
        cmocka_unit_test(filters),
        cmocka_unit_test(a_table_larger_than_its_memory),
        cmocka_unit_test(files_by_delta),
        cmocka_unit_test(copies),
        cmocka_unit_test(bad_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
