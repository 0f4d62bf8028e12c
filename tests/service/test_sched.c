/* The scheduler, event by event: order, groups, quotas, backfill, reservation, preemption, retries,
 * deadlines. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "service/sched/sched.h"
#include "support/check.h"

static td__sched *create(int64_t slots)
{
    td__sched *s;

    CHECK_OK(td__sched_create(
        &(td__sched_opts){.capacity = {slots, 2, 1000}, .starve_ms = 1000, .preempt_ms = -1}, &s));
    return s;
}

static void submit(td__sched *s, int64_t now, td__sched_job j)
{
    j.user = j.user ? j.user : "u";
    j.submitted_ms = now;
    CHECK_OK(td__sched_add(s, now, &j));
}

/* Everything that follows, as "L1 S2 C3:why ..." in `text`: launch, stop, new state. */
static const char *follow(td__sched *s, int64_t now)
{
    static char text[512];
    td__sched_action a;

    text[0] = '\0';
    td__sched_tick(s, now);
    while (td__sched_take(s, &a)) {
        size_t n = strlen(text);
        const char *before = n ? " " : "";
        if (a.kind == TD_SCHED_LAUNCH)
            snprintf(text + n, sizeof text - n, "%slaunch %d", before, a.job);
        else if (a.kind == TD_SCHED_STOP)
            snprintf(text + n, sizeof text - n, "%sstop %d", before, a.job);
        else
            snprintf(text + n, sizeof text - n, "%s%s %d", before, td__job_state_name(a.state),
                     a.job);
    }
    const char *wrong = td__sched_check(s);
    if (wrong)
        fail_msg("%s", wrong);
    return text;
}

#define FOLLOWS(s, now, want) assert_string_equal(follow(s, now), want)

TEST(priority_then_id)
{
    td__sched *s = create(1);

    submit(s, 1, (td__sched_job){.id = 1, .need = {1, 0, 0}});
    FOLLOWS(s, 1, "launch 1");
    submit(s, 2, (td__sched_job){.id = 2, .need = {1, 0, 0}});
    submit(s, 2, (td__sched_job){.id = 3, .need = {1, 0, 0}, .priority = 5});
    submit(s, 2, (td__sched_job){.id = 4, .need = {1, 0, 0}, .priority = 5});
    FOLLOWS(s, 2, "");
    assert_int_equal(td__sched_position(s, 2), 0);
    assert_int_equal(td__sched_position(s, 4), 2);
    assert_int_equal(td__sched_position(s, 1), -1);
    td__sched_started(s, 3, 1, 1);
    FOLLOWS(s, 3, "running 1");
    td__sched_ended(s, 4, 1, 1, TD_EXIT_CLASS_OK);
    FOLLOWS(s, 4, "succeeded 1 launch 3");
    td__sched_ended(s, 5, 3, 1, TD_EXIT_CLASS_PERMANENT);
    FOLLOWS(s, 5, "failed 3 launch 4");
    td__sched_ended(s, 6, 4, 9, TD_EXIT_CLASS_OK); /* another attempt's */
    FOLLOWS(s, 6, "");
    td__sched_ended(s, 6, 4, 1, TD_EXIT_CLASS_OK);
    FOLLOWS(s, 6, "succeeded 4 launch 2");
    td__sched_destroy(s);
}

/* Users with less in use go first; then those with less past usage; weights count. */
static void launch_end(td__sched *s, int64_t now, int32_t id, const char *want)
{
    td__sched_ended(s, now, id, 1, TD_EXIT_CLASS_OK);
    FOLLOWS(s, now, want);
}

TEST(fair_share)
{
    td__sched *s = create(2);

    for (int32_t id = 1; id <= 4; id++)
        submit(s, 1, (td__sched_job){.id = id, .user = "ann", .need = {1, 0, 0}});
    for (int32_t id = 5; id <= 6; id++)
        submit(s, 1, (td__sched_job){.id = id, .user = "bob", .need = {1, 0, 0}});
    FOLLOWS(s, 1, "launch 1 launch 5");
    launch_end(s, 10001, 1, "succeeded 1 launch 2"); /* ann has none in use, bob one */
    launch_end(s, 10002, 2, "succeeded 2 launch 3");
    launch_end(s, 10003, 5, "succeeded 5 launch 6");
    launch_end(s, 90000, 6, "succeeded 6 launch 4"); /* bob has no more */
    submit(s, 90001, (td__sched_job){.id = 7, .user = "bob", .need = {1, 0, 0}});
    submit(s, 90001, (td__sched_job){.id = 8, .user = "cat", .need = {1, 0, 0}});
    launch_end(s, 90002, 3, "succeeded 3 launch 8"); /* cat has had nothing yet */
    td__sched_destroy(s);
}

