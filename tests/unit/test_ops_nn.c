/* test_ops_nn.c -- the larger operators: what they refuse, what they infer, and the corners of
 * their meaning that neither gradients nor random samples see: ids outside the table, ignored
 * targets, queries that may look at nothing, bags that are empty, states that are left out. Values
 * are worked out by hand. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "ops/attr.h"
#include "support/check.h"
#include "support/node_check.h"
#include "tandem/ops.h"
#include "tandem/program.h"

/* What calls are made on. */
typedef struct world {
    td_graph *g;
    td_node *x;     /* f32 (3, 4) */
    td_node *w;     /* f32 (5, 4) */
    td_node *image; /* f32 (2, 6, 5, 7) */
    td_node *k;     /* f32 (8, 6, 3, 3) */
    td_node *c4, *c6;
    td_node *ids;    /* i32 (3) */
    td_node *q, *kv; /* f32 (2, 5, 4, 8), (2, 9, 2, 8) */
    td_node *seq;    /* f32 (7, 2, 4) */
    td_node *half;   /* bf16 (3, 4) */
} world;

static void open_world(world *w)
{
    CHECK_OK(td_graph_create(&w->g));
    w->x = td_input(w->g, "x", TD_F32, TD_SHAPE(3, 4));
    w->w = td_input(w->g, "w", TD_F32, TD_SHAPE(5, 4));
    w->image = td_input(w->g, "image", TD_F32, TD_SHAPE(2, 6, 5, 7));
    w->k = td_input(w->g, "k", TD_F32, TD_SHAPE(8, 6, 3, 3));
    w->c4 = td_input(w->g, "c4", TD_F32, TD_SHAPE(4));
    w->c6 = td_input(w->g, "c6", TD_F32, TD_SHAPE(6));
    w->ids = td_input(w->g, "ids", TD_I32, TD_SHAPE(3));
    w->q = td_input(w->g, "q", TD_F32, TD_SHAPE(2, 5, 4, 8));
    w->kv = td_input(w->g, "kv", TD_F32, TD_SHAPE(2, 9, 2, 8));
    w->seq = td_input(w->g, "seq", TD_F32, TD_SHAPE(7, 2, 4));
    w->half = td_input(w->g, "half", TD_BF16, TD_SHAPE(3, 4));
    CHECK(!td_graph_status(w->g), "%s", td_graph_error(w->g));
}

/* clang-format off */
#define BAD(NAME, EXPR) static td_node *NAME(world *v) { td_graph *g = v->g; (void)g; return EXPR; }
BAD(matmul_inner, td_matmul(g, v->x, v->w, false, false))
BAD(matmul_vector, td_matmul(g, v->x, v->c4, false, false))
BAD(matmul_batch, td_matmul(g, v->seq, td_input(g, "odd", TD_F32, TD_SHAPE(3, 4, 2)), false, false))
BAD(matmul_dtype, td_matmul(g, v->x, v->half, false, true))
BAD(linear_width, td_linear(g, v->seq, v->k, NULL, TD_ACT_NONE))
BAD(linear_features, td_linear(g, v->w, v->image, NULL, TD_ACT_NONE))
BAD(linear_sizes, td_linear(g, v->c6, v->w, NULL, TD_ACT_NONE))
BAD(linear_bias, td_linear(g, v->x, v->w, v->c6, TD_ACT_NONE))
BAD(linear_act, td_linear(g, v->x, v->w, NULL, (td_act)77))
BAD(conv_channels, td_conv2d(g, v->image, td_input(g, "odd", TD_F32, TD_SHAPE(8, 5, 3, 3)), NULL,
                             NULL))
