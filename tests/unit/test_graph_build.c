/* Building graphs: names, scopes, the sticky first error and its text, verification, printing. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/graph_impl.h"
#include "support/check.h"
#include "tandem/tandem.h"

static td_graph *new_graph(void)
{
    td_graph *g;
    CHECK_OK(td_graph_create(&g));
    return g;
}

/* Every bad call gives one line that names the call, the node and the shapes. */
static void expect_error(td_graph *g, const td_node *n, const char *const *words)
{
    CHECK(n == NULL, "the call should have failed");
    CHECK(td_graph_status(g) == TD_EINVAL, "status is %s", td_status_name(td_graph_status(g)));
    for (; *words; words++)
        CHECK(strstr(td_graph_error(g), *words), "'%s' is not in: %s", *words, td_graph_error(g));
    CHECK(!strchr(td_graph_error(g), '\n'), "more than one line: %s", td_graph_error(g));
    td_graph_destroy(g);
}
#define EXPECT(g, n, ...) expect_error((g), (n), (const char *const[]){__VA_ARGS__, NULL})

TEST(bad_calls_name_call_node_and_shapes)
{
    td_graph *g = new_graph();
    td_node *a = td_input(g, "a", TD_F32, TD_SHAPE(4, 3));
    td_node *b = td_input(g, "b", TD_F32, TD_SHAPE(5, 7));
    td_graph_push_scope(g, "net");
    EXPECT(g, td_matmul(g, a, b, false, false), "td_matmul", "net/matmul", "(4, 3)", "(5, 7)",
           "'a'");

    g = new_graph();
    a = td_input(g, "a", TD_F32, TD_SHAPE(2));
    EXPECT(g, td_add(g, a, td_input(g, "b", TD_I32, TD_SHAPE(2))), "td_add", "f32", "i32");

    g = new_graph();
    EXPECT(g, td_input(g, "a", (td_dtype)99, TD_SHAPE(2)), "dtype");

    g = new_graph();
    EXPECT(g, td_input(g, "a", TD_F32, TD_SHAPE(2, -1)), "td_input", "'a'", "negative");

    g = new_graph();
    EXPECT(g, td_param(g, "a", TD_SHAPE(INT64_MAX / 2, 8), (td_init){0}), "too large");

    g = new_graph();
    EXPECT(g, td_relu(g, NULL), "td_relu", "NULL");

    g = new_graph();
    td_input(g, "a", TD_F32, TD_SHAPE(2));
    EXPECT(g, td_input(g, "a", TD_F32, TD_SHAPE(2)), "'a'", "already");

    g = new_graph();
    EXPECT(g, td_dropout(g, td_input(g, "a", TD_F32, TD_SHAPE(2)), (double)NAN), "td_dropout");

    g = new_graph();
    td_graph_pop_scope(g);
    EXPECT(g, NULL, "td_graph_pop_scope");

    g = new_graph();
    td_graph_push_scope(g, NULL);
    EXPECT(g, NULL, "td_graph_push_scope", "name");

    g = new_graph();
    a = td_input(g, "a", TD_F32, TD_SHAPE(2, 3));
    EXPECT(g, td_named(g, a, NULL), "td_named", "'a'");

    g = new_graph();
    a = td_input(g, "a", TD_F32, TD_SHAPE(2, 3));
    EXPECT(g, td_nn_linear(g, NULL, a, 4, NULL), "td_param", "name");

    g = new_graph();
    a = td_input(g, "a", TD_F32, TD_SHAPE(2, 3));
    EXPECT(g, td_model_mlp(g, a, &(td_mlp_opts){.n_widths = 2}), "td_model_mlp", "2 widths");

    g = new_graph();
    a = td_input(g, "a", TD_F32, TD_SHAPE(5, 2, 3));
    EXPECT(g, td_nn_lstm(g, "rnn", a, INT64_MAX / 2, NULL), "td_nn_lstm", "'rnn'", "hidden");

    g = new_graph();
    a = td_input(g, "a", TD_F32, TD_SHAPE(1, 3, 8, 8));
    EXPECT(g, td_model_resnet(g, a, &(td_resnet_opts){.width = -4}), "td_model_resnet", "-4");

    g = new_graph();
    a = td_input(g, "a", TD_F32, TD_SHAPE(2, 3));
    td_node *s = td_param(g, "s", TD_SHAPE(3), (td_init){0});
    EXPECT(g, td_batch_norm(g, a, s, s, s, s, 0.1, 1e-5), "td_batch_norm", "'s'", "td_state");

    td_graph *other = new_graph();
    td_node *foreign = td_input(other, "far", TD_F32, TD_SHAPE(2, 3));
    g = new_graph();
    a = td_input(g, "a", TD_F32, TD_SHAPE(2, 3));
    EXPECT(g, td_add(g, a, foreign), "td_add", "'far'", "another graph");
    td_graph_destroy(other);
}

