/* Optimizers against an independent implementation in double, written from PyTorch's documentation
 * (lamb, lars: from the papers); slices against the whole; one instruction set against another; what
 * is refused, and how.
 *
 * The model is loss = sum over params of sum(w * x) with x an input, so that the gradient of w is
 * whatever the test puts into x. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "support/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/rng.h"
#include "optim/optimizer.h"
#include "tandem/alloc.h"
#include "tandem/ops.h"
#include "tandem/optim.h"

/* Two matrices, a vector and a scalar; no size is a multiple of a vector's width. */
static const td_shape SHAPES[] = {{2, {37, 11}}, {1, {5}}, {3, {3, 17, 101}}, {0, {0}}};
enum { N_PARAMS = 4, N_STEPS = 6 };

typedef struct model {
    td_program *program;
    td_params *params;
    td_runner *runner;
} model;

static model make_model(void)
{
    model m;
    td_graph *g;
    CHECK_OK(td_graph_create(&g));
    td_node *loss = NULL;
    for (int i = 0; i < N_PARAMS; i++) {
        char w[8] = {'w', (char)('0' + i)}, x[8] = {'x', (char)('0' + i)};
        td_init init = {.kind = TD_INIT_NORMAL, .b = 1};
        td_node *y = td_mul(g, td_param(g, w, SHAPES[i], init), td_input(g, x, TD_F32, SHAPES[i]));
        td_node *sum = td_sum(g, y, NULL, 0, false);
        loss = loss ? td_add(g, loss, sum) : sum;
    }
    td_program_opts opts = {.backend = "ref"};
    CHECK_OK(td_program_create(g, loss, &opts, &m.program));
    CHECK_OK(td_params_create(m.program, 5, &m.params));
    CHECK_OK(td_runner_create(m.program, m.params, &m.runner));
    td_graph_destroy(g);
    return m;
}

static void free_model(model *m)
{
    td_runner_destroy(m->runner);
    td_params_destroy(m->params);
    td_program_destroy(m->program);
}

/* New gradients for a step: normal numbers of different scale for each param. */
static void run_step(model *m, int step)
{
    for (int i = 0; i < N_PARAMS; i++) {
        char name[8] = {'x', (char)('0' + i)};
        td__rng_key key = {.seed = 99, .stream = (uint32_t)i, .step = (uint32_t)step};
        size_t nbytes;
        float *x = td_runner_input(m->runner, name, &nbytes);
        for (size_t k = 0; k < nbytes / sizeof *x; k++)
            x[k] = td__rng_normal(&key, k) * (i == 2 ? 0.01f : 1.0f);
    }
    CHECK_OK(td_runner_run(m->runner, (td_run_key){.step = (uint32_t)step}));
}

/* ---- The judge ------------------------------------------------------------------------------- */

/* One tensor in double: value, gradient, three states. */
typedef struct judge {
    size_t n;
    bool vector;
    double *p, *g, *s0, *s1, *s2;
} judge;

static double length(const double *x, size_t n)
{
    double s = 0;
    for (size_t i = 0; i < n; i++)
        s += x[i] * x[i];
    return sqrt(s);
}

/* Options here are spelled out: no defaults. */
static void judge_sgd(judge *j, const td_optim_opts *o, double lr, int t)
{
    for (size_t i = 0; i < j->n; i++) {
        double g = j->g[i] + o->weight_decay * j->p[i];
        if (o->momentum > 0) {
            j->s0[i] = t == 1 ? g : o->momentum * j->s0[i] + (1 - o->dampening) * g;
            g = o->nesterov ? g + o->momentum * j->s0[i] : j->s0[i];
        }
        j->p[i] -= lr * g;
    }
}

static void judge_adagrad(judge *j, const td_optim_opts *o, double lr, int t)
{
    for (size_t i = 0; i < j->n; i++) {
        double g = j->g[i] + o->weight_decay * j->p[i];
        if (t == 1)
            j->s0[i] = o->initial_accumulator;
        j->s0[i] += g * g;
        j->p[i] -= lr / (1 + (t - 1) * o->lr_decay) * g / (sqrt(j->s0[i]) + o->eps);
    }
}