TEST(quotas)
{
    td__sched *s = create(8);

    CHECK_OK(td__sched_set_quota(s, "*", (td__resources){2, -1, -1}, 5, 1));
    CHECK_OK(td__sched_set_quota(s, "ann", (td__resources){3, 0, -1}, -1, 1));
    assert_int_equal(td__sched_most_queued(s, "bob"), 5);
    assert_int_equal(td__sched_most_queued(s, "ann"), -1);
    assert_false(td__sched_fits(s, "ann", (td__resources){4, 0, 0}, (td__resources){0}));
    assert_false(td__sched_fits(s, "ann", (td__resources){1, 1, 0}, (td__resources){0}));
    assert_false(td__sched_fits(s, "bob", (td__resources){3, 0, 0}, (td__resources){0}));
    assert_true(td__sched_fits(s, "bob", (td__resources){2, 2, 0}, (td__resources){0}));
    for (int32_t id = 1; id <= 4; id++)
        submit(s, 1, (td__sched_job){.id = id, .user = "ann", .need = {1, 0, 0}});
    for (int32_t id = 5; id <= 7; id++)
        submit(s, 1, (td__sched_job){.id = id, .user = "bob", .need = {1, 0, 0}});
    FOLLOWS(s, 1, "launch 1 launch 5 launch 2 launch 6 launch 3");
    assert_int_equal(td__sched_queued_of(s, "ann"), 1);
    launch_end(s, 2, 5, "succeeded 5 launch 7");
    td__sched_destroy(s);
}

/* A group is launched as a whole, is overtaken for a while, and not for ever. */
TEST(backfill_and_reservation)
{
    td__sched *s = create(4);

    submit(s, 1, (td__sched_job){.id = 1, .need = {3, 0, 0}});
    FOLLOWS(s, 1, "launch 1");
    td__sched_started(s, 1, 1, 1);
    FOLLOWS(s, 1, "running 1");
    submit(s, 2, (td__sched_job){.id = 2, .need = {4, 0, 0}});
    submit(s, 2, (td__sched_job){.id = 3, .need = {1, 0, 0}});
    FOLLOWS(s, 2, "launch 3"); /* fits beside 1, before 2 */
    launch_end(s, 3, 3, "succeeded 3");
    submit(s, 2000, (td__sched_job){.id = 4, .need = {1, 0, 0}});
    FOLLOWS(s, 2000, ""); /* 2 has waited too long */
    submit(s, 2001, (td__sched_job){.id = 5, .need = {0, 1, 0}});
    FOLLOWS(s, 2001, "launch 5"); /* takes nothing that 2 waits for */
    launch_end(s, 3000, 1, "succeeded 1 launch 2");
    launch_end(s, 3001, 2, "succeeded 2 launch 4");
    td__sched_destroy(s);
}

/* With time limits it is known when the reserved job can start: what ends before may run. */
TEST(backfill_by_time_limits)
{
    td__sched *s = create(4);

    submit(s, 1, (td__sched_job){.id = 1, .need = {3, 0, 0}, .time_limit_ms = 10000});
    FOLLOWS(s, 1, "launch 1");
    td__sched_started(s, 1, 1, 1);
    submit(s, 2, (td__sched_job){.id = 2, .need = {4, 0, 0}});
    FOLLOWS(s, 2, "running 1");
    submit(s, 2000, (td__sched_job){.id = 3, .need = {1, 0, 0}, .time_limit_ms = 9000});
    submit(s, 2000, (td__sched_job){.id = 4, .need = {1, 0, 0}, .time_limit_ms = 8000});
    FOLLOWS(s, 2000, "launch 4"); /* ends by 10000, 3 by 11000: 2 starts at 10001 */
    td__sched_destroy(s);
}

