/* The digest of a part (data/digest/data_digest.h): of small parts every sample counts, of large
 * ones their number and the samples of evenly spaced blocks; images count as their files have them;
 * digests that older programs wrote are still understood. What is hashed is computed here once
 * more. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/sha256.h"
#include "data/data.h"
#include "data/fit_json.h"
#include "support/check.h"
#include "support/golden_json.h"
#include "tandem/tensor.h"

enum { ROWS = 30000, WIDTH = 8, BLOCKS = 256, EACH = (WIDTH + 1) * 4 };

static float x[ROWS + 1][WIDTH];
static int64_t y[ROWS + 1];

/* An array of rows (n, WIDTH) and a class of each. */
static void write_rows(int64_t n)
{
    td_tensor tx, ty;

    CHECK_OK(td_tensor_wrap(&tx, TD_F32, TD_SHAPE(n, WIDTH), x));
    CHECK_OK(td_tensor_wrap(&ty, TD_I64, TD_SHAPE(n), y));
    td_named_tensor items[] = {{"x", &tx}, {"y", &ty}};
    CHECK_OK(td_npz_save(check_path("a.npz"), items, 2, false));
}

static td__data_opts rows(uint64_t hash_whole)
{
    td__data_opts o = {.source = "npy",
                       .source_opts = {.dir = check_tmpdir(), .train = "a.npz"},
                       .hash_whole = hash_whole};

    for (int64_t i = 0; i <= ROWS; i++) {
        for (int k = 0; k < WIDTH; k++)
            x[i][k] = (float)(i * 7 % 1000 + k);
        y[i] = i % 3;
    }
    write_rows(ROWS);
    return o;
}

/* The fit of a job's data, as JSON. */
static json_t *fit_of(const td__data_opts *o)
{
    td__text text = {0};
    json_error_t error;
    td__data *d;

    CHECK_OK(td__data_open(o, &d));
    CHECK_OK(td__data_fit(d, &text));
    td__data_close(d);
    json_t *root = json_loadb(text.data, text.used, 0, &error);
    CHECK(root, "%s", error.text);
    td__text_fini(&text);
    return root;
}

static json_t *train_of(const json_t *fit)
{
    return json_object_get(golden_get(fit, "parts"), "train");
}

/* What has changed since; "" if nothing. In one buffer. */
static const char *changed(const td__data_opts *opts, const json_t *root)
{
    static char what[128];
    char *text = json_dumps(root, 0);
    td__data_opts o = *opts;
    td__fit *fit;
    td__data *d;
    bool is;

    CHECK_OK(td__fit_parse(text, strlen(text), "fit", &fit));
    o.fit = fit;
    CHECK_OK(td__data_open(&o, &d));
    CHECK_OK(td__data_changed(d, fit, &is, what, sizeof what));
    CHECK(is == (*what != 0), "'%s'", what);
    td__data_close(d);
    td__fit_destroy(fit);
    free(text);
    return what;
}

static int64_t block_begin(int64_t b)
{
    return (int64_t)((double)(ROWS - 1) * (double)b / BLOCKS);
}

/* Rows [begin, end) as they are read: up to 64 at a time, field after field. */
static void hash_range(td__sha256 *h, int64_t begin, int64_t end)
{
    for (; begin < end; begin += 64) {
        int64_t last = begin + 64 < end ? begin + 64 : end;
        td__sha256_update(h, x[begin], (size_t)(last - begin) * sizeof x[0]);
        for (int64_t i = begin; i < last; i++)
            td__sha256_update(h, &(int32_t){(int32_t)y[i]}, 4);
    }
}

/* The digest by its description; block 0: of all rows. */
static void digest(int64_t block, char hex[TD_SHA256_HEX])
{
    uint8_t bytes[TD_SHA256_BYTES];
    td__sha256 h;

    CHECK_OK(td__sha256_init(&h));
    td__sha256_update(&h, "x\0y", 4);
    if (!block)
        hash_range(&h, 0, ROWS);
    for (int64_t b = 0; b < BLOCKS && block; b++) {
        int64_t begin = block_begin(b), end = begin + block;
        hash_range(&h, begin, end < ROWS ? end : ROWS);
    }
    if (block)
        hash_range(&h, ROWS - block, ROWS);
    td__sha256_final(&h, bytes);
    td__sha256_hex(bytes, hex);
}