static void judge_rmsprop(judge *j, const td_optim_opts *o, double lr, int t)
{
    (void)t;
    for (size_t i = 0; i < j->n; i++) {
        double g = j->g[i] + o->weight_decay * j->p[i];
        j->s0[i] = o->alpha * j->s0[i] + (1 - o->alpha) * g * g;
        j->s1[i] = o->alpha * j->s1[i] + (1 - o->alpha) * g;
        double var = j->s0[i] - (o->centered ? j->s1[i] * j->s1[i] : 0);
        j->s2[i] = o->momentum * j->s2[i] + g / (sqrt(var) + o->eps);
        j->p[i] -= lr * j->s2[i];
    }
}

static void judge_adam(judge *j, const td_optim_opts *o, double lr, int t)
{
    bool decoupled = !strcmp(o->name, "adamw");
    for (size_t i = 0; i < j->n; i++) {
        double g = j->g[i] + (decoupled ? 0 : o->weight_decay * j->p[i]);
        if (decoupled)
            j->p[i] -= lr * o->weight_decay * j->p[i];
        j->s0[i] = o->beta1 * j->s0[i] + (1 - o->beta1) * g;
        j->s1[i] = o->beta2 * j->s1[i] + (1 - o->beta2) * g * g;
        double m = j->s0[i] / (1 - pow(o->beta1, t)), v = j->s1[i] / (1 - pow(o->beta2, t));
        j->p[i] -= lr * m / (sqrt(v) + o->eps);
    }
}

static void judge_lamb(judge *j, const td_optim_opts *o, double lr, int t)
{
    double *u = calloc(j->n, sizeof *u), ratio = 1;
    for (size_t i = 0; i < j->n; i++) {
        j->s0[i] = o->beta1 * j->s0[i] + (1 - o->beta1) * j->g[i];
        j->s1[i] = o->beta2 * j->s1[i] + (1 - o->beta2) * j->g[i] * j->g[i];
        double m = j->s0[i] / (1 - pow(o->beta1, t)), v = j->s1[i] / (1 - pow(o->beta2, t));
        u[i] = m / (sqrt(v) + o->eps) + o->weight_decay * j->p[i];
    }
    if (!(o->no_decay_vectors && j->vector) && length(j->p, j->n) > 0 && length(u, j->n) > 0)
        ratio = length(j->p, j->n) / length(u, j->n);
    for (size_t i = 0; i < j->n; i++)
        j->p[i] -= lr * ratio * u[i];
    free(u);
}

static void judge_lars(judge *j, const td_optim_opts *o, double lr, int t)
{
    double ratio = 1, w = length(j->p, j->n), g = length(j->g, j->n);
    (void)t;
    if (!(o->no_decay_vectors && j->vector) && w > 0 && g > 0)
        ratio = o->trust * w / (g + o->weight_decay * w + o->eps);
    for (size_t i = 0; i < j->n; i++) {
        j->s0[i] = o->momentum * j->s0[i] + lr * ratio * (j->g[i] + o->weight_decay * j->p[i]);
        j->p[i] -= j->s0[i];
    }
}

typedef struct row {
    td_optim_opts given;
    td_optim_opts means; /* the same with defaults spelled out */
    void (*judge)(judge *j, const td_optim_opts *o, double lr, int t);
} row;

