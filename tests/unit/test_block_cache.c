/* test_block_cache.c -- blocks in three levels, over all devices: hits against an order worked out
 * by hand and against a model, bytes after any number of moves, modified blocks, a damaged file, a
 * full disk, sets that have no room, threads; and copies of many pieces in one launch. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/check.h"
#include "device/block_cache.h"
#include "support/check.h"
#include "tandem/log.h"

static const char *const NAMES[] = {
#define TD_DEVICE(name) #name,
#include "device/devices.def"
#undef TD_DEVICE
};

/* NULL: a GPU is not there, which is said. */
static td_device *open_device(const char *name)
{
    td_device *d;
    td_status st = td__device_open(name, &d);
    if (st == TD_ENOTSUP && strcmp(name, "cuda") == 0) {
        print_message("skipped for %s: %s\n", name, td_last_error());
        return NULL;
    }
    CHECK_OK(st);
    return d;
}

#define EACH_DEVICE(d)                         \
    for (int i_ = 0; i_ < TD_LEN(NAMES); i_++) \
        for (td_device *d = open_device(NAMES[i_]); d; td__device_release(d), d = NULL)

enum { NBYTES = 100, EACH = 128, COUNT = 40 }; /* of a block; of its place; blocks */

static td__block_cache *cache_of(td_device *d, size_t device, size_t host, size_t file)
{
    td__block_cache *c;
    CHECK_OK(td__block_cache_create(
        &(td__block_cache_opts){.device = d,
                                .count = COUNT,
                                .nbytes = NBYTES,
                                .level = {device * EACH, host * EACH, file * EACH},
                                .name = "test.blocks"},
        &c));
    return c;
}

static void bytes_of(int64_t id, int version, unsigned char out[NBYTES])
{
    for (int i = 0; i < NBYTES; i++)
        out[i] = (unsigned char)(id * 31 + version * 101 + i * i);
}

/* The block that is held has its bytes, in the memory that the set names. */
static void check_held(td_device *d, const td__block_set *s, size_t i, int version)
{
    unsigned char want[NBYTES], got[NBYTES];
    if (s->copies)
        CHECK_OK(td__event_sync(&s->copied, td__deadline_in_ms(60000)));
    bytes_of(s->held[i].id, version, want);
    CHECK_OK(td__mem_read(d, got, s->held[i].at, NBYTES));
    CHECK(!memcmp(want, got, NBYTES), "block %lld has other bytes", (long long)s->held[i].id);
}

/* Look for a block, make it if it is absent, look at it, let it go: where it was found. */
static td__block_level visit(td_device *d, td__block_set *s, int64_t id, int version)
{
    CHECK_OK(td__block_set_hold(s, &id, 1));
    td__block_level level = s->held[0].level;
    CHECK((level == TD_BLOCK_LEVELS) == !s->held[0].at, "level %d, %p", (int)level, s->held[0].at);
    if (!s->held[0].at) {
        unsigned char *to = td__block_set_take(s, 0);
        if (to)
            bytes_of(id, version, to);
    }
    td__block_set_ready(s);
    if (s->held[0].at)
        check_held(d, s, 0, version);
    CHECK_OK(td__block_set_let_go(s));
    return level;
}

/* ---- Copies ---------------------------------------------------------------------------------- */