TEST(preemption)
{
    td__sched *s;

    CHECK_OK(td__sched_create(
        &(td__sched_opts){.capacity = {4, 0, 0}, .starve_ms = 100000, .preempt_ms = 100}, &s));
    submit(s, 1, (td__sched_job){.id = 1, .need = {2, 0, 0}, .preemptible = true});
    submit(s, 1, (td__sched_job){.id = 2, .need = {1, 0, 0}, .preemptible = true});
    submit(s, 1, (td__sched_job){.id = 3, .need = {1, 0, 0}});
    FOLLOWS(s, 1, "launch 1 launch 2 launch 3");
    submit(s, 2, (td__sched_job){.id = 4, .need = {2, 0, 0}, .priority = 1});
    FOLLOWS(s, 2, "");
    assert_int_equal(td__sched_wake_ms(s), 102);
    FOLLOWS(s, 102, "stop 1"); /* 2 alone would not do, and 1 does alone */
    submit(s, 103, (td__sched_job){.id = 5, .need = {0, 0, 0}});
    FOLLOWS(s, 103, "launch 5");
    td__sched_ended(s, 200, 1, 1, TD_EXIT_CLASS_RETRYABLE);
    FOLLOWS(s, 200, "queued 1 launch 4");
    td__sched_ended(s, 300, 4, 1, TD_EXIT_CLASS_OK);
    FOLLOWS(s, 300, "succeeded 4 launch 1");
    td__sched_ended(s, 400, 1, 2, TD_EXIT_CLASS_OK);
    FOLLOWS(s, 400, "succeeded 1");
    td__sched_destroy(s);
}

TEST(retries)
{
    td__sched *s = create(4);

    submit(s, 1, (td__sched_job){.id = 1, .retries = 2, .backoff_ms = 100});
    FOLLOWS(s, 1, "launch 1");
    td__sched_ended(s, 10, 1, 1, TD_EXIT_CLASS_RETRYABLE);
    FOLLOWS(s, 10, "queued 1");
    assert_int_equal(td__sched_wake_ms(s), 110);
    FOLLOWS(s, 109, "");
    FOLLOWS(s, 110, "launch 1");
    td__sched_ended(s, 120, 1, 2, TD_EXIT_CLASS_LOST);
    FOLLOWS(s, 120, "queued 1");
    assert_int_equal(td__sched_wake_ms(s), 320); /* doubled */
    FOLLOWS(s, 320, "launch 1");
    td__sched_ended(s, 330, 1, 3, TD_EXIT_CLASS_RETRYABLE);
    FOLLOWS(s, 330, "failed 1");
    submit(s, 400, (td__sched_job){.id = 2, .retries = 2, .backoff_ms = 100});
    FOLLOWS(s, 400, "launch 2");
    td__sched_ended(s, 401, 2, 1, TD_EXIT_CLASS_PERMANENT);
    FOLLOWS(s, 401, "failed 2");
    submit(s, 402, (td__sched_job){.id = 3, .retries = 1, .retry_permanent = true});
    FOLLOWS(s, 402, "launch 3");
    td__sched_ended(s, 403, 3, 1, TD_EXIT_CLASS_LAUNCH);
    FOLLOWS(s, 403, "queued 3 launch 3");
    td__sched_destroy(s);
}

TEST(deadlines_and_limits)
{
    td__sched *s = create(1);

    submit(s, 1, (td__sched_job){.id = 1, .need = {1, 0, 0}, .time_limit_ms = 50, .retries = 3});
    submit(s, 1, (td__sched_job){.id = 2, .need = {1, 0, 0}, .deadline_ms = 40});
    FOLLOWS(s, 1, "launch 1");
    td__sched_started(s, 5, 1, 1);
    FOLLOWS(s, 5, "running 1");
    FOLLOWS(s, 40, "failed 2"); /* never ran */
    FOLLOWS(s, 55, "stop 1");
    FOLLOWS(s, 60, "");
    td__sched_ended(s, 61, 1, 1, TD_EXIT_CLASS_RETRYABLE);
    FOLLOWS(s, 61, "failed 1");
    submit(s, 70, (td__sched_job){.id = 3, .need = {1, 0, 0}, .deadline_ms = 80});
    FOLLOWS(s, 70, "launch 3");
    FOLLOWS(s, 80, "stop 3");
    td__sched_ended(s, 81, 3, 1, TD_EXIT_CLASS_OK); /* it was faster */
    FOLLOWS(s, 81, "succeeded 3");
    assert_int_equal(td__sched_jobs(s), 0);
    td__sched_destroy(s);
}