#define ADAM .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8
#define RMS .alpha = 0.99, .eps = 1e-8
static const row ROWS[] = {
    {{.name = NULL}, {.name = "sgd"}, judge_sgd},
    {{.name = "sgd", .weight_decay = 0.1}, {.weight_decay = 0.1}, judge_sgd},
    {{.name = "sgd", .momentum = 0.9}, {.momentum = 0.9}, judge_sgd},
    {{.name = "sgd", .momentum = 0.9, .dampening = 0.3, .weight_decay = 0.1},
     {.momentum = 0.9, .dampening = 0.3, .weight_decay = 0.1},
     judge_sgd},
    {{.name = "sgd", .momentum = 0.9, .nesterov = true, .weight_decay = 0.1},
     {.momentum = 0.9, .nesterov = true, .weight_decay = 0.1},
     judge_sgd},
    {{.name = "sgd", .momentum = 0.9, .weight_decay = 0.1, .no_decay_vectors = true},
     {.momentum = 0.9, .weight_decay = 0.1, .no_decay_vectors = true},
     judge_sgd},
    {{.name = "adagrad"}, {.eps = 1e-10}, judge_adagrad},
    {{.name = "adagrad",
      .lr_decay = 0.5,
      .initial_accumulator = 0.3,
      .weight_decay = 0.1,
      .eps = 1},
     {.lr_decay = 0.5, .initial_accumulator = 0.3, .weight_decay = 0.1, .eps = 1},
     judge_adagrad},
    {{.name = "rmsprop"}, {RMS}, judge_rmsprop},
    {{.name = "rmsprop", .alpha = 0.7, .momentum = 0.5, .weight_decay = 0.1},
     {.alpha = 0.7, .eps = 1e-8, .momentum = 0.5, .weight_decay = 0.1},
     judge_rmsprop},
    {{.name = "rmsprop", .centered = true, .eps = 0.01},
     {.alpha = 0.99, .eps = 0.01, .centered = true},
     judge_rmsprop},
    {{.name = "rmsprop", .centered = true, .eps = 0.01, .momentum = 0.5},
     {.alpha = 0.99, .eps = 0.01, .centered = true, .momentum = 0.5},
     judge_rmsprop},
    {{.name = "adam"}, {.name = "adam", ADAM}, judge_adam},
    {{.name = "adam", .weight_decay = 0.1},
     {.name = "adam", ADAM, .weight_decay = 0.1},
     judge_adam},
    {{.name = "adam", .beta1 = TD_ZERO, .beta2 = 0.5, .eps = 0.1},
     {.name = "adam", .beta2 = 0.5, .eps = 0.1},
     judge_adam},
    {{.name = "adamw"}, {.name = "adamw", ADAM, .weight_decay = 0.01}, judge_adam},
    {{.name = "adamw", .weight_decay = TD_ZERO}, {.name = "adamw", ADAM}, judge_adam},
    {{.name = "adamw", .weight_decay = 0.3, .no_decay_vectors = true},
     {.name = "adamw", ADAM, .weight_decay = 0.3, .no_decay_vectors = true},
     judge_adam},
    {{.name = "adamw", .clip_norm = 0.5},
     {.name = "adamw", ADAM, .weight_decay = 0.01, .clip_norm = 0.5},
     judge_adam},
    {{.name = "adam", .eps = 0.1, .clip_norm = 20, .clip_value = 0.2},
     {.name = "adam", .beta1 = 0.9, .beta2 = 0.999, .eps = 0.1, .clip_norm = 20, .clip_value = 0.2},
     judge_adam},
    {{.name = "sgd", .clip_norm = 1e9}, {.clip_norm = 1e9}, judge_sgd}, /* nothing to clip */
    {{.name = "lamb"},
     {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-6, .weight_decay = 0.01},
     judge_lamb},
    {{.name = "lamb", .weight_decay = 0.2, .no_decay_vectors = true},
     {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-6, .weight_decay = 0.2, .no_decay_vectors = true},
     judge_lamb},
    {{.name = "lars"},
     {.momentum = 0.9, .weight_decay = 1e-4, .trust = 0.001, .eps = 1e-8},
     judge_lars},
    {{.name = "lars",
      .momentum = TD_ZERO,
      .weight_decay = 0.1,
      .trust = 0.5,
      .no_decay_vectors = true,
      .clip_value = 0.5},
     {.weight_decay = 0.1, .trust = 0.5, .eps = 1e-8, .no_decay_vectors = true, .clip_value = 0.5},
     judge_lars},
};

static void judge_init(judge *j, td_params *ps, int i)
{
    td_param_info info = td_params_info(ps, i);
    double *all = calloc(5 * info.count, sizeof *all);
    *j = (judge){.n = info.count,
                 .vector = info.shape.ndim < 2,
                 .p = all,
                 .g = all + info.count,
                 .s0 = all + 2 * info.count,
                 .s1 = all + 3 * info.count,
                 .s2 = all + 4 * info.count};
    for (size_t k = 0; k < info.count; k++)
        j->p[k] = (double)td_params_block(ps, NULL)[info.offset + k];
}

