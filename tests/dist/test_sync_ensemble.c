/* Rules whose exchanges are not of all params at once: ensemble-compress labels samples with the
 * mean output of all models, diloco exchanges fragments in turn. Each follows its recurrence,
 * computed here in double on a quadratic and a ridge regression; a resumed run has the bits of one
 * that went on; far has the same bits. */
/* Test labels: slow */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "support/check.h"
#include "support/sync_runs.h"

enum { P = SYNC_PARAMS, TAU = 4, COMPRESS = 2 };
static const double WEIGHT = 0.6, RATE = 0.5, MU = 0.8;

typedef struct models {
    double x[SYNC_MOST_RANKS][P];
    int at; /* step of the exchange; 0: none */
    double loss[SYNC_MOST_RANKS];
} models;

/* The loss without the penalty, which is the optimizer's. */
static double loss_of(const sync_sim *s, int r, const td__batch *b)
{
    int64_t begin = b->rows * r / s->n, end = b->rows * (r + 1) / s->n;
    double sum = 0;
    for (int64_t i = begin; i < end; i++) {
        double h = s->x[r][SYNC_WIDTH];
        for (int k = 0; k < SYNC_WIDTH; k++)
            h += s->x[r][k] * (double)((float *)b->field[0])[i * SYNC_WIDTH + k];
        h -= s->problem == SYNC_RIDGE_REGRESSION ? ((int32_t *)b->field[1])[i] : 0;
        sum += h * h;
    }
    return sum / (double)(end - begin);
}

/* Outputs are linear in the params: the mean output is that of the mean model, and the gradient of
 * the distance to it is that of the quadratic at the difference. */
static void compress(sync_sim *s, const models *m, int r, const td__batch *b)
{
    sync_sim plain = *s;
    double own[P], far[P], off[P];
    sync_sim_grad(s, r, b, s->x[r], own);
    plain.problem = SYNC_QUADRATIC;
    for (int p = 0; p < P; p++) {
        off[p] = s->x[r][p];
        for (int k = 0; k < s->n; k++)
            off[p] -= m->x[k][p] / s->n;
    }
    sync_sim_grad(&plain, r, b, off, far);
    for (int p = 0; p < P; p++) {
        double decay = s->problem == SYNC_RIDGE_REGRESSION ? SYNC_RIDGE * s->x[r][p] : 0;
        s->x[r][p] -= SYNC_LR * ((1 - WEIGHT) * (own[p] - decay) + decay + WEIGHT * far[p]);
    }
}

static void ensemble(sync_sim *s, models *m, int step, const td__batch *b)
{
    bool labelled = m->at && step - m->at <= COMPRESS;
    for (int r = 0; r < s->n; r++) {
        if (labelled) {
            compress(s, m, r, b);
            continue;
        }
        m->loss[r] += loss_of(s, r, b);
        sync_sim_descend(s, r, b);
    }
    if (step % TAU == 0) {
        memcpy(m->x, s->x, sizeof m->x);
        m->at = step;
    }
}

/* Fragment 0 is w, due in steps 0 modulo tau, fragment 1 is b. */
static void outer(sync_sim *s, int p)
{
    double g = s->c[p] - sync_sim_mean(s, p);
    s->v[p] = MU * s->v[p] + g;
    s->c[p] -= RATE * (g + MU * s->v[p]);
    for (int r = 0; r < s->n; r++)
        s->x[r][p] = s->c[p];
}

static void fragments(sync_sim *s, int step, const td__batch *b)
{
    for (int r = 0; r < s->n; r++)
        sync_sim_descend(s, r, b);
    for (int p = 0; p < P; p++)
        if (step % TAU == (p < SYNC_WIDTH ? 0 : TAU / 2) || step == SYNC_STEPS)
            outer(s, p);
}

static void start(sync_run *u, sync_problem problem, bool diloco)
{
    sync_run_init(u, problem, diloco ? "diloco" : "ensemble-compress");
    sync_run_set(u, "tau", TAU);
    if (diloco) {
        sync_run_set(u, "fragments", 2);
        sync_run_set(u, "rate", RATE);
        sync_run_set(u, "momentum", MU);
    } else {
        sync_run_set(u, "compress", COMPRESS);
        sync_run_set(u, "weight", WEIGHT);
    }
}

TEST(they_follow_their_recurrence)
{
    for (int problem = 0; problem < 2; problem++)
        for (int diloco = 0; diloco < 2; diloco++)
            for (int n = 1; n <= SYNC_MOST_RANKS; n++) {
                sync_run u;
                sync_sim s = {.n = n};
                models m = {.at = 0};
                td__dataset *d;
                td__loader *l = sync_batches(&d);
                start(&u, (sync_problem)problem, diloco);
                sync_run_on(&u, n, NULL);
                sync_sim_begin(&s, &u);
                for (int step = 1; step <= SYNC_STEPS; step++) {
                    const td__batch *b;
                    CHECK_OK(td__loader_next(l, &b));
                    if (diloco)
                        fragments(&s, step, b);
                    else
                        ensemble(&s, &m, step, b);
                }
                int best = 0;
                for (int r = 1; r < n && !diloco; r++)
                    best = m.loss[r] < m.loss[best] ? r : best;
                for (int p = 0; p < P; p++)
                    CHECK(fabs((double)u.last[p] - s.x[best][p]) < 1e-5,
                          "%s, problem %d, %d ranks: param %d is %.9g, not %.9g",
                          diloco ? "diloco" : "ensemble-compress", problem, n, p, (double)u.last[p],
                          s.x[best][p]);
                td__loader_destroy(l);
                td__dataset_destroy(d);
                sync_run_end(&u);
            }
}

TEST(resumed_runs_and_far_have_the_same_bits)
{
    for (int diloco = 0; diloco < 2; diloco++) {
        sync_run u[3]; /* whole, resumed, far */
        for (int k = 0; k < 3; k++) {
            start(&u[k], SYNC_RIDGE_REGRESSION, diloco);
            u[k].opts.checkpoint_dir = check_tmpdir();
            u[k].opts.checkpoint_every = 6;
            u[k].opts.backend = k == 2 ? "far" : NULL;
            if (k == 1) {
                u[k].opts.steps = 6;
                sync_run_on(&u[k], 2, NULL);
                u[k].opts.steps = SYNC_STEPS;
                u[k].resume = true;
            }
            sync_run_on(&u[k], 2, NULL);
            CHECK(strcmp(u[k].got.digest, u[0].got.digest) == 0, "%s: other weights in run %d",
                  diloco ? "diloco" : "ensemble-compress", k);
        }
        u[1].opts.steps += 6;
        sync_run_on(&u[1], 3, NULL);
        CHECK_EQ_INT(u[1].got.step, SYNC_STEPS + 6);
        for (int k = 0; k < 3; k++)
            sync_run_end(&u[k]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(they_follow_their_recurrence),
        cmocka_unit_test(resumed_runs_and_far_have_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