TEST(cancel_pause_resume)
{
    td__sched *s = create(1);

    submit(s, 1, (td__sched_job){.id = 1, .need = {1, 0, 0}});
    submit(s, 1, (td__sched_job){.id = 2, .need = {1, 0, 0}});
    submit(s, 1, (td__sched_job){.id = 3, .need = {1, 0, 0}, .held = true});
    FOLLOWS(s, 1, "launch 1");
    assert_true(td__sched_pause(s, 2, 2));
    assert_false(td__sched_pause(s, 2, 2));
    assert_false(td__sched_resume(s, 2, 1));
    FOLLOWS(s, 2, "paused 2");
    assert_true(td__sched_pause(s, 3, 1));
    FOLLOWS(s, 3, "stop 1");
    td__sched_ended(s, 4, 1, 1, TD_EXIT_CLASS_RETRYABLE);
    FOLLOWS(s, 4, "paused 1"); /* and 3 is held */
    td__sched_release(s, 5, 3);
    FOLLOWS(s, 5, "launch 3");
    assert_true(td__sched_resume(s, 6, 1));
    assert_true(td__sched_resume(s, 6, 2));
    FOLLOWS(s, 6, "queued 1 queued 2");
    assert_true(td__sched_cancel(s, 7, 2));
    assert_true(td__sched_cancel(s, 7, 3));
    assert_true(td__sched_cancel(s, 7, 3)); /* twice is once */
    FOLLOWS(s, 7, "cancelled 2 stop 3");
    td__sched_ended(s, 8, 3, 1, TD_EXIT_CLASS_OK);
    FOLLOWS(s, 8, "cancelled 3 launch 1");
    assert_false(td__sched_cancel(s, 9, 77));
    td__sched_destroy(s);
}

/* What the store still had: running jobs keep their resources, requests are made again. */
TEST(restored)
{
    td__sched *s = create(2);

    submit(s, 1,
           (td__sched_job){.id = 1,
                           .need = {1, 0, 0},
                           .state = TD_JOB_RUNNING,
                           .attempt = 3,
                           .cancel_asked = true});
    submit(s, 1,
           (td__sched_job){.id = 2, .need = {1, 0, 0}, .state = TD_JOB_LAUNCHING, .attempt = 1});
    submit(s, 1, (td__sched_job){.id = 3, .need = {1, 0, 0}});
    FOLLOWS(s, 1, "stop 1");
    td__sched_ended(s, 2, 1, 3, TD_EXIT_CLASS_RETRYABLE);
    FOLLOWS(s, 2, "cancelled 1 launch 3");
    td__sched_started(s, 3, 2, 1);
    FOLLOWS(s, 3, "running 2");
    td__sched_destroy(s);
}

/* What another system hands out is not of the capacity, but counts for quotas. */
TEST(what_lies_elsewhere_takes_no_room)
{
    td__sched *s = create(2);

    CHECK_OK(td__sched_set_quota(s, "*", (td__resources){9, -1, -1}, -1, 1));
    assert_false(td__sched_fits(s, "ann", (td__resources){6, 0, 0}, (td__resources){0}));
    assert_true(td__sched_fits(s, "ann", (td__resources){6, 0, 0}, (td__resources){6, 0, 0}));
    assert_false(td__sched_fits(s, "ann", (td__resources){10, 0, 0}, (td__resources){10, 0, 0}));
    for (int id = 1; id <= 3; id++)
        submit(s, 1,
               (td__sched_job){.id = id,
                               .user = id == 3 ? "bob" : "ann",
                               .need = {6, 0, 0},
                               .elsewhere = {6, 0, 0}});
    submit(s, 1, (td__sched_job){.id = 4, .user = "bob", .need = {2, 0, 0}});
    FOLLOWS(s, 1, "launch 1 launch 3 launch 4");
    assert_int_equal(td__sched_used(s).slots, 2);
    launch_end(s, 2, 1, "succeeded 1 launch 2");
    td__sched_destroy(s);
}

/* What waits in another system's queue waits as long as it takes, and holds up no other launch; as
 * soon as it has its place there, it is to start in time. */
