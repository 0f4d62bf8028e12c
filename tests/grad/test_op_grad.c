/* test_op_grad.c -- every operator of ops.def, every sample: its gradient rule against finite
 * differences.
 *
 * Everything is f64 on the reference backend. The loss is sum(w y) over all differentiable outputs
 * with random w, so that no error can hide in a symmetric loss. Differences are central, of fourth
 * order,
 *
 *     f'(0) = (8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / 12 h + O(h^4)
 *
 * along a few random directions, which involve every element, and along single elements. An
 * operator that declares no gradient must be refused; one without samples fails. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Test labels: one-thread */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/attr.h"
#include "support/sample.h"
#include "tandem/ops.h"
#include "tandem/program.h"

enum { MAX_FLOATS = TD_SAMPLE_MAX_IN, DIRECTIONS = 2, ELEMENTS = 12, ELEMENTS_IF_LARGE = 2 };
enum { LARGE = 2000 };
static const double STEP = 1e-4, TOLERANCE = 1e-6, NOISE = 1e-9;

/* A program and what it needs to run. */
typedef struct machine {
    td_program *p;
    td_params *ps;
    td_runner *r;
} machine;

/* Everything about one sample. */
typedef struct trial {
    sample_case c;
    td_node *loss;
    int n_weights;
    td_node *weight[TD_MAX_OUT]; /* inputs "w0", ... */
    int n_floats;
    int floats[MAX_FLOATS];       /* numbers of the floating inputs */
    void *data[TD_SAMPLE_MAX_IN]; /* of the inputs */
    void *weights[TD_MAX_OUT];
} trial;

static td_status open_machine(machine *m, trial *t, bool backward)
{
    td_node *wanted[MAX_FLOATS];
    for (int i = 0; i < t->n_floats; i++)
        wanted[i] = t->c.in[t->floats[i]];
    td_program_opts opts = {
        .backend = "ref",
        .outputs = &t->loss,
        .n_outputs = 1,
        .grad_inputs = wanted,
        .n_grad_inputs = backward ? t->n_floats : 0,
        .no_rewrites = true,
    };
    memset(m, 0, sizeof *m);
    td_status st = td_program_create(t->c.g, t->loss, &opts, &m->p);
    if (st)
        return st;
    CHECK_OK(td_params_create(m->p, 1, &m->ps));
    CHECK_OK(td_runner_create(m->p, m->ps, &m->r));
    return TD_OK;
}

static void close_machine(machine *m)
{
    td_runner_destroy(m->r);
    td_params_destroy(m->ps);
    td_program_destroy(m->p);
}

/* Random numbers for a tensor, uniform in [-1, 1). */
static double *random_numbers(int64_t n, uint64_t seed)
{
    double *v = malloc((size_t)(n + 1) * sizeof *v);
    CHECK(v, "no memory for %lld numbers", (long long)n);
    uint64_t state = seed * 2654435761u + 99;
    for (int64_t i = 0; i < n; i++)
        v[i] = 2 * sample_uniform(&state) - 1;
    return v;
}

/* loss = sum over the differentiable outputs of sum(w y). False if there is none. */
static bool add_loss(trial *t)
{
    td_graph *g = t->c.g;
    td_node *y = t->c.node;
    for (int k = 0; k < y->n_out; k++) {
        if (!td_dtype_is_float(y->out[k].dtype))
            continue;
        if (k > 0 && !(td__op(y->op)->grad_out >> k & 1u))
            continue;
        char name[16];
        snprintf(name, sizeof name, "w%d", t->n_weights);
        td_node *w = td_input(g, name, TD_F64, y->out[k].shape);
        td_node *part = td__part(g, y, k);
        if (part && part->out[0].layout != TD_LAYOUT_PLAIN)
            part = TD__NODE(g, TD_OP_REORDER, &(td_attr_reorder){TD_LAYOUT_PLAIN}, part);
        if (part && part->out[0].dtype != TD_F64)
            part = td_cast(g, part, TD_F64);
        td_node *term = td_sum(g, td_mul(g, part, w), NULL, 0, false);
        t->loss = t->loss ? td_add(g, t->loss, term) : term;
        CHECK(t->loss, "%s: %s", t->c.text, td_graph_error(g));
        t->weights[t->n_weights] = random_numbers(td__desc_count(&w->out[0]), 17u + (unsigned)k);
        t->weight[t->n_weights++] = w;
    }
    return t->loss != NULL;
}

static void open_trial(trial *t, td_opcode op, int index)
{
    memset(t, 0, sizeof *t);
    sample_open(&t->c, op, index, TD_F64, false);
    for (int i = 0; i < t->c.n_in; i++) {
        /* Layouts exist only inside programs of backends that want them. */
        t->c.desc[i].layout = TD_LAYOUT_PLAIN;
        t->data[i] = malloc(td__desc_bytes(&t->c.in[i]->out[0]) + 1);
        CHECK(t->data[i], "no memory for the inputs of %s", t->c.text);
        sample_fill(&t->c, i, 1, t->data[i]);
        if (td_dtype_is_float(t->c.in[i]->out[0].dtype))
            t->floats[t->n_floats++] = i;
    }
}

static void close_trial(trial *t)
{
    for (int i = 0; i < t->c.n_in; i++)
        free(t->data[i]);
    for (int k = 0; k < t->n_weights; k++)
        free(t->weights[k]);
    sample_close(&t->c);
}

