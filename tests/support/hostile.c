/* hostile.c -- see hostile.h. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "support/hostile.h"

#include <stdlib.h>
#include <string.h>

#include "tandem/alloc.h"

void check_hostile_file(td_status (*read)(const char *path), const char *path, const void *good,
                        size_t nbytes, size_t flip_bytes)
{
    uint64_t live = td_alloc_get_stats().live;
    unsigned char *bad = malloc(nbytes + 1);

    CHECK(bad, "no memory");
    memcpy(bad, good, nbytes);
    check_write_file(path, bad, nbytes);
    CHECK_OK(read(path));
    for (size_t n = 0; n < nbytes; n++) {
        check_write_file(path, bad, n);
        td_status st = read(path);
        CHECK(st == TD_EPROTO || st == TD_ENOTSUP, "cut at byte %zu: %s", n, td_status_name(st));
        CHECK(*td_last_error(), "cut at byte %zu: no text", n);
    }
    bad[nbytes] = 0;
    check_write_file(path, bad, nbytes + 1);
    CHECK(read(path) != TD_OK, "a byte more was accepted");

    for (size_t i = 0; i < flip_bytes && i < nbytes; i++)
        for (int bit = 0; bit < 8; bit++) {
            bad[i] ^= (unsigned char)(1 << bit);
            check_write_file(path, bad, nbytes);
            td_status st = read(path);
            CHECK(st != TD_EINVAL, "bit %d of byte %zu: %s", bit, i, td_last_error());
            bad[i] ^= (unsigned char)(1 << bit);
        }
    free(bad);
    CHECK(td_alloc_get_stats().live == live, "%llu allocations leaked",
          (unsigned long long)(td_alloc_get_stats().live - live));
}

void check_every_allocation(td_status (*work)(void *arg), void *arg)
{
    td_status st = TD_ENOMEM;

    for (uint64_t nth = 1; st != TD_OK; nth++) {
        uint64_t live = td_alloc_get_stats().live;
        CHECK(nth < 10000, "still failing after %llu allocations", (unsigned long long)nth);
        td_alloc_fail_at(nth);
        st = work(arg);
        td_alloc_fail_at(0);
        CHECK(st == TD_OK || st == TD_ENOMEM, "allocation %llu: %s: %s", (unsigned long long)nth,
              td_status_name(st), td_last_error());
        CHECK(td_alloc_get_stats().live == live, "allocation %llu: memory leaked",
              (unsigned long long)nth);
    }
}
