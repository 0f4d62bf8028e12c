/* The largest numbers of an array against sorting, and lists of places: every size, ties, NaN,
 * infinities, denormals, and damaged lists. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "parallel/compress/top_k.h"
#include "support/check.h"

enum { MOST = 3000 };

static uint32_t bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u & 0x7fffffffu;
}

static const float *order_of; /* what by_size compares */

static int by_size(const void *a, const void *b)
{
    uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    uint32_t x = bits(order_of[i]), y = bits(order_of[j]);
    return x != y ? (x < y) - (x > y) : (i > j) - (i < j);
}

static int by_place(const void *a, const void *b)
{
    uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    return (i > j) - (i < j);
}

static void check_one(const float *x, size_t n, size_t k, const char *what)
{
    uint32_t *index = check_alloc_guarded(n * sizeof *index);
    uint32_t *want = malloc(n * sizeof *want);
    assert_non_null(want);
    for (size_t i = 0; i < n; i++)
        want[i] = (uint32_t)i;
    order_of = x;
    qsort(want, n, sizeof *want, by_size);
    qsort(want, k, sizeof *want, by_place);
    for (td__isa isa = TD_ISA_SCALAR; isa <= td__cpu_isa(); isa++) {
        td__top_k(isa, x, n, k, index);
        CHECK(memcmp(index, want, k * sizeof *index) == 0, "%s: %zu of %zu with %s", what, k, n,
              td__isa_name(isa));
    }
    size_t nbytes = td__gaps_nbytes(n, k);
    uint8_t *wire = check_alloc_guarded(nbytes);
    td__gaps_write(wire, index, n, k);
    memset(index, 0xff, n * sizeof *index);
    CHECK_OK(td__gaps_read(wire, index, n, k));
    CHECK(memcmp(index, want, k * sizeof *index) == 0, "%s: places of %zu of %zu", what, k, n);
    check_free_guarded(wire);
    check_free_guarded(index);
    free(want);
}

static float normal(size_t i)
{
    return td__rng_normal(&(td__rng_key){.seed = 3}, i);
}

static float ties(size_t i)
{
    return (float)((int)(i * 7 % 5) - 2);
}

static float zeros(size_t i)
{
    return i % 2 ? 0.0f : -0.0f;
}

static float odd(size_t i)
{
    const float list[] = {NAN, INFINITY, -INFINITY, 1e-45f, -1e-40f, 0, 3.4e38f, -NAN, 1e-38f};
    return i % 3 ? normal(i) : list[i / 3 % 9];
}

static float close_by(size_t i) /* the same but for the lower bits */
{
    return 1.0f + (float)(i * 2654435761u % 4096) * 0x1p-23f;
}

TEST(the_largest_are_those_of_sorting)
{
    const struct {
        const char *name;
        float (*at)(size_t i);
    } kinds[] = {
        {"normal", normal}, {"ties", ties}, {"zeros", zeros}, {"odd", odd}, {"close by", close_by}};
    static const size_t sizes[] = {1, 2, 3, 31, 32, 33, 64, 100, 1000, MOST};
    static float x[MOST];
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        for (size_t i = 0; i < MOST; i++)
            x[i] = kinds[kind].at(i);
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            size_t n = sizes[s];
            const size_t ks[] = {1, n / 1000, n / 100, n / 4, n / 2, n - 1, n};
            for (size_t k = 0; k < sizeof ks / sizeof *ks; k++)
                if (ks[k] > 0)
                    check_one(x, n, ks[k], kinds[kind].name);
        }
    }
}

/* All in front, all at the end, one at each end: the longest and the shortest gaps. */
TEST(places_at_the_ends_fit)
{
    for (size_t n = 1; n < 300; n += 7)
        for (size_t k = 1; k <= n; k += 1 + k / 3)
            for (int how = 0; how < 3; how++) {
                uint32_t index[300], back[300];
                for (size_t i = 0; i < k; i++)
                    index[i] = (uint32_t)(how == 0 || (how == 2 && i < k / 2) ? i : n - k + i);
                size_t nbytes = td__gaps_nbytes(n, k);
                uint8_t *wire = check_alloc_guarded(nbytes);
                td__gaps_write(wire, index, n, k);
                CHECK_OK(td__gaps_read(wire, back, n, k));
                check_free_guarded(wire);
                CHECK(memcmp(index, back, k * sizeof *back) == 0, "%zu of %zu, %d", k, n, how);
            }
}

TEST(one_in_a_thousand_takes_twelve_bits)
{
    CHECK(td__gaps_nbytes(1000000, 1000) * 8 <= 12 * 1000, "%zu bytes",
          td__gaps_nbytes(1000000, 1000));
}

/* Rubbish is refused or is a list of places; never anything outside. */
TEST(damaged_lists_are_refused)
{
    int refused = 0;
    for (uint32_t round = 0; round < 2000; round++) {
        size_t n = 1 + round % 400, k = 1 + round * 7 % n, nbytes = td__gaps_nbytes(n, k);
        uint8_t *wire = check_alloc_guarded(nbytes);
        uint32_t *index = check_alloc_guarded(k * sizeof *index);
        for (size_t i = 0; i < nbytes; i++)
            wire[i] = round % 5 ? (uint8_t)td__rng_u32(&(td__rng_key){.seed = round}, i) : 0;
        td_status st = td__gaps_read(wire, index, n, k);
        CHECK(st == TD_OK || st == TD_EPROTO, "%s", td_status_name(st));
        refused += st != TD_OK;
        for (size_t i = 0; !st && i < k; i++)
            CHECK(index[i] < n && (!i || index[i] > index[i - 1]), "place %u of %zu", index[i], n);
        check_free_guarded(index);
        check_free_guarded(wire);
    }
    CHECK(refused > 500, "%d lists refused", refused);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_largest_are_those_of_sorting),
        cmocka_unit_test(places_at_the_ends_fit),
        cmocka_unit_test(one_in_a_thousand_takes_twelve_bits),
        cmocka_unit_test(damaged_lists_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
