/* alloc.c -- the counted allocator.
 *
 * Every small allocation carries its size in front of it, so that td__free can keep the byte count
 * right without asking the C library. Blocks do not: their owner knows the size. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sanitizer/asan_interface.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"
#include "tandem/alloc.h"

enum {
    FIRST_RESERVE = 4096,
    HEADER = 16, /* bytes in front; keeps malloc's 16-byte alignment */
    BLOCK_ALIGN = 64,
    HUGE_PAGE = 2 << 20,
    HUGE_FROM = 4 << 20 /* blocks of this size and more are mapped on huge pages */
};

static atomic_uint_fast64_t calls, live, live_bytes, peak_bytes;
static atomic_uint_fast64_t fail_from; /* number of the first call to fail; 0: none */

td_alloc_stats td_alloc_get_stats(void)
{
    return (td_alloc_stats){
        .calls = atomic_load(&calls),
        .live = atomic_load(&live),
        .live_bytes = atomic_load(&live_bytes),
        .peak_bytes = atomic_load(&peak_bytes),
    };
}

void td_alloc_fail_at(uint64_t nth)
{
    atomic_store(&fail_from, nth ? atomic_load(&calls) + nth : 0);
}

/* Count a call; false if it is to fail. */
static bool may_allocate(void)
{
    uint64_t n = atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed) + 1;
    uint64_t from = atomic_load_explicit(&fail_from, memory_order_relaxed);
    return !from || n < from;
}

static void count_in(size_t nbytes)
{
    atomic_fetch_add_explicit(&live, 1, memory_order_relaxed);
    uint64_t now = atomic_fetch_add_explicit(&live_bytes, nbytes, memory_order_relaxed) + nbytes;
    uint64_t peak = atomic_load_explicit(&peak_bytes, memory_order_relaxed);
    while (now > peak && !atomic_compare_exchange_weak(&peak_bytes, &peak, now))
        ;
}

static void count_out(size_t nbytes)
{
    atomic_fetch_sub_explicit(&live, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&live_bytes, nbytes, memory_order_relaxed);
}

/* Write the size in front and give the user's part. */
static void *dress(char *raw, size_t nbytes)
{
    memcpy(raw, &nbytes, sizeof nbytes);
    count_in(nbytes);
    return raw + HEADER;
}

static size_t size_of(const void *p)
{
    size_t nbytes;
    memcpy(&nbytes, (const char *)p - HEADER, sizeof nbytes);
    return nbytes;
}

void *td__malloc(size_t nbytes)
{
    size_t total;
    if (!may_allocate() || !td__size_add(nbytes, HEADER, &total))
        return NULL;
    char *raw = malloc(total);
    return raw ? dress(raw, nbytes) : NULL;
}

void *td__calloc(size_t count, size_t nbytes_each)
{
    size_t nbytes, total;
    if (!may_allocate() || !td__size_mul(count, nbytes_each, &nbytes) ||
        !td__size_add(nbytes, HEADER, &total))
        return NULL;
    char *raw = calloc(1, total);
    return raw ? dress(raw, nbytes) : NULL;
}

void *td__realloc(void *p, size_t nbytes)
{
    if (!p)
        return td__malloc(nbytes);

    size_t total, before = size_of(p);
    if (!may_allocate() || !td__size_add(nbytes, HEADER, &total))
        return NULL;
    char *raw = realloc((char *)p - HEADER, total);
    if (!raw)
        return NULL;
    count_out(before);
    return dress(raw, nbytes);
}

void td__free(void *p)
{
    if (!p)
        return;
    count_out(size_of(p));
    free((char *)p - HEADER);
}

char *td__strdup(const char *s)
{
    size_t nbytes = strlen(s) + 1;
    char *copy = td__malloc(nbytes);
    return copy ? memcpy(copy, s, nbytes) : NULL;
}

