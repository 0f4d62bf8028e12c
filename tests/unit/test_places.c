/* Places: what is built at a place stays there, backward nodes follow their forward nodes, and no
 * rewrite decides anything by them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/program_impl.h"
#include "graph/rewrite.h"
#include "support/check.h"
#include "support/nets.h"

static td_graph *new_graph(void)
{
    td_graph *g;
    CHECK_OK(td_graph_create(&g));
    return g;
}

static char *text_of(const td_graph *g)
{
    char *text = NULL;
    size_t n = 0;
    FILE *to = open_memstream(&text, &n);
    CHECK_OK(td_graph_write_text(g, to));
    fclose(to);
    return text;
}

/* Drop " @N" at the ends of lines. */
static void strip_places(char *text)
{
    char *to = text;
    for (const char *from = text; *from;) {
        if (from[0] == ' ' && from[1] == '@') {
            from += strcspn(from, "\n");
            continue;
        }
        *to++ = *from++;
    }
    *to = 0;
}

TEST(nodes_have_the_place_that_was_set)
{
    td_graph *g = new_graph();
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(2));
    CHECK_EQ_INT(td__graph_set_place(g, 3), 0);
    td_node *a = td_relu(g, x);
    CHECK_EQ_INT(td__graph_set_place(g, 0), 3);
    td_node *b = td_relu(g, a);
    CHECK_EQ_INT(x->place, 0);
    CHECK_EQ_INT(a->place, 3);
    CHECK_EQ_INT(b->place, 0);
    CHECK_OK(td_graph_verify(g));

    char *text = text_of(g);
    CHECK(strstr(text, "<- %0 @3\n"), "no place in: %s", text);
    CHECK(!strstr(text, "@0"), "place 0 is shown: %s", text);
    free(text);

    a->place = -1;
    CHECK_STATUS(td_graph_verify(g), TD_EINVAL);
    a->place = TD_PLACE_MOST + 1;
    CHECK_STATUS(td_graph_verify(g), TD_EINVAL);
    a->place = TD_PLACE_MOST;
    CHECK_OK(td_graph_verify(g));
    td__graph_set_place(g, TD_PLACE_MOST + 1);
    CHECK_EQ_INT(td_graph_status(g), TD_EINVAL);
    td_graph_destroy(g);
}

/* fc1 at place 0, fc2 at 1, and so on; the loss where the last layer is. */
static td_node *layered(td_graph *g, int layers)
{
    char name[16];
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(4, 8)), *h = x;
    for (int i = 0; i < layers; i++) {
        td__graph_set_place(g, i);
        snprintf(name, sizeof name, "fc%d", i + 1);
        h = td_nn_linear(g, name, h, 8, &(td_nn_linear_opts){.act = TD_ACT_GELU});
    }
    h = td_add(g, h, td_nn_linear(g, "skip", x, 8, NULL)); /* x is read at the first and last */
    td_node *loss = td_mean(g, td_square(g, h), NULL, 0, false);
    td__graph_set_place(g, 0);
    return loss;
}

TEST(backward_nodes_are_where_their_forward_node_is)
{
    for (int rewrites = 0; rewrites < 2; rewrites++) {
        td_graph *g = new_graph();
        td_program *p;
        td_node *x, *loss = layered(g, 3);
        x = td_graph_find(g, "x");
        CHECK_OK(td_program_create(
            g, loss,
            &(td_program_opts){.no_rewrites = !rewrites, .grad_inputs = &x, .n_grad_inputs = 1},
            &p));
        td_graph_destroy(g);
        int n_grads = 0;
        for (int i = 0; i < p->g->n_roots; i++) {
            const td__root *r = &p->g->roots[i];
            if (r->kind == TD_ROOT_PARAM_GRAD) {
                CHECK(r->node->place == r->leaf->place, "the gradient of %s, at %d, is at %d",
                      r->leaf->name, r->leaf->place, r->node->place);
                n_grads += r->node->place > 0;
            }
            /* from the first and the last layer: the sum is where the value is */
            if (r->kind == TD_ROOT_INPUT_GRAD)
                CHECK_EQ_INT(r->node->place, 0);
        }
        CHECK_EQ_INT(n_grads, 6); /* weights and biases of fc2, fc3, skip */
        td_program_destroy(p);
    }
}