/* The gradients, clipped as the options say; returns their norm before that. */
static double judge_gradients(judge *js, const model *m, const td_optim_opts *o)
{
    double squares = 0, scale = 1;
    for (int i = 0; i < N_PARAMS; i++) {
        const float *g = td_runner_grads(m->runner, NULL) + td_params_info(m->params, i).offset;
        for (size_t k = 0; k < js[i].n; k++) {
            js[i].g[k] = (double)g[k];
            squares += js[i].g[k] * js[i].g[k];
        }
    }
    double norm = sqrt(squares);
    if (o->clip_norm > 0 && norm > o->clip_norm)
        scale = o->clip_norm / (norm + 1e-6);
    for (int i = 0; i < N_PARAMS; i++)
        for (size_t k = 0; k < js[i].n; k++) {
            js[i].g[k] *= scale;
            if (o->clip_value > 0)
                js[i].g[k] = fmax(-o->clip_value, fmin(o->clip_value, js[i].g[k]));
        }
    return norm;
}

TEST(every_optimizer_as_documented)
{
    for (int r = 0; r < TD_LEN(ROWS); r++) {
        model m = make_model();
        td_optimizer *o;
        judge js[N_PARAMS];
        CHECK_OK(td_optimizer_create(&ROWS[r].given, m.params, &o));
        for (int i = 0; i < N_PARAMS; i++)
            judge_init(&js[i], m.params, i);
        for (int t = 1; t <= N_STEPS; t++) {
            double lr = 0.05 / t;
            run_step(&m, t);
            double norm = judge_gradients(js, &m, &ROWS[r].means);
            uint64_t calls = td_alloc_get_stats().calls;
            CHECK_OK(td_optimizer_step(o, m.runner, lr));
            CHECK_EQ_INT(td_alloc_get_stats().calls, calls);
            CHECK_EQ_INT(td_optimizer_steps(o), t);
            double got_norm = td_optimizer_grad_norm(o);
            CHECK(ROWS[r].means.clip_norm == 0 || fabs(got_norm - norm) < 1e-9 * norm,
                  "row %d: norm %.12g, want %.12g", r, got_norm, norm);
            for (int i = 0; i < N_PARAMS; i++) {
                td_optim_opts mine = ROWS[r].means;
                if (mine.no_decay_vectors && js[i].vector)
                    mine.weight_decay = 0;
                ROWS[r].judge(&js[i], &mine, lr, t);
                const float *p =
                    td_params_block(m.params, NULL) + td_params_info(m.params, i).offset;
                for (size_t k = 0; k < js[i].n; k++)
                    CHECK(fabs((double)p[k] - js[i].p[k]) < 4e-6 * (1 + fabs(js[i].p[k])),
                          "row %d (%s) step %d: param %d[%zu] is %.9g, want %.9g", r,
                          td_optimizer_name(o), t, i, k, (double)p[k], js[i].p[k]);
            }
        }
        for (int i = 0; i < N_PARAMS; i++)
            free(js[i].p);
        td_optimizer_destroy(o);
        free_model(&m);
    }
}

TEST(every_optimizer_has_rows)
{
    int n = 0;
    for (; td_optimizer_list(n); n++) {
        bool found = false;
        for (int r = 0; r < TD_LEN(ROWS); r++)
            found =
                found || (ROWS[r].given.name && !strcmp(ROWS[r].given.name, td_optimizer_list(n)));
        CHECK(found, "%s is not tested", td_optimizer_list(n));
    }
    CHECK_EQ_INT(n, 7);
}

/* Slices of odd sizes, in another order, against one step over everything: the same bits in params
 * and states. */
TEST(slices_equal_the_whole)
{
    for (int r = 0; r < TD_LEN(ROWS); r++) {
        model a = make_model(), b = make_model();
        td_optimizer *oa, *ob;
        td_optim_opts opts = ROWS[r].given;
        opts.clip_norm = 0;
        CHECK_OK(td_optimizer_create(&opts, a.params, &oa));
        CHECK_OK(td_optimizer_create(&opts, b.params, &ob));
        size_t n = td_params_trainable(a.params);
        size_t slice = td__optim_sliceable(ob) ? 997 : n;
        for (int t = 1; t <= 3; t++) {
            run_step(&a, t);
            run_step(&b, t);
            CHECK_OK(td_optimizer_step(oa, a.runner, 0.01));
            CHECK_OK(td__optim_begin(ob, 0.01, 1));
            for (size_t end = n; end > 0; end -= end < slice ? end : slice) {
                size_t begin = end < slice ? 0 : end - slice;
                td__optim_apply(ob, td_runner_grads(b.runner, NULL) + begin, begin, end - begin);
            }
            td__optim_end(ob);
        }
        CHECK(!memcmp(td_params_block(a.params, NULL), td_params_block(b.params, NULL),
                      n * sizeof(float)),
              "row %d: params differ", r);
        for (int k = 0; k < td_optimizer_state_count(oa); k++)
            CHECK(!memcmp(td_optimizer_state(oa, k, NULL), td_optimizer_state(ob, k, NULL),
                          n * sizeof(float)),
                  "row %d: %s differs", r, td_optimizer_state_name(oa, k));
        td_optimizer_destroy(ob);
        td_optimizer_destroy(oa);
        free_model(&b);
        free_model(&a);
    }
}