TEST(pending_elsewhere)
{
    td__sched *s;

    CHECK_OK(td__sched_create(&(td__sched_opts){.capacity = {8, 0, 0},
                                                .max_launching = 1,
                                                .max_pending = 2,
                                                .starve_ms = 1000,
                                                .preempt_ms = -1,
                                                .launch_timeout_ms = 1000},
                              &s));
    for (int32_t id = 1; id <= 3; id++)
        submit(
            s, 1,
            (td__sched_job){.id = id, .need = {9, 0, 0}, .elsewhere = {9, 0, 0}, .queues = true});
    submit(s, 1, (td__sched_job){.id = 4, .need = {1, 0, 0}});
    FOLLOWS(s, 1, "launch 1");
    td__sched_pending(s, 2, 1, 1, true); /* was never pending */
    FOLLOWS(s, 2, "");
    td__sched_pending(s, 2, 1, 1, false);
    FOLLOWS(s, 2, "pending 1 launch 2");
    td__sched_pending(s, 3, 2, 1, false);
    FOLLOWS(s, 3, "pending 2 launch 4"); /* 3 would be one too many there */
    td__sched_started(s, 4, 4, 1);
    FOLLOWS(s, 4, "running 4");
    assert_int_equal(td__sched_wake_ms(s), 1001); /* 3 has waited for long */
    FOLLOWS(s, 9000, "");
    td__sched_pending(s, 9000, 1, 1, true);
    FOLLOWS(s, 9000, "");
    assert_int_equal(td__sched_wake_ms(s), 10000);
    td__sched_pending(s, 9500, 1, 1, false); /* it lost its place */
    FOLLOWS(s, 10500, "");
    td__sched_pending(s, 11000, 1, 1, true);
    FOLLOWS(s, 12000, "stop 1");
    td__sched_ended(s, 12001, 1, 1, TD_EXIT_CLASS_STOPPED);
    FOLLOWS(s, 12001, "failed 1 launch 3");
    td__sched_started(s, 12002, 2, 1);
    FOLLOWS(s, 12002, "running 2");
    td__sched_ended(s, 12003, 2, 1, TD_EXIT_CLASS_OK);
    td__sched_cancel(s, 12003, 3);
    td__sched_ended(s, 12004, 3, 1, TD_EXIT_CLASS_STOPPED);
    FOLLOWS(s, 12004, "succeeded 2 stop 3 cancelled 3");
    td__sched_destroy(s);
}

/* A restarted service finds it pending; 200 of them hold up nobody. */
TEST(pending_jobs_of_a_restart)
{
    td__sched *s;

    CHECK_OK(td__sched_create(&(td__sched_opts){.capacity = {8, 0, 0},
                                                .max_launching = 4,
                                                .max_pending = 200,
                                                .starve_ms = 1000,
                                                .preempt_ms = -1,
                                                .launch_timeout_ms = 1000},
                              &s));
    for (int32_t id = 1; id <= 200; id++)
        submit(s, 1,
               (td__sched_job){.id = id, .queues = true, .state = TD_JOB_PENDING, .attempt = 1});
    for (int32_t id = 1; id <= 200; id++) /* its tracker has looked at it */
        td__sched_pending(s, 2, id, 1, false);
    for (int32_t id = 201; id <= 300; id++)
        submit(s, 1, (td__sched_job){.id = id, .queues = true, .priority = 1});
    submit(s, 1, (td__sched_job){.id = 301, .need = {1, 0, 0}});
    FOLLOWS(s, 5000, "launch 301");
    td__sched_started(s, 5001, 7, 1);
    FOLLOWS(s, 5001, "running 7 launch 201");
    td__sched_destroy(s);
}

/* What got its place while no service heard of it starts in time, or not at all. */
TEST(placed_before_a_restart)
{
    td__sched *s;

    CHECK_OK(td__sched_create(&(td__sched_opts){.capacity = {8, 0, 0},
                                                .max_launching = 4,
                                                .max_pending = 200,
                                                .starve_ms = 1000,
                                                .preempt_ms = -1,
                                                .launch_timeout_ms = 1000},
                              &s));
    for (int32_t id = 1; id <= 2; id++)
        submit(s, 10,
               (td__sched_job){.id = id, .queues = true, .state = TD_JOB_PENDING, .attempt = 1});
    assert_int_equal(td__sched_wake_ms(s), 1010);
    td__sched_pending(s, 20, 2, 1, false); /* it waits there still */
    FOLLOWS(s, 1009, "");
    FOLLOWS(s, 1010, "stop 1");
    FOLLOWS(s, 90000, "");
    td__sched_destroy(s);
}