/* By default all of it, up to 1 GB. */
TEST(whole)
{
    td__data_opts o = rows(0);
    json_t *fit = fit_of(&o);
    char want[TD_SHA256_HEX];

    digest(0, want);
    CHECK(json_is_true(golden_get(train_of(fit), "whole")), "not whole");
    assert_string_equal(golden_text(train_of(fit), "sha256"), want);
    assert_string_equal(changed(&o, fit), "");
    for (int64_t i = 0; i < ROWS; i += ROWS / 3 - 1) {
        x[i][WIDTH - 1]++;
        write_rows(ROWS);
        assert_string_equal(changed(&o, fit), "the samples of the train part are others");
        x[i][WIDTH - 1]--;
    }
    json_decref(fit);
    check_tmpdir_remove();
}

/* The limit is in bytes of samples. */
TEST(limit)
{
    for (int more = 0; more < 2; more++) {
        td__data_opts o = rows((uint64_t)ROWS * EACH - 1 + (uint64_t)more);
        json_t *fit = fit_of(&o);
        CHECK(json_is_true(golden_get(train_of(fit), "whole")) == (more == 1), "%d", more);
        json_decref(fit);
        check_tmpdir_remove();
    }
}

/* Above it: the number of samples, and blocks of them. */
TEST(sampled)
{
    td__data_opts o = rows(1000);
    json_t *fit = fit_of(&o);
    int64_t block = golden_int(train_of(fit), "block");
    char want[TD_SHA256_HEX];

    CHECK(!json_is_true(golden_get(train_of(fit), "whole")), "whole");
    CHECK(block * EACH <= 1 << 18 && (block + 1) * EACH > 1 << 18, "%d samples", (int)block);
    digest(block, want);
    assert_string_equal(golden_text(train_of(fit), "sha256"), want);
    assert_string_equal(changed(&o, fit), "");
    write_rows(ROWS + 1);
    assert_string_equal(changed(&o, fit), "the train part has 30001 samples, not 30000");
    json_decref(fit);
    check_tmpdir_remove();
}

/* A digest with blocks of `block` samples: a changed row is noticed exactly where it is in one, a
 * changed range wherever it is as long as two blocks are apart. Without "block" it is one of older
 * programs, with one sample each. */
TEST(changes_between_blocks)
{
    td__data_opts o = rows(1000);
    json_t *fit = fit_of(&o), *train = train_of(fit);
    const int64_t apart = ROWS / BLOCKS + 1;
    char want[TD_SHA256_HEX];

    for (int64_t block = 1; block <= 20; block += 19) {
        write_rows(ROWS);
        digest(block, want);
        json_object_set_new(train, "sha256", json_string(want));
        if (block == 1)
            json_object_del(train, "block");
        else
            json_object_set_new(train, "block", json_integer(block));
        assert_string_equal(changed(&o, fit), "");
        for (int64_t b = 0; b < BLOCKS; b += 85) {
            const int64_t at[] = {block_begin(b), block_begin(b) + block - 1,
                                  block_begin(b) + block, block_begin(b + 1) - 1};
            for (int k = 0; k < TD_LEN(at); k++) {
                bool last = at[k] >= ROWS - block;
                x[at[k]][3]++;
                write_rows(ROWS);
                bool noticed = *changed(&o, fit);
                CHECK(noticed == (k < 2 || last), "block %d of %d samples: row %d", (int)b,
                      (int)block, (int)at[k]);
                x[at[k]][3]--;
            }
        }
        for (int64_t begin = 17; begin + apart < ROWS; begin += ROWS / 5) {
            for (int64_t i = begin; i < begin + apart; i++)
                y[i] = 2 - y[i];
            for (int64_t i = begin; i < begin + apart; i++)
                x[i][5] += 100;
            write_rows(ROWS);
            assert_string_equal(changed(&o, fit), "the samples of the train part are others");
            for (int64_t i = begin; i < begin + apart; i++) {
                y[i] = 2 - y[i];
                x[i][5] -= 100;
            }
        }
    }
    /* A description that nobody wrote: an error or a change, never a block beyond the samples. */
    json_object_set_new(train, "block", json_integer(INT64_MAX));
    assert_string_equal(changed(&o, fit), "the samples of the train part are others");
    json_object_set_new(train, "block", json_integer(-5));
    assert_string_equal(changed(&o, fit), "the samples of the train part are others");
    json_decref(fit);
    check_tmpdir_remove();
}

