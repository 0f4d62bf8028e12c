/* test_losses.c -- losses and norms, which are compositions of operators: values against their
 * formulas, gradients against finite differences through the whole of autodiff and rewriting, and
 * the corners (p = 0, a norm of 0, a class that does not exist). */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "support/sample.h"
#include "tandem/ops.h"
#include "tandem/program.h"

enum { ROWS = 5, COLS = 7, N = ROWS * COLS };

/* A loss of x (5, 7) f64 and a second operand: t (5, 7) f64 or ids (5) i32. */
typedef struct trial {
    td_graph *g;
    td_node *x, *t, *ids, *loss;
    double xs[N], ts[N];
    int32_t classes[ROWS];
    td_program *p;
    td_params *ps;
    td_runner *r;
} trial;

typedef td_node *make_fn(trial *t);
typedef double value_fn(const trial *t);

static void open_graph(trial *t)
{
    uint64_t state = 3;
    memset(t, 0, sizeof *t);
    CHECK_OK(td_graph_create(&t->g));
    t->x = td_input(t->g, "x", TD_F64, TD_SHAPE(ROWS, COLS));
    t->t = td_input(t->g, "t", TD_F64, TD_SHAPE(ROWS, COLS));
    t->ids = td_input(t->g, "ids", TD_I32, TD_SHAPE(ROWS));
    for (int i = 0; i < N; i++) {
        t->xs[i] = 4 * sample_uniform(&state) - 2;
        t->ts[i] = sample_uniform(&state);
    }
    for (int i = 0; i < ROWS; i++)
        t->classes[i] = (i * 3) % COLS;
}

static void open_runner(trial *t, const char *backend)
{
    td_program_opts opts = {.backend = backend,
                            .outputs = &t->loss,
                            .n_outputs = 1,
                            .grad_inputs = (td_node *[]){t->x, t->t},
                            .n_grad_inputs = 2};
    CHECK(t->loss, "%s", td_graph_error(t->g));
    CHECK_OK(td_program_create(t->g, t->loss, &opts, &t->p));
    CHECK_OK(td_params_create(t->p, 1, &t->ps));
    CHECK_OK(td_runner_create(t->p, t->ps, &t->r));
}

static void close_trial(trial *t)
{
    td_runner_destroy(t->r);
    td_params_destroy(t->ps);
    td_program_destroy(t->p);
    td_graph_destroy(t->g);
}

static td_status run(trial *t, double *loss)
{
    CHECK_OK(td_runner_set_input(t->r, "x", t->xs, sizeof t->xs));
    CHECK_OK(td_runner_set_input(t->r, "t", t->ts, sizeof t->ts));
    CHECK_OK(td_runner_set_input(t->r, "ids", t->classes, sizeof t->classes));
    td_status st = td_runner_run(t->r, (td_run_key){0});
    const double *out = td_runner_output(t->r, 0, NULL);
    *loss = *out;
    return st;
}

static td_node *make_mse(trial *t)
{
    return td_mse(t->g, t->x, t->t);
}

static double value_mse(const trial *t)
{
    double sum = 0;
    for (int i = 0; i < N; i++)
        sum += (t->xs[i] - t->ts[i]) * (t->xs[i] - t->ts[i]);
    return sum / N;
}

static td_node *make_l1(trial *t)
{
    return td_l1(t->g, t->x, t->t);
}

static double value_l1(const trial *t)
{
    double sum = 0;
    for (int i = 0; i < N; i++)
        sum += fabs(t->xs[i] - t->ts[i]);
    return sum / N;
}

static td_node *make_huber(trial *t)
{
    return td_huber(t->g, t->x, t->t, 0.75);
}

static double value_huber(const trial *t)
{
    double sum = 0;
    for (int i = 0; i < N; i++) {
        double d = fabs(t->xs[i] - t->ts[i]);
        sum += d < 0.75 ? d * d / 2 : 0.75 * (d - 0.375);
    }
    return sum / N;
}

static td_node *make_bce(trial *t)
{
    return td_bce_with_logits(t->g, t->x, t->t);
}

static double value_bce(const trial *t)
{
    double sum = 0;
    for (int i = 0; i < N; i++) {
        double p = 1 / (1 + exp(-t->xs[i]));
        sum -= t->ts[i] * log(p) + (1 - t->ts[i]) * log(1 - p);
    }
    return sum / N;
}

static td_node *make_nll(trial *t)
{
    return td_nll(t->g, t->x, t->ids);
}

static double value_nll(const trial *t)
{
    double sum = 0;
    for (int r = 0; r < ROWS; r++)
        sum -= t->xs[r * COLS + t->classes[r]];
    return sum / ROWS;
}

static td_node *make_kl(trial *t)
{
    return td_kl_div(t->g, t->x, t->t);
}

static double value_kl(const trial *t)
{
    double sum = 0;
    for (int i = 0; i < N; i++)
        sum += t->ts[i] * (log(t->ts[i]) - t->xs[i]);
    return sum / ROWS;
}

static td_node *make_norm(trial *t)
{
    td_node *rows = td_norm(t->g, td_mul(t->g, t->x, t->t), (int[]){1}, 1, false);
    return td_sum(t->g, rows, NULL, 0, false);
}

static double value_norm(const trial *t)
{
    double sum = 0;
    for (int r = 0; r < ROWS; r++) {
        double square = 0;
        for (int i = r * COLS; i < (r + 1) * COLS; i++)
            square += t->xs[i] * t->ts[i] * t->xs[i] * t->ts[i];
        sum += sqrt(square);
    }
    return sum;
}

static const struct {
    const char *name;
    make_fn *make;
    value_fn *value;
} LOSSES[] = {
    {"mse", make_mse, value_mse},       {"l1", make_l1, value_l1},
    {"huber", make_huber, value_huber}, {"bce", make_bce, value_bce},
    {"nll", make_nll, value_nll},       {"kl", make_kl, value_kl},
    {"norm", make_norm, value_norm},
};

