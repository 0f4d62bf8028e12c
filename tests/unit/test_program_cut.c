/* Programs cut by place: the pieces, run one after the other with the edges handed over, give the
 * bits of the whole. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "graph/cost.h"
#include "graph/cut.h"
#include "graph/phases.h"
#include "graph/place_by_cost.h"
#include "graph/program_impl.h"
#include "graph/runner.h"
#include "support/check.h"
#include "support/nets.h"
#include "tandem/alloc.h"

enum { MOST_PIECES = 8 };

static td_program *build(const net *n, td_dtype precision, int places)
{
    td_program_opts opts = {.precision = precision};
    td_graph *g;
    td_program *p;
    CHECK_OK(td_graph_create(&g));
    td_node *loss = n->build(g);
    net_place(g, places);
    CHECK_OK((places > 1 ? td__program_create_phased : td_program_create)(g, loss, &opts, &p));
    td_graph_destroy(g);
    return p;
}

/* The pieces of a cut on the params of the whole, with one block of gradients. */
typedef struct pipeline {
    td__cut *cut;
    td_runner *r[MOST_PIECES];
    float *grads;
} pipeline;

static void pipeline_start(pipeline *x, td__cut *cut, td_params *ps)
{
    *x = (pipeline){.cut = cut};
    CHECK(cut->n_pieces <= MOST_PIECES, "%d pieces", cut->n_pieces);
    for (int i = 0; i < cut->n_pieces; i++) {
        size_t count;
        CHECK_OK(td_runner_create(cut->pieces[i].program, ps, &x->r[i]));
        td_runner_grads(x->r[i], &count);
        if (!x->grads)
            x->grads = calloc(count, sizeof *x->grads);
        td__runner_set_grads(x->r[i], x->grads);
    }
}

static void pipeline_stop(pipeline *x)
{
    for (int i = 0; i < x->cut->n_pieces; i++)
        td_runner_destroy(x->r[i]);
    free(x->grads);
}

/* Nothing may be read before it was made and sent: unset values are far off. */
static void spoil_edges(pipeline *x)
{
    for (int e = 0; e < x->cut->n_edges; e++) {
        size_t nbytes;
        void *at = td_runner_input(x->r[x->cut->edges[e].to], x->cut->edges[e].name, &nbytes);
        CHECK(at && nbytes == x->cut->edges[e].nbytes, "edge %s", x->cut->edges[e].name);
        memset(at, 0x4b, nbytes);
    }
}

static void send_edges(pipeline *x, int from, td_run_phase phase)
{
    const td__piece *piece = &x->cut->pieces[from];
    for (int i = 0; i < piece->n_out; i++) {
        const td__edge *e = &x->cut->edges[piece->out[i]];
        size_t nbytes;
        if (e->made != phase)
            continue;
        const void *value = td__runner_edge(x->r[from], piece->out[i], &nbytes);
        CHECK(value, "edge %s is not made by piece %d", e->name, from);
        CHECK_OK(td_runner_set_input(x->r[e->to], e->name, value, nbytes));
    }
}

static void pipeline_run(pipeline *x, td_run_key key)
{
    int n = x->cut->n_pieces;
    spoil_edges(x);
    for (int phase = 0; phase < TD_RUN_PHASE_COUNT; phase++)
        for (int k = 0; k < n; k++) {
            int i = phase == TD_RUN_FORWARD ? k : n - 1 - k;
            CHECK_OK(td__runner_run_phase(x->r[i], (td_run_phase)phase, key));
            send_edges(x, i, (td_run_phase)phase);
        }
}

/* Inputs have no edges: every piece that reads one gets it. */
static void fill(const net *n, const pipeline *x, td_runner *whole)
{
    static const char *const NAMES[] = {"x", "y"};
    net_fill(n, whole, 1);
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < x->cut->n_pieces; i++) {
            size_t nbytes;
            const void *from = td_runner_input(whole, NAMES[k], &nbytes);
            if (td_runner_input(x->r[i], NAMES[k], NULL))
                CHECK_OK(td_runner_set_input(x->r[i], NAMES[k], from, nbytes));
        }
}

