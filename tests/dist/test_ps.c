/* Parameter servers: with an order of pushes that is given, each asynchronous rule follows its
 * published recurrence, which is computed here in double on a quadratic and a ridge regression;
 * where a rule promises the bits of one rank it has them, on a device too. */
/* Test labels: slow */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "parallel/sync.h"
#include "support/check.h"
#include "support/sync_runs.h"

enum { P = SYNC_PARAMS, STEPS = SYNC_STEPS, MOST = 4, OF_EPOCH = SYNC_SAMPLES / SYNC_BATCH };

/* ---- The recurrences, in double -------------------------------------------------------------- */

typedef struct rule_case {
    const char *rule;
    int n_push, n_fetch; /* downpour; else 1 */
    int staleness;       /* ssp; else -1 */
    bool divides;        /* the rate, by the staleness */
    bool own;            /* workers update their own params */
    bool adagrad;
} rule_case;

static const rule_case CASES[] = {
    {"asgd", 1, 1, -1, false, false, false},    {"stale", 1, 1, -1, true, false, false},
    {"ssp", 1, 1, 1, false, false, false},      {"downpour", 1, 1, -1, false, true, false},
    {"downpour", 2, 3, -1, false, true, false}, {"downpour", 1, 2, -1, false, true, true},
};
enum { N_CASES = sizeof CASES / sizeof *CASES };

typedef struct worker {
    bool busy;
    int clock, step, version;
    double x[P], sum[P];
} worker;

typedef struct batches {
    float rows[STEPS][SYNC_BATCH * SYNC_WIDTH];
    int32_t y[STEPS][SYNC_BATCH];
} batches;

static void read_batches(batches *all)
{
    td__dataset *d;
    td__loader *l = sync_batches(&d);
    for (int i = 0; i < STEPS; i++) {
        const td__batch *b;
        CHECK_OK(td__loader_next(l, &b));
        memcpy(all->rows[i], b->field[0], sizeof all->rows[i]);
        memcpy(all->y[i], b->field[1], sizeof all->y[i]);
    }
    td__loader_destroy(l);
    td__dataset_destroy(d);
}

/* The gradient of the loss at `at`, without the penalty, which is the server's. */
static void gradient(const sync_sim *s, const batches *all, int step, const double *at, double *out)
{
    const void *fields[] = {all->rows[step - 1], all->y[step - 1]};
    td__batch b = {.rows = SYNC_BATCH};
    memcpy(b.field, fields, sizeof fields);
    sync_sim_grad(s, 0, &b, at, out);
    for (int p = 0; p < P; p++)
        out[p] -= s->problem == SYNC_RIDGE_REGRESSION ? SYNC_RIDGE * at[p] : 0;
}

/* Idle workers get the next batches of the epoch, who has done least first. */
static void deal(worker *w, int n, const rule_case *c, const double *x, int version, int begun,
                 int *dealt)
{
    for (;;) {
        int slowest = w[0].clock, best = -1;
        for (int i = 1; i < n; i++)
            slowest = w[i].clock < slowest ? w[i].clock : slowest;
        for (int i = 0; i < n; i++)
            if (!w[i].busy && (best < 0 || w[i].clock < w[best].clock) &&
                (c->staleness < 0 || w[i].clock - slowest <= c->staleness))
                best = i;
        if (best < 0 || *dealt == STEPS || *dealt / OF_EPOCH != (begun - 1) / OF_EPOCH)
            return;
        w[best].busy = true;
        w[best].step = ++*dealt;
        if (w[best].clock % c->n_fetch == 0) {
            memcpy(w[best].x, x, sizeof w[best].x);
            w[best].version = version;
        }
    }
}

/* Where n workers come to if their pushes arrive in an order that `seed` picks, which is written to
 * `order`; begin: where the run begins. */