BAD(conv_groups, td_conv2d(g, v->image, v->k, NULL, &(td_conv2d_opts){.groups = 4}))
BAD(conv_reach, td_conv2d(g, v->image, v->k, NULL, &(td_conv2d_opts){.dilation = {3, 1}}))
BAD(conv_stride, td_conv2d(g, v->image, v->k, NULL, &(td_conv2d_opts){.stride = {1, -2}}))
BAD(conv_bias, td_conv2d(g, v->image, v->k, v->c6, NULL))
BAD(conv_axes, td_conv2d(g, v->x, v->k, NULL, NULL))
BAD(pool_window, td_max_pool2d(g, v->image, &(td_pool2d_opts){.size = {6, 2}}))
BAD(pool_pad, td_avg_pool2d(g, v->image, &(td_pool2d_opts){.size = {2, 2}, .pad = {2, 0}}))
BAD(pool_size, td_max_pool2d(g, v->image, &(td_pool2d_opts){.stride = {1, 1}}))
BAD(pool_options, td_avg_pool2d(g, v->image, NULL))
BAD(global_axes, td_global_avg_pool(g, v->x))
BAD(batch_gamma, td_batch_norm(g, v->image, v->c4, v->c6, NULL, NULL, 0.1, 1e-5))
BAD(batch_running, td_batch_norm(g, v->image, v->c6, v->c6, v->c6, NULL, 0.1, 1e-5))
BAD(batch_momentum, td_batch_norm(g, v->image, v->c6, v->c6, NULL, NULL, 1.5, 1e-5))
BAD(batch_eps, td_batch_norm(g, v->image, v->c6, v->c6, NULL, NULL, 0.1, (double)NAN))
BAD(layer_beta, td_layer_norm(g, v->x, v->c4, v->c6, 1e-5))
BAD(layer_eps, td_layer_norm(g, v->x, v->c4, v->c4, -1))
BAD(rms_gamma, td_rms_norm(g, v->x, v->c6, 1e-5))
BAD(group_count, td_group_norm(g, v->image, v->c6, v->c6, 4, 1e-5))
BAD(softmax_integers, td_softmax(g, v->ids))
BAD(xent_rows, td_softmax_cross_entropy(g, v->w, v->ids, NULL))
BAD(xent_target, td_softmax_cross_entropy(g, v->x, v->x, NULL))
BAD(xent_smoothing, td_softmax_cross_entropy(g, v->x, v->ids, &(td_xent_opts){.smoothing = 2}))
BAD(embedding_ids, td_embedding(g, v->x, v->w, false))
BAD(embedding_table, td_embedding(g, v->ids, v->c4, false))
BAD(bag_offsets, td_embedding_bag(g, v->ids, v->x, v->w, TD_BAG_SUM, false))
BAD(bag_mode, td_embedding_bag(g, v->ids, v->ids, v->w, (td_bag_mode)5, false))
BAD(attention_width, td_attention(g, v->q, v->image, v->image, NULL, NULL))
BAD(attention_heads, td_attention(g, v->kv, v->q, v->q, NULL, NULL))
BAD(attention_v, td_attention(g, v->q, v->kv, v->q, NULL, NULL))
BAD(attention_mask, td_attention(g, v->q, v->kv, v->kv, v->x, NULL))
BAD(attention_scale, td_attention(g, v->q, v->kv, v->kv, NULL,
                                  &(td_attention_opts){.scale = (double)INFINITY}))
BAD(rope_odd, td_rope(g, v->image, 0, 0))
BAD(rope_base, td_rope(g, v->q, -1, 0))
BAD(lstm_axes, td_lstm(g, v->x, NULL, NULL, v->w, v->w, NULL, NULL, NULL, NULL))
BAD(lstm_weight, td_lstm(g, v->seq, NULL, NULL, td_input(g, "odd", TD_F32, TD_SHAPE(12, 4)), v->w,
                         NULL, NULL, NULL, NULL))
BAD(gru_gates, td_gru(g, v->seq, NULL, v->w, v->w, NULL, NULL, NULL))