/* The loss with the inputs as they are now. */
static double run(const machine *m, const trial *t)
{
    for (int i = 0; i < t->c.n_in; i++)
        CHECK_OK(td_runner_set_input(m->r, t->c.in[i]->name, t->data[i],
                                     td__desc_bytes(&t->c.in[i]->out[0])));
    for (int k = 0; k < t->n_weights; k++)
        CHECK_OK(td_runner_set_input(m->r, t->weight[k]->name, t->weights[k],
                                     td__desc_bytes(&t->weight[k]->out[0])));
    CHECK_OK(td_runner_run(m->r, (td_run_key){.seed = 5, .step = 3, .micro_batch = 1}));
    size_t nbytes = 0;
    const double *loss = td_runner_output(m->r, 0, &nbytes);
    CHECK(loss && nbytes == sizeof *loss, "%s: the loss has %zu bytes", t->c.text, nbytes);
    return *loss;
}

/* The loss's derivative with input i moved along `direction`. */
static double difference(const machine *m, trial *t, int i, const double *direction)
{
    static const double AT[] = {1, -1, 2, -2}, FACTOR[] = {8, -8, -1, 1};
    double *x = t->data[i], sum = 0;
    int64_t n = td__desc_count(&t->c.in[i]->out[0]);
    double *saved = malloc((size_t)(n + 1) * sizeof *saved);
    CHECK(saved, "no memory");
    memcpy(saved, x, (size_t)n * sizeof *x);
    for (int k = 0; k < 4; k++) {
        for (int64_t e = 0; e < n; e++)
            x[e] = saved[e] + AT[k] * STEP * direction[e];
        sum += FACTOR[k] * run(m, t);
    }
    memcpy(x, saved, (size_t)n * sizeof *x);
    free(saved);
    return sum / (12 * STEP);
}

static void compare(const trial *t, int i, const char *along, double got, double want, double scale)
{
    double allowed = TOLERANCE * (fabs(want) + scale) + NOISE;
    CHECK(fabs(got - want) <= allowed,
          "%s, input %d along %s: the rule gives %.12g, differences %.12g", t->c.text, i, along,
          got, want);
}

/* Input i: a few directions, then single elements. */
static void check_input(const machine *forward, trial *t, int i, const double *grad)
{
    int64_t n = td__desc_count(&t->c.in[i]->out[0]);
    double square = 0;
    for (int64_t e = 0; e < n; e++)
        square += grad[e] * grad[e];
    if (n == 0)
        return;
    for (int k = 0; k < DIRECTIONS; k++) {
        double *direction = random_numbers(n, 1000u + (unsigned)k), got = 0;
        for (int64_t e = 0; e < n; e++)
            got += grad[e] * direction[e];
        compare(t, i, "a direction", got, difference(forward, t, i, direction), sqrt(square));
        free(direction);
    }
    double *one = calloc((size_t)n, sizeof *one);
    CHECK(one, "no memory");
    int64_t tries = n > LARGE ? ELEMENTS_IF_LARGE : ELEMENTS;
    uint64_t state = 77;
    for (int64_t k = 0; k < tries && k < n; k++) {
        int64_t e = n <= tries ? k : (int64_t)(sample_uniform(&state) * (double)n);
        one[e] = 1;
        compare(t, i, "an element", grad[e], difference(forward, t, i, one),
                sqrt(square / (double)n));
        one[e] = 0;
    }
    free(one);
}

static void check_gradients(trial *t)
{
    machine forward, backward;
    td_status st = open_machine(&backward, t, true);
    CHECK(!st, "%s: %s", t->c.text, td_last_error());
    CHECK_OK(open_machine(&forward, t, false));
    double both = run(&backward, t), alone = run(&forward, t);
    CHECK(both == alone, "%s: the loss is %.17g beside a backward and %.17g alone", t->c.text, both,
          alone);
    for (int k = 0; k < t->n_floats; k++) {
        int i = t->floats[k];
        size_t nbytes = 0, want = td__desc_bytes(&t->c.in[i]->out[0]);
        const double *grad = td_runner_grad_input(backward.r, k, &nbytes);
        CHECK(nbytes == want, "%s: the gradient of input %d has %zu bytes, not %zu", t->c.text, i,
              nbytes, want);
        if (!(t->c.sample->no_grad >> i & 1u))
            check_input(&forward, t, i, grad);
    }
    close_machine(&forward);
    close_machine(&backward);
}

static void check_sample(td_opcode op, int index)
{
    const td_op_def *def = td__op(op);
    trial t;
    open_trial(&t, op, index);
    bool flows = t.n_floats > 0 && td_dtype_is_float(t.c.node->out[0].dtype);
    if (flows && add_loss(&t)) {
        if (def->grad) {
            check_gradients(&t);
        } else {
            machine m;
            CHECK_STATUS(open_machine(&m, &t, true), TD_ENOTSUP);
            CHECK(strstr(td_last_error(), def->name), "%s: the error does not name it: %s",
                  t.c.text, td_last_error());
        }
    }
    close_trial(&t);
}

static void check_operator(void **state)
{
    td_opcode op = (td_opcode)(uintptr_t)*state;
    const td_op_def *def = td__op(op);
    CHECK(def->n_samples > 0, "operator %s has no samples", def->name);
    for (int i = 0; i < def->n_samples; i++)
        check_sample(op, i);
}

int main(int argc, char **argv)
{
    return sample_run_operators("op_grad", check_operator, NULL, NULL, argc, argv);
}