TEST(pieces_are_copied_whatever_their_size_and_alignment)
{
    enum { N = 70, ROOM = 1 << 16 };
    static unsigned char want[ROOM], got[ROOM];
    EACH_DEVICE(d)
    {
        td_mem own, pinned, list;
        CHECK_OK(td__mem_alloc(d, TD_MEM_OWN, ROOM, &own));
        CHECK_OK(td__mem_alloc(d, TD_MEM_PINNED, ROOM, &pinned));
        CHECK_OK(td__mem_alloc(d, TD_MEM_PINNED, N * sizeof(td__copy_piece), &list));
        td__copy_piece *p = list.at;
        unsigned char *from = pinned.at;
        for (int i = 0; i < ROOM; i++)
            from[i] = (unsigned char)(i * 7 + i / 256);
        memset(want, 0, sizeof want);
        size_t at = 0;
        for (int i = 0; i < N; i++) {
            size_t nbytes = i % 3 == 0 ? 16u * (size_t)i : i % 3 == 1 ? 4u * (size_t)i : (size_t)i;
            size_t begin = td__align_up(at, i % 3 == 0 ? 16 : i % 3 == 1 ? 4 : 1);
            p[i] = (td__copy_piece){(char *)own.at + begin, from + begin / 16 * 16, nbytes};
            memcpy(want + begin, from + begin / 16 * 16, nbytes);
            at = begin + nbytes;
        }
        CHECK(at < ROOM, "%zu bytes", at);
        td_stream *s = td__device_stream(d);
        td__stream_copies(s, p, N);
        td__stream_copies(s, p, 0);
        CHECK_OK(td__stream_sync(s));
        CHECK_OK(td__mem_read(d, got, own.at, ROOM));
        CHECK(!memcmp(want, got, ROOM), "%s: other bytes", NAMES[i_]);
        td__mem_free(&own);
        td__mem_free(&pinned);
        td__mem_free(&list);
    }
}

/* ---- Hits ------------------------------------------------------------------------------------ */

/* One place on the device, two in pinned memory, two in the file. By hand:
 *
 *     0 1 2   nobody has them; 1, which came in last, goes to the file
 *     2       on the device
 *     1       in the file; 2 goes there, which fills it
 *     0       in pinned memory
 *     3 1     nobody has it, in the file; 3 is dropped
 *     3 0 2   nobody has it any more, in pinned memory, in the file */
TEST(an_order_worked_out_by_hand)
{
    static const struct {
        int id;
        td__block_level level;
    } ORDER[] = {{0, TD_BLOCK_LEVELS}, {1, TD_BLOCK_LEVELS}, {2, TD_BLOCK_LEVELS},
                 {2, TD_BLOCK_DEVICE}, {1, TD_BLOCK_FILE},   {0, TD_BLOCK_HOST},
                 {3, TD_BLOCK_LEVELS}, {1, TD_BLOCK_FILE},   {3, TD_BLOCK_LEVELS},
                 {0, TD_BLOCK_HOST},   {2, TD_BLOCK_FILE}};
    EACH_DEVICE(d)
    {
        td__block_cache *c = cache_of(d, 1, 2, 2);
        td__block_set s;
        CHECK_OK(td__block_set_init(&s, c, 1));
        for (int i = 0; i < TD_LEN(ORDER); i++) {
            td__block_level got = visit(d, &s, ORDER[i].id, 0);
            CHECK(got == ORDER[i].level, "%s: lookup %d, block %d: found in level %d, not %d",
                  NAMES[i_], i, ORDER[i].id, (int)got, (int)ORDER[i].level);
        }
        td__block_counters n = td__block_cache_count(c);
        CHECK_EQ_INT(n.hits[TD_BLOCK_DEVICE], 1);
        CHECK_EQ_INT(n.hits[TD_BLOCK_HOST], 2);
        CHECK_EQ_INT(n.hits[TD_BLOCK_FILE], 3);
        CHECK_EQ_INT(n.misses, 5);
        CHECK_EQ_INT(n.evicted[TD_BLOCK_DEVICE], 9);
        CHECK_EQ_INT(n.evicted[TD_BLOCK_HOST], 6);
        CHECK_EQ_INT(n.evicted[TD_BLOCK_FILE], 0);
        CHECK_EQ_INT(n.used[TD_BLOCK_DEVICE], EACH);
        CHECK_EQ_INT(n.used[TD_BLOCK_FILE], 2 * EACH);
        CHECK(td__block_hit_rate(&n, TD_BLOCK_FILE) == 3.0 / 11, "a rate of %g",
              td__block_hit_rate(&n, TD_BLOCK_FILE));
        td__block_set_fini(&s);
        td__block_cache_destroy(c);
    }
}