/* ---- Instruction sets ------------------------------------------------------------------------ */

enum { KN = 1003 };
typedef struct arrays {
    float p[KN], g[KN], s[TD_OPTIM_MAX_STATE][KN];
} arrays;

static void fill_arrays(arrays *a)
{
    td__rng_key key = {.seed = 4};
    for (int i = 0; i < KN; i++) {
        uint64_t k = 5 * (uint64_t)i;
        a->p[i] = td__rng_normal(&key, k);
        a->g[i] = td__rng_normal(&key, k + 1);
        a->s[0][i] = td__rng_uniform(&key, k + 2) * 0.1f;
        a->s[1][i] = td__rng_uniform(&key, k + 3) + 0.1f;
        a->s[2][i] = td__rng_normal(&key, k + 4);
    }
}

#define KERNEL(name)                                  \
    {                                                 \
#name,                                        \
        {                                             \
            name##_scalar, name##_avx2, name##_avx512 \
        }                                             \
    }
static const struct {
    const char *name;
    td__optim_kernel *isa[3];
} KERNELS[] = {
    KERNEL(td__optim_k_sgd),  KERNEL(td__optim_k_adagrad), KERNEL(td__optim_k_rmsprop),
    KERNEL(td__optim_k_adam), KERNEL(td__optim_k_lars),    KERNEL(td__optim_k_lamb_apply),
};

TEST(instruction_sets_give_the_same_bits)
{
    td__optim_hyper h = {.scale = 0.7f,
                         .clip = 1.1f,
                         .lr = 0.01f,
                         .l2 = 0.1f,
                         .shrink = 0.99f,
                         .beta1 = 0.9f,
                         .beta1c = 0.1f,
                         .beta2 = 0.99f,
                         .beta2c = 0.01f,
                         .eps = 1e-8f,
                         .root = 1.7f,
                         .unbias = 1.3f,
                         .momentum = 0.9f,
                         .undamped = 0.8f};
    static arrays want, got;
    int n_isa = td__cpu_isa() >= TD_ISA_AVX512 ? 3 : td__cpu_isa() >= TD_ISA_AVX2 ? 2 : 1;
    for (int k = 0; k < TD_LEN(KERNELS); k++)
        for (int variant = 0; variant < 2; variant++)
            for (int isa = 0; isa < n_isa; isa++) {
                arrays *a = isa ? &got : &want;
                fill_arrays(a);
                h.nesterov = variant == 1;
                td__optim_slice s = {
                    .p = a->p, .g = a->g, .s = {a->s[0], a->s[1], a->s[2]}, .n = KN};
                KERNELS[k].isa[isa](&h, &s);
                CHECK(!isa || !memcmp(&want, &got, sizeof want), "%s differs in set %d",
                      KERNELS[k].name, isa);
            }
    for (int isa = TD_ISA_SCALAR; isa < TD_ISA_SCALAR + n_isa; isa++) {
        double first = td__optim_squares(TD_ISA_SCALAR, want.p, KN, 0.9f, 2.0f);
        double sum = td__optim_squares((td__isa)isa, want.p, KN, 0.9f, 2.0f);
        CHECK(first == sum, "sum of squares differs in set %d", isa);
    }
}

TEST(tree_sum_is_a_balanced_tree)
{
    /* Neighbours first: (1e16 + 1) + (-1e16 + 1) loses both ones, where left to right keeps one. */
    static const double X[] = {1e16, 1, -1e16, 1};
    td__tree_sum s = {.n = 0};
    for (int i = 0; i < 4; i++)
        td__tree_add(&s, X[i]);
    CHECK(td__tree_total(&s) == (1e16 + 1) + (-1e16 + 1), "%g", td__tree_total(&s));
    td__tree_add(&s, 5);
    CHECK(td__tree_total(&s) == 5 + ((1e16 + 1) + (-1e16 + 1)), "%g", td__tree_total(&s));
}

