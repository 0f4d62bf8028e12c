/* The step engine: the same bits for any number of compute threads; sums in the tree of
 * micro_batch_tree.h; the plain loop's result where there is one micro-batch; no allocation in a
 * step. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "support/check.h"
#include "support/train_models.h"
#include "tandem/alloc.h"
#include "parallel/sync.h"

/* ---- A small training loop over an engine ---------------------------------------------------- */

enum { BATCH = 12, SAMPLES = 40, LAST = SAMPLES % BATCH }; /* three full batches and one of four */

typedef struct setup {
    const train_model *m;
    int threads, micro_batches, accumulate;
    const char *optimizer; /* NULL: the model's */
    double clip_norm;
} setup;

typedef struct trained {
    td__model model;
    td__dataset *data;
    td__loader *loader;
    td__pool *pool;
    td__micro_batch_set *set;
    td_params *ps;
    td_optimizer *o;
    td__sync *sync;
    const td_program *p;
} trained;

static trained start(const setup *s)
{
    trained t = {.model = {.build = s->m->build}};
    int64_t rows = (BATCH + s->micro_batches - 1) / s->micro_batches;
    td_optim_opts o = {.name = s->optimizer ? s->optimizer : s->m->optimizer,
                       .lr = 0.05,
                       .clip_norm = s->clip_norm};

    t.data = train_model_data(s->m, SAMPLES, 3);
    td__loader_opts l = {.batch = BATCH, .shuffle = true, .seed = 9, .prefetch = -1};
    CHECK_OK(td__loader_create(t.data, &l, &t.loader));
    CHECK_OK(td__pool_create(s->threads, &t.pool));
    td__micro_batch_set_opts so = {.model = t.model,
                                   .pool = t.pool,
                                   .use = TD__USE_TRAIN,
                                   .precision = s->m->precision,
                                   .seed = 9};
    CHECK_OK(td__micro_batch_set_create(&so, &t.set));
    CHECK_OK(td__micro_batch_program(t.set, rows, &t.p, NULL));
    CHECK_OK(td_params_create(t.p, 9, &t.ps));
    td__micro_batch_set_params(t.set, t.ps);
    CHECK_OK(td__micro_batch_set_dataset(t.set, t.data, rows));
    CHECK_OK(td_optimizer_create(&o, t.ps, &t.o));
    static const td__sync_config CONFIG = {0};
    td__sync_ctx x = {.config = &CONFIG,
                      .step = {.set = t.set,
                               .pool = t.pool,
                               .params = t.ps,
                               .optimizer = t.o,
                               .program = t.p,
                               .micro_batches = s->micro_batches,
                               .accumulate = s->accumulate}};
    CHECK_OK(td__sync_create(&x, &t.sync));
    return t;
}

static void stop(trained *t)
{
    td__sync_destroy(t->sync);
    td_optimizer_destroy(t->o);
    td__micro_batch_set_destroy(t->set);
    td_params_destroy(t->ps);
    td__pool_destroy(t->pool);
    td__loader_destroy(t->loader);
    td__dataset_destroy(t->data);
}

/* One step from the loader's position `index`; returns the loss. */
static double one_step(trained *t, const setup *s, uint32_t step, int index)
{
    int64_t rows = 0;
    td__step_result r;
    int batches = (int)td__loader_batches(t->loader);
    int end = index + s->accumulate < batches ? index + s->accumulate : batches;
    for (int k = index; k < end; k++)
        rows += k == batches - 1 ? LAST : BATCH;
    td__sync_place at = {.step = step, .batch = index};
    CHECK_OK(td__sync_begin(t->sync, &at, end - index, rows));
    for (int k = index; k < end; k++) {
        const td__batch *b;
        td__loader_seek(t->loader, 0, k);
        CHECK_OK(td__loader_next(t->loader, &b));
        CHECK_OK(td__sync_batch(t->sync, b));
    }
    CHECK_OK(td__sync_end(t->sync, 0.05, (td__step_say){0}, &r));
    CHECK((r.grad_norm >= 0) == (s->clip_norm > 0), "norm %g", r.grad_norm);
    return r.loss;
}