static const struct {
    td_node *(*make)(world *w);
    refusal want;
} BAD_CALLS[] = {
    {matmul_inner, {"td_matmul", {"4", "(3, 4)", "(5, 4)"}}},
    {matmul_vector, {"td_matmul", {"b", "2 axes", "(4)"}}},
    {matmul_batch, {"td_matmul", {"batch", "(7, 2, 4)", "(3, 4, 2)"}}},
    {matmul_dtype, {"td_matmul", {"bf16", "f32"}}},
    {linear_width, {"td_linear", {"w", "2 axes", "(8, 6, 3, 3)"}}},
    {linear_features, {"td_linear", {"2 axes", "(2, 6, 5, 7)"}}},
    {linear_sizes, {"td_linear", {"w takes 4", "x has 6"}}},
    {linear_bias, {"td_linear", {"b has the shape (6)", "(5)"}}},
    {linear_act, {"td_linear", {"activation 77"}}},
    {conv_channels, {"td_conv2d", {"6 channels", "takes 5"}}},
    {conv_groups, {"td_conv2d", {"6 channels", "4 groups"}}},
    {conv_reach, {"td_conv2d", {"7 rows", "only 5"}}},
    {conv_stride, {"td_conv2d", {"stride -2"}}},
    {conv_bias, {"td_conv2d", {"b has the shape (6)", "(8)"}}},
    {conv_axes, {"td_conv2d", {"4 axes", "(3, 4)"}}},
    {pool_window, {"td_max_pool2d", {"6 rows", "only 5"}}},
    {pool_pad, {"td_avg_pool2d", {"pad 2", "size 2"}}},
    {pool_size, {"td_max_pool2d", {"size 0"}}},
    {pool_options, {"td_avg_pool2d", {"options"}}},
    {global_axes, {"td_global_avg_pool", {"4 axes", "(3, 4)"}}},
    {batch_gamma, {"td_batch_norm", {"gamma", "(4)", "(6)"}}},
    {batch_running, {"td_batch_norm", {"running_var"}}},
    {batch_momentum, {"td_batch_norm", {"momentum is 1.5"}}},
    {batch_eps, {"td_batch_norm", {"eps is nan"}}},
    {layer_beta, {"td_layer_norm", {"beta", "(6)", "(4)"}}},
    {layer_eps, {"td_layer_norm", {"eps is -1"}}},
    {rms_gamma, {"td_rms_norm", {"gamma", "(6)", "(4)"}}},
    {group_count, {"td_group_norm", {"6 channels", "4 groups"}}},
    {softmax_integers, {"td_softmax", {"floating", "i32"}}},
    {xent_rows, {"td_softmax_cross_entropy", {"target", "(3)", "(5)"}}},
    {xent_target, {"td_softmax_cross_entropy", {"target", "i32 or i64"}}},
    {xent_smoothing, {"td_softmax_cross_entropy", {"smoothing is 2"}}},
    {embedding_ids, {"td_embedding", {"ids", "i32 or i64"}}},
    {embedding_table, {"td_embedding", {"table", "2 axes", "(4)"}}},
    {bag_offsets, {"td_embedding_bag", {"offsets", "i32 or i64"}}},
    {bag_mode, {"td_embedding_bag", {"mode 5"}}},
    {attention_width, {"td_attention", {"width 8", "7"}}},
    {attention_heads, {"td_attention", {"4 heads", "2 heads"}}},
    {attention_v, {"td_attention", {"v", "(2, 5, 4, 8)", "(2, 9, 2, 8)"}}},
    {attention_mask, {"td_attention", {"mask", "(3, 4)", "(5, 9)"}}},
    {attention_scale, {"td_attention", {"scale is inf"}}},
    {rope_odd, {"td_rope", {"7", "even"}}},
    {rope_base, {"td_rope", {"-1", "positive"}}},
    {lstm_axes, {"td_lstm", {"3 axes", "(3, 5)"}}},
    {lstm_weight, {"td_lstm", {"(2, 4)", "(2, 3)"}}},
    {gru_gates, {"td_gru", {"5 features", "3 gates"}}},
};
/* clang-format on */

TEST(bad_calls_are_refused)
{
    for (int i = 0; i < TD_LEN(BAD_CALLS); i++) {
        world w;
        open_world(&w);
        node_check_refused(w.g, BAD_CALLS[i].make(&w), &BAD_CALLS[i].want);
        td_graph_destroy(w.g);
    }
}

/* The values of y on the reference backend, as floats; n of them. Inputs "a", "b", "c" of g are
 * given in order. */
