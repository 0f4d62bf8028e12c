/* Seeded fault schedules on tcp: whatever the network does, a call gives the right numbers or an
 * error on every rank, within its deadline, and never wrong numbers or a hang.
 *
 * A seed decides everything: number of ranks, the faults, the calls, their sizes. 50 seeds
 * run, 1000 in the full test; TD_SOAK_SEED=S runs only that one. A seed that fails is printed, and
 * fails again. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Test labels: slow, full */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "coll/comm_setup.h"
#include "support/check.h"
#include "support/full.h"
#include "support/procs.h"
#include "tandem/log.h"

enum { MOST = 5, CALLS = 12, MOST_COUNT = 20000, TIMEOUT_MS = 600, PATIENCE_S = 60 };

typedef struct schedule {
    uint64_t seed;
    int size;
    bool harmless; /* only slows down: every call must succeed */
    char faults[160];
    struct {
        int kind;
        size_t count;
        int root;
        const char *algo;
    } call[CALLS];
} schedule;

typedef struct rank {
    const schedule *s;
    int rank;
    td__world w;
    td_status st;
    int n_done;
    char text[500]; /* of its error */
    char wrong[200];
} rank;

static uint32_t next(uint64_t *state, uint32_t below)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33) % below;
}

static void draw(schedule *s, uint64_t seed)
{
    static const char *const FAULTS[] = {"delay=3ms@0.2", "rate=200MB/s",          "drop=0.02",
                                         "cut=0.02",      "truncate=0.02",         "flip=0.02",
                                         "stop=0.02",     "delay=2ms@0.5,cut=0.01"};
    static const char *const ALGOS[] = {NULL, "direct", "ring", "tree"};
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
    *s = (schedule){.seed = seed, .size = 2 + (int)next(&state, MOST - 1)};
    uint32_t f = next(&state, TD_LEN(FAULTS));
    s->harmless = f < 2;
    snprintf(s->faults, sizeof s->faults, "seed=%llu,%s", (unsigned long long)seed, FAULTS[f]);
    for (int i = 0; i < CALLS; i++) {
        s->call[i].kind = (int)next(&state, 4);
        s->call[i].count = 1 + next(&state, next(&state, 4) ? 200 : MOST_COUNT);
        s->call[i].root = (int)next(&state, (uint32_t)s->size);
        s->call[i].algo = s->call[i].kind == 0 ? ALGOS[next(&state, TD_LEN(ALGOS))] : NULL;
    }
}

/* in[i] = i % 100 + rank: sums are exact. */
static td_status one_call(rank *r, td_comm *c, int k, float *in, float *out)
{
    const schedule *s = r->s;
    size_t count = s->call[k].count, n = (size_t)s->size;
    int root = s->call[k].root;
    td_coll_opts o = {.algo = s->call[k].algo};
    td_status st;
    for (size_t i = 0; i < count; i++)
        in[i] = (float)(i % 100) + (float)r->rank;
    switch (s->call[k].kind) {
    case 0:
        st = td_allreduce(c, in, out, count, TD_F32, TD_REDUCE_SUM, &o);
        for (size_t i = 0; i < count && !st && !r->wrong[0]; i++)
            if (out[i] != (float)(n * (i % 100) + n * (n - 1) / 2))
                snprintf(r->wrong, sizeof r->wrong, "allreduce: element %zu is %g", i,
                         (double)out[i]);
        return st;
    case 1:
        for (size_t i = 0; i < count; i++)
            out[i] = r->rank == root ? (float)i : -1;
        st = td_broadcast(c, out, count, TD_F32, root, &o);
        for (size_t i = 0; i < count && !st && !r->wrong[0]; i++)
            if (out[i] != (float)i)
                snprintf(r->wrong, sizeof r->wrong, "broadcast: element %zu is %g", i,
                         (double)out[i]);
        return st;
    case 2:
        st = td_all_gather(c, in, out, count, TD_F32, &o);
        for (size_t i = 0; i < n * count && !st && !r->wrong[0]; i++)
            if (out[i] != (float)(i % count % 100) + (float)(i / count))
                snprintf(r->wrong, sizeof r->wrong, "all_gather: element %zu is %g", i,
                         (double)out[i]);
        return st;
    default: return td_barrier(c, &o);
    }
}