TEST(the_first_error_stays)
{
    td_graph *g = new_graph();
    td_node *a = td_input(g, "a", TD_F32, TD_SHAPE(4, 3));
    td_node *bad = td_reshape(g, a, TD_SHAPE(5, 5));
    CHECK(!bad, "12 elements do not fit in 25");
    char first[512];
    snprintf(first, sizeof first, "%s", td_graph_error(g));
    CHECK(!td_relu(g, bad), "errors are passed on");
    CHECK(!td_input(g, "b", TD_F32, TD_SHAPE(1)), "nothing is added after an error");
    assert_string_equal(first, td_graph_error(g));
    td_program *p;
    CHECK_STATUS(td_program_create(g, a, NULL, &p), TD_EINVAL);
    assert_string_equal(first, td_last_error());
    td_graph_destroy(g);
}

TEST(scopes_nest_and_names_are_found)
{
    td_graph *g = new_graph();
    td_graph_push_scope(g, "block0");
    td_graph_push_scope(g, "attn");
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(2));
    td_node *y = td_named(g, td_relu(g, x), "act");
    td_graph_pop_scope(g);
    td_node *z = td_named(g, td_relu(g, y), "act");
    td_graph_push_scope(g, "a/b"); /* one push, one pop, whatever is in the name */
    td_graph_pop_scope(g);
    td_graph_pop_scope(g);
    td_node *w = td_relu(g, z);
    assert_string_equal(td_node_name(x), "block0/attn/x");
    assert_string_equal(td_node_name(y), "block0/attn/act");
    assert_string_equal(td_node_name(z), "block0/act");
    CHECK(strncmp(td_node_name(w), "relu", 4) == 0, "%s", td_node_name(w));
    CHECK(td_graph_find(g, "block0/act") == z, "find");
    CHECK(!td_graph_find(g, "block1/act"), "find");
    CHECK_OK(td_graph_verify(g));
    td_graph_destroy(g);
}

TEST(layers_of_one_name_in_two_scopes)
{
    td_graph *g = new_graph();
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(2, 3));
    static const char *const SCOPES[] = {"encoder", "decoder"};
    for (int i = 0; i < 2; i++) {
        td_graph_push_scope(g, SCOPES[i]);
        x = td_nn_linear(g, "fc1", x, 3, NULL);
        td_graph_pop_scope(g);
    }
    CHECK_OK(td_graph_status(g));
    CHECK(td_graph_find(g, "encoder/fc1.weight"), "no encoder/fc1.weight");
    CHECK(td_graph_find(g, "decoder/fc1.bias"), "no decoder/fc1.bias");
    td_graph_destroy(g);
}

