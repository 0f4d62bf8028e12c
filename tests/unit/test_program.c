/* Programs as a whole: rewriting, memory reuse and layouts change nothing that a user can see;
 * steps allocate nothing; gradients go where they belong; bad numbers are named. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/deadline.h"
#include "base/half.h"
#include "graph/program_impl.h"
#include "graph/runner.h"
#include "support/check.h"
#include "support/nets.h"
#include "tandem/alloc.h"

static trained start(const net *n, const td_program_opts *opts)
{
    td_graph *g;
    CHECK_OK(td_graph_create(&g));
    td_node *loss = n->build(g);
    trained t = trained_start(g, loss, opts, 7, opts && opts->evaluate ? NULL : n->optimizer);
    net_fill(n, t.r, 1);
    return t;
}

static float step(trained *t, unsigned k)
{
    CHECK_OK(td_runner_run(t->r, (td_run_key){.seed = 3, .step = k}));
    CHECK_OK(td_optimizer_step(t->o, t->r, 0.01));
    return td_runner_loss(t->r);
}

/* L2 norm of the difference of the two runners' gradients relative to the norm of one: a single
 * unit of a relu whose input is near zero may flip, and then one element is far off. */
static double gradient_distance(trained *a, trained *b)
{
    double diff = 0, norm = 1e-24;
    for (int i = 0; i < td_params_count(a->ps); i++) {
        td_param_info ia = td_params_info(a->ps, i);
        td_param_info ib = td_params_info(b->ps, td_params_find(b->ps, ia.name));
        if (ia.is_state)
            continue;
        const float *ga = td_runner_grads(a->r, NULL) + ia.offset;
        const float *gb = td_runner_grads(b->r, NULL) + ib.offset;
        for (size_t k = 0; k < ia.count; k++) {
            double d = (double)ga[k] - (double)gb[k];
            diff += d * d;
            norm += (double)ga[k] * (double)ga[k];
        }
    }
    return sqrt(diff / norm);
}

static void compare(const net *n, const td_program_opts *a_opts, const td_program_opts *b_opts,
                    double tolerance, double grad_tolerance)
{
    trained a = start(n, a_opts), b = start(n, b_opts);
    CHECK_OK(td_runner_run(a.r, (td_run_key){.seed = 3}));
    CHECK_OK(td_runner_run(b.r, (td_run_key){.seed = 3}));
    double la = (double)td_runner_loss(a.r), lb = (double)td_runner_loss(b.r);
    CHECK(fabs(la - lb) <= tolerance * fabs(la), "%s: losses %.8g and %.8g", n->name, la, lb);
    double d = gradient_distance(&a, &b);
    CHECK(d <= grad_tolerance, "%s: gradients differ by %g", n->name, d);
    trained_stop(&a);
    trained_stop(&b);
}

TEST(rewrites_change_nothing)
{
    for (int i = 0; i < N_NETS; i++)
        compare(&NETS[i], &(td_program_opts){.backend = "ref", .no_rewrites = true},
                &(td_program_opts){.backend = "ref"}, 1e-5, 1e-4);
}

TEST(cpu_agrees_with_the_reference)
{
    for (int i = 0; i < N_NETS; i++)
        compare(&NETS[i], &(td_program_opts){.backend = "ref", .no_rewrites = true},
                &(td_program_opts){.backend = "cpu"}, 1e-5, 1e-4);
}

/* Gradients of nets with max pools and relus are only near: where two values of a window are equal
 * in bf16, another one wins. A wrong kernel is far beyond this. */
TEST(bf16_is_near_f32)
{
    for (int i = 0; i < N_NETS; i++)
        compare(&NETS[i], &(td_program_opts){.backend = "cpu"},
                &(td_program_opts){.backend = "cpu", .precision = TD_BF16}, 1e-2, 0.5);
}

/* Reusing memory and working in place must not change a bit. */
TEST(reuse_keeps_the_bits)
{
    td_dtype precisions[] = {TD_F32, TD_BF16};
    for (int i = 0; i < N_NETS; i++)
        for (int k = 0; k < 2; k++)
            compare(&NETS[i], &(td_program_opts){.precision = precisions[k], .no_reuse = true},
                    &(td_program_opts){.precision = precisions[k]}, 0, 0);
}