/* A list of ids: a place is taken from its end. */
typedef struct recent {
    int id[COUNT], n, most, arrivals;
} recent;

static int place_in(const recent *r, int id)
{
    for (int i = 0; i < r->n; i++)
        if (r->id[i] == id)
            return i;
    return -1;
}

/* What is there comes to the front, what comes in to the end, one of 32 to the front. Returns the
 * id that falls out, or -1. */
static int touch(recent *r, int id)
{
    int at = place_in(r, id), out = -1;
    bool front = at >= 0 || ++r->arrivals % 32 == 0;
    if (at < 0 && r->n == r->most)
        out = r->id[at = r->n - 1];
    else if (at < 0)
        at = r->n++;
    if (front)
        memmove(r->id + 1, r->id, (size_t)at * sizeof *r->id);
    r->id[front ? 0 : at] = id;
    return out;
}

typedef struct model {
    recent device, host;
    bool in_file[COUNT];
    int file, most;
} model;

static td__block_level model_visit(model *m, int id)
{
    td__block_level found = TD_BLOCK_LEVELS;
    if (place_in(&m->device, id) >= 0) {
        touch(&m->device, id);
        return TD_BLOCK_DEVICE;
    }
    if (place_in(&m->host, id) >= 0)
        found = TD_BLOCK_HOST;
    else if (m->in_file[id])
        found = TD_BLOCK_FILE;
    int out = touch(&m->host, id);
    if (out >= 0 && !m->in_file[out] && m->file < m->most) {
        m->in_file[out] = true;
        m->file++;
    }
    touch(&m->device, id);
    return found;
}

TEST(any_order_has_the_hits_of_a_model)
{
    EACH_DEVICE(d)
    {
        td__block_cache *c = cache_of(d, 3, 7, 12);
        model m = {.device = {.most = 3}, .host = {.most = 7}, .most = 12};
        td__block_set s;
        uint32_t random = 1;
        CHECK_OK(td__block_set_init(&s, c, 1));
        for (int i = 0; i < 3000; i++) {
            random = random * 1664525u + 1013904223u;
            int id = (int)((random >> 16) % (i % 3 ? 10 : COUNT)); /* some more often */
            td__block_level want = model_visit(&m, id), got = visit(d, &s, id, 0);
            CHECK(want == got, "%s: lookup %d, block %d: level %d, the model says %d", NAMES[i_], i,
                  id, (int)got, (int)want);
        }
        td__block_counters n = td__block_cache_count(c);
        for (int l = 0; l < TD_BLOCK_LEVELS; l++)
            CHECK(n.hits[l] > 50, "level %d has %lld hits", l, (long long)n.hits[l]);
        td__block_set_fini(&s);
        td__block_cache_destroy(c);
    }
}

/* Every block once in each epoch, in another order, and none in time to be there twice: each level
 * still has about its share. */
TEST(epochs_find_what_a_level_has_room_for)
{
    enum { EPOCHS = 30 };
    EACH_DEVICE(d)
    {
        td__block_cache *c = cache_of(d, COUNT / 4, COUNT / 2, COUNT / 4);
        td__block_set s;
        int order[COUNT];
        uint32_t random = 7;
        CHECK_OK(td__block_set_init(&s, c, 1));
        for (int i = 0; i < COUNT; i++)
            order[i] = i;
        for (int e = 0; e < EPOCHS; e++)
            for (int i = 0; i < COUNT; i++) {
                random = random * 1664525u + 1013904223u;
                int k = i + (int)((random >> 16) % (uint32_t)(COUNT - i)), id = order[k];
                order[k] = order[i];
                order[i] = id;
                visit(d, &s, id, 0);
            }
        td__block_counters n = td__block_cache_count(c);
        double device = td__block_hit_rate(&n, TD_BLOCK_DEVICE);
        double all = 1 - (double)n.misses / (EPOCHS * COUNT);
        CHECK(device > 0.15, "%s: %g of the blocks on the device, of 0.25", NAMES[i_], device);
        CHECK(all > 0.55, "%s: %g of the blocks, of 0.75", NAMES[i_], all);
        td__block_set_fini(&s);
        td__block_cache_destroy(c);
    }
}

