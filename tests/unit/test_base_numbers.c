/* Known answers: Philox (Random123's kat_vectors), half precision, sha256 (FIPS 180-2), crc32c
 * (RFC 3720); and properties: exhaustive round trips, moments of the random numbers. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/half.h"
#include "base/rng.h"
#include "base/sha256.h"
#include "support/check.h"

TEST(philox_known_answers)
{
    static const struct {
        uint32_t counter[4], key[2], want[4];
    } CASES[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const uint32_t *c = CASES[i].counter;
        td__rng_key key = {
            .seed = (uint64_t)CASES[i].key[1] << 32 | CASES[i].key[0],
            .stream = c[1],
            .step = c[2],
            .micro_batch = c[3],
        };
        uint32_t got[4];
        td__philox4(&key, c[0], got);
        for (int w = 0; w < 4; w++) {
            CHECK(got[w] == CASES[i].want[w], "case %zu word %d: %08x", i, w, got[w]);
            CHECK_EQ_INT(td__rng_u32(&key, 4 * (uint64_t)c[0] + (uint64_t)w), got[w]);
        }
    }
}

TEST(random_numbers_have_the_right_moments)
{
    enum { N = 200000 };
    td__rng_key key = {.seed = 42, .stream = 1, .step = 2, .micro_batch = 3};
    double u1 = 0, u2 = 0, n1 = 0, n2 = 0, n4 = 0, pairs = 0, before = 0;

    for (uint64_t i = 0; i < N; i++) {
        double u = (double)td__rng_uniform(&key, i), x = (double)td__rng_normal(&key, i);
        CHECK(u >= 0 && u < 1, "uniform %g", u);
        u1 += u;
        u2 += u * u;
        n1 += x;
        n2 += x * x;
        n4 += x * x * x * x;
        pairs += x * before;
        before = x;
    }
    /* Five standard errors of each. */
    CHECK(fabs(u1 / N - 0.5) < 0.0033, "mean of uniforms %g", u1 / N);
    CHECK(fabs(u2 / N - 1.0 / 3) < 0.0034, "second moment of uniforms %g", u2 / N);
    CHECK(fabs(n1 / N) < 0.0112, "mean of normals %g", n1 / N);
    CHECK(fabs(n2 / N - 1) < 0.0159, "variance of normals %g", n2 / N);
    CHECK(fabs(n4 / N - 3) < 0.11, "fourth moment of normals %g", n4 / N);
    CHECK(fabs(pairs / N) < 0.0112, "neighbours correlate: %g", pairs / N);
}

TEST(random_numbers_depend_on_every_part_of_the_key)
{
    td__rng_key base = {.seed = 1, .stream = 1, .step = 1, .micro_batch = 1};
    td__rng_key others[] = {base, base, base, base, base};
    others[0].seed ^= 1;
    others[1].seed ^= UINT64_C(1) << 63;
    others[2].stream ^= 1;
    others[3].step ^= 1;
    others[4].micro_batch ^= 1;
    for (int k = 0; k < 5; k++) {
        int same = 0;
        for (uint64_t i = 0; i < 64; i++)
            same += td__rng_u32(&base, i) == td__rng_u32(&others[k], i);
        CHECK(same == 0, "key variant %d repeats %d of 64 words", k, same);
    }
}

static float from_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

TEST(f16_known_answers)
{
    static const struct {
        float f;
        td_f16 h;
    } CASES[] = {
        {0.0f, 0x0000},           {-0.0f, 0x8000},          {1.0f, 0x3c00},
        {-2.0f, 0xc000},          {65504.0f, 0x7bff},       {65519.996f, 0x7bff},
        {65520.0f, 0x7c00},       {1e10f, 0x7c00},          {-1e10f, 0xfc00},
        {INFINITY, 0x7c00},       {0x1p-14f, 0x0400},       {0x1p-24f, 0x0001},
        {0x1p-25f, 0x0000},       {0x1.8p-25f, 0x0001},     {0x1.8p-24f, 0x0002},
        {0x1.4p-23f, 0x0002},     {0x1.cp-23f, 0x0004},     {0.1f, 0x2e66},
        {1.00048828125f, 0x3c00}, {1.00146484375f, 0x3c02}, {0x1.ffcp-15f, 0x03ff + 1},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        td_f16 got = td__f16_from_f32(CASES[i].f);
        CHECK(got == CASES[i].h, "%a is %04x, not %04x", (double)CASES[i].f, got, CASES[i].h);
    }
}

