/* test_device.c -- what every device must do, over all devices of devices.def: memory, copies, the
 * order of streams, events, tapes, deadlines, failures, arithmetic, counters. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "device/device.h"
#include "device/pool.h"
#include "support/check.h"
#include "tandem/alloc.h"

static const char *const NAMES[] = {
#define TD_DEVICE(name) #name,
#include "device/devices.def"
#undef TD_DEVICE
};

/* A launch there is a call that puts kernels into the stream: other functions are not recorded. */
static bool is_gpu(const char *name)
{
    return strcmp(name, "cuda") == 0;
}

/* NULL: a GPU is not there, which is said. */
static td_device *open_device(const char *name)
{
    td_device *d;
    td_status st = td__device_open(name, &d);
    if (st == TD_ENOTSUP && is_gpu(name)) {
        print_message("skipped for %s: %s\n", name, td_last_error());
        return NULL;
    }
    CHECK_OK(st);
    CHECK(strcmp(td__device_name(d), name) == 0, "%s is called %s", name, td__device_name(d));
    return d;
}

#define EACH_DEVICE(d)                         \
    for (int i_ = 0; i_ < TD_LEN(NAMES); i_++) \
        for (td_device *d = open_device(NAMES[i_]); d; td__device_release(d), d = NULL)

static td_mem alloc(td_device *d, td_mem_kind kind, size_t nbytes)
{
    td_mem m;
    CHECK_OK(td__mem_alloc(d, kind, nbytes, &m));
    CHECK((uintptr_t)m.at % 64 == 0 && m.nbytes == nbytes, "%p, %zu bytes", m.at, m.nbytes);
    return m;
}

/* ---- Memory ---------------------------------------------------------------------------------- */

TEST(memory_is_zero_and_keeps_what_is_written)
{
    enum { N = 100000 };
    static unsigned char to[N], from[N], zeros[N];
    for (int i = 0; i < N; i++)
        from[i] = (unsigned char)(i * 7 + 1);
    EACH_DEVICE(d)
    for (int kind = 0; kind <= TD_MEM_PINNED; kind++)
        for (int again = 0; again < 2; again++) { /* the second time it may be the same block */
            td_mem m = alloc(d, (td_mem_kind)kind, N);
            CHECK_OK(td__mem_read(d, to, m.at, N));
            CHECK(!memcmp(to, zeros, N), "%s: kind %d is not zeros", NAMES[i_], kind);
            CHECK_OK(td__mem_write(d, m.at, from, N));
            memset(to, 0, N);
            CHECK_OK(td__mem_read(d, to, (char *)m.at + 1, N - 1));
            CHECK(!memcmp(to, from + 1, N - 1), "%s: kind %d", NAMES[i_], kind);
            td__mem_free(&m);
            CHECK(!m.at && !m.device, "a freed block is still there");
            td__mem_free(&m);
        }
}

TEST(blocks_do_not_overlap)
{
    enum { BLOCKS = 40 };
    EACH_DEVICE(d)
    {
        td_mem m[BLOCKS];
        for (int i = 0; i < BLOCKS; i++)
            m[i] = alloc(d, TD_MEM_OWN, (size_t)(i * 997 + 1));
        for (int i = 0; i < BLOCKS; i += 3)
            td__mem_free(&m[i]);
        for (int i = 0; i < BLOCKS; i += 3)
            m[i] = alloc(d, TD_MEM_OWN, (size_t)((BLOCKS - i) * 1009 + 1));
        for (int i = 0; i < BLOCKS; i++) {
            td__mapping map;
            CHECK_OK(td__mem_map(d, m[i].at, m[i].nbytes, TD_MAP_WRITE, &map));
            memset(map.at, i + 1, m[i].nbytes);
            CHECK_OK(td__mem_unmap(&map));
        }
        for (int i = 0; i < BLOCKS; i++) {
            td__mapping map;
            CHECK_OK(td__mem_map(d, m[i].at, m[i].nbytes, TD_MAP_READ, &map));
            for (size_t k = 0; k < m[i].nbytes; k++)
                CHECK(((unsigned char *)map.at)[k] == i + 1, "byte %zu of block %d", k, i);
            td__mem_map_drop(&map);
            td__mem_free(&m[i]);
        }
    }
}