/* ---- Sets ------------------------------------------------------------------------------------ */

TEST(what_has_no_room_passes_by)
{
    EACH_DEVICE(d)
    {
        td__block_cache *c = cache_of(d, 2, 3, 0);
        td__block_set s, other;
        const int64_t ids[] = {5, 6, 5, 7, 8};
        CHECK_OK(td__block_set_init(&s, c, TD_LEN(ids)));
        CHECK_OK(td__block_set_init(&other, c, 1));
        CHECK_OK(td__block_set_hold(&s, ids, TD_LEN(ids)));
        for (size_t i = 0; i < TD_LEN(ids); i++) {
            unsigned char *to = td__block_set_take(&s, i);
            CHECK((to != NULL) == (i < 3), "block %zu of three places", i);
            if (to)
                bytes_of(ids[i], 0, to);
        }
        td__block_set_ready(&s);
        for (size_t i = 0; i < 3; i++)
            check_held(d, &s, i, 0);
        CHECK(s.held[0].at == s.held[2].at, "the same block twice in the device level");
        CHECK_EQ_INT(visit(d, &other, 9, 0), TD_BLOCK_LEVELS); /* while all places are held */
        CHECK_EQ_INT(visit(d, &other, 9, 0), TD_BLOCK_LEVELS);
        CHECK_EQ_INT(visit(d, &other, 6, 0), TD_BLOCK_DEVICE);
        CHECK_OK(td__block_set_let_go(&s));
        CHECK_EQ_INT(td__block_cache_count(c).passed, 4);
        CHECK_EQ_INT(visit(d, &other, 9, 0), TD_BLOCK_LEVELS);
        CHECK_EQ_INT(visit(d, &other, 9, 0), TD_BLOCK_DEVICE);
        /* Taken, and never filled. */
        int64_t id = 20;
        CHECK_OK(td__block_set_hold(&other, &id, 1));
        CHECK(td__block_set_take(&other, 0), "no room");
        CHECK_OK(td__block_set_let_go(&other));
        CHECK_EQ_INT(visit(d, &other, 20, 0), TD_BLOCK_LEVELS);
        td__block_set_fini(&s);
        td__block_set_fini(&other);
        td__block_cache_destroy(c);
    }
}

static void *visit_all(void *user)
{
    td__block_cache *c = user;
    enum { TOGETHER = 6 };
    td__block_set s;
    int64_t ids[TOGETHER];
    CHECK_OK(td__block_set_init(&s, c, TOGETHER));
    for (int round = 0; round < 150; round++) {
        for (int i = 0; i < TOGETHER; i++)
            ids[i] = (round * 7 + i * 11) % COUNT;
        CHECK_OK(td__block_set_hold(&s, ids, TOGETHER));
        for (size_t i = 0; i < TOGETHER; i++) {
            unsigned char *to = s.held[i].at ? NULL : td__block_set_take(&s, i);
            if (to)
                bytes_of(ids[i], 0, to);
        }
        td__block_set_ready(&s);
        if (s.copies)
            CHECK_OK(td__event_sync(&s.copied, td__deadline_in_ms(60000)));
        td_device *d;
        CHECK_OK(td__device_open(NAMES[1], &d));
        for (size_t i = 0; i < TOGETHER; i++)
            if (s.held[i].at)
                check_held(d, &s, i, 0);
        td__device_release(d);
        CHECK_OK(td__block_set_let_go(&s));
    }
    td__block_set_fini(&s);
    return NULL;
}