static void check_pieces(const net *n, td_dtype precision, int places)
{
    td_program *p = build(n, precision, 1), *phased = build(n, precision, places);
    td_params *ps;
    td_runner *whole;
    td_optimizer *o;
    td__cut *cut;
    pipeline x;
    CHECK_OK(td_params_create(p, 7, &ps));
    CHECK_OK(td_runner_create(p, ps, &whole));
    CHECK_OK(td_optimizer_create(&(td_optim_opts){.name = n->optimizer}, ps, &o));
    CHECK_OK(td__program_cut(phased, &cut));
    td_program_destroy(phased);
    CHECK_EQ_INT(cut->n_pieces, places);
    pipeline_start(&x, cut, ps);
    fill(n, &x, whole);
    for (unsigned step = 0; step < 3; step++) {
        td_run_key key = {.seed = 3, .step = step, .micro_batch = 1};
        size_t count;
        const float *want = td_runner_grads(whole, &count);
        CHECK_OK(td_runner_run(whole, key));
        pipeline_run(&x, key);
        float a = td_runner_loss(whole), b = td_runner_loss(x.r[places - 1]);
        CHECK(!memcmp(&a, &b, sizeof a), "%s in %d: losses %.9g and %.9g", n->name, places,
              (double)a, (double)b);
        for (size_t i = 0; i < count; i++)
            CHECK(!memcmp(&want[i], &x.grads[i], sizeof *want),
                  "%s in %d, step %u: gradient %zu is %.9g and %.9g", n->name, places, step, i,
                  (double)want[i], (double)x.grads[i]);
        CHECK_OK(td_optimizer_step(o, whole, 0.01));
    }
    pipeline_stop(&x);
    td__cut_destroy(cut);
    td_optimizer_destroy(o);
    td_runner_destroy(whole);
    td_params_destroy(ps);
    td_program_destroy(p);
}

TEST(pieces_give_the_bits_of_the_whole)
{
    static const td_dtype PRECISIONS[] = {TD_F32, TD_BF16};
    for (int i = 0; i < N_NETS; i++)
        for (int k = 0; k < 2; k++)
            for (int places = 2; places <= 4; places++)
                check_pieces(&NETS[i], PRECISIONS[k], places);
}

/* Every step is in one piece, every element of the params has one owner, and edges say which way
 * they go. */
TEST(pieces_cover_the_program)
{
    for (int i = 0; i < N_NETS; i++) {
        td_program *p = build(&NETS[i], TD_F32, 4);
        size_t total = p->trainable + p->states;
        unsigned char *owners = calloc(total, 1);
        td__cut *cut;
        int steps = 0, up = 0, down = 0;
        CHECK_OK(td__program_cut(p, &cut));
        for (int k = 0; k < cut->n_pieces; k++) {
            const td__piece *piece = &cut->pieces[k];
            CHECK_EQ_INT(piece->place, k);
            steps += td_program_node_count(piece->program);
            CHECK(piece->activations > 0 &&
                      piece->activations < td_program_memory(p).activations_unshared,
                  "%s: piece %d: %zu bytes", NETS[i].name, k, piece->activations);
            for (int r = 0; r < piece->n_params; r++) {
                CHECK(piece->params[r].begin < piece->params[r].end &&
                          piece->params[r].end <= total,
                      "range %zu to %zu", piece->params[r].begin, piece->params[r].end);
                for (size_t at = piece->params[r].begin; at < piece->params[r].end; at++)
                    owners[at]++;
            }
        }
        CHECK_EQ_INT(steps, td_program_node_count(p));
        for (size_t at = 0; at < total; at++)
            CHECK(owners[at] == 1, "%s: element %zu has %d owners", NETS[i].name, at, owners[at]);
        for (int e = 0; e < cut->n_edges; e++) {
            up += cut->edges[e].to > cut->edges[e].from;
            down += cut->edges[e].to < cut->edges[e].from;
            CHECK(cut->edges[e].made <= cut->edges[e].needed, "edge %s", cut->edges[e].name);
        }
        CHECK(up >= 3 && down >= 3, "%s: %d edges up, %d down", NETS[i].name, up, down);
        td__cut_destroy(cut);
        td_program_destroy(p);
        free(owners);
    }
}