/* 8 slots and 2 GPUs: who is over their quota, or waits for GPUs, holds up nobody else. */
TEST(one_users_queue_holds_up_nobody)
{
    td__sched *s = create(8);

    CHECK_OK(td__sched_set_quota(s, "ann", (td__resources){1, -1, -1}, -1, 1));
    submit(s, 1, (td__sched_job){.id = 1, .user = "ann", .need = {1, 0, 0}, .priority = 1});
    FOLLOWS(s, 1, "launch 1");
    for (int32_t id = 2; id <= 70; id++)
        submit(s, 2, (td__sched_job){.id = id, .user = "ann", .need = {1, 0, 0}, .priority = 1});
    submit(s, 2, (td__sched_job){.id = 71, .user = "bob", .need = {1, 0, 0}});
    FOLLOWS(s, 2, "launch 71");
    submit(s, 3, (td__sched_job){.id = 72, .user = "bob", .need = {2, 2, 0}});
    FOLLOWS(s, 3, "launch 72");
    for (int32_t id = 100; id < 200; id++)
        submit(s, 4, (td__sched_job){.id = id, .user = "bob", .need = {1, 1, 0}});
    submit(s, 4, (td__sched_job){.id = 200, .user = "bob", .need = {1, 0, 0}});
    submit(s, 4, (td__sched_job){.id = 201, .user = "cat", .need = {1, 0, 0}});
    FOLLOWS(s, 4, "launch 201 launch 200");
    for (int32_t id = 300; id < 400; id++) /* no two alike */
        submit(s, 5, (td__sched_job){.id = id, .user = "dan", .need = {9, 0, id}, .priority = 2});
    submit(s, 5, (td__sched_job){.id = 400, .user = "cat", .need = {1, 0, 0}});
    FOLLOWS(s, 5, "launch 400");
    td__sched_destroy(s);
}

/* What another job waits behind is gone, by a cancellation, a pause or a deadline. */
TEST(who_waits_behind_a_job_that_goes)
{
    for (int how = 0; how < 3; how++) {
        td__sched *s = create(4);
        submit(s, 1, (td__sched_job){.id = 1, .need = {3, 0, 0}});
        FOLLOWS(s, 1, "launch 1");
        submit(s, 2, (td__sched_job){.id = 2, .need = {4, 0, 0}, .deadline_ms = 5000});
        FOLLOWS(s, 2, "");
        FOLLOWS(s, 2000, ""); /* 2 is reserved for */
        submit(s, 2001, (td__sched_job){.id = 3, .need = {1, 0, 0}});
        FOLLOWS(s, 2001, "");
        if (how == 0) {
            assert_true(td__sched_cancel(s, 2002, 2));
            FOLLOWS(s, 2002, "cancelled 2 launch 3");
        } else if (how == 1) {
            assert_true(td__sched_pause(s, 2002, 2));
            FOLLOWS(s, 2002, "paused 2 launch 3");
        } else {
            FOLLOWS(s, 5000, "failed 2 launch 3");
        }
        td__sched_destroy(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(priority_then_id),
        cmocka_unit_test(fair_share),
        cmocka_unit_test(quotas),
        cmocka_unit_test(backfill_and_reservation),
        cmocka_unit_test(backfill_by_time_limits),
        cmocka_unit_test(preemption),
        cmocka_unit_test(retries),
        cmocka_unit_test(deadlines_and_limits),
        cmocka_unit_test(cancel_pause_resume),
        cmocka_unit_test(restored),
        cmocka_unit_test(what_lies_elsewhere_takes_no_room),
        cmocka_unit_test(pending_elsewhere),
        cmocka_unit_test(pending_jobs_of_a_restart),
        cmocka_unit_test(placed_before_a_restart),
        cmocka_unit_test(one_users_queue_holds_up_nobody),
        cmocka_unit_test(who_waits_behind_a_job_that_goes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