/* No two activations that are alive at the same node overlap, except an output made in place. */
TEST(live_values_do_not_overlap)
{
    for (int i = 0; i < N_NETS; i++) {
        trained t = start(&NETS[i], &(td_program_opts){.backend = "null"});
        const td_graph *g = t.p->g;
        int n = g->n_nodes;
        int *last = calloc((size_t)n * TD_MAX_OUT, sizeof *last);
        for (int id = 0; id < n; id++) /* a view reads nothing: its readers do */
            for (int k = 0; k < g->nodes[id]->n_in && !td__op(g->nodes[id]->op)->is_view; k++) {
                int o;
                const td_node *base = td__view_base(g->nodes[id]->in[k], &o);
                last[base->id * TD_MAX_OUT + o] = id;
            }
        for (int k = 0; k < g->n_roots; k++) {
            int o;
            const td_node *base = td__view_base(g->roots[k].node, &o);
            last[base->id * TD_MAX_OUT + o] = n;
        }
        for (int v = 0; v < n * TD_MAX_OUT; v++)
            for (int w = v + 1; w < n * TD_MAX_OUT; w++) {
                const td_node *a = g->nodes[v / TD_MAX_OUT], *b = g->nodes[w / TD_MAX_OUT];
                int ka = v % TD_MAX_OUT, kb = w % TD_MAX_OUT;
                if (ka >= a->n_out || kb >= b->n_out || td__is_leaf(a) || td__is_leaf(b) ||
                    td__op(a->op)->is_view || td__op(b->op)->is_view)
                    continue;
                const td__location *pa = td__location_of(t.p, a, ka),
                                   *pb = td__location_of(t.p, b, kb);
                if (pa->space != TD_SPACE_ACTIVATION || pb->space != TD_SPACE_ACTIVATION)
                    continue;
                bool apart = pa->offset + td__desc_bytes(&a->out[ka]) <= pb->offset ||
                             pb->offset + td__desc_bytes(&b->out[kb]) <= pa->offset;
                /* b is made while a is needed afterwards, or by b's own node and not in place */
                bool in_place = last[v] == b->id && pa->offset == pb->offset && kb == 0 &&
                                td__op(b->op)->inplace;
                CHECK(apart || last[v] < b->id || in_place, "%s: '%s' lies over '%s'", NETS[i].name,
                      b->name, a->name);
            }
        free(last);
        td_memory_plan m = td_program_memory(t.p);
        CHECK(m.activations < m.activations_unshared, "%s: nothing was reused", NETS[i].name);
        trained_stop(&t);
    }
}

TEST(steps_allocate_nothing)
{
    td_dtype precisions[] = {TD_F32, TD_BF16};
    for (int i = 0; i < N_NETS; i++)
        for (int k = 0; k < 2; k++) {
            trained t = start(&NETS[i], &(td_program_opts){.precision = precisions[k]});
            step(&t, 0);
            uint64_t before = td_alloc_get_stats().calls;
            for (unsigned s = 1; s < 4; s++)
                step(&t, s);
            CHECK_EQ_INT(td_alloc_get_stats().calls, before);
            trained_stop(&t);
        }
}

TEST(training_makes_the_loss_fall)
{
    td_dtype precisions[] = {TD_F32, TD_BF16};
    for (int i = 0; i < N_NETS; i++)
        for (int k = 0; k < 2; k++) {
            trained t = start(&NETS[i], &(td_program_opts){.precision = precisions[k]});
            float first = step(&t, 0), now = first;
            for (unsigned s = 1; s < 60; s++) {
                CHECK_OK(td_runner_run(t.r, (td_run_key){.seed = 3, .step = s}));
                CHECK_OK(
                    td_optimizer_step(t.o, t.r, strcmp(NETS[i].optimizer, "sgd") ? 0.01 : 0.3));
                now = td_runner_loss(t.r);
            }
            CHECK(now < 0.8f * first, "%s %s: %g to %g", NETS[i].name, td_dtype_name(precisions[k]),
                  (double)first, (double)now);
            trained_stop(&t);
        }
}