/* Digest of params and losses after two passes over the data. */
static void train(const setup *s, char hex[65], double *loss)
{
    trained t = start(s);
    uint32_t step = 0;
    *loss = 0;
    for (int epoch = 0; epoch < 2; epoch++)
        for (int k = 0; k < (int)td__loader_batches(t.loader); k += s->accumulate)
            *loss = *loss * 3 + one_step(&t, s, ++step, k);
    CHECK_OK(td_params_digest(t.ps, hex));
    stop(&t);
}

/* ---- Tests ----------------------------------------------------------------------------------- */

static void same_for_all_threads(setup s)
{
    static const int THREADS[] = {1, 2, 3, 5};
    char want[65], have[65];
    double want_loss, have_loss;

    for (size_t i = 0; i < sizeof THREADS / sizeof *THREADS; i++) {
        s.threads = THREADS[i];
        train(&s, i ? have : want, i ? &have_loss : &want_loss);
        CHECK(
            !i || (strcmp(have, want) == 0 && have_loss == want_loss),
            "%s, %d micro-batches, accumulate %d, clip %g: %d threads: %.8s %.17g, one: %.8s %.17g",
            s.m->name, s.micro_batches, s.accumulate, s.clip_norm, s.threads, have, have_loss, want,
            want_loss);
    }
}

TEST(any_number_of_threads_gives_the_same_bits)
{
    static const int MICRO_BATCHES[] = {1, 4, 5,
                                        12}; /* 5: unequal; 12: empty ones in the last batch */
    for (int m = 0; m < N_TRAIN_MODELS; m++)
        for (size_t v = 0; v < sizeof MICRO_BATCHES / sizeof *MICRO_BATCHES; v++)
            same_for_all_threads((setup){&TRAIN_MODELS[m], 0, MICRO_BATCHES[v], 1, NULL, 0});
}

TEST(accumulation_and_clipping_too)
{
    for (int m = 0; m < N_TRAIN_MODELS; m++) {
        same_for_all_threads((setup){&TRAIN_MODELS[m], 0, 4, 3, NULL, 0});
        same_for_all_threads((setup){&TRAIN_MODELS[m], 0, 3, 2, NULL, 0.5});
    }
}

TEST(hundreds_of_threads_too)
{
    char want[65], have[65];
    double loss;
    setup s = {&TRAIN_MODELS[0], 1, 100, 2, NULL, 0};
    train(&s, want, &loss);
    s.threads = 90;
    train(&s, have, &loss);
    assert_string_equal(have, want);
    /* Every thread's micro-batches, each a partial at worst, fit behind those of other batches. */
    static const int CASES[][3] = {{100, 100, 100}, {1, 4096, 1}, {512, 512, 512}, {64, 4096, 64}};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++)
        assert_int_equal(td__step_threads(CASES[i][0], CASES[i][1]), CASES[i][2]);
    for (int threads = 1; threads <= 4096; threads += 31) {
        int n = td__step_threads(threads, 4093), partials = 32;
        for (int t = 0; t < n; t++) { /* before the last one, which is lent */
            td__subtree trees[64];
            int begin = 4093 * t / n, end = 4093 * (t + 1) / n;
            partials += 1 + td__micro_batch_subtrees(1 << 30, begin, end - 1, trees);
        }
        CHECK(n >= 1 && partials <= TD__GRAD_STACK, "%d threads, %d partials", n, partials);
    }
}