TEST(verify_finds_cycles_and_foreign_nodes)
{
    td_graph *g = new_graph();
    td_node *a = td_input(g, "a", TD_F32, TD_SHAPE(2));
    td_node *b = td_relu(g, a);
    td_node *c = td_relu(g, b);
    CHECK_OK(td_graph_verify(g));
    b->in[0] = c; /* a cycle cannot be built through the interface: make one by hand */
    CHECK_STATUS(td_graph_verify(g), TD_EINVAL);
    CHECK(strstr(td_last_error(), "cycle"), "%s", td_last_error());
    b->in[0] = a;

    td_graph *other = new_graph();
    td_node *foreign = td_input(other, "z", TD_F32, TD_SHAPE(2));
    td_program *p;
    CHECK_STATUS(td_program_create(g, foreign, NULL, &p), TD_EINVAL);
    td_graph_destroy(other);
    td_graph_destroy(g);
}

TEST(programs_refuse_what_cannot_be)
{
    td_graph *g = new_graph();
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(4));
    td_node *ids = td_input(g, "ids", TD_I32, TD_SHAPE(4));
    td_node *loss = td_mean(g, x, NULL, 0, false);
    td_program *p;
    CHECK_STATUS(td_program_create(g, x, NULL, &p), TD_EINVAL); /* not one number */
    CHECK(strstr(td_last_error(), "(4)"), "%s", td_last_error());
    CHECK_STATUS(td_program_create(g, NULL, NULL, &p), TD_EINVAL);
    CHECK_STATUS(td_program_create(g, loss, &(td_program_opts){.precision = TD_I32}, &p),
                 TD_EINVAL);
    CHECK_STATUS(td_program_create(g, loss, &(td_program_opts){.backend = "abacus"}, &p),
                 TD_EINVAL);
    CHECK(strstr(td_last_error(), "abacus"), "%s", td_last_error());
    CHECK_STATUS(
        td_program_create(g, loss, &(td_program_opts){.grad_inputs = &ids, .n_grad_inputs = 1}, &p),
        TD_EINVAL);
    CHECK_STATUS(td_program_create(g, loss, &(td_program_opts){.n_outputs = 1}, &p), TD_EINVAL);
    CHECK_STATUS(td_program_create(g, loss, &(td_program_opts){.n_grad_inputs = -1}, &p),
                 TD_EINVAL);
    td_graph_destroy(g);
}

/* A node that is not differentiable stops autodiff only if a gradient would have to cross it. */
TEST(autodiff_names_what_cannot_be_differentiated)
{
    td_graph *g = new_graph();
    td_node *w = td_param(g, "w", TD_SHAPE(4, 5), (td_init){.kind = TD_INIT_ONES});
    td_node *values = td_named(g, td_top_k(g, w, 2, NULL), "best");
    td_node *loss = td_mean(g, values, NULL, 0, false);
    td_program *p;
    CHECK_STATUS(td_program_create(g, loss, &(td_program_opts){.backend = "null"}, &p), TD_ENOTSUP);
    CHECK(strstr(td_last_error(), "best") && strstr(td_last_error(), "top_k"), "%s",
          td_last_error());
    td_graph_destroy(g);
}

TEST(text_and_graphviz)
{
    td_graph *g = new_graph();
    td_node *x = td_input(g, "in\"put", TD_F32, TD_SHAPE(2, 3));
    td_named(g, td_relu(g, x), "act");
    char *text;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    CHECK_OK(td_graph_write_text(g, f));
    fclose(f);
    CHECK(strstr(text, "%1 = relu 'act' f32(2, 3) <- %0"), "%s", text);
    free(text);
    f = open_memstream(&text, &size);
    CHECK_OK(td_graph_write_dot(g, f));
    fclose(f);
    CHECK(strstr(text, "digraph") && strstr(text, "n0 -> n1") && strstr(text, "in\\\"put"), "%s",
          text);
    free(text);
    td_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_calls_name_call_node_and_shapes),
        cmocka_unit_test(the_first_error_stays),
        cmocka_unit_test(scopes_nest_and_names_are_found),
        cmocka_unit_test(layers_of_one_name_in_two_scopes),
        cmocka_unit_test(verify_finds_cycles_and_foreign_nodes),
        cmocka_unit_test(programs_refuse_what_cannot_be),
        cmocka_unit_test(autodiff_names_what_cannot_be_differentiated),
        cmocka_unit_test(text_and_graphviz),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
