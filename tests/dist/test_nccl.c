/* NCCL as an engine (coll/nccl/nccl.h): on the emulated GPUs and NCCL (tests/emulator/) between two
 * ranks; with a GPU and NCCL of this machine, what one rank can do with itself, and two ranks where
 * there are two GPUs. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "coll/nccl/library.h"
#include "coll/nccl/nccl.h"
#include "net/tls.h"
#include "support/check.h"
#include "support/ranks.h"

enum { MANY = 50000 }; /* floats: several pieces of a mailbox of the emulated one */

static bool emulated(void)
{
    const char *name = getenv("TANDEM_NCCL");
    return name && strstr(name, "emulated");
}

/* Device `name`; NULL: it is not there. */
static td_device *device(const char *name)
{
    td_device *d = NULL;
    if (td__device_open(name, &d))
        print_message("skipped: %s\n", td_last_error());
    return d;
}

static td_mem filled(td_device *d, int rank)
{
    td_mem m;
    float *x = test_malloc(MANY * sizeof *x);
    for (int i = 0; i < MANY; i++)
        x[i] = (float)(rank * 1000 + i % 997);
    CHECK_OK(td__mem_alloc(d, TD_MEM_OWN, 2 * MANY * sizeof *x, &m));
    CHECK_OK(td__mem_write(d, m.at, x, MANY * sizeof *x));
    test_free(x);
    return m;
}

/* Elements of memory that are not by * (what rank filled in, and what rank `and` did). */
static int differing(td_device *d, const void *at, int rank, int and)
{
    int bad = 0;
    float *x = test_malloc(MANY * sizeof *x);
    CHECK_OK(td__mem_read(d, x, at, MANY * sizeof *x));
    for (int i = 0; i < MANY; i++)
        bad += x[i] != (float)(rank * 1000 + i % 997) + (and < 0 ? 0 : (float)(and*1000 + i % 997));
    test_free(x);
    return bad;
}

/* The library is loaded once: a version that is too old is not. Comes first. */
TEST(an_old_library_is_refused)
{
    const td__nccl_api *api;
    if (!emulated())
        skip();
    setenv("EMULATED_NCCL", "21000", 1);
    CHECK_STATUS(td__nccl_load(&api), TD_ENOTSUP);
    CHECK(strstr(td_last_error(), "too old: version 21000"), "%s", td_last_error());
    unsetenv("EMULATED_NCCL");
    CHECK_OK(td__nccl_load(&api));
}

TEST(one_rank_sends_to_itself)
{
    td_comm *comm;
    td__nccl *n;
    td_device *d = device("cuda");
    if (!d)
        skip();
    CHECK_OK(td_comm_threads(1, NULL, &comm));
    CHECK_OK(td__nccl_open(comm, d, "tests", &n));
    if (!n) {
        print_message("skipped: no NCCL\n");
    } else {
        td_mem m = filled(d, 3);
        float *from = m.at, *to = from + MANY;
        CHECK_OK(td__nccl_swap(n, from, 0, to, 0, MANY * sizeof *to));
        CHECK(differing(d, to, 3, -1) == 0, "a message to itself");
        CHECK_OK(td__mem_write(d, to, (float[4]){0}, 4 * sizeof *to));
        CHECK_OK(td__nccl_all_gather(n, from, to, MANY * sizeof *to));
        CHECK(differing(d, to, 3, -1) == 0, "an all-gather of one rank");
        CHECK_OK(td__nccl_sum(n, to, MANY));
        CHECK(differing(d, to, 3, -1) == 0, "a sum of one rank");
        td__nccl_close(n);
        td__mem_free(&m);
    }
    td_comm_destroy(comm);
    td__device_release(d);
}

static void exchange(ranks_ctx *r, td_device *d, td__nccl *n)
{
    td_mem m = filled(d, 1 + r->rank), in = filled(d, 9), both;
    const size_t part = MANY * sizeof(float);
    CHECK_OK(td__mem_alloc(d, TD_MEM_OWN, 2 * part, &both));
    float *own = m.at, *come = in.at, *whole = both.at;
    td_stream *on = td__device_stream(d);
    for (int step = 0; step < 3; step++) {
        RANK_OK(r, td__nccl_swap(n, own, 0, come, part, part));
        for (int k = 0; k < 2; k++)
            RANK_CHECK(r, !differing(d, come + k * MANY, 1 + k, -1), "a message of rank %d", k);
        td__stream_copy(on, whole + r->rank * MANY, own, part);
        RANK_OK(r, td__stream_sync(on));
        RANK_OK(r, td__nccl_all_gather(n, whole + r->rank * MANY, whole, part));
        for (int k = 0; k < 2; k++)
            RANK_CHECK(r, !differing(d, whole + k * MANY, 1 + k, -1), "rank %d's part", k);
        RANK_OK(r, td__nccl_sum(n, whole, MANY));
        RANK_CHECK(r, !differing(d, whole, 1, 1), "the sum of two");
    }
    td__mem_free(&both);
    td__mem_free(&in);
    td__mem_free(&m);
}

static void two_ranks(ranks_ctx *r)
{
    td__nccl *n;
    td_device *d = device(r->rank ? "cuda:1" : "cuda:0");
    RANK_CHECK(r, d, "no GPU");
    RANK_OK(r, td__nccl_open(r->comm, d, "tests", &n));
    RANK_CHECK(r, n, "two GPUs, but no NCCL");
    exchange(r, d, n);
    td__nccl_close(n);
    td__device_release(d);
}

