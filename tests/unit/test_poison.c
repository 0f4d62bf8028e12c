/* The first failure of an object is kept, and no one who has seen one is told that all is well. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "net/poison.h"
#include "support/check.h"

enum { ROUNDS = 5000, THREADS = 2, LONG = 390 };

typedef struct worker {
    pthread_t thread;
    int number;
    td__poison *all; /* (ROUNDS) */
    atomic_int *come;
    td_status says;
    int wins, lost, torn; /* lost: failures of which nothing was known a moment later */
} worker;

/* As long as there is room for, so that writing it takes a while. */
static void text_of(td_status st, char text[LONG + 1])
{
    memset(text, st == TD_EPEER ? 'p' : 'i', LONG);
    text[LONG] = 0;
}

/* Threads on one core are never there at the same moment. */
static void spread(int number)
{
    cpu_set_t may, one;
    CHECK(sched_getaffinity(0, sizeof may, &may) == 0, "no cores");
    int skip = number % CPU_COUNT(&may);
    size_t core = 0;
    while (!CPU_ISSET(core, &may) || skip-- > 0)
        core++;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0, "core %zu", core);
}

static void *fail_at_once(void *arg)
{
    worker *w = arg;
    char mine[LONG + 1], text[LONG + 1];
    spread(w->number);
    text_of(w->says, mine);
    for (int i = 0; i < ROUNDS; i++) {
        atomic_fetch_add(w->come, 1);
        for (int k = 1; atomic_load(w->come) < (i + 1) * THREADS; k++)
            if (k % 2000 == 0) /* else spinning: they are to go on at the same moment */
                sched_yield();
        w->wins += td__poison_set(&w->all[i], w->says, mine);
        td_status st = td__poison_check(&w->all[i]);
        text_of(st, text);
        w->lost += st == TD_OK;
        w->torn += st && strcmp(td_last_error(), text) != 0;
    }
    return NULL;
}

TEST(who_fails_second_is_told_of_the_first)
{
    static const td_status SAYS[THREADS] = {TD_EPEER, TD_EIO};
    static td__poison all[ROUNDS];
    worker w[THREADS];
    atomic_int come = 0;
    int wins = 0;
    for (int t = 0; t < THREADS; t++) {
        w[t] = (worker){.number = t, .all = all, .come = &come, .says = SAYS[t]};
        CHECK(pthread_create(&w[t].thread, NULL, fail_at_once, &w[t]) == 0, "no thread");
    }
    for (int t = 0; t < THREADS; t++) {
        pthread_join(w[t].thread, NULL);
        CHECK(w[t].lost == 0 && w[t].torn == 0, "%d failures lost, %d texts torn", w[t].lost,
              w[t].torn);
        wins += w[t].wins;
    }
    CHECK_EQ_INT(wins, ROUNDS);
}

TEST(the_first_is_kept)
{
    td__poison p = {0};
    CHECK_OK(td__poison_check(&p));
    CHECK(td__poison_set(&p, TD_EIO, "first"), "not set");
    CHECK(!td__poison_set(&p, TD_EPEER, "second"), "set twice");
    CHECK_EQ_INT(td__poison_check(&p), TD_EIO);
    assert_string_equal(td_last_error(), "first");
}

/* Of a process that was killed in the middle of it, in memory that it shared. */
TEST(a_failure_without_a_text_is_one)
{
    td__poison p = {.status = TD_EPEER};
    CHECK(td__poison_is_set(&p), "not set");
    CHECK_EQ_INT(td__poison_check(&p), TD_EPEER);
    CHECK(strstr(td_last_error(), "failed without a message"), "%s", td_last_error());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_is_kept),
        cmocka_unit_test(who_fails_second_is_told_of_the_first),
        cmocka_unit_test(a_failure_without_a_text_is_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