static void simulate(sync_sim *s, const batches *all, const rule_case *c, int n, unsigned seed,
                     int *order)
{
    worker w[MOST] = {{0}};
    double squares[P] = {0};
    int dealt = 0, version = 0;
    for (int step = 1; step <= STEPS; step++) {
        double g[P];
        int pick;
        deal(w, n, c, s->c, version, step, &dealt);
        do
            pick = (int)((seed = seed * 1664525u + 1013904223u) >> 16) % n;
        while (!w[pick].busy);
        worker *k = &w[pick];
        order[step - 1] = pick;
        gradient(s, all, k->step, k->x, g);
        k->busy = false;
        k->clock++;
        for (int p = 0; p < P; p++) {
            k->sum[p] += g[p];
            k->x[p] -= c->own ? SYNC_LR * g[p] : 0;
        }
        if (k->clock % c->n_push)
            continue;
        int tau = version++ - k->version;
        double lr = SYNC_LR / (c->divides && tau > 1 ? tau : 1);
        for (int p = 0; p < P; p++) {
            double a = k->sum[p] + (s->problem == SYNC_RIDGE_REGRESSION ? SYNC_RIDGE * s->c[p] : 0);
            squares[p] += a * a;
            s->c[p] -= c->adagrad ? lr * a / (sqrt(squares[p]) + 1e-10) : lr * a;
            k->sum[p] = 0;
        }
    }
}

/* ---- The runs -------------------------------------------------------------------------------- */

static const char *write_order(const int *order, int servers, int n)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/metrics.jsonl", check_tmpdir());
    FILE *f = fopen(path, "w");
    CHECK(f, "%s", path);
    fprintf(f, "{\"kind\": \"begin\", \"ranks\": %d}\n", servers + n);
    for (int i = 0; i < STEPS; i++)
        fprintf(f, "{\"kind\": \"step\", \"step\": %d, \"counted\": [%d]}\n", i + 1,
                servers + order[i]);
    CHECK(!fclose(f), "%s", path);
    return path;
}

static void start(sync_run *u, sync_problem problem, const rule_case *c, int servers)
{
    sync_run_init(u, problem, c->rule);
    u->opts.sync.servers = servers;
    if (c->staleness >= 0)
        sync_run_set(u, "staleness", c->staleness);
    if (!c->own)
        return;
    sync_run_set(u, "n_push", c->n_push);
    sync_run_set(u, "n_fetch", c->n_fetch);
    sync_run_set(u, "adagrad", c->adagrad);
}

static void check_case(sync_problem problem, const rule_case *c, const batches *all, int n,
                       int servers, const ranks_opts *ranks)
{
    static unsigned seed;
    sync_sim s = {.n = 1, .problem = problem};
    int order[STEPS];
    sync_run u, first;
    /* The order does not depend on numbers, so it can be had before the run. */
    simulate(&s, all, c, n, ++seed, order);
    start(&u, problem, c, servers);
    u.opts.sync.replay = write_order(order, servers, n);
    sync_run_on(&u, servers + n, ranks);
    sync_sim_begin(&s, &u);
    simulate(&s, all, c, n, seed, order);
    for (int p = 0; p < P; p++) {
        double got = (double)u.last[p];
        CHECK(fabs(got - s.c[p]) < 1e-5 && fabs((double)u.first[p] - s.c[p]) > 1e-3,
              "%s, n_push %d, problem %d, %d workers, %d servers: param %d is %.9g, not %.9g",
              c->rule, c->n_push, (int)problem, n, servers, p, got, s.c[p]);
    }
    /* The same order again: the same bits. */
    start(&first, problem, c, servers);
    first.opts.sync.replay = u.opts.sync.replay;
    first.opts.backend = "far";
    sync_run_on(&first, servers + n, NULL);
    CHECK(!strcmp(first.got.digest, u.got.digest), "%s: a replay, on far, has other weights",
          c->rule);
    sync_run_end(&first);
    sync_run_end(&u);
}

TEST(every_rule_follows_its_recurrence)
{
    static batches all;
    read_batches(&all);
    for (int i = 0; i < N_CASES; i++)
        for (int n = 1; n <= 3; n++) {
            check_case(SYNC_QUADRATIC, &CASES[i], &all, n, 1, NULL);
            check_case(SYNC_RIDGE_REGRESSION, &CASES[i], &all, n, 2,
                       n == 2 ? &(ranks_opts){.transport = "tcp"} : NULL);
        }
}

