/* Programs run phase by phase: the bits of a whole run, micro-batches under way side by side, and
 * an order of params that does not depend on when their gradients are made. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/phases.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/cost.h"
#include "graph/program_impl.h"
#include "graph/runner.h"
#include "support/check.h"
#include "support/nets.h"

static const td_dtype PRECISIONS[] = {TD_F32, TD_BF16};

static trained start(const net *n, td_dtype precision, bool phased, const td_optim_opts *optim)
{
    td_program_opts opts = {.precision = precision};
    trained t = {0};
    td_graph *g;
    CHECK_OK(td_graph_create(&g));
    td_node *loss = n->build(g);
    CHECK_OK((phased ? td__program_create_phased : td_program_create)(g, loss, &opts, &t.p));
    td_graph_destroy(g);
    CHECK_OK(td_params_create(t.p, 7, &t.ps));
    CHECK_OK(td_runner_create(t.p, t.ps, &t.r));
    if (optim)
        CHECK_OK(td_optimizer_create(optim, t.ps, &t.o));
    net_fill(n, t.r, 1);
    return t;
}

static td_run_key key_of(unsigned micro_batch)
{
    return (td_run_key){.seed = 3, .step = 5, .micro_batch = micro_batch};
}

static void run_phases(td_runner *r, td_run_key key)
{
    for (int phase = 0; phase < TD_RUN_PHASE_COUNT; phase++)
        CHECK_OK(td__runner_run_phase(r, (td_run_phase)phase, key));
}

static void check_same(const net *n, td_runner *a, td_runner *b, const char *what)
{
    size_t na, nb;
    const float *ga = td_runner_grads(a, &na), *gb = td_runner_grads(b, &nb);
    float la = td_runner_loss(a), lb = td_runner_loss(b);
    CHECK(!memcmp(&la, &lb, sizeof la), "%s, %s: losses %.9g and %.9g", n->name, what, (double)la,
          (double)lb);
    CHECK_EQ_INT(na, nb);
    for (size_t i = 0; i < na; i++)
        CHECK(!memcmp(&ga[i], &gb[i], sizeof ga[i]), "%s, %s: gradient %zu is %.9g and %.9g",
              n->name, what, i, (double)ga[i], (double)gb[i]);
}

TEST(phases_in_order_are_a_whole_run)
{
    for (int i = 0; i < N_NETS; i++)
        for (int k = 0; k < 2; k++) {
            trained whole = start(&NETS[i], PRECISIONS[k], false, NULL),
                    phased = start(&NETS[i], PRECISIONS[k], true, NULL);
            CHECK_OK(td_runner_run(whole.r, key_of(2)));
            run_phases(phased.r, key_of(2));
            check_same(&NETS[i], whole.r, phased.r, "phases");
            CHECK_OK(td_runner_run(phased.r, key_of(2)));
            check_same(&NETS[i], whole.r, phased.r, "a phased program as a whole");
            trained_stop(&whole);
            trained_stop(&phased);
        }
}

/* Of a linear layer: the gradient of what it read is BACKWARD, that of its weight is WEIGHT. */
TEST(gradients_of_params_come_last)
{
    for (int i = 0; i < N_NETS; i++) {
        trained t = start(&NETS[i], TD_F32, true, NULL);
        int n[TD_RUN_PHASE_COUNT] = {0}, late = 0;
        for (int s = 0; s < t.p->n_steps; s++) {
            const td_node *node = t.p->steps[s].node;
            n[node->phase]++;
            for (int k = 0; k < node->n_in; k++)
                CHECK(node->in[k]->phase <= node->phase, "%s: '%s' needs '%s' of a later phase",
                      NETS[i].name, node->name, node->in[k]->name);
            CHECK(s < td__program_phase_end(t.p, node->phase), "'%s' is step %d", node->name, s);
            CHECK(!node->phase || s >= td__program_phase_end(t.p, node->phase - 1),
                  "'%s' is step %d", node->name, s);
        }
        for (int k = 0; k < t.p->g->n_roots; k++) {
            const td__root *root = &t.p->g->roots[k];
            bool matrix = root->leaf && root->leaf->out[0].shape.ndim > 1;
            late +=
                root->kind == TD_ROOT_PARAM_GRAD && matrix && root->node->phase == TD_RUN_WEIGHT;
        }
        CHECK(n[0] && n[1] && n[2], "%s: %d, %d, %d steps", NETS[i].name, n[0], n[1], n[2]);
        CHECK(late > 2, "%s: only %d gradients of matrices are made in the last phase",
              NETS[i].name, late);
        trained_stop(&t);
    }
}