/* Same nodes, fusions and order whatever the places: only the marks differ. */
TEST(no_rewrite_looks_at_places)
{
    td_program_opts opts[] = {{0}, {.precision = TD_BF16}, {.evaluate = true}, {.backend = "ref"}};
    for (int i = 0; i < N_NETS; i++)
        for (int k = 0; k < 4; k++) {
            char *text[2];
            for (int placed = 0; placed < 2; placed++) {
                td_graph *g = new_graph();
                td_program *p;
                td_node *loss = NETS[i].build(g);
                if (placed)
                    net_place(g, 4);
                CHECK_OK(td_program_create(g, loss, &opts[k], &p));
                text[placed] = text_of(p->g);
                td_program_destroy(p);
                td_graph_destroy(g);
            }
            CHECK(strstr(text[1], " @3\n"), "%s: nothing is at place 3", NETS[i].name);
            strip_places(text[1]);
            CHECK(!strcmp(text[0], text[1]), "%s, program %d: places change the program:\n%s\n%s",
                  NETS[i].name, k, text[0], text[1]);
            free(text[0]);
            free(text[1]);
        }
}

static td_graph *apply(td_graph *g, td__rewrite_fn *pass)
{
    td_graph *out;
    CHECK_OK(pass(g, &out));
    CHECK_OK(td_graph_verify(out));
    td_graph_destroy(g);
    return out;
}

/* Of equal nodes the earlier one's place stays. */
TEST(merged_nodes_keep_the_first_place)
{
    td_graph *g = new_graph();
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(4));
    td__graph_set_place(g, 1);
    td_node *a = td_exp(g, x);
    td__graph_set_place(g, 2);
    td_node *sum = td_add(g, a, td_exp(g, x));
    td__graph_add_root(g, (td__root){.kind = TD_ROOT_OUTPUT, .node = sum});
    g = apply(g, td__rewrite_merge);
    CHECK(g->roots[0].node->in[0] == g->roots[0].node->in[1], "they are not merged");
    CHECK_EQ_INT(g->roots[0].node->in[0]->place, 1);
    CHECK_EQ_INT(g->roots[0].node->place, 2);
    td_graph_destroy(g);
}

/* A fused node is where its last part was. */
TEST(fused_nodes_are_at_the_place_of_their_end)
{
    td__rewrite_fn *const passes[] = {td__rewrite_epilogue, td__rewrite_elementwise};
    for (int i = 0; i < 2; i++) {
        td_graph *g = new_graph();
        td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(4, 4));
        td_node *first = i == 0 ? td_nn_linear(g, "fc", x, 4, NULL) : td_exp(g, x);
        td__graph_set_place(g, 1);
        td__graph_add_root(g, (td__root){.kind = TD_ROOT_OUTPUT, .node = td_relu(g, first)});
        g = apply(apply(g, passes[i]), td__rewrite_prune);
        const td_node *fused = g->roots[0].node;
        CHECK(fused->op == (i == 0 ? TD_OP_LINEAR : TD_OP_FUSED), "it is a %s",
              td__op(fused->op)->name);
        CHECK_EQ_INT(fused->place, 1);
        td_graph_destroy(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_have_the_place_that_was_set),
        cmocka_unit_test(backward_nodes_are_where_their_forward_node_is),
        cmocka_unit_test(no_rewrite_looks_at_places),
        cmocka_unit_test(merged_nodes_keep_the_first_place),
        cmocka_unit_test(fused_nodes_are_at_the_place_of_their_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