bool td__reserve(uint8_t **buf, size_t *cap, size_t nbytes)
{
    size_t bigger = *cap ? *cap : FIRST_RESERVE;

    if (nbytes <= *cap)
        return true;
    while (bigger < nbytes)
        bigger *= 2;
    uint8_t *p = td__realloc(*buf, bigger);
    if (!p)
        return false;
    *buf = p;
    *cap = bigger;
    return true;
}

/* Zeroed memory from the kernel, aligned to a huge page: map one page more and cut both ends. */
static void *map_huge(size_t nbytes)
{
    char *raw =
        mmap(NULL, nbytes + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED)
        return NULL;

    size_t before = (size_t)(-(uintptr_t)raw & (HUGE_PAGE - 1));
    if (before)
        munmap(raw, before);
    if (before < HUGE_PAGE)
        munmap(raw + before + nbytes, HUGE_PAGE - before);
    madvise(raw + before, nbytes, MADV_HUGEPAGE); /* a wish: without it, small pages */
    return raw + before;
}

/* What is really taken for a block: whole huge pages, or whole cache lines. */
static size_t block_bytes(size_t nbytes)
{
    if (nbytes >= HUGE_FROM)
        return td__align_up(nbytes, HUGE_PAGE);
    return td__align_up(nbytes ? nbytes : 1, BLOCK_ALIGN);
}

void *td__alloc_block(size_t nbytes)
{
    if (!may_allocate() || nbytes > PTRDIFF_MAX - 2 * (size_t)HUGE_PAGE)
        return NULL;

    size_t taken = block_bytes(nbytes);
    void *p;
    if (nbytes >= HUGE_FROM) {
        p = map_huge(taken);
    } else {
        p = aligned_alloc(BLOCK_ALIGN, taken);
        if (p)
            memset(p, 0, taken);
    }
    if (p)
        count_in(taken);
    return p;
}

bool td__room_for(size_t nbytes)
{
    if (!may_allocate())
        return false;
    void *p = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return false;
    munmap(p, nbytes);
    return true;
}

static void release_block(void *p, size_t nbytes)
{
    if (nbytes >= HUGE_FROM)
        munmap(p, block_bytes(nbytes));
    else
        free(p);
}

void td__free_block(void *p, size_t nbytes)
{
    if (!p)
        return;
    count_out(block_bytes(nbytes));
    release_block(p, nbytes);
}

void td__block_park(void *block, size_t nbytes)
{
    count_out(block_bytes(nbytes));
    ASAN_POISON_MEMORY_REGION((char *)block + TD__PARKED, block_bytes(nbytes) - TD__PARKED);
}

bool td__block_unpark(void *block, size_t nbytes)
{
    if (!may_allocate())
        return false;
    count_in(block_bytes(nbytes));
    ASAN_UNPOISON_MEMORY_REGION(block, block_bytes(nbytes));
    return true;
}

void td__block_free_parked(void *block, size_t nbytes)
{
    ASAN_UNPOISON_MEMORY_REGION(block, block_bytes(nbytes));
    release_block(block, nbytes);
}

/* The whole pages in [p, p + nbytes). */
static char *whole_pages(void *p, size_t nbytes, size_t *inside)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), before = (size_t)(-(uintptr_t)p & (page - 1));
    *inside = nbytes > before ? (nbytes - before) & ~(page - 1) : 0;
    return (char *)p + before;
}

void td__block_thin(void *block, size_t nbytes)
{
    size_t inside;
    char *from = whole_pages(block, nbytes, &inside);
    if (inside)
        madvise(from, inside, MADV_NOHUGEPAGE); /* without it parts come back in larger pieces */
}

void td__block_give_back(void *p, size_t nbytes)
{
    size_t inside;
    char *from = whole_pages(p, nbytes, &inside);
    if (inside && madvise(from, inside, MADV_DONTNEED) != 0)
        memset(from, 0, inside); /* locked in memory: what it reads as, at least */
}