static td_node *wide_mlp(td_graph *g)
{
    int64_t widths[] = {256, 256, 256, 256};
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(64, 256));
    x = td_model_mlp(g, x, &(td_mlp_opts){.widths = widths, .n_widths = 4});
    return td_softmax_cross_entropy(g, x, td_input(g, "y", TD_I32, TD_SHAPE(64)), NULL);
}

static td_node *wide_cnn(td_graph *g)
{
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(8, 16, 16, 16));
    for (int i = 0; i < 4; i++) {
        static const char *const NAMES[] = {"a", "b", "c", "d"};
        x = td_nn_conv2d(g, NAMES[i], x, 64, 3, NULL);
    }
    return td_mean(g, td_square(g, x), NULL, 0, false);
}

static td_node *wide_gpt(td_graph *g)
{
    td_node *x = td_input(g, "x", TD_I32, TD_SHAPE(4, 64)), *y;
    y = td_model_gpt2(
        g, x, &(td_gpt2_opts){.layers = 2, .heads = 4, .width = 256, .vocab = 19, .context = 64});
    return td_softmax_cross_entropy(g, y, td_input(g, "y", TD_I32, TD_SHAPE(4, 64)), NULL);
}

/* Every product of a layer has two more in its gradients, one of what it read and one of its
 * weight: pipelines are balanced and their bubbles foretold by that. */
TEST(phases_of_wide_layers_are_about_the_same_work)
{
    td_node *(*const BUILD[])(td_graph * g) = {wide_mlp, wide_cnn, wide_gpt};
    for (int i = 0; i < 3; i++) {
        double work[TD_RUN_PHASE_COUNT];
        td_program *p;
        td_graph *g;
        CHECK_OK(td_graph_create(&g));
        CHECK_OK(td__program_create_phased(g, BUILD[i](g), NULL, &p));
        td_graph_destroy(g);
        td__program_work(p, work);
        for (int phase = TD_RUN_BACKWARD; phase < TD_RUN_PHASE_COUNT; phase++)
            CHECK(work[phase] > 0.6 * work[0] && work[phase] < 1.4 * work[0],
                  "model %d: %.3g forward, %.3g in phase %d", i, work[0], work[phase], phase);
        td_program_destroy(p);
    }
}

/* F0 F1 B0 B1 W1 W0 on two runners. */
TEST(micro_batches_are_under_way_together)
{
    for (int i = 0; i < N_NETS; i++) {
        trained whole = start(&NETS[i], TD_F32, false, NULL),
                t = start(&NETS[i], TD_F32, true, NULL);
        td_runner *r[2] = {t.r, NULL};
        size_t count;
        td_runner_grads(t.r, &count);
        float *grads = calloc(count, sizeof *grads);
        CHECK_OK(td__runner_create_sibling(t.r, &r[1]));
        td__runner_set_grads(r[1], grads);
        net_fill(&NETS[i], r[1], 2);
        for (int phase = 0; phase < TD_RUN_PHASE_COUNT; phase++)
            for (unsigned k = 0; k < 2; k++) {
                unsigned m = phase == TD_RUN_WEIGHT ? 1 - k : k;
                CHECK_OK(td__runner_run_phase(r[m], (td_run_phase)phase, key_of(m)));
            }
        for (unsigned m = 0; m < 2; m++) {
            net_fill(&NETS[i], whole.r, m + 1);
            CHECK_OK(td_runner_run(whole.r, key_of(m)));
            check_same(&NETS[i], whole.r, r[m], m ? "second" : "first");
        }
        td_runner_destroy(r[1]);
        free(grads);
        trained_stop(&t);
        trained_stop(&whole);
    }
}

TEST(phases_out_of_order_are_refused)
{
    trained t = start(&NETS[0], TD_F32, true, NULL), whole = start(&NETS[0], TD_F32, false, NULL);
    CHECK_STATUS(td__runner_run_phase(whole.r, TD_RUN_FORWARD, key_of(0)), TD_EINVAL);
    CHECK_STATUS(td__runner_run_phase(t.r, TD_RUN_BACKWARD, key_of(0)), TD_EINVAL);
    CHECK_OK(td__runner_run_phase(t.r, TD_RUN_FORWARD, key_of(0)));
    CHECK_STATUS(td__runner_run_phase(t.r, TD_RUN_WEIGHT, key_of(0)), TD_EINVAL);
    CHECK_STATUS(td__runner_run_phase(t.r, TD_RUN_BACKWARD, key_of(1)), TD_EINVAL);
    CHECK_OK(td__runner_run_phase(t.r, TD_RUN_BACKWARD, key_of(0)));
    CHECK_STATUS(td__runner_run_phase(t.r, TD_RUN_BACKWARD, key_of(0)), TD_EINVAL);
    CHECK_OK(td__runner_run_phase(t.r, TD_RUN_WEIGHT, key_of(0)));
    trained_stop(&t);
    trained_stop(&whole);
}