/* Have two ranks of a process a GPU each, and NCCL? */
static bool two_gpus(void)
{
    const td__nccl_api *api;
    td_device *d = device("cuda:1");
    bool have = d && !td__nccl_load(&api);
    td__device_release(d);
    return have;
}

TEST(two_ranks_exchange_what_is_on_their_gpus)
{
    if (!two_gpus())
        skip();
    ranks_run(2, NULL, two_ranks, NULL);
}

static void share_one(ranks_ctx *r)
{
    td__nccl *n;
    td_device *d = device("cuda");
    RANK_CHECK(r, d, "no GPU");
    td_status st = td__nccl_open(r->comm, d, "tests", &n);
    if (!td__nccl_asked(r->comm)) {
        RANK_CHECK(r, !st && !n, "%s", td_last_error());
    } else {
        RANK_CHECK(r, st == TD_ENOTSUP && strstr(td_last_error(), "ranks 0 and 1 share a GPU"),
                   "%s", td_last_error());
    }
    td__device_release(d);
}

TEST(ranks_that_share_a_gpu_are_refused)
{
    const td__nccl_api *api;
    td_device *d = device("cuda");
    if (!d || td__nccl_load(&api)) {
        td__device_release(d);
        skip();
    }
    ranks_run(2, NULL, share_one, NULL);
    setenv("TANDEM_ENGINE", "nccl", 1);
    ranks_run(2, NULL, share_one, NULL);
    unsetenv("TANDEM_ENGINE");
    ranks_run(2, &(ranks_opts){.comm = {.engine = "nccl"}}, share_one, NULL);
    td__device_release(d);
}

static void in_a_group(ranks_ctx *r)
{
    td_comm *group;
    td__nccl *n;
    td_device *d = device(r->rank ? "cuda:1" : "cuda:0");
    RANK_CHECK(r, d, "no GPU");
    RANK_OK(r, td_comm_split(r->comm, 0, r->rank, &group));
    RANK_CHECK(r, td__nccl_asked(group), "a group has another engine than its world");
    RANK_OK(r, td__nccl_open(group, d, "tests", &n));
    RANK_CHECK(r, n, "two GPUs, but no NCCL");
    td__nccl_close(n);
    td_comm_destroy(group);
    td__device_release(d);
}

TEST(the_engine_of_a_world_is_that_of_its_groups)
{
    if (!two_gpus())
        skip();
    ranks_run(2, &(ranks_opts){.transport = "tcp", .comm = {.engine = "nccl"}}, in_a_group, NULL);
}

/* What NCCL sends is not encrypted: a world with TLS, and a group of it, does without, whatever it
 * asks for. */
static void must_be_encrypted(ranks_ctx *r)
{
    td_comm *group;
    td__nccl *n;
    td_device *d = device(r->rank ? "cuda:1" : "cuda:0");
    RANK_CHECK(r, d, "no GPU");
    RANK_OK(r, td_comm_split(r->comm, 0, r->rank, &group));
    td_comm *both[] = {r->comm, group};
    for (int i = 0; i < 2; i++) {
        RANK_STATUS(r, td__nccl_open(both[i], d, "tests", &n), TD_ENOTSUP);
        RANK_CHECK(r, strstr(td_last_error(), "encrypted (--tls)"), "%s", td_last_error());
    }
    td_comm_destroy(group);
    td__device_release(d);
}

TEST(a_world_with_tls_does_without)
{
    ranks_opts o = {.transport = "tcp", .tls_dir = check_tmpdir(), .comm = {.engine = "nccl"}};
    if (!two_gpus())
        skip();
    CHECK_OK(td__tls_make(o.tls_dir));
    ranks_run(2, &o, must_be_encrypted, NULL);
}

/* Rank 1 does not come: rank 0's call has an end, and rank 1 learns of it. */
static void one_is_late(ranks_ctx *r)
{
    const td_coll_opts patient = {.timeout_ms = 60000};
    td__nccl *n;
    td_device *d = device(r->rank ? "cuda:1" : "cuda:0");
    RANK_CHECK(r, d, "no GPU");
    RANK_OK(r, td__nccl_open(r->comm, d, "tests", &n));
    RANK_CHECK(r, n, "two GPUs, but no NCCL");
    td_mem m = filled(d, r->rank);
    if (r->rank == 0) {
        RANK_STATUS(r, td__nccl_all_gather(n, m.at, m.at, MANY * sizeof(float) / 2), TD_ETIMEDOUT);
        RANK_CHECK(r, strstr(td_last_error(), "rank 1 did not come in time"), "%s",
                   td_last_error());
        RANK_STATUS(r, td__nccl_sum(n, m.at, MANY), TD_EABORTED);
    } else {
        RANK_STATUS(r, td_recv(r->comm, &(char){0}, 1, TD_U8, 0, &patient), TD_ETIMEDOUT);
    }
    td__nccl_close(n);
    td__mem_free(&m);
    td__device_release(d);
}

TEST(a_rank_that_does_not_come_is_not_waited_for_without_end)
{
    if (!two_gpus())
        skip();
    ranks_run(2, &(ranks_opts){.comm = {.timeout_ms = 2000}}, one_is_late, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_old_library_is_refused),
        cmocka_unit_test(one_rank_sends_to_itself),
        cmocka_unit_test(two_ranks_exchange_what_is_on_their_gpus),
        cmocka_unit_test(ranks_that_share_a_gpu_are_refused),
        cmocka_unit_test(the_engine_of_a_world_is_that_of_its_groups),
        cmocka_unit_test(a_world_with_tls_does_without),
        cmocka_unit_test(a_rank_that_does_not_come_is_not_waited_for_without_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