TEST(mappings_write_back_what_they_are_for)
{
    EACH_DEVICE(d)
    {
        td_mem m = alloc(d, TD_MEM_OWN, 8);
        td__mapping map;
        CHECK_OK(td__mem_map(d, m.at, 8, TD_MAP_WRITE, &map));
        memcpy(map.at, "abcdefgh", 8);
        CHECK_OK(td__mem_unmap(&map));
        CHECK_OK(td__mem_map(d, (char *)m.at + 2, 2, TD_MAP_BOTH, &map));
        CHECK(!memcmp(map.at, "cd", 2), "the mapping holds something else");
        CHECK((map.at == (char *)m.at + 2) == td__device_host_reads(d), "a copy, or none");
        ((char *)map.at)[0] = 'X';
        CHECK_OK(td__mem_unmap(&map));
        char text[8];
        CHECK_OK(td__mem_read(d, text, m.at, 8));
        CHECK(!memcmp(text, "abXdefgh", 8), "%.8s", text);
        td__mem_map_drop(&map);
        td__mem_free(&m);
    }
}

TEST(memory_that_is_discarded_reads_as_zeros)
{
    enum { N = 8 << 20, PAGE = 4096 };
    EACH_DEVICE(d)
    {
        td_mem m = alloc(d, TD_MEM_OWN, N);
        td__mapping map;
        td__mem_thin(&m);
        CHECK_OK(td__mem_map(d, m.at, N, TD_MAP_WRITE, &map));
        memset(map.at, 1, N);
        CHECK_OK(td__mem_unmap(&map));
        td__mem_discard(&m, PAGE, 10 * PAGE);
        CHECK_OK(td__mem_map(d, m.at, N, TD_MAP_READ, &map));
        const char *at = map.at;
        CHECK(at[PAGE - 1] == 1 && at[PAGE] == 0 && at[11 * PAGE - 1] == 0 && at[11 * PAGE] == 1,
              "other pages are gone");
        td__mem_map_drop(&map);
        td__mem_free(&m);
    }
}

/* ---- Streams --------------------------------------------------------------------------------- */

typedef struct step {
    int *log, *n;
    int number;
} step;

static void note(const void *args)
{
    const step *s = args;
    s->log[(*s->n)++] = s->number;
}

TEST(a_stream_keeps_its_order_and_copies_arguments)
{
    enum { N = 1000 }; /* more than a queue holds */
    EACH_DEVICE(d)
    {
        td_stream *s;
        int log[N], n = 0;
        CHECK_OK(td__stream_create(d, &s));
        for (int i = 0; i < N; i++) {
            step arg = {log, &n, i};
            td__stream_launch(s, note, &arg, sizeof arg);
        }
        CHECK_OK(td__stream_sync(s));
        CHECK_EQ_INT(n, N);
        for (int i = 0; i < N; i++)
            CHECK_EQ_INT(log[i], i);
        td__stream_destroy(s);
    }
}

typedef struct gate {
    atomic_bool open;
} gate;

static void wait_open(const void *args)
{
    const gate *g = args;
    while (!atomic_load(&g->open))
        ;
}

TEST(streams_wait_for_events_and_hosts_for_deadlines)
{
    td_device *d = open_device("far"); /* on the host work is done when launch returns */
    td_stream *a, *b;
    gate g = {false};
    int log[2], n = 0;
    td_event e, end;
    CHECK_OK(td__stream_create(d, &a));
    CHECK_OK(td__stream_create(d, &b));
    td__stream_launch(a, wait_open, &g, 0);
    step first = {log, &n, 1}, second = {log, &n, 2};
    td__stream_launch(a, note, &first, sizeof first);
    td__event_record(a, &e);
    td__event_wait(b, &e);
    td__stream_launch(b, note, &second, sizeof second);
    td__event_record(b, &end);
    CHECK_STATUS(td__event_sync(&end, td__deadline_in_ms(20)), TD_ETIMEDOUT);
    CHECK_EQ_INT(n, 0);
    atomic_store(&g.open, true);
    CHECK_OK(td__event_sync(&end, td__deadline_in_ms(60000)));
    CHECK(n == 2 && log[0] == 1 && log[1] == 2, "%d notes, %d first", n, log[0]);
    td__stream_destroy(b);
    td__stream_destroy(a);
    td__device_release(d);
}

static void fail_twice(const void *args)
{
    td_stream *const *s = args;
    td__stream_fail(*s, TD_EIO, "node \"conv1\": no more paper");
    td__stream_fail(*s, TD_EINVAL, "and this one comes too late");
}