TEST(threads_share_a_cache)
{
    pthread_t threads[4];
    td_device *d;
    CHECK_OK(td__device_open(NAMES[1], &d));
    td__block_cache *c = cache_of(d, 5, 14, 9);
    for (int i = 0; i < TD_LEN(threads); i++)
        CHECK(!pthread_create(&threads[i], NULL, visit_all, c), "no thread");
    for (int i = 0; i < TD_LEN(threads); i++)
        pthread_join(threads[i], NULL);
    td__block_counters n = td__block_cache_count(c);
    CHECK_EQ_INT(n.hits[0] + n.hits[1] + n.hits[2] + n.misses, 4 * 150 * 6);
    td__block_cache_destroy(c);
    td__device_release(d);
}

/* ---- Modified blocks ------------------------------------------------------------------------- */

static td_status modify(td__block_set *s, int64_t id, int version)
{
    void *at = NULL;
    CHECK_OK(td__block_set_hold(s, &id, 1));
    CHECK(s->held[0].at, "block %lld is gone", (long long)id);
    td_status st = td__block_set_modify(s, 0, &at);
    if (!st)
        bytes_of(id, version, at);
    CHECK_OK(td__block_set_let_go(s));
    return st;
}

/* Until nothing is in pinned memory that was there before. */
static void visit_others(td_device *d, td__block_set *s, int64_t but)
{
    for (int round = 0; round < 4; round++)
        for (int64_t id = 10; id < COUNT; id++)
            if (id != but)
                visit(d, s, id, 0);
}

TEST(modified_blocks_are_not_lost)
{
    EACH_DEVICE(d)
    {
        td__block_cache *c = cache_of(d, 4, 2, 3);
        td__block_set s;
        CHECK_OK(td__block_set_init(&s, c, 1));
        visit(d, &s, 0, 0);
        visit(d, &s, 1, 0);
        visit(d, &s, 2, 0); /* 1 is in the file and on the device, and not in pinned memory */
        CHECK_OK(modify(&s, 1, 7));
        CHECK_EQ_INT(visit(d, &s, 1, 7), TD_BLOCK_HOST); /* not what the device had */
        CHECK_OK(modify(&s, 1, 8));
        CHECK_EQ_INT(td__block_cache_count(c).used[TD_BLOCK_DEVICE], 2 * EACH);
        visit_others(d, &s, 19);
        CHECK_EQ_INT(visit(d, &s, 1, 8), TD_BLOCK_FILE);
        /* The file is full: a modified block takes the place of one that can be made again. */
        CHECK_EQ_INT(td__block_cache_count(c).used[TD_BLOCK_FILE], 3 * EACH);
        visit(d, &s, 19, 0);
        CHECK_OK(modify(&s, 19, 3));
        visit_others(d, &s, 19);
        CHECK_EQ_INT(td__block_cache_count(c).evicted[TD_BLOCK_FILE], 1);
        CHECK_EQ_INT(visit(d, &s, 19, 3), TD_BLOCK_FILE);
        CHECK(visit(d, &s, 1, 8) != TD_BLOCK_LEVELS, "a modified block is lost");
        CHECK_OK(modify(&s, 19, 4));
        CHECK_EQ_INT(visit(d, &s, 19, 4), TD_BLOCK_HOST);
        td__block_set_fini(&s);
        td__block_cache_destroy(c);

        c = cache_of(d, 0, 2, 0); /* nowhere to write them back to */
        CHECK_OK(td__block_set_init(&s, c, 1));
        for (int id = 0; id < 2; id++) {
            visit(d, &s, id, 0);
            CHECK_OK(modify(&s, id, 5));
        }
        CHECK_EQ_INT(visit(d, &s, 3, 0), TD_BLOCK_LEVELS);
        CHECK_EQ_INT(td__block_cache_count(c).passed, 1);
        for (int id = 0; id < 2; id++)
            CHECK_EQ_INT(visit(d, &s, id, 5), TD_BLOCK_HOST);
        td__block_set_fini(&s);
        td__block_cache_destroy(c);
    }
}