static void evaluate(td_graph *g, td_node *y, const void *const *data, const size_t *nbytes,
                     int n_data, float *values, size_t n)
{
    static const char *const NAMES[] = {"a", "b", "c"};
    td_program *p;
    td_params *ps;
    td_runner *r;
    size_t got;

    CHECK(y, "%s", td_graph_error(g));
    td_program_opts opts = {.backend = "ref", .evaluate = true, .outputs = &y, .n_outputs = 1};
    CHECK_OK(td_program_create(g, NULL, &opts, &p));
    CHECK_OK(td_params_create(p, 1, &ps));
    CHECK_OK(td_runner_create(p, ps, &r));
    for (int i = 0; i < n_data; i++)
        CHECK_OK(td_runner_set_input(r, NAMES[i], data[i], nbytes[i]));
    CHECK_OK(td_runner_run(r, (td_run_key){.seed = 1}));
    const float *out = td_runner_output(r, 0, &got);
    CHECK_EQ_INT(got, n * sizeof *values);
    memcpy(values, out, got);
    td_runner_destroy(r);
    td_params_destroy(ps);
    td_program_destroy(p);
    td_graph_destroy(g);
}

static void check_values(const char *what, const float *got, const double *want, int n)
{
    for (int i = 0; i < n; i++)
        CHECK(isnan(want[i]) ? isnan(got[i]) : fabs((double)got[i] - want[i]) < 1e-6,
              "%s: element %d is %g, not %g", what, i, (double)got[i], want[i]);
}

static const float TABLE[] = {1, 2, 3, 4, 5, 6}; /* (3, 2) */

TEST(ids_outside_the_table)
{
    static const int32_t IDS[] = {2, -1, 3, 0};
    static const double WANT[] = {5, 6, 0, 0, (double)NAN, (double)NAN, 1, 2};
    td_graph *g;
    float y[8];

    CHECK_OK(td_graph_create(&g));
    td_node *ids = td_input(g, "a", TD_I32, TD_SHAPE(4));
    td_node *table = td_input(g, "b", TD_F32, TD_SHAPE(3, 2));
    evaluate(g, td_embedding(g, ids, table, false), (const void *[]){IDS, TABLE},
             (size_t[]){sizeof IDS, sizeof TABLE}, 2, y, 8);
    check_values("embedding", y, WANT, 8);
}

TEST(bags)
{
    /* Bags {2, -1, 0}, {} and {1, 1, 2}. */
    static const int64_t IDS[] = {2, -1, 0, 1, 1, 2}, OFFSETS[] = {0, 3, 3};
    static const double WANT[2][6] = {{6, 8, 0, 0, 11, 14}, {3, 4, 0, 0, 11.0 / 3, 14.0 / 3}};
    for (int mode = 0; mode < 2; mode++) {
        td_graph *g;
        float y[6];
        CHECK_OK(td_graph_create(&g));
        td_node *ids = td_input(g, "a", TD_I64, TD_SHAPE(6));
        td_node *offsets = td_input(g, "b", TD_I64, TD_SHAPE(3));
        td_node *table = td_input(g, "c", TD_F32, TD_SHAPE(3, 2));
        evaluate(g, td_embedding_bag(g, ids, offsets, table, (td_bag_mode)mode, false),
                 (const void *[]){IDS, OFFSETS, TABLE},
                 (size_t[]){sizeof IDS, sizeof OFFSETS, sizeof TABLE}, 3, y, 6);
        check_values(mode ? "mean" : "sum", y, WANT[mode], 6);
    }
}

/* Two classes with logits (0, log 3): probabilities 1/4 and 3/4. */
TEST(targets_of_cross_entropy)
{
    static const struct {
        int32_t target[2];
        td_xent_opts opts;
        double loss;
    } CASES[] = {
        {{0, 1}, {.use_ignore = false}, 0.836988216785836}, /* (log 4 + log 4/3) / 2 */
        {{0, -9}, {.use_ignore = true, .ignore_index = -9}, 1.3862943611198906}, /* log 4 */
        {{-9, -9}, {.use_ignore = true, .ignore_index = -9}, 0}, /* nothing counts */
        {{0, 2}, {.use_ignore = false}, (double)NAN},            /* no such class */
        {{0, -1}, {.use_ignore = false}, (double)NAN},
        {{0, 0}, {.smoothing = 1}, 0.836988216785836}, /* only the mean */
    };
    const float logits[] = {0, logf(3), 0, logf(3)};
    for (int i = 0; i < TD_LEN(CASES); i++) {
        td_graph *g;
        float loss;
        CHECK_OK(td_graph_create(&g));
        td_node *x = td_input(g, "a", TD_F32, TD_SHAPE(2, 2));
        td_node *t = td_input(g, "b", TD_I32, TD_SHAPE(2));
        evaluate(g, td_softmax_cross_entropy(g, x, t, &CASES[i].opts),
                 (const void *[]){logits, CASES[i].target},
                 (size_t[]){sizeof logits, sizeof CASES[i].target}, 2, &loss, 1);
        check_values("loss", &loss, &CASES[i].loss, 1);
    }
}