TEST(the_first_failure_is_told_once)
{
    EACH_DEVICE(d)
    {
        td_stream *s;
        CHECK_OK(td__stream_create(d, &s));
        td__stream_launch(s, fail_twice, &s, sizeof s);
        td__stream_drain(s);
        CHECK_STATUS(td__stream_sync(s), TD_EIO);
        CHECK(strstr(td_last_error(), "conv1"), "%s", td_last_error());
        CHECK_OK(td__stream_sync(s));
        td__stream_destroy(s);
    }
}

TEST(tapes_play_what_was_recorded)
{
    EACH_DEVICE(d)
    {
        td_stream *s = td__device_stream(d);
        td_tape *t;
        int log[16], n = 0;
        td_mem pinned = alloc(d, TD_MEM_PINNED, 8 * sizeof(float));
        float *from = pinned.at, *to = from + 4;
        td_mem m = alloc(d, TD_MEM_OWN, 4 * sizeof *from);
        for (int i = 0; i < 4; i++)
            from[i] = (float)(i + 1);
        CHECK_OK(td__tape_begin(s));
        for (int i = 0; i < 3 && !is_gpu(NAMES[i_]); i++) {
            step arg = {log, &n, i};
            td__stream_launch(s, note, &arg, sizeof arg);
        }
        td__stream_copy(s, m.at, from, 4 * sizeof *from);
        td__stream_scale(s, to, m.at, 2, 4);
        CHECK_OK(td__tape_end(s, &t));
        CHECK_OK(td__stream_sync(s));
        CHECK(n == 0 && to[0] == 0.0f, "recording carries nothing out");
        for (int k = 0; k < 2; k++) {
            from[3] += 1; /* a tape reads its memory when it is played */
            td__tape_play(s, t);
            CHECK_OK(td__stream_sync(s));
            CHECK(to[3] == 2 * from[3], "%g", (double)to[3]);
        }
        CHECK_EQ_INT(n, is_gpu(NAMES[i_]) ? 0 : 6);
        for (int i = 0; i < n; i++)
            CHECK_EQ_INT(log[i], i % 3);
        td__tape_destroy(t);
        td__mem_free(&m);
        td__mem_free(&pinned);
    }
}

/* ---- Arithmetic ------------------------------------------------------------------------------ */

enum { N = 2 * TD_OPTIM_CHUNK + 77, ARRAYS = 4 };

static void results(td_device *d, float out[ARRAYS][N], float blended[N], double sums[5])
{
    td_stream *s = td__device_stream(d);
    td_mem m = alloc(d, TD_MEM_OWN, sizeof(float) * ARRAYS * N);
    td__mapping map;
    CHECK_OK(td__mem_map(d, m.at, m.nbytes, TD_MAP_WRITE, &map));
    float *fill = map.at, *x = m.at;
    for (int i = 0; i < ARRAYS * N; i++)
        fill[i] = (float)((i * 7919) % 1013 + 1) / 331;
    CHECK_OK(td__mem_unmap(&map));
    td__blend_op op[2] = {{x, x + N, 0.3f, 0.7f}, {x + N, x + 2 * N, 1, 0.25f}};
    td__optim_hyper h = {.scale = 0.5f,
                         .clip = 1,
                         .lr = 0.01f,
                         .shrink = 0.9f,
                         .beta1c = 0.1f,
                         .beta2 = 0.99f,
                         .beta2c = 0.01f,
                         .eps = 1e-8f,
                         .root = 1,
                         .unbias = 1};
    td__optim_slice slice = {.p = x, .g = x + N, .s = {x + 2 * N, x + 3 * N}, .n = N};
    td__optim_slice chunk = slice;
    chunk.n = TD_OPTIM_CHUNK;
    td__stream_blend(s, op, 2, 5, N - 9);
    td__stream_blended(s, &op[0], 1, N - 1, blended);
    for (int u = 0; u < TD_UPDATE_COUNT; u++)
        td__stream_update(s, (td__update)u, &h, &slice);
    td__stream_moments(s, &h, &chunk, sums);
    td__stream_squares(s, x, N, 0.5f, 2, sums + 2);
    CHECK_OK(td__stream_sync(s));
    CHECK_OK(td__mem_read(d, out, m.at, m.nbytes));
    td__mem_free(&m);
}

