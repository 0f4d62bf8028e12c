/* Real deadlocks, of orders that the checker of plans refuses (tests/unit/test_plan.c), carried out
 * without it: every rank's call ends when its time is up, with an error that says which rank it
 * waited for, and in what; and nothing waits for good. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/deadline.h"
#include "support/check.h"
#include "support/ranks.h"

/* Larger than what a transport takes without a receiver. */
enum { LARGE = 16 << 20, TIMEOUT_MS = 700 };

static const td_coll_opts SOON = {.timeout_ms = TIMEOUT_MS};

/* A rank that gives up takes the others with it: for them it is a lost peer. */
static void check_ended(ranks_ctx *r, td_status st, const char *operation)
{
    char other[32];
    snprintf(other, sizeof other, "rank %d", 1 - r->rank);
    RANK_CHECK(r, st == TD_ETIMEDOUT || st == TD_EPEER || st == TD_EABORTED, "%s (%s)",
               td_status_name(st), td_last_error());
    RANK_CHECK(r, strstr(td_last_error(), other), "no %s: %s", other, td_last_error());
    RANK_CHECK(r, strstr(td_last_error(), operation), "no '%s': %s", operation, td_last_error());
}

/* Both send before they receive, and neither is taken (pytorch/pytorch#172668). */
static void crossed_sends(ranks_ctx *r)
{
    uint8_t *data = check_alloc_guarded(LARGE);
    memset(data, 1, LARGE);
    td_status st = td_send(r->comm, data, LARGE, TD_U8, 1 - r->rank, &SOON);
    if (!st)
        st = td_recv(r->comm, data, LARGE, TD_U8, 1 - r->rank, &SOON);
    check_ended(r, st, "send #1");
    check_free_guarded(data);
}

/* Both receive first. */
static void crossed_receives(ranks_ctx *r)
{
    float x = 0;
    td_status st = td_recv(r->comm, &x, 1, TD_F32, 1 - r->rank, &SOON);
    check_ended(r, st, "recv #1");
}

/* Rank 0 is in a collective, rank 1 waits for what rank 0 would send after it
 * (Megatron-LM#5100). */
static void collective_first(ranks_ctx *r)
{
    float x = 1;
    td_status st = r->rank == 0 ? td_allreduce(r->comm, &x, &x, 1, TD_F32, TD_REDUCE_SUM, &SOON)
                                : td_recv(r->comm, &x, 1, TD_F32, 0, &SOON);
    RANK_CHECK(r, st, "a collective and a message have met");
    RANK_CHECK(r, st == TD_ETIMEDOUT || st == TD_EPEER || st == TD_EABORTED || st == TD_EMISMATCH,
               "%s (%s)", td_status_name(st), td_last_error());
    RANK_CHECK(r, strstr(td_last_error(), "allreduce #1") || strstr(td_last_error(), "recv #1"),
               "%s", td_last_error());
}

static void everywhere(ranks_body body)
{
    static const char *const TRANSPORTS[] = {"inproc", "shm", "tcp"};
    for (int i = 0; i < TD_LEN(TRANSPORTS); i++) {
        ranks_opts o = {.transport = TRANSPORTS[i], .processes = i > 0, .comm = {.stall_ms = 100}};
        td__deadline until = td__deadline_in_ms(60 * TIMEOUT_MS);
        ranks_run(2, &o, body, NULL);
        CHECK(!td__deadline_passed(until), "%s: took longer than %d ms", TRANSPORTS[i],
              60 * TIMEOUT_MS);
    }
}

TEST(crossed_sends_end)
{
    everywhere(crossed_sends);
}

TEST(crossed_receives_end)
{
    everywhere(crossed_receives);
}

TEST(a_collective_before_a_message_ends)
{
    everywhere(collective_first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crossed_sends_end),
        cmocka_unit_test(crossed_receives_end),
        cmocka_unit_test(a_collective_before_a_message_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