/* ---- Row-sparse gradients -------------------------------------------------------------------- */

enum { ROWS_V = 9, ROWS_D = 5, ROWS_N = 6 };
static const int32_t IDS[2][ROWS_N] = {{3, 1, 3, 7, 7, 7}, {3, 0, 0, 8, 1, 1}};

static model make_table(void)
{
    model m;
    td_graph *g;
    td_init init = {.kind = TD_INIT_NORMAL, .b = 1};
    CHECK_OK(td_graph_create(&g));
    td_node *table = td_param(g, "table", TD_SHAPE(ROWS_V, ROWS_D), init);
    td_node *ids = td_input(g, "ids", TD_I32, TD_SHAPE(ROWS_N));
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(ROWS_N, ROWS_D));
    td_node *w = td_param(g, "w", TD_SHAPE(ROWS_D), init);
    td_node *y = td_mul(g, td_mul(g, td_embedding(g, ids, table, true), x), w);
    td_program_opts opts = {.backend = "ref"};
    CHECK_OK(td_program_create(g, td_sum(g, y, NULL, 0, false), &opts, &m.program));
    CHECK_OK(td_params_create(m.program, 5, &m.params));
    CHECK_OK(td_runner_create(m.program, m.params, &m.runner));
    td_graph_destroy(g);
    return m;
}

TEST(row_sparse_updates)
{
    static const struct {
        td_optim_opts given, means;
        void (*judge)(judge *, const td_optim_opts *, double, int);
    } SPARSE[] = {
        {{.name = "sgd"}, {.name = "sgd"}, judge_sgd},
        {{.name = "adagrad", .initial_accumulator = 0.1},
         {.initial_accumulator = 0.1, .eps = 1e-10},
         judge_adagrad},
        {{.name = "adam", .eps = 0.01}, {.name = "adam", .beta1 = 0.9, .beta2 = 0.999}, judge_adam},
        {{.name = "adamw", .eps = 0.01, .weight_decay = 0.1},
         {.name = "adamw", .beta1 = 0.9, .beta2 = 0.999, .weight_decay = 0.1},
         judge_adam},
    };
    for (int r = 0; r < TD_LEN(SPARSE); r++) {
        model m = make_table();
        td_optimizer *o;
        judge all;
        CHECK_OK(td_optimizer_create(&SPARSE[r].given, m.params, &o));
        td_param_info info = td_params_info(m.params, td_params_find(m.params, "table"));
        CHECK(info.sparse, "the table's gradient is dense");
        judge_init(&all, m.params, td_params_find(m.params, "table"));
        for (size_t k = 0; k < all.n; k++)
            all.s0[k] = SPARSE[r].means.initial_accumulator;
        for (int t = 1; t <= 2; t++) {
            float *x = td_runner_input(m.runner, "x", NULL);
            for (int k = 0; k < ROWS_N * ROWS_D; k++)
                x[k] = 0.1f * (float)(k % 7) - 0.25f;
            CHECK_OK(td_runner_set_input(m.runner, "ids", IDS[t - 1], sizeof IDS[0]));
            CHECK_OK(td_runner_run(m.runner, (td_run_key){.step = 0}));
            float *w = td_params_block(m.params, NULL) +
                       td_params_info(m.params, td_params_find(m.params, "w")).offset;
            memset(all.g, 0, all.n * sizeof *all.g);
            for (int k = 0; k < ROWS_N * ROWS_D; k++)
                all.g[IDS[t - 1][k / ROWS_D] * ROWS_D + k % ROWS_D] +=
                    (double)(x[k] * w[k % ROWS_D]);
            for (int v = 0; v < ROWS_V; v++) {
                bool seen = false;
                for (int k = 0; k < ROWS_N; k++)
                    seen = seen || IDS[t - 1][k] == v;
                size_t at = (size_t)v * ROWS_D;
                judge one = {.n = ROWS_D,
                             .p = all.p + at,
                             .g = all.g + at,
                             .s0 = all.s0 + at,
                             .s1 = all.s1 + at,
                             .s2 = all.s2 + at};
                td_optim_opts mine = SPARSE[r].means;
                if (mine.beta2 > 0) /* SparseAdam: eps beside the uncorrected root */
                    mine.eps = 0.01 / sqrt(1 - pow(mine.beta2, t));
                if (seen)
                    SPARSE[r].judge(&one, &mine, 0.1, mine.initial_accumulator > 0 ? t + 1 : t);
            }
            CHECK_OK(td_optimizer_step(o, m.runner, 0.1));
            const float *p = td_params_block(m.params, NULL) + info.offset;
            for (size_t k = 0; k < all.n; k++)
                CHECK(fabs((double)p[k] - all.p[k]) < 4e-6 * (1 + fabs(all.p[k])),
                      "row %d step %d: table[%zu] is %.9g, want %.9g", r, t, k, (double)p[k],
                      all.p[k]);
        }
        free(all.p);
        td_optimizer_destroy(o);
        free_model(&m);
    }
}

