/* Real deadlocks, of orders that the checker of plans refuses (tests/unit/test_plan.c), carried out
 * without it: ranks find out that they wait for each other, and every rank's call ends with
 * TD_EDEADLOCK and the calls of both sides before its time is up (TD_ETIMEDOUT); and a rank that is
 * only late is never taken for one of a circle. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Test labels: slow */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/deadline.h"
#include "support/check.h"
#include "support/ranks.h"

/* Larger than what a transport takes without a receiver. */
enum { LARGE = 16 << 20, STALL_MS = 100, TIMEOUT_MS = 60000 };

/* The call has ended with both sides named. */
static void check_ended(ranks_ctx *r, td_status st, const char *one, const char *other)
{
    const char *text = td_last_error();
    RANK_CHECK(r, st == TD_EDEADLOCK, "%s (%s)", td_status_name(st), text);
    RANK_CHECK(r, strstr(text, "wait for each other"), "%s", text);
    RANK_CHECK(r, strstr(text, one), "no '%s': %s", one, text);
    RANK_CHECK(r, strstr(text, other), "no '%s': %s", other, text);
}

/* Both send before they receive, and neither is taken (pytorch/pytorch#172668). */
static void crossed_sends(ranks_ctx *r)
{
    uint8_t *data = check_alloc_guarded(LARGE);
    memset(data, 1, LARGE);
    td_status st = td_send(r->comm, data, LARGE, TD_U8, 1 - r->rank, NULL);
    if (!st)
        st = td_recv(r->comm, data, LARGE, TD_U8, 1 - r->rank, NULL);
    check_ended(r, st, "rank 0 is in send #1 (16777216 u8 to rank 1",
                "rank 1 is in send #1 (16777216 u8 to rank 0");
    check_free_guarded(data);
}

/* Both receive first. */
static void crossed_receives(ranks_ctx *r)
{
    float x = 0;
    td_status st = td_recv(r->comm, &x, 1, TD_F32, 1 - r->rank, NULL);
    check_ended(r, st, "rank 0 is in recv #1", "rank 1 is in recv #1");
}

/* Each receives from the next: nobody sees more than one neighbour. Rank 3 waits for the circle and
 * is no part of it. */
static void circle_of_receives(ranks_ctx *r)
{
    float x = 0;
    int from = r->rank == 3 ? 0 : (r->rank + 1) % 3;
    td_status st = td_recv(r->comm, &x, 1, TD_F32, from, NULL);
    check_ended(r, st, "rank 0 is in recv #1", "rank 2 is in recv #1");
    RANK_CHECK(r, strstr(td_last_error(), "rank 1 is in recv #1"), "%s", td_last_error());
    RANK_CHECK(r, !strstr(td_last_error(), "rank 3"), "%s", td_last_error());
}

/* Rank 0 is in a collective, rank 1 waits for what rank 0 would send after it
 * (Megatron-LM#5100). Where the collective's own message comes to the receive, it does not fit. */
static void collective_first(ranks_ctx *r)
{
    float x = 1;
    td_status st = r->rank == 0 ? td_allreduce(r->comm, &x, &x, 1, TD_F32, TD_REDUCE_SUM, NULL)
                                : td_recv(r->comm, &x, 1, TD_F32, 0, NULL);
    RANK_CHECK(r, st == TD_EDEADLOCK || st == TD_EMISMATCH, "%s (%s)", td_status_name(st),
               td_last_error());
    RANK_CHECK(r, strstr(td_last_error(), "allreduce #1") && strstr(td_last_error(), "recv #1"),
               "%s", td_last_error());
}

