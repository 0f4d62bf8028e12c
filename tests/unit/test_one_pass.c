/* test_one_pass.c -- rewrites for backends that do several operators in one pass: a GPT has no node
 * left that only copies or adds what a neighbour has in its hands; what others read stays. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Test labels: one-thread */
#include "graph/graph_impl.h"
#include "graph/rewrite.h"
#include "support/check.h"
#include "tandem/nn.h"

static td_graph *new_graph(void)
{
    td_graph *g;
    CHECK_OK(td_graph_create(&g));
    return g;
}

static td_graph *apply(td_graph *g, td__rewrite_fn *pass)
{
    td_graph *next;
    CHECK_OK(pass(g, &next));
    td_graph_destroy(g);
    CHECK_OK(td_graph_verify(next));
    return next;
}

static int count(const td_graph *g, td_opcode op)
{
    int n = 0;
    for (int i = 0; i < g->n_nodes; i++)
        n += g->nodes[i]->op == op;
    return n;
}

/* Forward, backward, and the passes in between, as graph/program.c has them. */
static td_graph *train(td_graph *g, td_node *loss)
{
    td__graph_add_root(g, (td__root){.kind = TD_ROOT_LOSS, .node = loss});
    g = apply(apply(g, td__rewrite_prune), td__rewrite_epilogue);
    g = apply(g, td__rewrite_joined);
    CHECK_OK(td__autodiff(g, NULL, 0));
    g = apply(apply(g, td__rewrite_fold), td__rewrite_merge);
    g = apply(apply(g, td__rewrite_unsplit), td__rewrite_prune);
    return apply(apply(g, td__rewrite_one_pass), td__rewrite_prune);
}

TEST(a_gpt_is_made_of_whole_passes)
{
    enum { LAYERS = 2 };
    td_graph *g = new_graph();
    td_gpt2_opts o = {.layers = LAYERS, .heads = 2, .width = 16, .vocab = 32, .context = 8};
    td_node *x = td_input(g, "x", TD_I32, TD_SHAPE(2, 8)),
            *y = td_input(g, "y", TD_I32, TD_SHAPE(2, 8));
    g = train(g, td_softmax_cross_entropy(g, td_model_gpt2(g, x, &o), y, NULL));
    CHECK_EQ_INT(count(g, TD_OP_ATTENTION_JOINED), LAYERS);
    CHECK_EQ_INT(count(g, TD_OP_ATTENTION_JOINED_BACK), LAYERS);
    CHECK_EQ_INT(count(g, TD_OP_ATTENTION), 0);
    CHECK_EQ_INT(count(g, TD_OP_SLICE), 0);
    CHECK_EQ_INT(count(g, TD_OP_CONCAT), 0);
    CHECK_EQ_INT(count(g, TD_OP_GELU_TANH_BACK), 0);
    CHECK_EQ_INT(count(g, TD_OP_XENT), 0);
    CHECK_EQ_INT(count(g, TD_OP_XENT_BACK), 0);
    CHECK_EQ_INT(count(g, TD_OP_XENT_BOTH), 1);
    /* left: the sum of the two embeddings, and of the two gradients of the tied table */
    CHECK(count(g, TD_OP_ADD) <= 2, "%d sums are left", count(g, TD_OP_ADD));
    int linear = 0, norms = 0, slopes = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        const td_node *n = g->nodes[i];
        if (n->op == TD_OP_LINEAR)
            linear += ((const td_attr_linear *)n->attr)->has_residual;
        if (n->op == TD_OP_LINEAR_BACK_DATA)
            slopes += ((const td_attr_linear *)n->attr)->act == TD_ACT_GELU_TANH;
        if (n->op == TD_OP_LAYER_NORM_BACK)
            norms += ((const td_attr_norm *)n->attr)->has_residual;
    }
    CHECK_EQ_INT(linear, 2 * LAYERS);
    CHECK_EQ_INT(norms, 2 * LAYERS);
    CHECK_EQ_INT(slopes, LAYERS);
    td_graph_destroy(g);
}

/* Gradients that meet before a batch norm are added by its backward; where nothing is added before
 * relu, y is not read again. */