TEST(row_sparse_refusals)
{
    static const td_optim_opts BAD[] = {{.name = "sgd", .momentum = 0.9},
                                        {.name = "sgd", .weight_decay = 0.1},
                                        {.name = "adagrad", .weight_decay = 0.1},
                                        {.name = "adam", .weight_decay = 0.1},
                                        {.name = "rmsprop"},
                                        {.name = "lamb"},
                                        {.name = "lars"}};
    model m = make_table();
    for (int i = 0; i < TD_LEN(BAD); i++) {
        td_optimizer *o;
        CHECK_STATUS(td_optimizer_create(&BAD[i], m.params, &o), TD_ENOTSUP);
        CHECK(strstr(td_last_error(), BAD[i].name) && strstr(td_last_error(), "'table'"),
              "row %d says: %s", i, td_last_error());
    }
    free_model(&m);
}

/* ---- Refusals -------------------------------------------------------------------------------- */

static const struct {
    td_optim_opts opts;
    const char *part;
} BAD[] = {
    {{.name = "sdg"}, "no optimizer is called 'sdg'"},
    {{.name = "sgd", .lr = -1}, "sgd: lr is -1"},
    {{.name = "adam", .lr = NAN}, "adam: lr is nan"},
    {{.name = "sgd", .lr = INFINITY}, "sgd: lr is inf"},
    {{.name = "sgd", .momentum = 1}, "sgd: momentum is 1, must be in [0, 1)"},
    {{.name = "sgd", .momentum = -0.5}, "sgd: momentum is -0.5"},
    {{.name = "sgd", .beta1 = 0.9}, "sgd: has no option beta1 (given 0.9)"},
    {{.name = "sgd", .nesterov = true}, "sgd: nesterov needs momentum > 0"},
    {{.name = "sgd", .nesterov = true, .momentum = 0.9, .dampening = 0.1}, "dampening 0.1"},
    {{.name = "adam", .nesterov = true}, "adam: has no option nesterov"},
    {{.name = "adam", .centered = true}, "adam: has no option centered"},
    {{.name = "adam", .momentum = 0.9}, "adam: has no option momentum (given 0.9)"},
    {{.name = "adam", .beta2 = 1}, "adam: beta2 is 1"},
    {{.name = "adamw", .beta1 = NAN}, "adamw: beta1 is nan"},
    {{.name = "adamw", .weight_decay = -0.01}, "adamw: weight_decay is -0.01"},
    {{.name = "rmsprop", .alpha = 1.5}, "rmsprop: alpha is 1.5"},
    {{.name = "lars", .trust = -1}, "lars: trust is -1"},
    {{.name = "lamb", .eps = -1}, "lamb: eps is -1"},
    {{.name = "sgd", .clip_norm = -1}, "sgd: clip_norm is -1"},
    {{.name = "sgd", .clip_value = NAN}, "sgd: clip_value is nan"},
};

TEST(refusals_name_optimizer_option_and_value)
{
    model m = make_model();
    for (int i = 0; i < TD_LEN(BAD); i++) {
        td_optimizer *o;
        CHECK_STATUS(td_optimizer_create(&BAD[i].opts, m.params, &o), TD_EINVAL);
        CHECK(strstr(td_last_error(), BAD[i].part), "row %d says: %s", i, td_last_error());
        CHECK(!o, "row %d left an object", i);
    }
    free_model(&m);
}

