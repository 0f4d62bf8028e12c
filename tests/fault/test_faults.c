/* Faults and the threads that they happen on: files are written beside training. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <sched.h>

#include "support/check.h"
#include "tandem/log.h"
#include "fault/faults.h"

typedef struct writer {
    td__points *points;
    pthread_t thread;
    td_status st;
} writer;

static void *write_metrics(void *arg)
{
    writer *w = arg;
    w->st = td__point(w->points, TD_POINT_FILE, "metrics");
    return NULL;
}

/* The thread that writes files loses a rank while the trainer gives the comm back. */
TEST(a_rank_is_lost_as_its_generation_ends)
{
    for (int i = 0; i < 20; i++) {
        td__faults *f;
        td_comm *comms[2];
        CHECK_OK(td_comm_threads(2, NULL, comms));
        CHECK_OK(td__faults_create("cut 0-1 at=step:1:metrics", NULL, NULL, &f));
        writer w = {.points = td__faults_points(f)};
        td__faults_generation(f, 1, 0, 2, comms[0]);
        td__faults_step(f, 1);
        CHECK(pthread_create(&w.thread, NULL, write_metrics, &w) == 0, "no thread");
        while (i % 2 && !td__faults_count(f)) /* it has begun */
            sched_yield();
        td__faults_generation(f, 1, 0, 2, NULL);
        td_comm_destroy(comms[0]);
        pthread_join(w.thread, NULL);
        CHECK_EQ_INT(w.st, TD_OK);
        td_comm_destroy(comms[1]);
        td__faults_destroy(f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_is_lost_as_its_generation_ends),
    };
    td_log_set_level(TD_LOG_ERROR); /* every fault is said */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