/* The same run twice, from the same seed, has the same bits. */
TEST(runs_repeat_bit_for_bit)
{
    for (int i = 0; i < N_NETS; i++) {
        char digest[2][65];
        for (int k = 0; k < 2; k++) {
            trained t = start(&NETS[i], NULL);
            for (unsigned s = 0; s < 3; s++)
                step(&t, s);
            CHECK_OK(td_params_digest(t.ps, digest[k]));
            trained_stop(&t);
        }
        assert_string_equal(digest[0], digest[1]);
    }
}

/* Gradients become final front to back: the order of the block is the order of backward. */
TEST(gradient_block_is_in_backward_order)
{
    trained t = start(&NETS[0], NULL);
    int previous = -1;
    for (int i = 0; i < t.p->n_slots; i++) {
        if (t.p->slots[i].is_state)
            continue;
        for (int k = 0; k < t.p->g->n_roots; k++) {
            const td__root *root = &t.p->g->roots[k];
            int o;
            if (root->kind != TD_ROOT_PARAM_GRAD || root->leaf != t.p->slots[i].leaf)
                continue;
            int at = td__view_base(root->node, &o)->id;
            CHECK(at >= previous, "'%s' is final at %d, after %d", root->leaf->name, at, previous);
            previous = at;
        }
    }
    CHECK(strncmp(td_params_info(t.ps, 0).name, "fc3", 3) == 0, "the last layer comes first: %s",
          td_params_info(t.ps, 0).name);
    trained_stop(&t);
}

TEST(evaluation_shares_params_and_uses_running_averages)
{
    const net *n = &NETS[1];
    trained t = start(n, NULL);
    for (unsigned s = 0; s < 30; s++)
        step(&t, s);
    td_graph *g;
    td_program *p;
    td_runner *r;
    CHECK_OK(td_graph_create(&g));
    td_node *loss = n->build(g);
    CHECK_OK(td_program_create(g, loss, &(td_program_opts){.evaluate = true}, &p));
    td_graph_destroy(g);
    CHECK_OK(td_runner_create(p, t.ps, &r));
    net_fill(n, r, 1);
    CHECK_OK(td_runner_run(r, (td_run_key){0}));
    float evaluated = td_runner_loss(r);
    CHECK_OK(td_runner_run(r, (td_run_key){.seed = 99, .step = 5}));
    CHECK(td_runner_loss(r) == evaluated, "evaluation has nothing random in it");
    CHECK(evaluated > 0 && isfinite(evaluated), "%g", (double)evaluated);
    CHECK(!td_runner_grads(r, NULL), "evaluation has no gradients");
    int mean = td_params_find(t.ps, "bn1.running_mean");
    CHECK(mean >= 0, "a state is missing");
    float sum = 0;
    for (size_t k = 0; k < td_params_info(t.ps, mean).count; k++)
        sum += fabsf(td_params_block(t.ps, NULL)[td_params_info(t.ps, mean).offset + k]);
    CHECK(sum > 0, "running averages moved");
    td_runner_destroy(r);
    td_program_destroy(p);
    trained_stop(&t);
}

TEST(a_bad_loss_names_its_first_cause)
{
    td_graph *g;
    CHECK_OK(td_graph_create(&g));
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(4));
    td_node *w = td_param(g, "w", TD_SHAPE(4), (td_init){.kind = TD_INIT_ONES});
    td_node *bad = td_named(g, td_log(g, td_mul(g, x, w)), "culprit");
    const float hidden[4] = {0, -INFINITY, 0, 0}; /* as in masks: no fault of its own */
    td_node *gate = td_exp(g, td_constant(g, TD_F32, TD_SHAPE(4), hidden));
    td_node *loss = td_mean(g, td_mul(g, td_softmax(g, bad), gate), NULL, 0, false);
    td_program *p;
    td_params *ps;
    td_runner *r;
    CHECK_OK(td_program_create(g, loss, &(td_program_opts){.no_rewrites = true}, &p));
    CHECK_OK(td_params_create(p, 1, &ps));
    CHECK_OK(td_runner_create(p, ps, &r));
    float values[4] = {1, 2, -3, 4};
    CHECK_OK(td_runner_set_input(r, "x", values, sizeof values));
    CHECK_STATUS(td_runner_run(r, (td_run_key){.step = 17, .micro_batch = 2}), TD_EINVAL);
    CHECK(strstr(td_last_error(), "culprit") && strstr(td_last_error(), "17"), "%s",
          td_last_error());
    values[1] = NAN;
    CHECK_OK(td_runner_set_input(r, "x", values, sizeof values));
    CHECK_STATUS(td_runner_run(r, (td_run_key){0}), TD_EINVAL);
    CHECK(strstr(td_last_error(), "input 'x'"), "%s", td_last_error());
    CHECK_STATUS(td_runner_set_input(r, "x", values, 3), TD_EINVAL);
    CHECK_STATUS(td_runner_set_input(r, "nobody", values, 3), TD_EINVAL);
    td_runner_destroy(r);
    td_params_destroy(ps);
    td_program_destroy(p);
    td_graph_destroy(g);
}