TEST(a_bad_step_changes_nothing)
{
    static const double LR[] = {NAN, INFINITY, -0.1};
    model m = make_model();
    td_optim_opts opts = {.name = "adamw", .clip_norm = 1};
    td_optimizer *o;
    char before[65], after[65];
    CHECK_OK(td_optimizer_create(&opts, m.params, &o));
    run_step(&m, 1);
    CHECK_OK(td_params_digest(m.params, before));
    for (int i = 0; i < TD_LEN(LR); i++) {
        CHECK_STATUS(td_optimizer_step(o, m.runner, LR[i]), TD_EINVAL);
        CHECK(strstr(td_last_error(), "adamw: lr is "), "%s", td_last_error());
    }
    td_runner_grads(m.runner, NULL)[3] = NAN;
    CHECK_STATUS(td_optimizer_step(o, m.runner, 0.1), TD_EINVAL);
    CHECK(strstr(td_last_error(), "norm is nan"), "%s", td_last_error());
    CHECK_OK(td_params_digest(m.params, after));
    CHECK(!strcmp(before, after), "params changed");
    CHECK_EQ_INT(td_optimizer_steps(o), 0);
    td_optimizer_destroy(o);
    free_model(&m);
}

/* Steps with the state and counter carried over by hand, as a checkpoint does: the same bits. */
TEST(resume_from_states)
{
    model a = make_model(), b = make_model();
    td_optim_opts opts = {.name = "adamw"};
    td_optimizer *oa, *ob;
    CHECK_OK(td_optimizer_create(&opts, a.params, &oa));
    CHECK_OK(td_optimizer_create(&opts, b.params, &ob));
    for (int t = 1; t <= 3; t++) {
        run_step(&a, t);
        CHECK_OK(td_optimizer_step(oa, a.runner, 0.01));
    }
    size_t all;
    float *from = td_params_block(a.params, &all);
    memcpy(td_params_block(b.params, NULL), from, all * sizeof *from);
    for (int k = 0; k < td_optimizer_state_count(oa); k++) {
        size_t n;
        float *s = td_optimizer_state(oa, k, &n);
        memcpy(td_optimizer_state(ob, k, NULL), s, n * sizeof *s);
    }
    td_optimizer_set_steps(ob, td_optimizer_steps(oa));
    run_step(&a, 4);
    run_step(&b, 4);
    CHECK_OK(td_optimizer_step(oa, a.runner, 0.01));
    CHECK_OK(td_optimizer_step(ob, b.runner, 0.01));
    CHECK(!memcmp(from, td_params_block(b.params, NULL), all * sizeof *from), "params differ");
    CHECK(!strcmp(td_optimizer_state_name(oa, 0), "exp_avg"), "%s", td_optimizer_state_name(oa, 0));
    td_optimizer_destroy(ob);
    td_optimizer_destroy(oa);
    free_model(&b);
    free_model(&a);
}

TEST(no_memory)
{
    model m = make_model();
    td_optim_opts opts = {.name = "adam"};
    uint64_t live = td_alloc_get_stats().live;
    for (uint64_t nth = 1;; nth++) {
        td_optimizer *o;
        td_alloc_fail_at(nth);
        td_status st = td_optimizer_create(&opts, m.params, &o);
        td_alloc_fail_at(0);
        td_optimizer_destroy(o);
        CHECK_EQ_INT(td_alloc_get_stats().live, live);
        if (!st)
            break;
        CHECK_EQ_INT(st, TD_ENOMEM);
        CHECK(nth < 100, "never succeeds");
    }
    free_model(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_optimizer_as_documented),
        cmocka_unit_test(every_optimizer_has_rows),
        cmocka_unit_test(slices_equal_the_whole),
        cmocka_unit_test(instruction_sets_give_the_same_bits),
        cmocka_unit_test(tree_sum_is_a_balanced_tree),
        cmocka_unit_test(row_sparse_updates),
        cmocka_unit_test(row_sparse_refusals),
        cmocka_unit_test(refusals_name_optimizer_option_and_value),
        cmocka_unit_test(a_bad_step_changes_nothing),
        cmocka_unit_test(resume_from_states),
        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