/* Tied weights: the last piece reads the table, the first adds up its gradient and updates it. */
TEST(tied_weights_have_one_owner)
{
    const net *gpt = &NETS[N_NETS - 1];
    CHECK(!strcmp(gpt->name, "gpt"), "the last net is %s", gpt->name);
    td_program *p = build(gpt, TD_F32, 3);
    td__cut *cut;
    bool sent = false;
    CHECK_OK(td__program_cut(p, &cut));
    const td__piece *last = &cut->pieces[2];
    CHECK_EQ_INT(last->n_shared, 1);
    CHECK_EQ_INT(last->shared[0].end - last->shared[0].begin, 19 * 32);
    for (int k = 0; k < last->n_out; k++) {
        const td__edge *e = &cut->edges[last->out[k]];
        sent = sent || (e->to == 0 && e->made == TD_RUN_WEIGHT && e->nbytes == 19 * 32 * 4);
    }
    CHECK(sent, "the gradient of the table is not sent to its place");
    td__cut_destroy(cut);
    td_program_destroy(p);
}

TEST(values_against_the_order_are_refused)
{
    td_graph *g;
    td_program *p;
    td__cut *cut;
    CHECK_OK(td_graph_create(&g));
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(4, 4));
    td__graph_set_place(g, 1);
    td_node *h = td_named(g, td_nn_linear(g, "up", x, 4, NULL), "high");
    td__graph_set_place(g, 0);
    h = td_named(g, td_nn_linear(g, "down", h, 4, NULL), "low");
    td_node *loss = td_mean(g, td_square(g, h), NULL, 0, false);
    CHECK_OK(td__program_create_phased(g, loss, NULL, &p));
    CHECK_STATUS(td__program_cut(p, &cut), TD_EINVAL);
    CHECK(strstr(td_last_error(), "'low'") && strstr(td_last_error(), "'high'") && !cut, "%s",
          td_last_error());
    td_program_destroy(p);
    CHECK_OK(td_program_create(g, loss, NULL, &p));
    CHECK_STATUS(td__program_cut(p, &cut), TD_EINVAL); /* not phased */
    td_program_destroy(p);
    td_graph_destroy(g);
}

/* Work on params alone does not grow with the rows: where it is most of the work, the boundary lies
 * elsewhere. */
static td_graph *build_heavy_head(int64_t rows, td_node **loss)
{
    td_graph *g;
    CHECK_OK(td_graph_create(&g));
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(rows, 16));
    td_node *w = td_param(g, "w", TD_SHAPE(16, 16), (td_init){0});
    for (int i = 0; i < 8; i++)
        w = td_square(g, w);
    x = td_linear(g, x, w, NULL, TD_ACT_NONE);
    for (int i = 0; i < 6; i++) {
        char name[16];
        snprintf(name, sizeof name, "fc%d", i);
        x = td_nn_linear(g, name, x, 16, NULL);
    }
    *loss = td_mean(g, td_square(g, x), NULL, 0, false);
    CHECK_OK(td_graph_status(g));
    return g;
}

TEST(places_do_not_depend_on_rows)
{
    td_node *loss;
    td_graph *few = build_heavy_head(1, &loss);
    int differ = 0;
    CHECK_OK(td__graph_place_by_cost(few, loss, &(td__stages){.places = 2}));
    td_graph *many = build_heavy_head(512, &loss);
    CHECK_OK(td__graph_place_by_cost(many, loss, &(td__stages){.places = 2}));
    for (int i = 0; i < few->n_nodes; i++)
        differ += few->nodes[i]->place != many->nodes[i]->place;
    CHECK(differ > 0, "both are cut at the same place by themselves");
    CHECK_OK(td__graph_place_as(few, many));
    for (int i = 0; i < few->n_nodes; i++)
        CHECK_EQ_INT(few->nodes[i]->place, many->nodes[i]->place);
    td_node *x = td_input(few, "more", TD_F32, TD_SHAPE(1));
    CHECK(x, "%s", td_graph_error(few));
    CHECK_STATUS(td__graph_place_as(few, many), TD_ENOTSUP);
    td_graph_destroy(few);
    td_graph_destroy(many);
}

static int in_turn(void *user, int place)
{
    (void)user;
    return place % 2;
}