/* ---- Images ---------------------------------------------------------------------------------- */

static void copy_image(const char *from, const char *to)
{
    char path[128];
    size_t nbytes;

    snprintf(path, sizeof path, "tests/golden/images/%s", from);
    void *data = check_read_file(path, &nbytes);
    check_write_file(check_path(to), data, nbytes);
    free(data);
}

static td__data_opts images(void)
{
    static const char *const FOLDERS[] = {"train", "train/cat", "train/dog"};
    td__data_opts o = {.source = "images", .source_opts = {.dir = check_tmpdir(), .size = 8}};

    for (int i = 0; i < TD_LEN(FOLDERS); i++)
        CHECK(!mkdir(check_path(FOLDERS[i]), 0700), "%s", FOLDERS[i]);
    copy_image("rgb.png", "train/cat/1.png");
    copy_image("palette.png", "train/cat/2.png");
    copy_image("420.jpg", "train/dog/1.jpg");
    return o;
}

/* As older programs had it: of the samples that images are decoded to. */
static void decoded_digest(const td__data_opts *o, char hex[TD_SHA256_HEX])
{
    uint8_t bytes[TD_SHA256_BYTES], pixels[3][8 * 8 * 3];
    int32_t label[3];
    td__data *d;
    td__sha256 h;

    CHECK_OK(td__data_open(o, &d));
    CHECK_OK(td__dataset_read(td__data_source_part(d, TD_PART_TRAIN), (int64_t[]){0, 1, 2}, 3, NULL,
                              (void *[]){pixels, label}));
    CHECK_OK(td__sha256_init(&h));
    td__sha256_update(&h, "x\0y\0cat\0dog", 12);
    td__sha256_update(&h, pixels, sizeof pixels);
    td__sha256_update(&h, label, sizeof label);
    td__sha256_final(&h, bytes);
    td__sha256_hex(bytes, hex);
    td__data_close(d);
}

TEST(images_as_their_files_have_them)
{
    for (int old = 0; old < 2; old++)
        for (int whole = 0; whole < 2; whole++) {
            td__data_opts o = images();
            char want[TD_SHA256_HEX];
            o.hash_whole = whole ? 0 : 10;
            json_t *fit = fit_of(&o), *train = train_of(fit);
            CHECK(json_is_true(golden_get(train, "stored")), "decoded");
            CHECK(json_is_true(golden_get(train, "whole")) == (whole == 1), "%d", whole);
            if (old) {
                decoded_digest(&o, want);
                json_object_del(train, "stored");
                json_object_del(train, "block");
                json_object_set_new(train, "whole", json_true());
                json_object_set_new(train, "sha256", json_string(want));
            }
            assert_string_equal(changed(&o, fit), "");
            copy_image("grey.png", "train/cat/2.png");
            assert_string_equal(changed(&o, fit), "the samples of the train part are others");
            copy_image("palette.png", "train/cat/2.png");
            assert_string_equal(changed(&o, fit), "");
            CHECK(!rename(check_path("train/cat/2.png"), check_path("train/dog/0.png")), "rename");
            assert_string_equal(changed(&o, fit), "the samples of the train part are others");
            json_decref(fit);
            check_tmpdir_remove();
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole),
        cmocka_unit_test(limit),
        cmocka_unit_test(sampled),
        cmocka_unit_test(changes_between_blocks),
        cmocka_unit_test(images_as_their_files_have_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