/* ---- The file -------------------------------------------------------------------------------- */

typedef struct told {
    int lines;
    char last[512];
} told;

static void note_line(void *user, td_log_level level, td_log_part part, const char *line)
{
    told *t = user;
    (void)part;
    t->lines += level == TD_LOG_WARN;
    snprintf(t->last, sizeof t->last, "%s", line);
}

/* What makes room for a block is modified, and the only place in the file is that of the block. */
TEST(a_place_in_the_file_is_not_taken_while_it_is_looked_up)
{
    EACH_DEVICE(d)
    {
        td__block_cache *c = cache_of(d, 0, 1, 1);
        td__block_set s;
        told t = {0};
        CHECK_OK(td__block_set_init(&s, c, 1));
        td_log_set_sink(note_line, &t);
        visit(d, &s, 1, 0);
        visit(d, &s, 0, 0); /* 1 is in the file */
        CHECK_OK(modify(&s, 0, 6));
        CHECK_EQ_INT(visit(d, &s, 1, 0),
                     TD_BLOCK_LEVELS); /* no room: made anew, it takes that of 0 */
        CHECK_EQ_INT(visit(d, &s, 0, 6), TD_BLOCK_FILE);
        CHECK_EQ_INT(visit(d, &s, 0, 6), TD_BLOCK_HOST);
        CHECK(!t.lines, "%s", t.last); /* of a file that would be damaged */
        td_log_set_sink(NULL, NULL);
        td__block_set_fini(&s);
        td__block_cache_destroy(c);
    }
}

TEST(a_damaged_file_is_one_warning_or_the_end_of_a_modified_block)
{
    EACH_DEVICE(d)
    {
        td__block_cache *c = cache_of(d, 0, 2, 10);
        td__block_set s;
        told t = {0};
        int64_t id = 3;
        CHECK_OK(td__block_set_init(&s, c, 1));
        for (int i = 0; i < 6; i++)
            visit(d, &s, i, 0);
        CHECK_OK(modify(&s, 5, 1));
        visit(d, &s, 6, 0);
        visit(d, &s, 7, 0);
        CHECK_EQ_INT(visit(d, &s, 7, 0), TD_BLOCK_HOST); /* so that 5 is next to make room */
        visit(d, &s, 8, 0);
        td_log_set_sink(note_line, &t);
        /* Blocks lie there as they came: 1 2 3 4 0 6 5. */
        CHECK(pwrite(td__block_cache_file(c), "other", 5, 2 * EACH + 9) == 5, "not written");
        CHECK_EQ_INT(visit(d, &s, 2, 0), TD_BLOCK_FILE);
        CHECK_EQ_INT(visit(d, &s, 3, 0), TD_BLOCK_LEVELS);
        CHECK(t.lines == 1 && strstr(t.last, "test.blocks: block 3 in the file in ") &&
                  strstr(t.last, "going on without the file"),
              "%d lines: %s", t.lines, t.last);
        CHECK_EQ_INT(visit(d, &s, 1, 0), TD_BLOCK_LEVELS);
        CHECK_EQ_INT(visit(d, &s, 5, 1), TD_BLOCK_FILE); /* which nobody else has */
        visit(d, &s, 8, 0);
        visit(d, &s, 9, 0);
        CHECK(!ftruncate(td__block_cache_file(c), 6 * EACH + 20), "not cut off");
        id = 5;
        CHECK_STATUS(td__block_set_hold(&s, &id, 1), TD_EIO);
        CHECK(strstr(td_last_error(), "block 5 in the file in ") &&
                  strstr(td_last_error(), "is lost: the file is short"),
              "%s", td_last_error());
        CHECK_EQ_INT(t.lines, 1);
        td_log_set_sink(NULL, NULL);
        td__block_set_fini(&s);
        td__block_cache_destroy(c);
    }
}