/* x is used three times, also through a broadcast: d/dx (x*x*b + x) summed. */
TEST(gradients_of_several_uses_and_of_inputs)
{
    td_graph *g;
    CHECK_OK(td_graph_create(&g));
    td_node *zeros = td_constant(g, TD_F32, TD_SHAPE(2, 3), NULL);
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(2, 3));
    td_node *b = td_input(g, "b", TD_F32, TD_SHAPE(3));
    td_named(g, zeros, "x"); /* only leaves that are not constants must differ in name */
    td_node *y = td_add(g, td_add(g, td_mul(g, td_mul(g, x, x), b), x), zeros);
    td_node *loss = td_sum(g, y, NULL, 0, false);
    td_node *wanted[] = {x, b};
    td_program *p;
    td_params *ps;
    td_runner *r;
    CHECK_OK(td_program_create(g, loss,
                               &(td_program_opts){.grad_inputs = wanted, .n_grad_inputs = 2}, &p));
    CHECK_OK(td_params_create(p, 1, &ps));
    CHECK_OK(td_runner_create(p, ps, &r));
    float xs[] = {1, 2, 3, 4, 5, 6}, bs[] = {1, 10, 100};
    CHECK_OK(td_runner_set_input(r, "x", xs, sizeof xs));
    CHECK_OK(td_runner_set_input(r, "b", bs, sizeof bs));
    CHECK_OK(td_runner_run(r, (td_run_key){0}));
    const float *dx = td_runner_grad_input(r, 0, NULL), *db = td_runner_grad_input(r, 1, NULL);
    for (int i = 0; i < 6; i++)
        CHECK(dx[i] == 2 * xs[i] * bs[i % 3] + 1, "dx[%d] = %g", i, (double)dx[i]);
    for (int i = 0; i < 3; i++)
        CHECK(db[i] == xs[i] * xs[i] + xs[i + 3] * xs[i + 3], "db[%d] = %g", i, (double)db[i]);
    td_runner_destroy(r);
    td_params_destroy(ps);
    td_program_destroy(p);
    td_graph_destroy(g);
}

/* Kernels get addresses even where nothing lies behind them. */
TEST(images_without_channels)
{
    td_graph *g;
    td_program *p;
    td_params *ps;
    td_runner *r;
    CHECK_OK(td_graph_create(&g));
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(1, 0, 4, 4));
    td_node *w = td_param(g, "w", TD_SHAPE(4, 0, 3, 3), (td_init){.kind = TD_INIT_ONES});
    td_node *loss = td_mean(g, td_conv2d(g, x, w, NULL, NULL), NULL, 0, false);
    td_program_opts opts = {.grad_inputs = &x, .n_grad_inputs = 1};
    CHECK_OK(td_program_create(g, loss, &opts, &p));
    CHECK_OK(td_params_create(p, 1, &ps));
    CHECK_OK(td_runner_create(p, ps, &r));
    CHECK_OK(td_runner_run(r, (td_run_key){0}));
    size_t count = 1, nbytes = 1;
    CHECK(td_runner_grads(r, &count) && count == 0, "%zu gradients", count);
    CHECK(td_runner_grad_input(r, 0, &nbytes) && nbytes == 0, "%zu bytes", nbytes);
    CHECK(td_runner_input(r, "x", &nbytes) && nbytes == 0, "%zu bytes", nbytes);
    td_runner_destroy(r);
    td_params_destroy(ps);
    td_program_destroy(p);
    td_graph_destroy(g);
}

