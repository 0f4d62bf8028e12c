/* Optimizers against an independent implementation in double, written from PyTorch's documentation
 * (lamb, lars: from the papers); slices against the whole; one instruction set against another. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "support/check.h"
#include "support/optim_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/rng.h"
#include "optim/optimizer.h"
#include "tandem/alloc.h"
#include "tandem/ops.h"
#include "tandem/optim.h"

enum { N_STEPS = 6 };

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
static double judge_gradients(judge *js, const optim_model *m, const td_optim_opts *o)
{
    double squares = 0, scale = 1;
    for (int i = 0; i < OPTIM_PARAMS; i++) {
        const float *g = td_runner_grads(m->runner, NULL) + td_params_info(m->params, i).offset;
        for (size_t k = 0; k < js[i].n; k++) {
            js[i].g[k] = (double)g[k];
            squares += js[i].g[k] * js[i].g[k];
        }
    }
    double norm = sqrt(squares);
    if (o->clip_norm > 0 && norm > o->clip_norm)
        scale = o->clip_norm / (norm + 1e-6);
    for (int i = 0; i < OPTIM_PARAMS; i++)
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
        optim_model m = optim_model_create();
        td_optimizer *o;
        judge js[OPTIM_PARAMS];
        CHECK_OK(td_optimizer_create(&ROWS[r].given, m.params, &o));
        for (int i = 0; i < OPTIM_PARAMS; i++)
            judge_init(&js[i], m.params, i);
        for (int t = 1; t <= N_STEPS; t++) {
            double lr = 0.05 / t;
            optim_model_run(&m, t);
            double norm = judge_gradients(js, &m, &ROWS[r].means);
            uint64_t calls = td_alloc_get_stats().calls;
            CHECK_OK(td_optimizer_step(o, m.runner, lr));
            CHECK_EQ_INT(td_alloc_get_stats().calls, calls);
            CHECK_EQ_INT(td_optimizer_steps(o), t);
            double got_norm = td_optimizer_grad_norm(o);
            CHECK(ROWS[r].means.clip_norm == 0 || fabs(got_norm - norm) < 1e-9 * norm,
                  "row %d: norm %.12g, want %.12g", r, got_norm, norm);
            for (int i = 0; i < OPTIM_PARAMS; i++) {
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
        for (int i = 0; i < OPTIM_PARAMS; i++)
            free(js[i].p);
        td_optimizer_destroy(o);
        optim_model_destroy(&m);
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
        optim_model a = optim_model_create(), b = optim_model_create();
        td_optimizer *oa, *ob;
        td_optim_opts opts = ROWS[r].given;
        opts.clip_norm = 0;
        CHECK_OK(td_optimizer_create(&opts, a.params, &oa));
        CHECK_OK(td_optimizer_create(&opts, b.params, &ob));
        size_t n = td_params_trainable(a.params);
        size_t slice = td__optim_sliceable(ob) ? 997 : n;
        for (int t = 1; t <= 3; t++) {
            optim_model_run(&a, t);
            optim_model_run(&b, t);
            CHECK_OK(td_optimizer_step(oa, a.runner, 0.01));
            CHECK_OK(td__optim_begin(ob, 0.01, 1));
            for (size_t end = n; end > 0; end -= end < slice ? end : slice) {
                size_t begin = end < slice ? 0 : end - slice;
                td__optim_apply(ob, td_runner_grads(b.runner, NULL) + begin, begin, end - begin);
            }
            CHECK_OK(td__optim_end(ob));
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
        optim_model_destroy(&b);
        optim_model_destroy(&a);
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
        double first = td__optim_k_squares_scalar(want.p, KN, 0.9f, 2.0f);
        double sum = TD_ISA_PICK(isa, td__optim_k_squares)(want.p, KN, 0.9f, 2.0f);
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
        optim_model m = optim_table_create();
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
            for (int k = 0; k < OPTIM_N * OPTIM_D; k++)
                x[k] = 0.1f * (float)(k % 7) - 0.25f;
            CHECK_OK(td_runner_set_input(m.runner, "ids", OPTIM_IDS[t - 1], sizeof OPTIM_IDS[0]));
            CHECK_OK(td_runner_run(m.runner, (td_run_key){.step = 0}));
            float *w = td_params_block(m.params, NULL) +
                       td_params_info(m.params, td_params_find(m.params, "w")).offset;
            memset(all.g, 0, all.n * sizeof *all.g);
            for (int k = 0; k < OPTIM_N * OPTIM_D; k++)
                all.g[OPTIM_IDS[t - 1][k / OPTIM_D] * OPTIM_D + k % OPTIM_D] +=
                    (double)(x[k] * w[k % OPTIM_D]);
            for (int v = 0; v < OPTIM_V; v++) {
                bool seen = false;
                for (int k = 0; k < OPTIM_N; k++)
                    seen = seen || OPTIM_IDS[t - 1][k] == v;
                size_t at = (size_t)v * OPTIM_D;
                judge one = {.n = OPTIM_D,
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
        optim_model_destroy(&m);
    }
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