static void check_exact(const rule_case *c, int n, int servers, const char *backend,
                        const char *want)
{
    sync_run u;
    start(&u, SYNC_RIDGE_REGRESSION, c, servers);
    u.opts.backend = backend;
    u.opts.optim = (td_optim_opts){.name = "adamw", .lr = 0.01, .clip_norm = 0.5};
    sync_run_on(&u, servers + n, NULL);
    CHECK(!strcmp(u.got.digest, want), "%s, %d workers, %d servers, %s: other weights", c->rule, n,
          servers, backend);
    sync_run_end(&u);
}

TEST(bits_of_one_rank)
{
    static const rule_case TOGETHER = {"sync", 1, 1, -1, false, false, false};
    sync_run exact;
    sync_run_init(&exact, SYNC_RIDGE_REGRESSION, NULL);
    exact.opts.optim = (td_optim_opts){.name = "adamw", .lr = 0.01, .clip_norm = 0.5};
    sync_run_on(&exact, 1, NULL);
    for (int servers = 1; servers <= 2; servers++)
        for (int far = 0; far < 2; far++) {
            const char *backend = far ? "far" : "cpu";
            for (int n = 1; n <= 4; n++)
                check_exact(&TOGETHER, n, servers, backend, exact.got.digest);
            for (int i = 0; i < 3; i++)
                check_exact(&CASES[i], 1, servers, backend, exact.got.digest);
        }
    sync_run_end(&exact);
}

/* ---- How far ssp lets a worker go ------------------------------------------------------------ */

/* Rank 2 is held at its first batch until rank 1 has done as many as it may, or one more. */
typedef struct pause_of {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int may, done,
        at_end; /* batches of rank 1: that it may do, has done, and when rank 2 went on */
    bool held;
} pause_of;

static void await_batches(pause_of *p, int n, long ms)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += ms % 1000 * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    while (p->done < n && !pthread_cond_timedwait(&p->changed, &p->lock, &until))
        continue;
}

static void hold(void *user, int rank, uint64_t step)
{
    pause_of *p = user;
    (void)step;
    pthread_mutex_lock(&p->lock);
    if (rank == 1) {
        p->done++;
        pthread_cond_broadcast(&p->changed);
    } else if (!p->held) {
        p->held = true;
        await_batches(p, p->may, 60000);
        await_batches(p, p->may + 1, 300); /* which is not to come */
        p->at_end = p->done;
    }
    pthread_mutex_unlock(&p->lock);
}

/* While the other one pauses, a worker goes on for as many batches as it may be ahead, and one: it
 * is that far ahead when these are applied. Then it waits. Of asgd it has what is left of the
 * epoch. */
TEST(ssp_rides_out_a_pause_within_its_bound)
{
    static const rule_case RULES[] = {{"ssp", 1, 1, 0, false, false, false},
                                      {"ssp", 1, 1, 1, false, false, false},
                                      {"asgd", 1, 1, -1, false, false, false}};
    static const int MAY[] = {1, 2, OF_EPOCH - 1};
    for (int i = 0; i < 3; i++) {
        pause_of p = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
        sync_run u;
        p.may = MAY[i];
        start(&u, SYNC_QUADRATIC, &RULES[i], 1);
        u.opts.sync.before_share = hold;
        u.opts.sync.before_share_user = &p;
        sync_run_on(&u, 3, NULL);
        CHECK(p.held && p.at_end == MAY[i],
              "%s, staleness %d: %d batches while the other worker pauses, not %d", RULES[i].rule,
              RULES[i].staleness, p.at_end, MAY[i]);
        sync_run_end(&u);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rule_follows_its_recurrence),
        cmocka_unit_test(bits_of_one_rank),
        cmocka_unit_test(ssp_rides_out_a_pause_within_its_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