TEST(a_resnet_adds_in_its_norms)
{
    enum { BLOCKS = 8 };
    td_graph *g = new_graph();
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(2, 3, 8, 8)),
            *y = td_input(g, "y", TD_I32, TD_SHAPE(2));
    td_resnet_opts o = {.depth = 18, .cifar_stem = true};
    g = train(g, td_softmax_cross_entropy(g, td_model_resnet(g, x, &o), y, NULL));
    int more = 0, by_beta = 0;
    for (int i = 0; i < g->n_nodes; i++)
        if (g->nodes[i]->op == TD_OP_BATCH_NORM_BACK) {
            more += ((const td_attr_norm *)g->nodes[i]->attr)->has_more;
            by_beta += ((const td_attr_norm *)g->nodes[i]->attr)->by_beta;
        }
    CHECK_EQ_INT(count(g, TD_OP_ADD), 0);
    CHECK_EQ_INT(more, BLOCKS);
    CHECK_EQ_INT(by_beta, BLOCKS);
    td_graph_destroy(g);
}

/* A sum of gradients that somebody else reads too stays. */
TEST(a_sum_that_others_read_stays)
{
    td_graph *g = new_graph();
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(2, 3)),
            *v = td_input(g, "v", TD_F32, TD_SHAPE(3));
    td_attr_norm a = {.eps = 1e-5};
    td_node *sum = td_add(g, x, td_exp(g, x));
    td_node *back = td__node(g, TD_OP_BATCH_NORM_BACK, &a, (td_node *[]){sum, x, v, v, v}, 5);
    td__graph_add_root(g, (td__root){.kind = TD_ROOT_OUTPUT, .node = back});
    td__graph_add_root(g, (td__root){.kind = TD_ROOT_OUTPUT, .index = 1, .node = sum});
    g = apply(g, td__rewrite_one_pass);
    CHECK_EQ_INT(count(g, TD_OP_ADD), 1);
    td_graph_destroy(g);
}

/* x + f(x), of which f(x) is read again: it stays a node of its own. */
TEST(what_others_read_stays)
{
    td_graph *g = new_graph();
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(3, 4));
    td_node *y = td_nn_linear(g, "fc", x, 4, NULL);
    td__graph_add_root(g, (td__root){.kind = TD_ROOT_OUTPUT, .node = td_add(g, x, y)});
    td__graph_add_root(g, (td__root){.kind = TD_ROOT_OUTPUT, .index = 1, .node = td_exp(g, y)});
    g = apply(g, td__rewrite_one_pass);
    CHECK_EQ_INT(count(g, TD_OP_ADD), 1);
    td_graph_destroy(g);
}

/* A residual that is made later than the product, and one of another shape. */
TEST(what_is_not_there_yet_is_not_added)
{
    td_graph *g = new_graph();
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(3, 4)),
            *row = td_input(g, "r", TD_F32, TD_SHAPE(4));
    td_node *y = td_nn_linear(g, "fc", x, 4, NULL);
    td_node *later = td_add(g, y, td_exp(g, x));
    td_node *wide = td_add(g, td_nn_linear(g, "fc2", later, 4, NULL), row);
    td__graph_add_root(g, (td__root){.kind = TD_ROOT_OUTPUT, .node = wide});
    g = apply(g, td__rewrite_one_pass);
    CHECK_EQ_INT(count(g, TD_OP_ADD), 2);
    td_graph_destroy(g);
}

/* Slices in another order than q, k, v are copied apart as before. */
TEST(only_heads_in_order_are_joined)
{
    td_graph *g = new_graph();
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(1, 5, 24)), *part[3];
    for (int i = 0; i < 3; i++)
        part[i] = td_reshape(g, td_slice(g, x, 2, 8 * i, 8 * i + 8, 1), TD_SHAPE(1, 5, 2, 4));
    td_node *good = td_attention(g, part[0], part[1], part[2], NULL, NULL);
    td_node *bad = td_attention(g, part[1], part[0], part[2], NULL, NULL);
    td__graph_add_root(g, (td__root){.kind = TD_ROOT_OUTPUT, .node = good});
    td__graph_add_root(g, (td__root){.kind = TD_ROOT_OUTPUT, .index = 1, .node = bad});
    g = apply(g, td__rewrite_joined);
    CHECK_EQ_INT(count(g, TD_OP_ATTENTION_JOINED), 1);
    CHECK_EQ_INT(count(g, TD_OP_ATTENTION), 1);
    td_graph_destroy(g);
}

