/* test_span_log.c -- records of spans: the newest are kept, all ranks' come to rank 0. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>

#include "base/check.h"
#include "base/clock.h"
#include "support/check.h"
#include "support/ranks.h"
#include "run/span_log.h"

enum { ROOM = 10, THREADS = 4, EACH = 1000 };

TEST(the_newest_are_kept)
{
    td__span_log *l;

    CHECK_OK(td__span_log_create(ROOM, &l));
    for (uint32_t i = 0; i < 25; i++) {
        td__span_log_add(l, &(td__span){.step = i});
        CHECK_EQ_INT(td__span_log_count(l), i < ROOM ? i + 1 : ROOM);
        CHECK_EQ_INT(td__span_log_lost(l), i < ROOM ? 0 : i + 1 - ROOM);
    }
    for (int i = 0; i < ROOM; i++)
        CHECK_EQ_INT(td__span_log_at(l, i).step, 15 + i);
    td__span_log_destroy(l);
    td__span_log_add(NULL, &(td__span){.step = 1});
}

static void *add_many(void *arg)
{
    for (uint32_t i = 0; i < EACH; i++)
        td__span_log_add(arg, &(td__span){.step = i});
    return NULL;
}

TEST(threads_add_at_once)
{
    pthread_t threads[THREADS];
    int seen[EACH] = {0};
    td__span_log *l;

    CHECK_OK(td__span_log_create(THREADS * EACH, &l));
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, add_many, l) == 0, "thread %d", i);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    CHECK_EQ_INT(td__span_log_count(l), THREADS * EACH);
    for (int i = 0; i < THREADS * EACH; i++)
        seen[td__span_log_at(l, i).step]++;
    for (int i = 0; i < EACH; i++)
        CHECK_EQ_INT(seen[i], THREADS);
    td__span_log_destroy(l);
}

typedef struct gathered {
    int calls, n[4];
    uint64_t lost[4], begin_ns[4];
} gathered;

static td_status take(void *user, int rank, const td__span *spans, int n, uint64_t lost)
{
    gathered *g = user;

    g->calls++;
    g->n[rank] = n;
    g->lost[rank] = lost;
    g->begin_ns[rank] = n ? spans[n - 1].begin_ns : 0;
    return TD_OK;
}

/* Rank r adds 5 r spans, which is more than fits for the last one. */
static void body(ranks_ctx *r)
{
    gathered *g = r->arg;
    td__span_log *l;
    uint64_t now = 0;

    RANK_OK(r, td__span_log_create(ROOM, &l));
    RANK_OK(r, td__span_log_start(l, r->comm));
    for (int i = 0; i < 5 * r->rank; i++) {
        now = td__clock_ns();
        td__span_log_add(l, &(td__span){.begin_ns = now, .end_ns = now});
    }
    gathered mine = {0};
    RANK_OK(r, td__span_log_gather(l, r->comm, take, &mine));
    RANK_CHECK(r, mine.calls == (r->rank ? 0 : r->size), "%d records", mine.calls);
    if (r->rank == 0)
        *g = mine;
    td__span_log_destroy(l);
}

TEST(all_records_come_to_rank_0)
{
    for (int hosts = 0; hosts < 2; hosts++) { /* in one host, then on two with one clock in truth */
        gathered g = {0};
        uint64_t begin = td__clock_ns();
        ranks_run(4, &(ranks_opts){.transport = "tcp", .per_host = hosts ? 2 : 0}, body, &g);
        uint64_t end = td__clock_ns();
        CHECK_EQ_INT(g.calls, 4);
        for (int r = 0; r < 4; r++) {
            CHECK_EQ_INT(g.n[r], 5 * r < ROOM ? 5 * r : ROOM);
            CHECK_EQ_INT(g.lost[r], 5 * r < ROOM ? 0 : 5 * r - ROOM);
            CHECK(!r || (g.begin_ns[r] > begin && g.begin_ns[r] < end), "rank %d at another time",
                  r);
        }
    }
}

TEST(kinds_have_names)
{
    for (int k = 0; k < TD_SPAN_COUNT; k++)
        assert_string_not_equal(td__span_name((td__span_kind)k), "?");
    assert_string_equal(td__span_name(TD_SPAN_COUNT), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_newest_are_kept),
        cmocka_unit_test(threads_add_at_once),
        cmocka_unit_test(all_records_come_to_rank_0),
        cmocka_unit_test(kinds_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