/* One head of width 1, two queries, two keys; the second query may look at nothing. */
TEST(a_query_that_sees_nothing)
{
    static const float Q[] = {1, 1}, KV[] = {2, 2}, MASK[] = {0, 0, -INFINITY, -INFINITY};
    static const double WANT[] = {2, 0};
    td_graph *g;
    float y[2];

    CHECK_OK(td_graph_create(&g));
    td_node *q = td_input(g, "a", TD_F32, TD_SHAPE(1, 2, 1, 1));
    td_node *kv = td_input(g, "b", TD_F32, TD_SHAPE(1, 2, 1, 1));
    td_node *mask = td_input(g, "c", TD_F32, TD_SHAPE(2, 2));
    evaluate(g, td_attention(g, q, kv, kv, mask, NULL), (const void *[]){Q, KV, MASK},
             (size_t[]){sizeof Q, sizeof KV, sizeof MASK}, 3, y, 2);
    check_values("attention", y, WANT, 2);
}

TEST(shapes_and_types_are_inferred)
{
    world v;
    open_world(&v);
    td_graph *g = v.g;
    td_node *w_ih = td_input(g, "w_ih", TD_F32, TD_SHAPE(12, 4));
    td_node *lstm_hh = td_input(g, "lstm_hh", TD_F32, TD_SHAPE(12, 3));
    td_node *gru_hh = td_input(g, "gru_hh", TD_F32, TD_SHAPE(12, 4));
    td_node *h, *c;

    node_check(g, td_matmul(g, v.x, v.w, false, true), TD_F32, TD_SHAPE(3, 5));
    node_check(g, td_linear(g, v.half, v.w, NULL, TD_ACT_GELU), TD_BF16, TD_SHAPE(3, 5));
    node_check(g,
               td_conv2d(g, v.image, v.k, NULL, &(td_conv2d_opts){.stride = {2, 3}, .pad = {1, 0}}),
               TD_F32, TD_SHAPE(2, 8, 3, 2));
    node_check(g, td_max_pool2d(g, v.image, &(td_pool2d_opts){.size = {2, 2}}), TD_F32,
               TD_SHAPE(2, 6, 2, 3));
    node_check(g, td_layer_norm(g, v.half, v.c4, v.c4, 1e-5), TD_BF16, TD_SHAPE(3, 4));
    node_check(g, td_softmax_cross_entropy(g, v.half, v.ids, NULL), TD_F32, TD_SCALAR);
    node_check(g, td_embedding(g, v.ids, v.w, true), TD_F32, TD_SHAPE(3, 4));
    node_check(g, td_attention(g, v.q, v.kv, v.kv, NULL, NULL), TD_F32, TD_SHAPE(2, 5, 4, 8));
    node_check(g, td_lstm(g, v.seq, NULL, NULL, w_ih, lstm_hh, NULL, NULL, &h, &c), TD_F32,
               TD_SHAPE(7, 2, 3));
    node_check(g, h, TD_F32, TD_SHAPE(2, 3));
    node_check(g, c, TD_F32, TD_SHAPE(2, 3));
    node_check(g, td_gru(g, v.seq, NULL, w_ih, gru_hh, NULL, NULL, &h), TD_F32, TD_SHAPE(7, 2, 4));
    node_check(g, h, TD_F32, TD_SHAPE(2, 4));
    CHECK_OK(td_graph_verify(g));
    td_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_calls_are_refused),
        cmocka_unit_test(ids_outside_the_table),
        cmocka_unit_test(bags),
        cmocka_unit_test(targets_of_cross_entropy),
        cmocka_unit_test(a_query_that_sees_nothing),
        cmocka_unit_test(shapes_and_types_are_inferred),
    };
    return cmocka_run_group_tests_name("ops_nn", tests, NULL, NULL);
}
