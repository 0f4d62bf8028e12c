/* The skeleton partition follows its recurrence, which is computed here in double on a quadratic
 * and a ridge regression, on every rank after every step: connections of the skeleton move by the
 * mean gradient of all ranks, each of its own network; those of the rest by that of the one rank
 * that holds them, and are zero on the others; all are drawn anew by |weight| + |gradient|. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "support/check.h"
#include "support/sync_runs.h"

enum { P = SYNC_PARAMS, STEPS = SYNC_STEPS, MOST = SYNC_MOST_RANKS, EVERY = 4, DRAWN = 3 };
static const double SHARE = 0.6; /* DRAWN of the SYNC_WIDTH weights of the one neuron */

typedef struct network {
    sync_sim s;
    double w[P], grad[P]; /* of the whole model; of its last step, without the penalty */
    bool rest[P];
    int owner;
} network;

static void draw(network *k)
{
    for (int p = 0; p < SYNC_WIDTH; p++) {
        int higher = 0;
        for (int q = 0; q < SYNC_WIDTH; q++)
            higher += fabs(k->w[q]) + fabs(k->grad[q]) > fabs(k->w[p]) + fabs(k->grad[p]);
        k->rest[p] = higher >= DRAWN;
    }
}

/* The one rank whose part of the rest is there: the rule draws it at random. */
static int find_owner(const network *k, float got[MOST][P])
{
    int owner = -1, found = 0;
    for (int r = 0; r < k->s.n; r++) {
        bool has = false;
        for (int p = 0; p < P; p++)
            has = has || (k->rest[p] && got[r][p] != 0);
        found += has;
        owner = has ? r : owner;
    }
    CHECK_EQ_INT(found, 1);
    return owner;
}

static void descend(network *k, const td__batch *b)
{
    double ridge = k->s.problem == SYNC_RIDGE_REGRESSION ? SYNC_RIDGE : 0;
    memset(k->grad, 0, sizeof k->grad);
    for (int r = 0; r < k->s.n; r++) {
        double held[P], g[P];
        for (int p = 0; p < P; p++)
            held[p] = k->rest[p] && k->owner != r ? 0 : k->w[p];
        sync_sim_grad(&k->s, r, b, held, g);
        for (int p = 0; p < P; p++) {
            g[p] -= ridge * held[p];
            k->grad[p] += !k->rest[p] ? g[p] / k->s.n : k->owner == r ? g[p] : 0;
        }
    }
    for (int p = 0; p < P; p++)
        k->w[p] -= SYNC_LR * (k->grad[p] + ridge * k->w[p]);
}

static void check_case(sync_problem problem, int n)
{
    static float trace[STEPS][MOST][P];
    td__dataset *d;
    td__loader *l = sync_batches(&d);
    network k = {.s = {.n = n}};
    sync_run u;
    sync_run_init(&u, problem, NULL);
    u.opts.sync.partition = 1;
    u.opts.sync.skeleton_share = SHARE;
    u.opts.sync.skeleton_every = EVERY;
    u.trace = trace;
    sync_run_on(&u, n, n == 3 ? &(ranks_opts){.transport = "tcp"} : NULL);
    sync_sim_begin(&k.s, &u);
    memcpy(k.w, k.s.c, sizeof k.w);
    draw(&k); /* no gradient is known yet */
    for (int step = 1; step <= STEPS; step++) {
        const td__batch *b;
        bool whole = step % EVERY == 0; /* they have brought all together */
        CHECK_OK(td__loader_next(l, &b));
        if (step % EVERY == 1)
            k.owner = find_owner(&k, trace[step - 1]);
        descend(&k, b);
        for (int r = 0; r < n; r++)
            for (int p = 0; p < P; p++) {
                double want = !whole && k.rest[p] && k.owner != r ? 0 : k.w[p];
                CHECK(fabs((double)trace[step - 1][r][p] - want) < 1e-5,
                      "problem %d, %d ranks: after step %d param %d of rank %d is %.9g, not %.9g",
                      (int)problem, n, step, p, r, (double)trace[step - 1][r][p], want);
            }
        if (whole)
            draw(&k);
    }
    for (int p = 0; p < P; p++)
        CHECK(fabs((double)u.last[p] - k.w[p]) < 1e-5 && fabs((double)u.first[p] - k.w[p]) > 1e-3,
              "problem %d, %d ranks: param %d is %.9g in the end, not %.9g", (int)problem, n, p,
              (double)u.last[p], k.w[p]);
    sync_run_end(&u);
    td__loader_destroy(l);
    td__dataset_destroy(d);
}

TEST(it_follows_its_recurrence)
{
    for (int n = 2; n <= MOST; n++) {
        check_case(SYNC_QUADRATIC, n);
        check_case(SYNC_RIDGE_REGRESSION, n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_follows_its_recurrence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