TEST(arithmetic_has_the_same_bits_on_every_device)
{
    static float want[ARRAYS][N], got[ARRAYS][N], want_blended[N], got_blended[N];
    double want_sums[5], got_sums[5];
    td_device *host = open_device("host");
    results(host, want, want_blended, want_sums);
    td__device_release(host);
    CHECK(want_sums[2] > 0 && want_sums[4] > 0 && want_blended[3] > 0, "nothing was computed");
    EACH_DEVICE(d)
    {
        results(d, got, got_blended, got_sums);
        CHECK(!memcmp(got, want, sizeof want), "%s: other bits", NAMES[i_]);
        CHECK(!memcmp(got_blended, want_blended, sizeof(float) * (N - 1)), "%s: blended",
              NAMES[i_]);
        CHECK(!memcmp(got_sums, want_sums, sizeof want_sums), "%s: other sums", NAMES[i_]);
    }
}

/* ---- The host's pool ------------------------------------------------------------------------- */

TEST(idle_blocks_are_kept_marked_and_released_at_the_next_request)
{
    enum { SIZE = 1000 };
    td__pool_blocks *p;
    void *a[4];
    CHECK_OK(td__pool_blocks_create(2 * SIZE, &td__pool_host, NULL, &p));
    for (int i = 0; i < 4; i++)
        a[i] = td__pool_blocks_take(p, SIZE);
    for (int i = 0; i < 4; i++) {
        memset(a[i], 1, SIZE);
        td__pool_blocks_give(p, a[i], SIZE);
    }
    td__device_counters c = td__pool_blocks_count(p);
    CHECK(c.used == 0 && c.idle == 4 * SIZE && c.released == 0, "%zu idle, %d released", c.idle,
          (int)c.released);
    const char *again = td__pool_blocks_take(p, SIZE); /* takes one marked block, frees the other */
    c = td__pool_blocks_count(p);
    CHECK(again == a[0] && again[0] == 0 && again[SIZE - 1] == 0, "not the first block, zeroed");
    CHECK(c.reused == 1 && c.requests == 5 && c.released == 1, "%d reused, %d released",
          (int)c.reused, (int)c.released);
    CHECK(c.used == SIZE && c.idle == 2 * SIZE && c.peak == 4 * SIZE, "%zu used, %zu idle", c.used,
          c.idle);
    void *other = td__pool_blocks_take(p, SIZE + 1);
    CHECK(td__pool_blocks_count(p).reused == 1, "a block of another size was taken");
    td__pool_blocks_give(p, other, SIZE + 1);
    td__pool_blocks_give(p, (void *)(uintptr_t)again, SIZE);
    td__pool_blocks_destroy(p);
}

TEST(a_device_that_nobody_holds_keeps_nothing)
{
    uint64_t before = td_alloc_get_stats().live_bytes;
    EACH_DEVICE(d)
    {
        td_mem m = alloc(d, TD_MEM_OWN, 100000);
        td__mem_free(&m);
    }
    CHECK_EQ_INT(td_alloc_get_stats().live_bytes, before);
    EACH_DEVICE(d)
    CHECK(td__device_count(d).idle == 0, "%s keeps memory of a device that is gone", NAMES[i_]);
}

TEST(unknown_devices_are_refused)
{
    td_device *d;
    CHECK_STATUS(td__device_open("abacus", &d), TD_EINVAL);
}

/* ---- Memory that other processes open -------------------------------------------------------- */

enum { PEER_BYTES = 3 << 20 };

static void fill(unsigned char *to, int seed)
{
    for (int i = 0; i < PEER_BYTES; i++)
        to[i] = (unsigned char)(i * 7 + i / 251 + seed);
}

static bool peer_holds(td_device *d, const void *at, int seed)
{
    unsigned char *is = test_calloc(2, PEER_BYTES), *want = is + PEER_BYTES;
    CHECK_OK(td__mem_read(d, is, at, PEER_BYTES));
    fill(want, seed);
    bool same = memcmp(is, want, PEER_BYTES) == 0;
    test_free(is);
    return same;
}

static void peer_write(td_device *d, void *at, int seed)
{
    unsigned char *bytes = test_malloc(PEER_BYTES);
    fill(bytes, seed);
    CHECK_OK(td__mem_write(d, at, bytes, PEER_BYTES));
    test_free(bytes);
}

