/* Images are decoded, scaled and made grey as Pillow does it, byte for byte: JPEG in all its
 * samplings, PNG with palettes, alpha and single bits, WebP. tests/golden/images/make.py made the
 * files. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/file.h"
#include "data/image/image.h"
#include "support/check.h"

#define FOLDER "tests/golden/images/"
enum { W = 37, H = 29, SMALL_W = 16, SMALL_H = 24 };

static const char *const NAMES[] = {"420.jpg",  "444.jpg",  "progressive.jpg", "grey.jpg",
                                    "cmyk.jpg", "rgb.png",  "rgba.png",        "palette.png",
                                    "grey.png", "bits.png", "lossy.webp",      "lossless.webp"};

static td__file_map map_file(const char *name, const char *end)
{
    char path[256];
    td__file_map m;

    snprintf(path, sizeof path, FOLDER "%s%s", name, end);
    CHECK_OK(td__file_map_open(&m, path));
    return m;
}

static td__image decode(const char *name)
{
    td__file_map m = map_file(name, "");
    td__image out;

    CHECK_OK(td__image_decode(m.data, m.nbytes, name, TD__IMAGE_PIXELS, &out));
    td__file_map_close(&m);
    return out;
}

TEST(decoded)
{
    for (int i = 0; i < TD_LEN(NAMES); i++) {
        td__image m = decode(NAMES[i]);
        td__file_map want = map_file(NAMES[i], ".rgb");
        CHECK(m.width == W && m.height == H, "%s", NAMES[i]);
        CHECK_EQ_INT(want.nbytes, W * H * 3);
        for (int k = 0; k < W * H * 3; k++)
            CHECK(m.rgb[k] == want.data[k], "%s: byte %d is %d, not %d", NAMES[i], k, m.rgb[k],
                  want.data[k]);
        td__file_map_close(&want);
        td__image_fini(&m);
    }
}

TEST(scaled_and_grey)
{
    uint8_t planes[3 * SMALL_W * SMALL_H];

    for (int i = 0; i < TD_LEN(NAMES); i++) {
        td__image m = decode(NAMES[i]);
        td__box box = td__image_middle(&m, SMALL_W, SMALL_H);
        td__file_map want = map_file(NAMES[i], ".scaled"), grey = map_file(NAMES[i], ".grey");
        CHECK_OK(td__image_scale(&m, &box, SMALL_W, SMALL_H, 3, planes));
        for (int p = 0; p < SMALL_W * SMALL_H; p++)
            for (int c = 0; c < 3; c++)
                CHECK(planes[c * SMALL_W * SMALL_H + p] == want.data[p * 3 + c],
                      "%s: pixel %d, colour %d is %d, not %d", NAMES[i], p, c,
                      planes[c * SMALL_W * SMALL_H + p], want.data[p * 3 + c]);
        CHECK_OK(td__image_scale(&m, &box, SMALL_W, SMALL_H, 1, planes));
        assert_memory_equal(planes, grey.data, SMALL_W * SMALL_H);
        td__file_map_close(&grey);
        td__file_map_close(&want);
        td__image_fini(&m);
    }
}

/* Every file cut at every byte: an error with its name, or an image of the right size (what follows
 * the pixels may be missing). */
TEST(cut_short)
{
    for (int i = 0; i < TD_LEN(NAMES); i++) {
        td__file_map whole = map_file(NAMES[i], "");
        int good = 0;
        for (size_t n = 0; n < whole.nbytes; n++) {
            uint8_t *part = td__malloc(n + 1); /* so that a sanitizer sees what lies beyond */
            td__image m;
            assert_non_null(part);
            memcpy(part, whole.data, n);
            td_status st = td__image_decode(part, n, NAMES[i], TD__IMAGE_PIXELS, &m);
            CHECK(st || (m.width == W && m.height == H), "%s", NAMES[i]);
            CHECK(!st || (st == TD_EPROTO && strstr(td_last_error(), NAMES[i])), "%s: %s", NAMES[i],
                  td_last_error());
            good += !st;
            td__image_fini(&m);
            td__free(part);
        }
        CHECK(good < 32, "%s: %d cut files are read", NAMES[i], good);
        td__file_map_close(&whole);
    }
}

TEST(too_large)
{
    td__file_map m = map_file("rgb.png", "");
    td__image out;

    CHECK_STATUS(td__image_decode(m.data, m.nbytes, "rgb.png", W * H - 1, &out), TD_EPROTO);
    CHECK(strstr(td_last_error(), "37 x 29 pixels; at most 1072"), "%s", td_last_error());
    td__file_map_close(&m);
    CHECK_STATUS(td__image_decode((const uint8_t *)"hello", 5, "it", W, &out), TD_EPROTO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(decoded), cmocka_unit_test(scaled_and_grey),
                                       cmocka_unit_test(cut_short), cmocka_unit_test(too_large)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