/* A loss of any floating type starts its gradient at one. */
TEST(losses_of_every_type)
{
    static const td_dtype TYPES[] = {TD_F32, TD_F64, TD_BF16, TD_F16};
    for (int i = 0; i < 4; i++) {
        td_graph *g;
        td_program *p;
        td_params *ps;
        td_runner *r;
        CHECK_OK(td_graph_create(&g));
        td_node *w = td_param(g, "w", TD_SHAPE(2), (td_init){.kind = TD_INIT_ONES});
        td_node *loss = td_cast(g, td_sum(g, w, NULL, 0, false), TYPES[i]);
        CHECK_OK(td_program_create(g, loss, NULL, &p));
        CHECK_OK(td_params_create(p, 1, &ps));
        CHECK_OK(td_runner_create(p, ps, &r));
        CHECK_OK(td_runner_run(r, (td_run_key){0}));
        double slope = (double)td_runner_grads(r, NULL)[1];
        CHECK(slope == 1, "%s: the gradient is %g", td_dtype_name(TYPES[i]), slope);
        td_runner_destroy(r);
        td_params_destroy(ps);
        td_program_destroy(p);
        td_graph_destroy(g);
    }
}

/* Two batch norms on the same running averages: an evaluation program may do that, a training one
 * has nowhere to put the second one's statistics. And states are not params. */
TEST(a_state_belongs_to_one_node)
{
    td_graph *g, *other;
    CHECK_OK(td_graph_create(&g));
    CHECK_OK(td_graph_create(&other));
    const td_init ones = {.kind = TD_INIT_ONES};
    const td_shape s = TD_SHAPE(3);
    td_node *gamma = td_param(g, "gamma", s, ones), *beta = td_param(g, "beta", s, ones);
    td_node *mean = td_state(g, "mean", s, ones), *var = td_state(g, "var", s, ones);
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(4, 3));
    td_node *once = td_batch_norm(g, x, gamma, beta, mean, var, 0.1, 1e-5);
    td_node *twice = td_batch_norm(g, td_sin(g, once), gamma, beta, mean, var, 0.1, 1e-5);
    td_node *loss = td_mean(g, twice, NULL, 0, false);
    td_program *p;
    CHECK_STATUS(td_program_create(g, loss, NULL, &p), TD_ENOTSUP);
    CHECK(strstr(td_last_error(), "'mean'"), "%s", td_last_error());
    CHECK_OK(td_program_create(g, loss, &(td_program_opts){.evaluate = true}, &p));

    td_node *sum = NULL;
    static const char *const NAMES[] = {"gamma", "beta", "mean", "var"};
    for (int i = 0; i < 4; i++) {
        td_node *w = td_param(other, NAMES[i], s, ones);
        sum = sum ? td_add(other, sum, w) : w;
    }
    td_program *q;
    td_params *ps;
    td_runner *r;
    CHECK_OK(td_program_create(other, td_mean(other, sum, NULL, 0, false), NULL, &q));
    CHECK_OK(td_params_create(q, 1, &ps));
    CHECK_STATUS(td_runner_create(p, ps, &r), TD_EINVAL);
    CHECK(strstr(td_last_error(), "'mean' is a param"), "%s", td_last_error());
    td_params_destroy(ps);
    td_program_destroy(q);
    td_program_destroy(p);
    td_graph_destroy(other);
    td_graph_destroy(g);
}