static int as_a_v(void *user, int place)
{
    (void)user;
    return place < 2 ? place : 3 - place;
}

/* Six equal layers in four places cannot be even; two stages with two places each can. */
TEST(stages_are_even_where_places_are_not)
{
    int (*const way[])(void *, int) = {in_turn, as_a_v};
    for (int w = 0; w < 2; w++) {
        int layers[2] = {0, 0};
        td_graph *g;
        CHECK_OK(td_graph_create(&g));
        td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(8, 16));
        for (int i = 0; i < 6; i++) {
            char name[16];
            snprintf(name, sizeof name, "fc%d", i);
            x = td_nn_linear(g, name, x, 16, NULL);
        }
        td_node *loss = td_mean(g, td_square(g, x), NULL, 0, false);
        CHECK_OK(td__graph_place_by_cost(g, loss, &(td__stages){.places = 4, .stage_of = way[w]}));
        for (int i = 0; i < g->n_nodes; i++)
            if (g->nodes[i]->op == TD_OP_LINEAR)
                layers[way[w](NULL, g->nodes[i]->place)]++;
        CHECK_EQ_INT(layers[0], 3);
        CHECK_EQ_INT(layers[1], 3);
        td_graph_destroy(g);
    }
}

/* ---- By the table: against all cuts ---------------------------------------------------------- */

enum { CHAIN = 9 };

/* Layers of unlike work and width, some of which are read twice. */
static td_graph *build_chain(uint64_t seed, td_node *layer[CHAIN], td_node **loss)
{
    td__rng_key key = {.seed = seed};
    td_graph *g;
    CHECK_OK(td_graph_create(&g));
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(16, 24));
    for (int i = 0; i < CHAIN; i++) {
        char name[16];
        snprintf(name, sizeof name, "fc%d", i);
        layer[i] = td_nn_linear(g, name, x, 4 + (int)(td__rng_u32(&key, (uint64_t)i) % 60), NULL);
        x = td_relu(g, layer[i]);
    }
    *loss = td_mean(g, td_square(g, x), NULL, 0, false);
    CHECK_OK(td_graph_status(g));
    return g;
}

/* Of layers [0, CHAIN): work of the largest place, and bytes that cross. Nodes of a layer follow
 * it. */
static void look_at(td_graph *g, td_node *const layer[CHAIN], const int *place, int places,
                    double *most, double *bytes)
{
    double load[4] = {0};
    for (int i = 0; i < g->n_nodes; i++) {
        int k = 0;
        while (k + 1 < CHAIN && layer[k + 1]->id <= i)
            k++;
        load[place[k]] += td__is_leaf(g->nodes[i]) ? 0 : td__node_work(g, i);
    }
    *most = *bytes = 0;
    for (int p = 0; p < places; p++)
        *most = load[p] > *most ? load[p] : *most;
    for (int k = 1; k < CHAIN; k++)
        if (place[k] != place[k - 1])
            *bytes += (double)td_shape_count(&layer[k - 1]->out[0].shape) * 4;
}

static double narrowest_of(td_node *const layer[CHAIN])
{
    double least = 0;
    for (int k = 0; k + 1 < CHAIN; k++) {
        double bytes = (double)td_shape_count(&layer[k]->out[0].shape) * 4;
        least = !k || bytes < least ? bytes : least;
    }
    return least;
}

/* The trade that place_by_cost.c makes between the two. */
static double worth_of(td_graph *g, td_node *const layer[CHAIN], const int *place, int places)
{
    double most, bytes, all, none;
    static const int ONE[CHAIN];
    look_at(g, layer, place, places, &most, &bytes);
    look_at(g, layer, ONE, 1, &all, &none);
    return most * places / all + 0.03 * bytes / narrowest_of(layer);
}

