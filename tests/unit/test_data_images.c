/* Stages over images, against values by hand; archives that are wrong. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/check.h"
#include "data/map.h"
#include "data/sources/tar.h"
#include "support/check.h"
#include "support/sources.h"
#include "tandem/data.h"

enum { C = 3, H = 2, W = 4 };

static const uint8_t PIXELS[C * H * W] = {10, 20, 30, 40, 50, 60,  70,  80,  5,   5,   5,   5,
                                          5,  5,  5,  5,  90, 100, 110, 120, 130, 140, 150, 160};

/* One image through a stage; draw: as in training. */
static void through(const char *stage, const td_map_opts *o, bool draw, uint8_t *out, size_t n)
{
    const td_field f = {.name = "x", .dtype = TD_U8, .shape = TD_SHAPE(C, H, W)};
    const void *data[] = {PIXELS};
    td_dataset *all, *mapped, *order;
    const td_batch *b;

    CHECK_OK(td_dataset_memory(&f, data, 1, 1, &all));
    CHECK_OK(td_dataset_map(all, stage, o, &mapped));
    CHECK_OK(td_dataset_shuffle(mapped, 7, &order));
    CHECK_OK(td_dataset_next(draw ? order : mapped, &b));
    td_field got = td_dataset_field(mapped, 0);
    CHECK_EQ_INT(td_shape_count(&got.shape), n);
    memcpy(out, b->field[0], n);
    td_dataset_destroy(order);
    td_dataset_destroy(mapped);
    td_dataset_destroy(all);
}

TEST(resize_halves)
{
    uint8_t y[C * 1 * 2];

    /* Half as large with a triangle two pixels wide: weights 3, 3, 1 of 7 at the left edge, and
     * 1, 3, 3 at the right; downwards both rows count alike. */
    through("resize", &(td_map_opts){.size = 1, .width = 2}, false, y, sizeof y);
    const int left = (3 * 10 + 3 * 20 + 30 + 3) / 7, left_below = (3 * 50 + 3 * 60 + 70 + 3) / 7;
    CHECK_EQ_INT(y[0], (left + left_below + 1) / 2);
    CHECK_EQ_INT(y[2], 5);
    CHECK_EQ_INT(y[3], 5);
    uint8_t same[C * H * W];
    through("resize", &(td_map_opts){.size = H, .width = W}, false, same, sizeof same);
    assert_memory_equal(same, PIXELS, sizeof same);
}

TEST(grey_formula)
{
    uint8_t y[H * W];

    through("grey", NULL, false, y, sizeof y);
    for (int p = 0; p < H * W; p++) {
        double want = 0.299 * PIXELS[p] + 0.587 * PIXELS[8 + p] + 0.114 * PIXELS[16 + p];
        CHECK(y[p] > want - 0.51 && y[p] < want + 0.51, "pixel %d: %d, not %g", p, y[p], want);
    }
}

TEST(color_draws_in_training_alone)
{
    uint8_t y[sizeof PIXELS], again[sizeof PIXELS];
    const td_map_opts o = {.brightness = 0.5, .contrast = 0.5};

    through("color", &o, false, y, sizeof y);
    assert_memory_equal(y, PIXELS, sizeof y);
    through("color", &o, true, y, sizeof y);
    through("color", &o, true, again, sizeof again);
    assert_memory_equal(y, again, sizeof y);
    assert_memory_not_equal(y, PIXELS, sizeof y);
    for (int p = 1; p < 8; p++) /* what was brighter stays so */
        CHECK(y[p] >= y[p - 1], "pixel %d", p);
}

TEST(stages_refuse)
{
    const td_field f = {.name = "x", .dtype = TD_F32, .shape = TD_SHAPE(3)};
    const float x[3] = {0};
    const void *data[] = {x};
    static const char *const STAGES[] = {"resize", "grey", "color"};
    td_dataset *all, *d;

    CHECK_OK(td_dataset_memory(&f, data, 1, 1, &all));
    for (int i = 0; i < TD_LEN(STAGES); i++) {
        CHECK_STATUS(td_dataset_map(all, STAGES[i], &(td_map_opts){.size = 2}, &d), TD_EINVAL);
        CHECK(strstr(td_last_error(), "not an image of bytes"), "%s", td_last_error());
    }
    td_dataset_destroy(all);
}

/* ---- Archives -------------------------------------------------------------------------------- */

enum { BLOCK = 512 };

static void header(uint8_t *h, const char *name, const char *size, char kind)
{
    unsigned sum = 0;

    memset(h, 0, BLOCK);
    snprintf((char *)h, 100, "%s", name);
    snprintf((char *)h + 124, 12, "%s", size);
    h[156] = (uint8_t)kind;
    memset(h + 148, ' ', 8);
    for (int i = 0; i < BLOCK; i++)
        sum += h[i];
    snprintf((char *)h + 148, 8, "%06o", sum);
}

TEST(tar_files_and_names)
{
    uint8_t a[7 * BLOCK] = {0};
    td__tar t = {.data = a, .nbytes = sizeof a, .where = "it"};
    bool end;

    header(a, "a.cls", "00000000002", '0');
    memcpy(a + BLOCK, "7\n", 2);
    header(a + 2 * BLOCK, "folder", "00000000000", '5');
    header(a + 3 * BLOCK, "long", "00000000010", 'L');
    memcpy(a + 4 * BLOCK, "b/cd.jpg", 8);
    header(a + 5 * BLOCK, "short", "00000000000", '0');
    CHECK_OK(td__tar_next(&t, &end));
    CHECK(!end && !strcmp(t.name, "a.cls") && t.file_nbytes == 2 && t.file[0] == '7', "%s", t.name);
    CHECK_OK(td__tar_next(&t, &end));
    CHECK(!end && !strcmp(t.name, "b/cd.jpg") && t.file_nbytes == 0, "%s", t.name);
    CHECK_OK(td__tar_next(&t, &end));
    assert_true(end);
}