static void *rank_main(void *arg)
{
    rank *r = arg;
    td_comm_opts o = {.engine = "native",
                      .transport = "tcp",
                      .faults = r->s->faults,
                      .timeout_ms = TIMEOUT_MS,
                      .setup_ms = 2 * TIMEOUT_MS};
    td_comm *c = NULL;
    if (r->s->harmless)
        o.timeout_ms = o.setup_ms = 1000 * PATIENCE_S / 2;
    float *in = calloc(MOST_COUNT, sizeof *in),
          *out = calloc((size_t)MOST * MOST_COUNT, sizeof *out);
    td_log_set_rank(r->rank);
    r->st = in && out ? td__comm_create(&r->w, &o, &c) : TD_ENOMEM;
    for (int k = 0; k < CALLS && !r->st; k++, r->n_done += !r->st)
        r->st = one_call(r, c, k, in, out);
    if (r->st)
        snprintf(r->text, sizeof r->text, "%s", td_last_error());
    else if ((r->st = td_barrier(c, NULL))) /* leave together */
        snprintf(r->text, sizeof r->text, "%s", td_last_error());
    td_comm_destroy(c);
    free(in);
    free(out);
    return NULL;
}

static void run_seed(uint64_t seed)
{
    static rank ranks[MOST];
    schedule s;
    pthread_t thread[MOST];
    td__store_server *server;
    td__secret secret = {{(uint8_t)seed, 1, 2, 3}};
    struct timespec until;
    int stuck = 0, n_failed = 0;

    draw(&s, seed);
    CHECK_OK(td__store_server_create(&secret, &(td__store_opts){.listen = "127.0.0.1:0"}, &server));
    for (int r = 0; r < s.size; r++) {
        ranks[r] = (rank){.s = &s,
                          .rank = r,
                          .w = {.rank = r,
                                .size = s.size,
                                .host = "here",
                                .hostname = "here",
                                .address = "127.0.0.1",
                                .secret = secret}};
        snprintf(ranks[r].w.store, sizeof ranks[r].w.store, "%s", td__store_server_address(server));
        CHECK(pthread_create(&thread[r], NULL, rank_main, &ranks[r]) == 0, "no thread");
    }
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_S;
    for (int r = 0; r < s.size; r++)
        stuck += pthread_timedjoin_np(thread[r], NULL, &until) != 0;
    if (stuck) { /* threads that nobody can end */
        print_error("TD_SOAK_SEED=%llu: %d of %d ranks hang (%s)\n", (unsigned long long)seed,
                    stuck, s.size, s.faults);
        abort();
    }
    for (int r = 0; r < s.size; r++) {
        n_failed += ranks[r].st != TD_OK;
        CHECK(!ranks[r].wrong[0], "TD_SOAK_SEED=%llu: rank %d has wrong numbers (%s): %s",
              (unsigned long long)seed, r, s.faults, ranks[r].wrong);
        CHECK(!ranks[r].st || ranks[r].st == TD_EPEER || ranks[r].st == TD_ETIMEDOUT ||
                  ranks[r].st == TD_EPROTO /* damaged data */,
              "TD_SOAK_SEED=%llu: rank %d (%s): %s: %s", (unsigned long long)seed, r, s.faults,
              td_status_name(ranks[r].st), ranks[r].text);
        CHECK(!ranks[r].st || strstr(ranks[r].text, "rank"),
              "TD_SOAK_SEED=%llu: rank %d: nobody is named: %s", (unsigned long long)seed, r,
              ranks[r].text);
    }
    CHECK(!n_failed || !s.harmless, "TD_SOAK_SEED=%llu: failed although only slow (%s): %s",
          (unsigned long long)seed, s.faults, ranks[0].text);
    /* Poison reaches everybody: nobody believes that all went well when another knows better;
     * except that who has left the last barrier cannot know whether all others could. */
    for (int r = 0; r < s.size && n_failed < s.size; r++)
        CHECK(!ranks[r].st || ranks[r].n_done == CALLS,
              "TD_SOAK_SEED=%llu: only %d of %d ranks failed (%s): %s", (unsigned long long)seed,
              n_failed, s.size, s.faults, ranks[r].text);
    td__store_server_destroy(server);
}

TEST(fault_schedules)
{
    const char *one = getenv("TD_SOAK_SEED");
    int n_fds = procs_count_fds();
    td_log_set_level(TD_LOG_OFF);
    if (one) {
        run_seed(strtoull(one, NULL, 10));
    } else {
        for (uint64_t seed = 1; seed <= (full_test() ? 1000 : 50); seed++)
            run_seed(seed);
    }
    CHECK_EQ_INT(procs_count_fds(), n_fds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(fault_schedules)};
    return cmocka_run_group_tests_name("comm_soak", tests, NULL, NULL);
}