/* Rounding that the user wrote is done, also inside a chain that is fused. */
TEST(a_cast_rounds_inside_a_chain)
{
    td_graph *g;
    CHECK_OK(td_graph_create(&g));
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(3));
    td_node *rounded = td_cast(g, td_cast(g, td_affine(g, x, 1, 0.5), TD_BF16), TD_F32);
    td_node *y = td_affine(g, rounded, 2, 0);
    td_program *p;
    td_params *ps;
    td_runner *r;
    CHECK_OK(td_program_create(
        g, NULL, &(td_program_opts){.evaluate = true, .outputs = &y, .n_outputs = 1}, &p));
    CHECK_OK(td_params_create(p, 1, &ps));
    CHECK_OK(td_runner_create(p, ps, &r));
    float values[3] = {1.00390625f / 2, 0.1f, 3.14159f};
    CHECK_OK(td_runner_set_input(r, "x", values, sizeof values));
    CHECK_OK(td_runner_run(r, (td_run_key){0}));
    const float *got = td_runner_output(r, 0, NULL);
    for (int i = 0; i < 3; i++) {
        float want = 2 * td__bf16_to_f32(td__bf16_from_f32(values[i] + 0.5f));
        CHECK(got[i] == want, "element %d is %.9g, must be %.9g", i, (double)got[i], (double)want);
    }
    td_runner_destroy(r);
    td_params_destroy(ps);
    td_program_destroy(p);
    td_graph_destroy(g);
}

typedef struct onlooker {
    td_runner *r;
    atomic_bool seen;
    char name[64];
} onlooker;

static void *look_on(void *arg)
{
    onlooker *o = arg;
    td__deadline until = td__deadline_in_ms(20000);
    const char *name = NULL;
    while (!name && !td__deadline_passed(until))
        name = td__runner_now(o->r);
    snprintf(o->name, sizeof o->name, "%s", name ? name : "");
    atomic_store(&o->seen, true);
    return NULL;
}

/* Another thread sees which node is being run, for reports of what hangs. */
TEST(a_runner_says_where_it_is)
{
    const net *n = &NETS[0];
    trained t = start(n, NULL);
    onlooker o = {.r = t.r};
    pthread_t thread;
    bool known = false;
    CHECK(td__runner_now(t.r) == NULL, "it is not running");
    CHECK(pthread_create(&thread, NULL, look_on, &o) == 0, "no thread");
    for (unsigned k = 0; !atomic_load(&o.seen); k++)
        (void)step(&t, k);
    pthread_join(thread, NULL);
    CHECK(td__runner_now(t.r) == NULL, "it has run");
    for (int i = 0; i < td_runner_profile_count(t.r); i++)
        known = known || strcmp(td_runner_profile(t.r, i).name, o.name) == 0;
    CHECK(known, "'%s' is no node", o.name);
    trained_stop(&t);
}

TEST(params_survive_a_file)
{
    check_tmpdir();
    trained a = start(&NETS[0], NULL), b = start(&NETS[0], NULL);
    step(&a, 0);
    char da[65], db[65];
    CHECK_OK(td_params_save(a.ps, check_path("params.safetensors")));
    CHECK_OK(td_params_load(b.ps, check_path("params.safetensors")));
    CHECK_OK(td_params_digest(a.ps, da));
    CHECK_OK(td_params_digest(b.ps, db));
    assert_string_equal(da, db);
    trained other = start(&NETS[2], NULL);
    CHECK_STATUS(td_params_load(other.ps, check_path("params.safetensors")), TD_EINVAL);
    trained_stop(&other);
    trained_stop(&a);
    trained_stop(&b);
    check_tmpdir_remove();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rewrites_change_nothing),
        cmocka_unit_test(cpu_agrees_with_the_reference),
        cmocka_unit_test(bf16_is_near_f32),
        cmocka_unit_test(reuse_keeps_the_bits),
        cmocka_unit_test(live_values_do_not_overlap),
        cmocka_unit_test(steps_allocate_nothing),
        cmocka_unit_test(training_makes_the_loss_fall),
        cmocka_unit_test(runs_repeat_bit_for_bit),
        cmocka_unit_test(gradient_block_is_in_backward_order),
        cmocka_unit_test(evaluation_shares_params_and_uses_running_averages),
        cmocka_unit_test(a_bad_loss_names_its_first_cause),
        cmocka_unit_test(gradients_of_several_uses_and_of_inputs),
        cmocka_unit_test(images_without_channels),
        cmocka_unit_test(losses_of_every_type),
        cmocka_unit_test(a_state_belongs_to_one_node),
        cmocka_unit_test(a_cast_rounds_inside_a_chain),
        cmocka_unit_test(a_runner_says_where_it_is),
        cmocka_unit_test(params_survive_a_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