/* One micro-batch on one thread is what the public functions do. */
TEST(one_micro_batch_is_the_plain_loop)
{
    for (int m = 0; m < N_TRAIN_MODELS; m++)
        for (int clip = 0; clip < 2; clip++) {
            setup s = {&TRAIN_MODELS[m], 1, 1, 1, NULL, clip ? 0.5 : 0};
            trained a = start(&s), b = start(&s);
            td_runner *r;
            char want[65], have[65];
            CHECK_OK(td_runner_create(b.p, b.ps, &r));
            for (uint32_t step = 1; step <= 3; step++) {
                const td__batch *batch;
                double loss = one_step(&a, &s, step, (int)step - 1);
                td__loader_seek(b.loader, 0, step - 1);
                CHECK_OK(td__loader_next(b.loader, &batch));
                for (int f = 0; f < 2; f++)
                    CHECK_OK(td_runner_set_input(r, f ? "y" : "x", batch->field[f],
                                                 BATCH * td__field_nbytes(&b.data->fields[f])));
                CHECK_OK(td_runner_run(r, (td_run_key){.seed = 9, .step = step}));
                CHECK(loss == (double)td_runner_loss(r), "%s: loss %g, not %g", s.m->name, loss,
                      (double)td_runner_loss(r));
                CHECK_OK(td_optimizer_step(b.o, r, 0.05));
            }
            CHECK_OK(td_params_digest(a.ps, have));
            CHECK_OK(td_params_digest(b.ps, want));
            CHECK(strcmp(have, want) == 0, "%s differs from the plain loop", s.m->name);
            td_runner_destroy(r);
            stop(&a);
            stop(&b);
        }
}

/* Where rows do not meet, micro-batches and accumulated batches are the mean over all rows. */
TEST(micro_batches_and_accumulation_are_one_large_batch)
{
    for (int m = 0; m < N_TRAIN_MODELS; m++) {
        const train_model *model = &TRAIN_MODELS[m];
        if (!model->per_row || model->precision != TD_F32)
            continue;
        setup one = {model, 1, 1, 1, "sgd", 0}, many = {model, 2, 5, 1, "sgd", 0};
        trained a = start(&one), b = start(&many);
        for (int k = 0; k < 4; k++) { /* the last one is short */
            double x = one_step(&a, &one, 1, k), y = one_step(&b, &many, 1, k);
            CHECK(fabs(x - y) < 1e-5, "%s: loss %g and %g", model->name, x, y);
        }
        size_t count;
        const float *p = td_params_block(a.ps, &count), *q = td_params_block(b.ps, &count);
        for (size_t i = 0; i < count; i++)
            CHECK(fabsf(p[i] - q[i]) < 1e-5f, "%s: element %zu is %g and %g", model->name, i,
                  (double)p[i], (double)q[i]);
        stop(&a);
        stop(&b);
    }
}

TEST(steps_allocate_nothing)
{
    for (int m = 0; m < N_TRAIN_MODELS; m++) {
        setup s = {&TRAIN_MODELS[m], 3, 8, 2, NULL, 0.1};
        trained t = start(&s);
        one_step(&t, &s, 1, 0);
        uint64_t before = td_alloc_get_stats().calls;
        one_step(&t, &s, 2, 0);
        uint64_t calls = td_alloc_get_stats().calls - before;
        CHECK(calls == 0, "%s: %llu allocations in a step", s.m->name, (unsigned long long)calls);
        stop(&t);
    }
}

TEST(nothing_leaks)
{
    uint64_t before = td_alloc_get_stats().live;
    for (int m = 0; m < N_TRAIN_MODELS; m++) {
        setup s = {&TRAIN_MODELS[m], 2, 4, 2, NULL, 0};
        trained t = start(&s);
        const td__batch *b;
        CHECK_OK(td__sync_begin(t.sync, &(td__sync_place){.step = 1}, 2, 2 * BATCH));
        td__loader_seek(t.loader, 0, 0);
        CHECK_OK(td__loader_next(t.loader, &b));
        CHECK_OK(td__sync_batch(t.sync, b)); /* and given up */
        stop(&t);
    }
    CHECK_EQ_INT(td_alloc_get_stats().live, before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_threads_gives_the_same_bits),
        cmocka_unit_test(hundreds_of_threads_too),
        cmocka_unit_test(accumulation_and_clipping_too),
        cmocka_unit_test(one_micro_batch_is_the_plain_loop),
        cmocka_unit_test(micro_batches_and_accumulation_are_one_large_batch),
        cmocka_unit_test(steps_allocate_nothing),
        cmocka_unit_test(nothing_leaks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