/* The other process: opens the memory, finds what is in it and writes something else. 0: done. */
static int be_peer(const char *name, const char *ticket)
{
    td_device *d;
    td_mem m;
    td__mem_ticket t;
    unsigned byte;
    unsigned char *to = (unsigned char *)&t;
    for (size_t i = 0; i < sizeof t; i++, to++) {
        if (sscanf(ticket + 2 * i, "%2x", &byte) != 1)
            return 2;
        *to = (unsigned char)byte;
    }
    if (td__device_open(name, &d) || td__mem_open(d, &t, PEER_BYTES, &m)) {
        fprintf(stderr, "peer: %s\n", td_last_error());
        return 3;
    }
    if (!peer_holds(d, m.at, 1))
        return 4;
    peer_write(d, m.at, 2);
    t.processor[0] ^= 1;
    td_mem none;
    if (td__mem_open(d, &t, PEER_BYTES, &none) != TD_ENOTSUP)
        return 5;
    td__mem_free(&m);
    td__device_release(d);
    return 0;
}

TEST(other_processes_open_peer_memory)
{
    EACH_DEVICE(d)
    {
        td_mem m;
        td__mem_ticket t;
        if (!is_gpu(td__device_name(d))) {
            CHECK_STATUS(td__mem_alloc(d, TD_MEM_PEER, PEER_BYTES, &m), TD_ENOTSUP);
            continue;
        }
        CHECK_OK(td__mem_alloc(d, TD_MEM_PEER, PEER_BYTES, &m));
        peer_write(d, m.at, 1);
        CHECK_OK(td__mem_handle(&m, &t));
        char text[2 * sizeof t + 1];
        for (size_t i = 0; i < sizeof t; i++)
            snprintf(text + 2 * i, 3, "%02x", ((const unsigned char *)&t)[i]);
        pid_t child = fork(); /* and a new program, since a driver does not survive a fork */
        if (child == 0) {
            execl("/proc/self/exe", "test_device", "peer", td__device_name(d), text, (char *)NULL);
            _exit(127);
        }
        int status = -1;
        CHECK(waitpid(child, &status, 0) == child, "no child");
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the other process: status %d",
              WEXITSTATUS(status));
        CHECK(peer_holds(d, m.at, 2), "what the other process wrote is not there");
        td__mem_free(&m);
    }
}

TEST(timers_have_the_time_between_two_points)
{
    EACH_DEVICE(d)
    {
        enum { MANY = 1 << 20 };
        td__timer *t;
        CHECK_OK(td__timer_create(d, 3, &t));
        CHECK((t != NULL) == is_gpu(td__device_name(d)), "%s", td__device_name(d));
        td_mem m = alloc(d, TD_MEM_OWN, MANY * sizeof(float));
        td_stream *s = td__device_stream(d);
        for (int i = 0; t && i < 3; i++) {
            td__timer_mark(t, s, i);
            td__stream_scale(s, m.at, m.at, 1.5f, MANY);
        }
        CHECK_OK(td__stream_sync(s));
        if (t)
            CHECK(td__timer_ns(t, 0, 1) > 0 && td__timer_ns(t, 0, 2) >= td__timer_ns(t, 0, 1) &&
                      td__timer_ns(t, 0, 2) < 10000000000u,
                  "%llu ns", (unsigned long long)td__timer_ns(t, 0, 2));
        td__mem_free(&m);
        td__timer_destroy(t);
    }
}

TEST(devices_of_a_kind_have_numbers)
{
    static const char *const REFUSED[] = {"host:1", "far:1", "host:64",
                                          "host:x", "host:", "host:-1"};
    td_device *d, *again;
    for (int i = 0; i < TD_LEN(NAMES); i++) {
        char first[16];
        snprintf(first, sizeof first, "%s:0", NAMES[i]);
        if (!(d = open_device(NAMES[i])))
            continue;
        CHECK_OK(td__device_open(first, &again));
        CHECK(again == d, "%s is another device than %s", first, NAMES[i]);
        td__device_release(again);
        td__device_release(d);
    }
    for (int i = 0; i < TD_LEN(REFUSED); i++) {
        td_status st = td__device_open(REFUSED[i], &d);
        CHECK(st == TD_EINVAL && !d, "%s: %s", REFUSED[i], td_status_name(st));
    }
}

