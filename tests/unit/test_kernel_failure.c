/* test_kernel_failure.c -- a kernel that fails ends the run with its status and the name of its
 * node, on every device; the next run is not affected. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/check.h"
#include "base/fail.h"
#include "graph/program_impl.h"
#include "support/check.h"
#include "tandem/tandem.h"

static void run_broken(const td_kernel_call *c)
{
    td__kernel_check(c, TD_FAIL(TD_EIO, "the adder is stuck"));
}

static void check_backend(const char *backend)
{
    td_graph *g;
    td_program *p;
    td_params *ps;
    td_runner *r;
    td_run_key key = {.seed = 1};
    CHECK_OK(td_graph_create(&g));
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(4, 8));
    td_node *y = td_input(g, "y", TD_I32, TD_SHAPE(4));
    td_node *loss = td_softmax_cross_entropy(g, td_model_mlp(g, x, NULL), y, NULL);
    CHECK_OK(td_program_create(g, loss, &(td_program_opts){.backend = backend}, &p));
    td_graph_destroy(g);
    CHECK_OK(td_params_create(p, 1, &ps));
    CHECK_OK(td_runner_create(p, ps, &r));
    CHECK_OK(td_runner_run(r, key));
    float before = td_runner_loss(r);
    for (int i = 0; i < p->n_steps; i++) {
        td_kernel *k = &p->steps[i].kernel;
        void (*run)(const td_kernel_call *) = k->run;
        k->run = run_broken;
        CHECK_STATUS(td_runner_run(r, key), TD_EIO);
        CHECK(strstr(td_last_error(), k->node->name) && strstr(td_last_error(), "adder"),
              "%s, '%s': %s", backend, k->node->name, td_last_error());
        k->run = run;
    }
    CHECK_OK(td_runner_run(r, key));
    CHECK(td_runner_loss(r) == before, "%s: another loss after failures", backend);
    td_runner_destroy(r);
    td_params_destroy(ps);
    td_program_destroy(p);
}

TEST(the_node_is_named)
{
    static const char *const BACKENDS[] = {"cpu", "ref", "far"};
    for (int i = 0; i < TD_LEN(BACKENDS); i++)
        check_backend(BACKENDS[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_node_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