/* A pax header that says no name, as Python's of a time with a fraction, leaves the file's. */
TEST(tar_pax_names)
{
    uint8_t a[9 * BLOCK] = {0};
    td__tar t = {.data = a, .nbytes = sizeof a, .where = "it"};
    bool end;

    header(a, "a.png", "00000000000", '0');
    header(a + BLOCK, "PaxHeader/b.png", "00000000021", 'x');
    memcpy(a + 2 * BLOCK, "17 mtime=1700.25\n", 17);
    header(a + 3 * BLOCK, "b.png", "00000000000", '0');
    header(a + 4 * BLOCK, "PaxHeader/c.png", "00000000017", 'x');
    memcpy(a + 5 * BLOCK, "15 path=c/d.pn\n", 15);
    header(a + 6 * BLOCK, "c.png", "00000000000", '0');
    for (int i = 0; i < 3; i++) {
        CHECK_OK(td__tar_next(&t, &end));
        CHECK(!end && !strcmp(t.name, (const char *[]){"a.png", "b.png", "c/d.pn"}[i]), "%s",
              t.name);
    }
}

TEST(tar_wrong)
{
    uint8_t a[2 * BLOCK] = {0};
    td__tar t = {.data = a, .nbytes = sizeof a, .where = "it"};
    bool end;

    header(a, "a", "77777777777", '0');
    CHECK_STATUS(td__tar_next(&t, &end), TD_EPROTO);
    CHECK(strstr(td_last_error(), "it ends within the file"), "%s", td_last_error());
    t.at = 0;
    header(a, "a", "00000000001", '0');
    a[3]++;
    CHECK_STATUS(td__tar_next(&t, &end), TD_EPROTO);
    t.at = 0;
    t.nbytes = 100;
    CHECK_STATUS(td__tar_next(&t, &end), TD_EPROTO);
    t.nbytes = 0;
    CHECK_OK(td__tar_next(&t, &end));
    assert_true(end);
}

TEST(webdataset_without_labels)
{
    uint8_t a[2 * BLOCK] = {0};
    const char *dir = check_tmpdir();
    td__source_opts o = {.dir = dir, .train = "a.tar", .size = 4};

    header(a, "x.png", "00000000003", '0');
    check_write_file(check_path("a.tar"), a, sizeof a);
    source_refused("webdataset", &o, "train", TD_EPROTO, "there is no x.cls beside it");
    source_refused("webdataset", &o, "valid", TD_ENOTSUP, "valid");
    o.train = "a-{0..1}.tar";
    source_refused("webdataset", &o, "train", TD_EINVAL, "a-0.tar: No such file");
    o = (td__source_opts){.dir = dir, .size = 4};
    source_refused("images", &o, "train", TD_EINVAL, "0 folders; expected a folder with a folder");
    check_tmpdir_remove();
}

/* Labels of a folder are there without its images: these are none. A sample's name is its file. */
TEST(labels_and_names_without_images)
{
    static const char *const FOLDERS[] = {"ash", "oak"};
    static const td__map_opts MAPS[] = {{.name = "flip"}, {.name = "normalize", .a = 0.5, .b = 1}};
    char path[64];
    int32_t y[6];
    const char *dir = check_tmpdir();
    td__data *d;

    for (int k = 0; k < 2; k++) {
        CHECK(mkdir(check_path(FOLDERS[k]), 0777) == 0, "%s", FOLDERS[k]);
        for (int i = 0; i < 3; i++) {
            snprintf(path, sizeof path, "%s/%d.png", FOLDERS[k], i);
            check_write_file(check_path(path), "junk", 4);
        }
    }
    td__data_opts o = {.source = "images",
                       .source_opts = {.train = dir, .size = 4},
                       .valid_fraction = 0.5,
                       .order = "file",
                       .maps = MAPS,
                       .n_maps = 2};
    CHECK_OK(td__data_open(&o, &d));
    for (int part = TD_PART_TRAIN; part <= TD_PART_VALID; part++) {
        td__dataset *p = td__data_part(d, (td__part)part);
        CHECK_EQ_INT(p->count, 3);
        CHECK_OK(td__dataset_read_field(p, 1, (int64_t[]){2, 0}, 2, y));
        CHECK(y[0] == part && y[1] == part, "%s: %d, %d", FOLDERS[part], y[0], y[1]);
        snprintf(path, sizeof path, "%s/2.png", FOLDERS[part]);
        const char *name = td__dataset_name(p, 2);
        CHECK(name && strcmp(name, check_path(path)) == 0, "%s", name ? name : "no name");
        float x[3 * 4 * 4];
        CHECK(td__dataset_read_field(p, 0, (int64_t[]){2}, 1, x) == TD_ENOTSUP, "an image");
        CHECK(td__dataset_read(p, (int64_t[]){2}, 1, NULL, (void *[]){x, y}), "junk was decoded");
    }
    td__data_close(d);
    check_tmpdir_remove();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resize_halves),
        cmocka_unit_test(grey_formula),
        cmocka_unit_test(color_draws_in_training_alone),
        cmocka_unit_test(stages_refuse),
        cmocka_unit_test(tar_files_and_names),
        cmocka_unit_test(tar_pax_names),
        cmocka_unit_test(tar_wrong),
        cmocka_unit_test(labels_and_names_without_images),
        cmocka_unit_test(webdataset_without_labels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
