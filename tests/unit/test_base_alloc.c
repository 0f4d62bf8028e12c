/* The counted allocator: counts come back to where they were, failure on demand works, blocks are
 * aligned and zero, arenas give aligned zeroed memory of any size. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/alloc.h"
#include "support/check.h"
#include "tandem/alloc.h"

static bool all_zero(const void *p, size_t nbytes)
{
    const unsigned char *b = p;
    for (size_t i = 0; i < nbytes; i++)
        if (b[i])
            return false;
    return true;
}

TEST(counts_return_to_where_they_were)
{
    td_alloc_stats before = td_alloc_get_stats();
    char *a = td__malloc(100), *b = td__calloc(10, 20), *s = td__strdup("tandem");

    assert_string_equal(s, "tandem");
    CHECK(all_zero(b, 200), "calloc did not zero");
    a = td__realloc(a, 1000);
    td_alloc_stats during = td_alloc_get_stats();
    CHECK_EQ_INT(during.live - before.live, 3);
    CHECK_EQ_INT(during.live_bytes - before.live_bytes, 1000 + 200 + 7);
    CHECK_EQ_INT(during.calls - before.calls, 4);
    CHECK(during.peak_bytes >= during.live_bytes, "peak below live");
    td__free(a);
    td__free(b);
    td__free(s);
    td__free(NULL);
    td_alloc_stats after = td_alloc_get_stats();
    CHECK_EQ_INT(after.live, before.live);
    CHECK_EQ_INT(after.live_bytes, before.live_bytes);
}

TEST(impossible_sizes_give_null)
{
    assert_null(td__malloc(SIZE_MAX));
    assert_null(td__calloc(SIZE_MAX / 2, 3));
    assert_null(td__alloc_block(SIZE_MAX));
    void *p = td__malloc(1);
    assert_null(td__realloc(p, SIZE_MAX));
    td__free(p);
}

TEST(fails_from_the_nth_on)
{
    td_alloc_fail_at(3);
    void *a = td__malloc(1), *b = td__alloc_block(1);
    void *c = td__malloc(1), *d = td__calloc(1, 1);
    td_alloc_fail_at(0);
    void *e = td__malloc(1);
    CHECK(a && b && e, "failed too early, or after it was switched off");
    CHECK(!c && !d, "did not fail");
    td__free(a);
    td__free_block(b, 1);
    td__free(e);
}

TEST(blocks_are_aligned_and_zero)
{
    static const size_t SIZES[] = {0, 1, 63, 64, 65, 4096, (4 << 20) - 1, 4 << 20, (4 << 20) + 1};
    td_alloc_stats before = td_alloc_get_stats();

    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++) {
        void *p = td__alloc_block(SIZES[i]);
        size_t align = SIZES[i] >= 4 << 20 ? 2 << 20 : 64;
        CHECK(p && (uintptr_t)p % align == 0, "%zu bytes at %p", SIZES[i], p);
        CHECK(all_zero(p, SIZES[i]), "%zu bytes are not zero", SIZES[i]);
        memset(p, 0xff, SIZES[i]);
        td__free_block(p, SIZES[i]);
    }
    td__free_block(NULL, 100);
    CHECK_EQ_INT(td_alloc_get_stats().live_bytes, before.live_bytes);
}

TEST(arena_gives_aligned_zeroed_memory)
{
    td__arena *a;
    unsigned char *last = NULL;

    CHECK_OK(td__arena_create(&a));
    for (size_t n = 0; n < 3000; n += 1 + n / 7) {
        unsigned char *p = td__arena_alloc(a, n);
        CHECK(p && (uintptr_t)p % 16 == 0, "%zu bytes at %p", n, (void *)p);
        CHECK(all_zero(p, n), "%zu bytes are not zero", n);
        CHECK(p != last, "the same place twice");
        memset(p, 0xff, n);
        last = p;
    }
    void *large = td__arena_alloc(a, 5 << 20);
    assert_non_null(large);
    memset(large, 0xff, 5 << 20);
    char *text = td__arena_printf(a, "%s/%d", "scope", 7);
    assert_string_equal(text, "scope/7");
    assert_string_equal(td__arena_strdup(a, text), "scope/7");
    assert_null(td__arena_alloc(a, SIZE_MAX));
    td__arena_destroy(a);
    td__arena_destroy(NULL);
}

TEST(arena_survives_every_failure)
{
    td_alloc_stats before = td_alloc_get_stats();

    for (uint64_t nth = 1; nth < 8; nth++) {
        td__arena *a = NULL;
        td_alloc_fail_at(nth);
        if (td__arena_create(&a) == TD_OK)
            for (int i = 0; i < 100; i++) {
                char *p = td__arena_alloc(a, 500);
                if (p)
                    memset(p, 0xff, 500);
            }
        td_alloc_fail_at(0);
        td__arena_destroy(a);
        CHECK_EQ_INT(td_alloc_get_stats().live, before.live);
    }
}

static void room_is_asked_for_and_not_taken(void **state)
{
    (void)state;
    td_alloc_stats before = td_alloc_get_stats();
    assert_true(td__room_for(1));
    assert_true(td__room_for(1 << 20));
    assert_false(td__room_for(SIZE_MAX / 2));
    td_alloc_fail_at(1);
    assert_false(td__room_for(1));
    td_alloc_fail_at(0);
    assert_true(td_alloc_get_stats().live_bytes == before.live_bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_return_to_where_they_were),
        cmocka_unit_test(impossible_sizes_give_null),
        cmocka_unit_test(fails_from_the_nth_on),
        cmocka_unit_test(blocks_are_aligned_and_zero),
        cmocka_unit_test(arena_gives_aligned_zeroed_memory),
        cmocka_unit_test(arena_survives_every_failure),
        cmocka_unit_test(room_is_asked_for_and_not_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