TEST(a_full_disk_is_one_warning)
{
    struct rlimit before, small;
    void (*old)(int) = signal(SIGXFSZ, SIG_IGN);
    CHECK(!getrlimit(RLIMIT_FSIZE, &before), "no limit");
    small = before;
    small.rlim_cur = 3 * EACH;
    EACH_DEVICE(d)
    {
        td__block_cache *c = cache_of(d, 1, 2, COUNT);
        td__block_set s;
        told t = {0};
        CHECK_OK(td__block_set_init(&s, c, 1));
        td_log_set_sink(note_line, &t);
        CHECK(!setrlimit(RLIMIT_FSIZE, &small), "no limit");
        for (int i = 0; i < 20; i++)
            CHECK_EQ_INT(visit(d, &s, i, 0), TD_BLOCK_LEVELS);
        for (int i = 1; i < 4; i++)
            CHECK_EQ_INT(visit(d, &s, i, 0), TD_BLOCK_FILE);
        CHECK_EQ_INT(visit(d, &s, 4, 0), TD_BLOCK_LEVELS);
        CHECK(!setrlimit(RLIMIT_FSIZE, &before), "no limit");
        CHECK(t.lines == 1 && strstr(t.last, "takes no more than 3 blocks: File too large"),
              "%d lines: %s", t.lines, t.last);
        td_log_set_sink(NULL, NULL);
        td__block_set_fini(&s);
        td__block_cache_destroy(c);
    }
    signal(SIGXFSZ, old);
}

TEST(levels_that_make_no_sense_are_refused)
{
    static const struct {
        size_t level[TD_BLOCK_LEVELS];
        const char *text;
    } CASES[] = {{{EACH, 0, EACH}, "test.blocks.host_mb: a block has 128 bytes, and there is room"},
                 {{EACH - 1, EACH, 0}, "test.blocks.device_mb: a block has 128 bytes"},
                 {{0, EACH, 1}, "test.blocks.file_mb: a block has 128 bytes"}};
    EACH_DEVICE(d)
    for (int i = 0; i < TD_LEN(CASES); i++) {
        td__block_cache *c;
        td__block_cache_opts o = {
            .device = d, .count = COUNT, .nbytes = NBYTES, .name = "test.blocks"};
        memcpy(o.level, CASES[i].level, sizeof o.level);
        CHECK_STATUS(td__block_cache_create(&o, &c), TD_EINVAL);
        CHECK(strstr(td_last_error(), CASES[i].text), "%s", td_last_error());
        CHECK(!c, "a cache all the same");
        o.level[TD_BLOCK_FILE] = o.level[TD_BLOCK_DEVICE] = 0;
        o.level[TD_BLOCK_HOST] = EACH;
        o.count = (int64_t)1 << 40;
        CHECK_STATUS(td__block_cache_create(&o, &c), TD_EINVAL);
    }
    td__block_cache_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_copied_whatever_their_size_and_alignment),
        cmocka_unit_test(an_order_worked_out_by_hand),
        cmocka_unit_test(any_order_has_the_hits_of_a_model),
        cmocka_unit_test(epochs_find_what_a_level_has_room_for),
        cmocka_unit_test(what_has_no_room_passes_by),
        cmocka_unit_test(threads_share_a_cache),
        cmocka_unit_test(modified_blocks_are_not_lost),
        cmocka_unit_test(a_place_in_the_file_is_not_taken_while_it_is_looked_up),
        cmocka_unit_test(a_damaged_file_is_one_warning_or_the_end_of_a_modified_block),
        cmocka_unit_test(a_full_disk_is_one_warning),
        cmocka_unit_test(levels_that_make_no_sense_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
