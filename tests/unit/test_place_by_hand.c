/* Places of nodes by hand: by the layers that places begin with, and by wishes of nodes, which
 * stages of one chunk or several fulfil in the order of the model. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "graph/graph_impl.h"
#include "graph/place_by_hand.h"
#include "support/check.h"
#include "tandem/nn.h"
#include "tandem/ops.h"
#include "tandem/place.h"

/* Layers a, b, c, d in a row. */
static td_graph *build_row(td_node *layer[4])
{
    static const char *const NAMES[] = {"net.a", "net.b", "net.b2", "net.d"};
    td_graph *g;
    CHECK_OK(td_graph_create(&g));
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(4, 4));
    for (int i = 0; i < 4; i++)
        x = td_relu(g, layer[i] = td_nn_linear(g, NAMES[i], x, 4, NULL));
    td_mean(g, x, NULL, 0, false);
    CHECK_OK(td_graph_status(g));
    return g;
}

static void check_places(td_graph *g, td_node *const layer[4], int a, int b, int c, int d)
{
    const int want[] = {a, b, c, d};
    for (int i = 0; i < 4; i++)
        CHECK_EQ_INT(layer[i]->place, want[i]);
    CHECK_EQ_INT(g->nodes[g->n_nodes - 1]->place, d); /* the loss follows */
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i]->n_in; k++)
            CHECK(g->nodes[i]->in[k]->place <= g->nodes[i]->place, "'%s'", g->nodes[i]->name);
}

TEST(places_by_layers)
{
    td_node *layer[4];
    td_graph *g = build_row(layer);
    CHECK_OK(td__graph_place_by_layers(g, "b, net.d", 3, "stages"));
    check_places(g, layer, 0, 1, 1, 2);
    CHECK_OK(td__graph_place_by_layers(g, "b2", 2, "stages"));
    check_places(g, layer, 0, 0, 1, 1);
    const struct {
        const char *layers, *says;
    } bad[] = {{"net.c", "no layer with params is called 'net.c'"},
               {"et.b", "no layer"},
               {"d, b", "'b' comes before 'd'"},
               {"b, b", "comes before"},
               {"", "1 chunks, and there are 3"},
               {"b", "2 chunks, and there are 3: name 2"}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK_STATUS(td__graph_place_by_layers(g, bad[i].layers, 3, "stages"), TD_EINVAL);
        CHECK(strstr(td_last_error(), bad[i].says), "%s: %s", bad[i].layers, td_last_error());
    }
    td_graph_destroy(g);
}

static int modulo(void *user, int place)
{
    return place % *(int *)user;
}

/* Chunks of two stages in the form of a V. */
static int there_and_back(void *user, int place)
{
    int stages = *(int *)user;
    return place < stages ? place : 2 * stages - 1 - place;
}

TEST(places_by_wish)
{
    static const struct {
        int wish[4], places, stages, at[4]; /* -1: none */
    } CASES[] = {{{0, 1, 2, 3}, 4, 4, {0, 1, 2, 3}},
                 {{-1, 1, -1, 2}, 3, 3, {0, 1, 1, 2}},
                 {{0, 1, 0, 1}, 4, 2, {0, 1, 2, 3}}, /* two chunks per stage */
                 {{1, -1, -1, -1}, 2, 2, {1, 1, 1, 1}}};
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        td_node *layer[4];
        td_graph *g = build_row(layer);
        int stages = CASES[i].stages;
        CHECK(td__graph_last_wish(g) < 0, "nobody has asked");
        for (int k = 0; k < 4; k++)
            if (CASES[i].wish[k] >= 0)
                CHECK(td_node_place(g, layer[k], CASES[i].wish[k]) == layer[k], "layer %d", k);
        CHECK(td__graph_last_wish(g) >= 0, "case %zu", i);
        CHECK_OK(td__graph_place_by_wish(
            g, &(td__wishes){.places = CASES[i].places, .wish_of = modulo, .user = &stages}));
        check_places(g, layer, CASES[i].at[0], CASES[i].at[1], CASES[i].at[2], CASES[i].at[3]);
        td_graph_destroy(g);
    }
}

/* Of a stage that has places in a row each gets a share; of one that has none in a row, none. */
TEST(places_in_a_row_share_a_wish)
{
    td_node *layer[4];
    int stages = 2;
    td__wishes v = {.places = 4, .wish_of = there_and_back, .user = &stages};
    td_graph *g = build_row(layer);
    td_node_place(g, layer[1], 1);
    td_node_place(g, layer[3], 0);
    CHECK_OK(td__graph_place_by_wish(g, &v));
    CHECK_OK(td__graph_check_places(g, &v));
    check_places(g, layer, 0, 1, 2, 3);
    td_graph_destroy(g);
    g = build_row(layer);
    td_node_place(g, layer[1], 1);
    CHECK_OK(td__graph_place_by_wish(g, &v));
    check_places(g, layer, 0, 1, 1, 2);
    CHECK_STATUS(td__graph_check_places(g, &v), TD_EINVAL);
    CHECK(strstr(td_last_error(), "nothing is on chunk 3 (stage 0)") &&
              strstr(td_last_error(), "stages 0 1 1 0,"),
          "%s", td_last_error());
    td_graph_destroy(g);
}

TEST(wishes_in_a_circle_are_refused)
{
    td_node *layer[4];
    int stages = 2;
    td_graph *g = build_row(layer);
    td_node_place(g, layer[1], 1);
    td_node_place(g, layer[3], 0);
    CHECK_STATUS(
        td__graph_place_by_wish(g, &(td__wishes){.places = 2, .wish_of = modulo, .user = &stages}),
        TD_EINVAL);
    CHECK(strstr(td_last_error(), "'net.d.weight' wants place 0 and needs") &&
              strstr(td_last_error(), "of place 1"),
          "%s", td_last_error());
    CHECK(!td_node_place(g, layer[0], -1) && td_graph_status(g) == TD_EINVAL, "place -1");
    td_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places_by_layers),
        cmocka_unit_test(places_by_wish),
        cmocka_unit_test(places_in_a_row_share_a_wish),
        cmocka_unit_test(wishes_in_a_circle_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