/* Every f16 and bf16 value comes back from f32 unchanged, NaN as NaN of the same sign; and between
 * neighbours the nearer one is taken, the even one at the middle. */
TEST(halves_round_trip_and_round_to_nearest_even)
{
    for (uint32_t h = 0; h < 0x10000; h++) {
        td_f16 f16 = (td_f16)h;
        float f = td__f16_to_f32(f16), b = td__bf16_to_f32((td_bf16)h);
        if (isnan(f))
            CHECK((h & 0x7c00) == 0x7c00 &&
                      (td__f16_from_f32(f) & 0xfe00) == ((h & 0x8000) | 0x7e00),
                  "f16 NaN %04x", h);
        else
            CHECK(td__f16_from_f32(f) == f16, "f16 %04x gives %04x", h, td__f16_from_f32(f));
        if (isnan(b))
            CHECK(td__bf16_from_f32(b) == (h | 0x40), "bf16 NaN %04x", h);
        else
            CHECK(td__bf16_from_f32(b) == h, "bf16 %04x", h);

        if ((h & 0x7fff) >= 0x7bff)
            continue;
        float next = td__f16_to_f32((td_f16)(h + 1)), middle = (f + next) / 2;
        td_f16 even = (td_f16)(h & 1 ? h + 1 : h);
        CHECK(td__f16_from_f32(middle) == even, "f16 middle above %04x", h);
        CHECK(td__f16_from_f32(nextafterf(middle, f)) == f16, "f16 below middle %04x", h);
        CHECK(td__f16_from_f32(nextafterf(middle, next)) == h + 1, "f16 above middle %04x", h);
    }
    assert_int_equal(td__bf16_from_f32(from_bits(0x3f808000)), 0x3f80); /* ties to even */
    assert_int_equal(td__bf16_from_f32(from_bits(0x3f818000)), 0x3f82);
    assert_int_equal(td__bf16_from_f32(from_bits(0x3f808001)), 0x3f81);
    assert_int_equal(td__bf16_from_f32(from_bits(0x7f7fffff)), 0x7f80); /* to infinity */
    assert_int_equal(td__bf16_from_f32(from_bits(0x7f800001)), 0x7fc0); /* NaN stays one */
}

TEST(sha256_known_answers)
{
    static const struct {
        const char *text, *hex;
    } CASES[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        uint8_t digest[TD_SHA256_BYTES];
        char hex[TD_SHA256_HEX];
        size_t n = strlen(CASES[i].text), half = n / 2;
        td__sha256 h;

        CHECK_OK(td__sha256_of(CASES[i].text, n, digest));
        td__sha256_hex(digest, hex);
        assert_string_equal(hex, CASES[i].hex);
        CHECK_OK(td__sha256_init(&h));
        td__sha256_update(&h, CASES[i].text, half);
        td__sha256_update(&h, CASES[i].text + half, n - half);
        td__sha256_final(&h, digest);
        td__sha256_fini(&h);
        td__sha256_hex(digest, hex);
        assert_string_equal(hex, CASES[i].hex);
    }
}

TEST(crc32c_known_answers)
{
    uint8_t zeros[32] = {0}, ones[32], rising[32], many[1000];

    memset(ones, 0xff, sizeof ones);
    for (size_t i = 0; i < sizeof rising; i++)
        rising[i] = (uint8_t)i;
    assert_int_equal(td__crc32c(0, "123456789", 9), 0xe3069283);
    assert_int_equal(td__crc32c(0, zeros, 32), 0x8a9136aa);
    assert_int_equal(td__crc32c(0, ones, 32), 0x62a8ab43);
    assert_int_equal(td__crc32c(0, rising, 32), 0x46dd794e);

    for (size_t i = 0; i < sizeof many; i++)
        many[i] = (uint8_t)(i * i >> 3);
    for (size_t n = 0; n < sizeof many; n += 37) {
        uint32_t whole = td__crc32c_table(0, many, sizeof many);
        CHECK_EQ_INT(td__crc32c(td__crc32c(0, many, n), many + n, sizeof many - n), whole);
        CHECK_EQ_INT(td__crc32c_table(td__crc32c_table(0, many, n), many + n, sizeof many - n),
                     whole);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_known_answers),
        cmocka_unit_test(random_numbers_have_the_right_moments),
        cmocka_unit_test(random_numbers_depend_on_every_part_of_the_key),
        cmocka_unit_test(f16_known_answers),
        cmocka_unit_test(halves_round_trip_and_round_to_nearest_even),
        cmocka_unit_test(sha256_known_answers),
        cmocka_unit_test(crc32c_known_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