/* On the emulated GPUs there are two (EMULATED_GPUS); on a machine with one there is none. */
TEST(two_gpus_work_in_one_process)
{
    td_device *gpu[2] = {NULL, NULL};
    td_mem m[2];
    float out[2] = {0, 0};
    const float in[2] = {3, 5};
    td_event written;
    if (td__device_open("cuda", &gpu[0]) || td__device_open("cuda:1", &gpu[1])) {
        print_message("skipped: %s\n", td_last_error());
        td__device_release(gpu[0]);
        return;
    }
    CHECK(gpu[0] != gpu[1], "cuda and cuda:1 are one device");
    for (int i = 0; i < 2; i++)
        m[i] = alloc(gpu[i], TD_MEM_OWN, sizeof in);
    CHECK_OK(td__mem_write(gpu[0], m[0].at, in, sizeof in));
    td__stream_scale(td__device_stream(gpu[0]), m[0].at, m[0].at, 2, 2);
    td__event_record(td__device_stream(gpu[0]), &written);
    td__event_wait(td__device_stream(gpu[1]), &written);
    td__stream_copy(td__device_stream(gpu[1]), m[1].at, m[0].at, sizeof in);
    td__stream_scale(td__device_stream(gpu[1]), m[1].at, m[1].at, 10, 2);
    CHECK_OK(td__mem_read(gpu[1], out, m[1].at, sizeof out));
    CHECK(out[0] == 60 && out[1] == 100, "%g, %g", (double)out[0], (double)out[1]);
    CHECK(td__device_count(gpu[1]).used == sizeof in, "cuda:1 has memory of cuda");
    for (int i = 0; i < 2; i++) {
        td__mem_free(&m[i]);
        td__device_release(gpu[i]);
    }
}

/* What a rank of the same process does with a ticket: no other mapping, the same memory. */
TEST(a_gpu_opens_memory_of_another_in_its_process)
{
    td_device *gpu[2] = {NULL, NULL};
    td_mem m, seen;
    td__mem_ticket t;
    if (td__device_open("cuda", &gpu[0]) || td__device_open("cuda:1", &gpu[1])) {
        print_message("skipped: %s\n", td_last_error());
        td__device_release(gpu[0]);
        return;
    }
    CHECK_OK(td__mem_alloc(gpu[0], TD_MEM_PEER, PEER_BYTES, &m));
    CHECK_OK(td__mem_handle(&m, &t));
    for (int i = 0; i < 2; i++) { /* the second time they are known to each other */
        CHECK_OK(td__mem_open(gpu[1], &t, PEER_BYTES, &seen));
        CHECK(seen.at == m.at && seen.kind == TD_MEM_LENT, "%p is not %p", seen.at, m.at);
        peer_write(gpu[1], seen.at, 1 + i);
        CHECK(peer_holds(gpu[0], m.at, 1 + i), "what cuda:1 wrote is not there");
        td__mem_free(&seen);
    }
    t.process[0] ^= 1; /* as if it were another's: the driver refuses its own handle */
    CHECK(td__mem_open(gpu[1], &t, PEER_BYTES, &seen) != TD_OK, "a handle of this process is open");
    td__mem_free(&m);
    td__device_release(gpu[1]);
    td__device_release(gpu[0]);
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "peer") == 0)
        return be_peer(argv[2], argv[3]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_zero_and_keeps_what_is_written),
        cmocka_unit_test(blocks_do_not_overlap),
        cmocka_unit_test(mappings_write_back_what_they_are_for),
        cmocka_unit_test(memory_that_is_discarded_reads_as_zeros),
        cmocka_unit_test(a_stream_keeps_its_order_and_copies_arguments),
        cmocka_unit_test(streams_wait_for_events_and_hosts_for_deadlines),
        cmocka_unit_test(the_first_failure_is_told_once),
        cmocka_unit_test(tapes_play_what_was_recorded),
        cmocka_unit_test(arithmetic_has_the_same_bits_on_every_device),
        cmocka_unit_test(idle_blocks_are_kept_marked_and_released_at_the_next_request),
        cmocka_unit_test(a_device_that_nobody_holds_keeps_nothing),
        cmocka_unit_test(unknown_devices_are_refused),
        cmocka_unit_test(other_processes_open_peer_memory),
        cmocka_unit_test(timers_have_the_time_between_two_points),
        cmocka_unit_test(devices_of_a_kind_have_numbers),
        cmocka_unit_test(two_gpus_work_in_one_process),
        cmocka_unit_test(a_gpu_opens_memory_of_another_in_its_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
