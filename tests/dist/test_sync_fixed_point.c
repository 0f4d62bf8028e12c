/* D-PSGD with a constant rate ends at a fixed point of its own, x_i = sum_j W_ij x_j - rate grad
 * f_i(x_i), not at the optimum: the trainer comes to the one that is computed here in double, and
 * its distance to the optimum shrinks with the rate. */
/* Test labels: slow */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "support/check.h"
#include "support/sync_runs.h"

enum { P = SYNC_PARAMS, N = 4, STEPS = 600 };

/* The ring of four: both neighbours and oneself. */
static void find_fixed_point(const td__batch *b, double rate, double *mean)
{
    sync_sim s = {.problem = SYNC_RIDGE_REGRESSION, .n = N};
    for (int step = 0; step < 20000; step++) {
        sync_sim old = s;
        for (int r = 0; r < N; r++) {
            double grad[P];
            sync_sim_grad(&old, r, b, old.x[r], grad);
            for (int p = 0; p < P; p++) {
                double mix = (old.x[r][p] + old.x[(r + 1) % N][p] + old.x[(r + N - 1) % N][p]) / 3;
                double decay = SYNC_RIDGE * (mix - old.x[r][p]); /* is of what is updated */
                s.x[r][p] = mix - rate * (grad[p] + decay);
            }
        }
    }
    for (int p = 0; p < P; p++)
        mean[p] = sync_sim_mean(&s, p);
}

static double distance(const double *a, const double *b)
{
    double off = 0, size = 0;
    for (int p = 0; p < P; p++) {
        off += pow(a[p] - b[p], 2);
        size += b[p] * b[p];
    }
    return sqrt(off / size);
}

TEST(gossip_ends_at_its_fixed_point)
{
    static const double RATES[] = {0.2, 0.1, 0.05};
    double optimum[P], before = 0;
    td__dataset *d;
    td__loader *l = sync_samples(&d);
    const td__batch *b;
    sync_ridge_optimum(optimum);
    CHECK_OK(td__loader_next(l, &b));
    for (int i = 0; i < 3; i++) {
        double want[P], got[P];
        sync_run u;
        find_fixed_point(b, RATES[i], want);
        sync_run_init(&u, SYNC_RIDGE_REGRESSION, "dpsgd");
        sync_run_set(&u, "graph", 0);
        u.opts.partition = "even";
        u.opts.batch = SYNC_SAMPLES;
        u.opts.steps = STEPS;
        u.opts.optim.lr = RATES[i];
        sync_run_on(&u, N, NULL);
        for (int p = 0; p < P; p++)
            got[p] = (double)u.last[p];
        double off = distance(got, optimum);
        CHECK(distance(got, want) < 1e-5, "rate %g: %g off the fixed point", RATES[i],
              distance(got, want));
        CHECK(off > 1e-4, "rate %g: this is the optimum", RATES[i]);
        CHECK(i == 0 || off < 0.7 * before, "rate %g: %g off the optimum, %g before", RATES[i], off,
              before);
        before = off;
        sync_run_end(&u);
    }
    td__loader_destroy(l);
    td__dataset_destroy(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gossip_ends_at_its_fixed_point),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