/* A classifier over `rows` rows, as a backend with whole passes has it; read: somebody reads the
 * logits, too. */
static td_graph *classify(int64_t rows, int64_t classes, bool read, td__rewrite_fn *pass)
{
    td_graph *g = new_graph();
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(rows, 8)),
            *y = td_input(g, "y", TD_I32, TD_SHAPE(rows));
    td_nn_linear_opts no_bias = {.no_bias = true};
    td_node *logits = td_nn_linear(g, "head", td_nn_linear(g, "fc", x, 8, NULL), classes, &no_bias);
    if (read)
        td__graph_add_root(g, (td__root){.kind = TD_ROOT_OUTPUT, .node = logits});
    return apply(train(g, td_softmax_cross_entropy(g, logits, y, NULL)), pass);
}

/* More logits than are wanted at a time: parts that are as large as they may be, and the gradients
 * are its outputs. */
TEST(large_logits_are_there_in_parts)
{
    enum { ROWS = 1 << 15, CLASSES = 50304 };
    td_graph *g = classify(ROWS, CLASSES, false, td__rewrite_classifier);
    const td_node *fused = NULL;
    CHECK_EQ_INT(count(g, TD_OP_LINEAR_XENT), 1);
    CHECK_EQ_INT(count(g, TD_OP_XENT_BOTH), 0);
    CHECK_EQ_INT(count(g, TD_OP_LINEAR), 1);
    for (int i = 0; i < g->n_nodes; i++)
        fused = g->nodes[i]->op == TD_OP_LINEAR_XENT ? g->nodes[i] : fused;
    CHECK_EQ_INT(((const td_attr_linear_xent *)fused->attr)->rows, 8192);
    CHECK_EQ_INT(fused->out[3].shape.dim[0], 8192);
    int loss = 0, head = 0;
    for (int i = 0; i < g->n_roots; i++) {
        int part;
        const td__root *r = &g->roots[i];
        bool its = td__view_base(r->node, &part) == fused;
        loss += its && r->kind == TD_ROOT_LOSS && part == 2;
        head += its && r->kind == TD_ROOT_PARAM_GRAD && part == 1;
    }
    CHECK_EQ_INT(loss, 1);
    CHECK_EQ_INT(head, 1);
    td_graph_destroy(g);
    g = classify(8192, CLASSES, false, td__rewrite_classifier);
    CHECK_EQ_INT(count(g, TD_OP_LINEAR_XENT), 0);
    td_graph_destroy(g);
    g = classify(ROWS, CLASSES, true, td__rewrite_classifier);
    CHECK_EQ_INT(count(g, TD_OP_LINEAR_XENT), 0);
    CHECK_EQ_INT(count(g, TD_OP_XENT_BOTH), 1);
    td_graph_destroy(g);
}

/* Programs that run phase by phase keep the nodes; the three products are of the same rows. */
TEST(products_of_large_logits_are_of_parts)
{
    td_graph *g = classify(1 << 15, 50304, false, td__rewrite_classifier_parts);
    int parts = 0;
    CHECK_EQ_INT(count(g, TD_OP_LINEAR_XENT), 0);
    CHECK_EQ_INT(count(g, TD_OP_XENT_BOTH), 1);
    for (int i = 0; i < g->n_nodes; i++) {
        td_opcode op = g->nodes[i]->op;
        if (op == TD_OP_LINEAR || op == TD_OP_LINEAR_BACK_DATA || op == TD_OP_LINEAR_BACK_WEIGHT)
            parts += ((const td_attr_linear *)g->nodes[i]->attr)->rows == 8192;
    }
    CHECK_EQ_INT(parts, 3);
    td_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gpt_is_made_of_whole_passes),
        cmocka_unit_test(a_resnet_adds_in_its_norms),
        cmocka_unit_test(a_sum_that_others_read_stays),
        cmocka_unit_test(what_others_read_stays),
        cmocka_unit_test(what_is_not_there_yet_is_not_added),
        cmocka_unit_test(only_heads_in_order_are_joined),
        cmocka_unit_test(large_logits_are_there_in_parts),
        cmocka_unit_test(products_of_large_logits_are_of_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