static void check_gradient(trial *t, const char *name, int input, double *values, value_fn *value)
{
    const double *grad = td_runner_grad_input(t->r, input, NULL);
    for (int i = 0; i < N; i++) {
        double saved = values[i], h = 1e-5;
        values[i] = saved + h;
        double up = value(t);
        values[i] = saved - h;
        double down = value(t);
        values[i] = saved;
        double want = (up - down) / (2 * h);
        CHECK(fabs(grad[i] - want) <= 1e-6 * (1 + fabs(want)),
              "%s: gradient %d of input %d is %.10g, differences give %.10g", name, i, input,
              grad[i], want);
    }
}

TEST(values_and_gradients)
{
    static const char *const BACKENDS[] = {"ref", "cpu"};
    for (int b = 0; b < TD_LEN(BACKENDS); b++)
        for (int i = 0; i < TD_LEN(LOSSES); i++) {
            trial t;
            double loss;
            open_graph(&t);
            t.loss = LOSSES[i].make(&t);
            open_runner(&t, BACKENDS[b]);
            CHECK_OK(run(&t, &loss));
            double want = LOSSES[i].value(&t);
            CHECK(fabs(loss - want) <= 1e-12 * (1 + fabs(want)), "%s on %s is %.15g, not %.15g",
                  LOSSES[i].name, BACKENDS[b], loss, want);
            check_gradient(&t, LOSSES[i].name, 0, t.xs, LOSSES[i].value);
            check_gradient(&t, LOSSES[i].name, 1, t.ts, LOSSES[i].value);
            close_trial(&t);
        }
}

/* 0 ln 0 is 0, and nothing becomes NaN on the way back. */
TEST(kl_of_zero_probability)
{
    trial t;
    double loss;
    open_graph(&t);
    t.loss = make_kl(&t);
    open_runner(&t, "ref");
    for (int i = 0; i < N; i++)
        t.ts[i] = 0;
    t.ts[2] = 1;
    CHECK_OK(run(&t, &loss));
    CHECK(fabs(loss + t.xs[2] / ROWS) < 1e-12, "kl is %g", loss);
    for (int k = 0; k < 2; k++) {
        const double *grad = td_runner_grad_input(t.r, k, NULL);
        for (int i = 0; i < N; i++)
            CHECK(isfinite(grad[i]), "gradient %d of input %d is %g", i, k, grad[i]);
    }
    close_trial(&t);
}

TEST(norm_of_zero)
{
    trial t;
    double loss;
    open_graph(&t);
    t.loss = make_norm(&t);
    open_runner(&t, "ref");
    memset(t.xs, 0, sizeof t.xs);
    CHECK_OK(run(&t, &loss));
    CHECK(loss == 0, "the norm of 0 is %g", loss);
    const double *grad = td_runner_grad_input(t.r, 0, NULL);
    for (int i = 0; i < N; i++)
        CHECK(grad[i] == 0, "gradient %d at 0 is %g", i, grad[i]);
    close_trial(&t);
}

/* A class that does not exist ends the run with an error, not with a wrong number. */
TEST(nll_of_unknown_class)
{
    static const int32_t BAD[] = {COLS, -1, INT32_MAX, INT32_MIN};
    for (int i = 0; i < TD_LEN(BAD); i++) {
        trial t;
        double loss;
        open_graph(&t);
        t.loss = make_nll(&t);
        open_runner(&t, "cpu");
        t.classes[1] = BAD[i];
        CHECK_STATUS(run(&t, &loss), TD_EINVAL);
        close_trial(&t);
    }
}

/* x is a bf16 activation, the target 1 + 2^-12, which bf16 cannot hold: the difference must be
 * taken in f32. */
TEST(losses_stay_f32_in_bf16_programs)
{
    td_graph *g;
    td_program *p;
    td_params *ps;
    td_runner *r;
    float ones[8], target[8];
    CHECK_OK(td_graph_create(&g));
    td_node *a = td_input(g, "a", TD_F32, TD_SHAPE(8, 1));
    td_node *x = td_matmul(g, a, td_input(g, "b", TD_F32, TD_SHAPE(1, 1)), false, false);
    td_node *loss = td_l1(g, x, td_input(g, "t", TD_F32, TD_SHAPE(8, 1)));
    CHECK(loss, "%s", td_graph_error(g));
    CHECK_OK(td_program_create(g, loss, &(td_program_opts){.precision = TD_BF16}, &p));
    CHECK_OK(td_params_create(p, 1, &ps));
    CHECK_OK(td_runner_create(p, ps, &r));
    for (int i = 0; i < 8; i++) {
        ones[i] = 1;
        target[i] = 1 + 0x1p-12f;
    }
    CHECK_OK(td_runner_set_input(r, "a", ones, sizeof ones));
    CHECK_OK(td_runner_set_input(r, "b", ones, sizeof ones[0]));
    CHECK_OK(td_runner_set_input(r, "t", target, sizeof target));
    CHECK_OK(td_runner_run(r, (td_run_key){0}));
    CHECK(td_runner_loss(r) == 0x1p-12f, "the loss is %g", (double)td_runner_loss(r));
    td_runner_destroy(r);
    td_params_destroy(ps);
    td_program_destroy(p);
    td_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_and_gradients),
        cmocka_unit_test(kl_of_zero_probability),
        cmocka_unit_test(norm_of_zero),
        cmocka_unit_test(nll_of_unknown_class),
        cmocka_unit_test(losses_stay_f32_in_bf16_programs),
    };
    return cmocka_run_group_tests_name("losses", tests, NULL, NULL);
}