/* Two groups of the same ranks, entered in opposite orders. */
static void crossed_groups(ranks_ctx *r)
{
    td_comm *group[2];
    float x = 1;
    for (int i = 0; i < 2; i++) {
        td_status made = td_comm_split(r->comm, 0, 0, &group[i]);
        RANK_CHECK(r, !made, "%s", td_last_error());
        made = td_barrier(group[i], NULL);
        RANK_CHECK(r, !made, "%s", td_last_error());
    }
    td_status st = td_allreduce(group[r->rank], &x, &x, 1, TD_F32, TD_REDUCE_SUM, NULL);
    check_ended(r, st, "rank 0 of ", "rank 1 of ");
    for (int i = 0; i < 2; i++)
        td_comm_destroy(group[i]);
}

static void compute_for(unsigned ms)
{
    td__deadline until = td__deadline_in_ms(ms);
    while (!td__deadline_passed(until))
        sched_yield();
}

/* Rank 1 is late for longer than a circle takes to be found: that is none. */
static void only_late(ranks_ctx *r)
{
    float x = 1;
    if (r->rank == 1)
        compute_for(10 * STALL_MS);
    td_status st = td_allreduce(r->comm, &x, &x, 1, TD_F32, TD_REDUCE_SUM, NULL);
    RANK_CHECK(r, !st, "allreduce: %s", td_last_error());
    if (r->rank == 1)
        compute_for(10 * STALL_MS);
    st = r->rank == 0 ? td_recv(r->comm, &x, 1, TD_F32, 1, NULL)
                      : td_send(r->comm, &x, 1, TD_F32, 0, NULL);
    RANK_CHECK(r, !st, "message: %s", td_last_error());
}

/* Rank 1 of a world in one process, made by the thread of rank 0, comes late. */
static void *late_rank(void *arg)
{
    float x = 1;
    compute_for(10 * STALL_MS);
    return (void *)(intptr_t)td_allreduce(arg, &x, &x, 1, TD_F32, TD_REDUCE_SUM, NULL);
}

static void everywhere(int n, ranks_body body)
{
    static const char *const TRANSPORTS[] = {"inproc", "shm", "tcp"};
    for (int i = 0; i < TD_LEN(TRANSPORTS); i++) {
        ranks_opts o = {.transport = TRANSPORTS[i],
                        .processes = i > 0,
                        .comm = {.stall_ms = STALL_MS, .timeout_ms = TIMEOUT_MS}};
        ranks_run(n, &o, body, NULL);
    }
}

TEST(crossed_sends_end)
{
    everywhere(2, crossed_sends);
}

TEST(crossed_receives_end)
{
    everywhere(2, crossed_receives);
}

TEST(a_circle_of_three_ends)
{
    everywhere(4, circle_of_receives);
}

TEST(a_collective_before_a_message_ends)
{
    everywhere(2, collective_first);
}

TEST(groups_in_opposite_orders_end)
{
    everywhere(2, crossed_groups);
}

TEST(a_late_rank_is_no_deadlock)
{
    everywhere(2, only_late);
}

TEST(a_late_thread_is_no_deadlock)
{
    const td_comm_opts o = {.stall_ms = STALL_MS, .timeout_ms = TIMEOUT_MS};
    td_comm *c[2];
    pthread_t other;
    void *late;
    float x = 1;
    CHECK_OK(td_comm_threads(2, &o, c));
    CHECK(!pthread_create(&other, NULL, late_rank, c[1]), "no thread");
    CHECK_OK(td_allreduce(c[0], &x, &x, 1, TD_F32, TD_REDUCE_SUM, NULL));
    CHECK(!pthread_join(other, &late), "no end of the thread");
    CHECK_EQ_INT((int)(intptr_t)late, TD_OK);
    td_comm_destroy(c[0]);
    td_comm_destroy(c[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crossed_sends_end),
        cmocka_unit_test(crossed_receives_end),
        cmocka_unit_test(a_circle_of_three_ends),
        cmocka_unit_test(a_collective_before_a_message_ends),
        cmocka_unit_test(groups_in_opposite_orders_end),
        cmocka_unit_test(a_late_rank_is_no_deadlock),
        cmocka_unit_test(a_late_thread_is_no_deadlock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