TEST(a_bad_loss_ends_the_forward_phase)
{
    trained t = start(&NETS[0], TD_F32, true, NULL);
    ((float *)td_runner_input(t.r, "x", NULL))[0] = NAN;
    CHECK_STATUS(td__runner_run_phase(t.r, TD_RUN_FORWARD, key_of(0)), TD_EINVAL);
    CHECK(strstr(td_last_error(), "'x'"), "%s", td_last_error());
    trained_stop(&t);
}

/* The last step that writes to each slot's gradient; -1: none. */
static void last_writers(const td_program *p, int *step_of)
{
    for (int i = 0; i < p->n_slots; i++)
        step_of[i] = -1;
    for (int s = 0; s < p->n_steps; s++)
        for (int k = 0; k < p->steps[s].node->n_out; k++) {
            const td__location *at = td__location_of(p, p->steps[s].node, k);
            if (at->space == TD_SPACE_GRAD)
                step_of[at->slot] = s;
        }
}

/* Slots are frozen before nodes move: the order of params, and with it the sum under clipping, is
 * that of the whole program although gradients become final in another order. */
TEST(late_gradients_change_neither_slots_nor_clipping)
{
    td_optim_opts optim = {.name = "adamw", .clip_norm = 0.05};
    bool moved = false;
    for (int i = 0; i < N_NETS; i++) {
        trained t[2];
        char digest[2][65];
        double norm[2];
        for (int phased = 0; phased < 2; phased++) {
            t[phased] = start(&NETS[i], TD_F32, phased, &optim);
            for (unsigned s = 0; s < 3; s++) {
                td_run_key key = {.seed = 3, .step = s};
                if (phased)
                    run_phases(t[phased].r, key);
                else
                    CHECK_OK(td_runner_run(t[phased].r, key));
                CHECK_OK(td_optimizer_step(t[phased].o, t[phased].r, 0.01));
            }
            norm[phased] = td_optimizer_grad_norm(t[phased].o);
            CHECK_OK(td_params_digest(t[phased].ps, digest[phased]));
        }
        CHECK_EQ_INT(td_params_count(t[0].ps), td_params_count(t[1].ps));
        for (int k = 0; k < td_params_count(t[0].ps); k++) {
            td_param_info a = td_params_info(t[0].ps, k), b = td_params_info(t[1].ps, k);
            CHECK(!strcmp(a.name, b.name) && a.offset == b.offset, "%s: param %d is %s and %s",
                  NETS[i].name, k, a.name, b.name);
        }
        CHECK(norm[0] > optim.clip_norm, "%s: nothing is clipped: %g", NETS[i].name, norm[0]);
        CHECK(!memcmp(&norm[0], &norm[1], sizeof norm[0]), "%s: norms %.17g and %.17g",
              NETS[i].name, norm[0], norm[1]);
        CHECK(!strcmp(digest[0], digest[1]), "%s: digests differ", NETS[i].name);

        int *step_of = calloc((size_t)t[1].p->n_slots + 1, sizeof *step_of);
        last_writers(t[1].p, step_of);
        for (int k = 1; k < t[1].p->n_slots; k++)
            moved = moved || (step_of[k] >= 0 && step_of[k] < step_of[k - 1]);
        free(step_of);
        trained_stop(&t[0]);
        trained_stop(&t[1]);
    }
    CHECK(moved, "gradients become final in the order of slots: this test tests nothing");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(phases_in_order_are_a_whole_run),
        cmocka_unit_test(gradients_of_params_come_last),
        cmocka_unit_test(phases_of_wide_layers_are_about_the_same_work),
        cmocka_unit_test(micro_batches_are_under_way_together),
        cmocka_unit_test(phases_out_of_order_are_refused),
        cmocka_unit_test(a_bad_loss_ends_the_forward_phase),
        cmocka_unit_test(late_gradients_change_neither_slots_nor_clipping),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