TEST(no_cut_is_better_than_the_one_by_cost)
{
    for (uint64_t seed = 1; seed <= 60; seed++) {
        int places = 2 + (int)(seed % 3), got[CHAIN], tried = 0;
        td_node *layer[CHAIN], *loss;
        td_graph *g = build_chain(seed, layer, &loss);
        CHECK_OK(td__graph_place_by_cost(g, loss, &(td__stages){.places = places}));
        for (int k = 0; k < CHAIN; k++)
            got[k] = layer[k]->place;
        double ours = worth_of(g, layer, got, places), best = ours;
        for (int cuts = 0; cuts < 1 << (CHAIN - 1); cuts++) {
            int place[CHAIN] = {0};
            for (int k = 1; k < CHAIN; k++)
                place[k] = place[k - 1] + (cuts >> (k - 1) & 1);
            if (place[CHAIN - 1] != places - 1)
                continue;
            double w = worth_of(g, layer, place, places);
            best = w < best ? w : best;
            tried++;
        }
        CHECK(tried >= CHAIN - 1 && ours <= best * (1 + 1e-6),
              "seed %llu, %d places: %g, and there is a cut of %g", (unsigned long long)seed,
              places, ours, best);
        td_graph_destroy(g);
    }
}

/* Where the largest stage is one layer, and the others are cut where few bytes cross: not so that
 * one of them has the params of nearly all. */
TEST(no_stage_has_more_memory_than_the_mean_and_a_layer)
{
    enum { WIDTH = 256, ROWS = 2, WORK = 150, PLACES = 3 };
    const double matrix = 4.0 * WIDTH * WIDTH, row = 4.0 * ROWS * WIDTH;
    td_graph *g;
    double bytes[PLACES] = {0}, all = 0;
    CHECK_OK(td_graph_create(&g));
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(ROWS, WIDTH));
    for (int i = 0; i < CHAIN; i++) {
        char name[16];
        snprintf(name, sizeof name, "fc%d", i);
        x = td_nn_linear(g, name, x, i == CHAIN - 2 ? 3 * WIDTH / 4 : WIDTH, NULL);
        for (int k = 0; !i && k < WORK; k++)
            x = td_tanh(g, x);
    }
    td_node *loss = td_mean(g, td_square(g, x), NULL, 0, false);
    CHECK_OK(td__graph_place_by_cost(g, loss, &(td__stages){.places = PLACES}));
    for (int i = 0; i < g->n_nodes; i++) {
        const td_node *n = g->nodes[i];
        double size = (double)td_shape_count(&n->out[0].shape) * 4;
        size *= n->op == TD_OP_PARAM ? 4 : td__is_leaf(n) ? 0 : PLACES - n->place;
        bytes[n->place] += size;
        all += size;
    }
    for (int s = 0; s < PLACES; s++)
        CHECK(bytes[s] <= 1.05 * (all / PLACES + 4 * matrix + PLACES * WORK * row),
              "stage %d has %g of %g bytes", s, bytes[s], all);
    td_graph_destroy(g);
}

TEST(any_allocation_of_a_cut_may_fail)
{
    td_program *p = build(&NETS[N_NETS - 1], TD_BF16, 3);
    td__cut *cut;
    uint64_t first = td_alloc_get_stats().calls;
    CHECK_OK(td__program_cut(p, &cut));
    td__cut_destroy(cut);
    uint64_t total = td_alloc_get_stats().calls - first, live = td_alloc_get_stats().live;
    for (uint64_t nth = 1; nth <= total; nth += total / 300 + 1) {
        td_alloc_fail_at(nth);
        td_status st = td__program_cut(p, &cut);
        td_alloc_fail_at(0);
        CHECK(st == TD_ENOMEM && !cut, "allocation %llu of %llu: %s", (unsigned long long)nth,
              (unsigned long long)total, td_status_name(st));
        CHECK(td_alloc_get_stats().live == live, "allocation %llu leaves something behind",
              (unsigned long long)nth);
    }
    td_program_destroy(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_give_the_bits_of_the_whole),
        cmocka_unit_test(pieces_cover_the_program),
        cmocka_unit_test(tied_weights_have_one_owner),
        cmocka_unit_test(values_against_the_order_are_refused),
        cmocka_unit_test(places_do_not_depend_on_rows),
        cmocka_unit_test(no_cut_is_better_than_the_one_by_cost),
        cmocka_unit_test(no_stage_has_more_memory_than_the_mean_and_a_layer),
        cmocka_unit_test(stages_are_even_where_places_are_not),
        cmocka_unit_test(any_allocation_of_a_cut_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
