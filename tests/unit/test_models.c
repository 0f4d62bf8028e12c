/* Every ready-made model and layer: it builds, its graph obeys the rules, its params have PyTorch's
 * names and number, it becomes a training program and an evaluation program (null backend), and bad
 * options give one line that names the call. Small ones also train: three steps lower the loss. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Test labels: one-thread */
#include "support/check.h"

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "tandem/alloc.h"
#include "tandem/tandem.h"

/* ---- Models ---------------------------------------------------------------------------------- */

static td_node *image(td_graph *g, int64_t n, int64_t c, int64_t size)
{
    return td_input(g, "x", TD_F32, TD_SHAPE(n, c, size, size));
}

static td_node *build_mlp(td_graph *g)
{
    return td_model_mlp(g, image(g, 4, 1, 28), NULL);
}

static td_node *build_mlp_deep(td_graph *g)
{
    static const int64_t WIDTHS[] = {7, 6, 5, 3};
    td_mlp_opts o = {.widths = WIDTHS, .n_widths = 4, .act = TD_ACT_GELU, .dropout = 0.1};
    return td_model_mlp(g, td_input(g, "x", TD_F32, TD_SHAPE(4, 10)), &o);
}

static td_node *build_cnn(td_graph *g)
{
    return td_model_cnn(g, image(g, 4, 1, 28), &(td_cnn_opts){.dropout = 0.25});
}

static td_node *build_lenet5(td_graph *g)
{
    return td_model_lenet5(g, image(g, 4, 1, 28), NULL);
}

static td_node *build_resnet18(td_graph *g)
{
    return td_model_resnet(g, image(g, 1, 3, 224), NULL);
}

static td_node *build_resnet34(td_graph *g)
{
    return td_model_resnet(g, image(g, 1, 3, 224), &(td_resnet_opts){.depth = 34});
}

static td_node *build_resnet50(td_graph *g)
{
    return td_model_resnet(g, image(g, 1, 3, 224), &(td_resnet_opts){.depth = 50});
}

static td_node *build_resnet18_cifar(td_graph *g)
{
    td_resnet_opts o = {.cifar_stem = true, .zero_init_residual = true};
    return td_model_resnet(g, image(g, 2, 3, 32), &o);
}

static td_node *build_resnet_narrow(td_graph *g)
{
    td_resnet_opts o = {.cifar_stem = true, .width = 8};
    return td_model_resnet(g, image(g, 4, 3, 16), &o);
}

static td_node *ids(td_graph *g, int64_t a, int64_t b)
{
    return td_input(g, "ids", TD_I32, TD_SHAPE(a, b));
}

static td_node *build_lstm(td_graph *g)
{
    td_lstm_lm_opts o = {.vocab = 50, .width = 20, .hidden = 30, .dropout = 0.1};
    return td_model_lstm_lm(g, ids(g, 7, 3), &o);
}

static td_node *build_lstm_tied(td_graph *g)
{
    td_lstm_lm_opts o = {.vocab = 50, .width = 30, .hidden = 30, .layers = 1, .tied = true};
    return td_model_lstm_lm(g, ids(g, 7, 3), &o);
}

static td_node *build_text(td_graph *g)
{
    td_text_classifier_opts o = {.vocab = 100, .width = 8, .sparse = true};
    return td_model_text_classifier(g, td_input(g, "ids", TD_I32, TD_SHAPE(20)),
                                    td_input(g, "offsets", TD_I32, TD_SHAPE(4)), &o);
}

static td_node *build_gpt2(td_graph *g)
{
    return td_model_gpt2(g, ids(g, 1, 64), NULL);
}

static td_node *build_gpt_small(td_graph *g)
{
    td_gpt2_opts o = {.layers = 2, .heads = 2, .width = 16, .vocab = 40, .context = 12};
    o.dropout = 0.1;
    o.untied = true;
    return td_model_gpt2(g, ids(g, 2, 12), &o);
}

static td_node *build_encoder(td_graph *g)
{
    td_encoder_opts o = {.layers = 2, .heads = 2, .width = 16, .vocab = 40, .context = 12};
    return td_model_encoder(g, ids(g, 3, 9), &o);
}

static td_node *build_encoder_mean(td_graph *g)
{
    td_encoder_opts o = {.layers = 2,
                         .heads = 2,
                         .width = 16,
                         .vocab = 40,
                         .context = 9,
                         .pre_norm = true,
                         .dropout = 0.1,
                         .classes = 5,
                         .pool = TD_POOL_MEAN,
                         .act = TD_ACT_RELU,
                         .ff = 24};
    o.mask = td_constant(g, TD_F32, TD_SHAPE(9, 9), NULL);
    return td_model_encoder(g, ids(g, 3, 9), &o);
}

/* What the number of params must be: known totals of torchvision and HuggingFace, or sums written
 * out. A param that must exist, with its shape. */
static const struct {
    const char *name;
    td_node *(*build)(td_graph *g);
    int64_t params;
    const char *param;
    td_shape shape;
    bool small; /* train it for three steps */
} MODELS[] = {
    {"mlp", build_mlp, 784 * 512 + 512 + 512 * 256 + 256 + 2570, "fc2.weight", {2, {256, 512}}, 1},
    {"mlp_deep", build_mlp_deep, 77 + 48 + 35 + 18, "fc4.bias", {1, {3}}, 1},
    {"cnn", build_cnn, 1199882, "conv2.weight", {4, {64, 32, 3, 3}}, 1},
    {"lenet5", build_lenet5, 61706, "fc1.weight", {2, {120, 400}}, 1},
    {"resnet18", build_resnet18, 11689512, "layer2.0.downsample.0.weight", {4, {128, 64, 1, 1}}, 0},
    {"resnet34", build_resnet34, 21797672, "layer3.5.bn2.running_var", {1, {256}}, 0},
    {"resnet50", build_resnet50, 25557032, "layer4.2.conv3.weight", {4, {2048, 512, 1, 1}}, 0},
    {"resnet18_cifar", build_resnet18_cifar, 11173962, "conv1.weight", {4, {64, 3, 3, 3}}, 0},
    {"resnet_narrow", build_resnet_narrow, 176402, "layer1.0.bn1.weight", {1, {8}}, 1},
    {"lstm",
     build_lstm,
     1000 + 120 * 50 + 240 + 120 * 60 + 240 + 1550,
     "rnn.weight_hh_l1",
     {2, {120, 30}},
     1},
    {"lstm_tied", build_lstm_tied, 1500 + 120 * 60 + 240 + 50, "decoder.bias", {1, {50}}, 1},
    {"text", build_text, 800 + 36, "embedding.weight", {2, {100, 8}}, 1},
    {"gpt2", build_gpt2, 124439808, "transformer.h.11.attn.c_attn.weight", {2, {2304, 768}}, 0},
    {"gpt_small",
     build_gpt_small,
     2 * 640 + 192 + 2 * (12 * 256 + 13 * 16) + 32,
     "lm_head.weight",
     {2, {40, 16}},
     1},
    {"encoder",
     build_encoder,
     640 + 192 + 2 * (12 * 256 + 13 * 16) + 34,
     "layers.1.self_attn.in_proj_weight",
     {2, {48, 16}},
     1},
    {"encoder_mean",
     build_encoder_mean,
     640 + 144 + 2 * (4 * 256 + 64 + 24 * 33 + 16 + 64) + 32 + 85,
     "layers.0.linear1.weight",
     {2, {24, 16}},
     1},
};

/* A loss on top of logits (..., C), with targets as an input. */
static td_node *loss_of(td_graph *g, td_node *logits)
{
    td_shape s = td_node_shape(logits);
    s.ndim--;
    return td_softmax_cross_entropy(g, logits, td_input(g, "target", TD_I32, s), NULL);
}

TEST(models_have_the_known_number_of_params)
{
    for (int i = 0; i < TD_LEN(MODELS); i++) {
        td_graph *g;
        CHECK_OK(td_graph_create(&g));
        td_node *logits = MODELS[i].build(g);
        CHECK(logits, "%s: %s", MODELS[i].name, td_graph_error(g));
        td_node *loss = loss_of(g, logits);
        CHECK_OK(td_graph_verify(g));

        td_program_opts train = {.backend = "null"};
        td_program_opts eval = {
            .backend = "null", .evaluate = true, .outputs = &logits, .n_outputs = 1};
        td_program *p, *e;
        CHECK_OK(td_program_create(g, loss, &train, &p));
        CHECK_OK(td_program_create(g, NULL, &eval, &e));
        CHECK(td_program_memory(e).activations <= td_program_memory(p).activations,
              "%s: evaluation needs more memory than training", MODELS[i].name);
        td_node *leaf = td_graph_find(g, MODELS[i].param);
        CHECK(leaf, "%s has no param %s", MODELS[i].name, MODELS[i].param);
        td_shape shape = td_node_shape(leaf);
        CHECK(td_shape_equal(&shape, &MODELS[i].shape), "%s: shape of %s", MODELS[i].name,
              MODELS[i].param);

        td_params *ps;
        CHECK_OK(td_params_create(p, 1, &ps));
        int64_t count = 0;
        for (int k = 0; k < td_params_count(ps); k++) {
            td_param_info info = td_params_info(ps, k);
            CHECK(!strchr(info.name, '/'), "%s: param %s", MODELS[i].name, info.name);
            count += info.is_state ? 0 : (int64_t)info.count;
        }
        CHECK(count == MODELS[i].params, "%s has %lld params, not %lld", MODELS[i].name,
              (long long)count, (long long)MODELS[i].params);
        td_params_destroy(ps);
        td_program_destroy(e);
        td_program_destroy(p);
        td_graph_destroy(g);
    }
}

static void fill_inputs(td_runner *r, int classes)
{
    size_t nbytes;
    float *x = td_runner_input(r, "x", &nbytes);
    for (size_t k = 0; x && k < nbytes / sizeof *x; k++)
        x[k] = (float)(k * 7919 % 101) / 50.0f - 1.0f;
    int32_t *id = td_runner_input(r, "ids", &nbytes);
    for (size_t k = 0; id && k < nbytes / sizeof *id; k++)
        id[k] = (int32_t)(k * 13 % 37);
    int32_t *offset = td_runner_input(r, "offsets", &nbytes);
    for (size_t k = 0; offset && k < nbytes / sizeof *offset; k++)
        offset[k] = (int32_t)(5 * k);
    int32_t *target = td_runner_input(r, "target", &nbytes);
    for (size_t k = 0; k < nbytes / sizeof *target; k++)
        target[k] = (int32_t)(k % (size_t)classes);
}

TEST(small_models_learn)
{
    for (int i = 0; i < TD_LEN(MODELS); i++) {
        if (!MODELS[i].small)
            continue;
        td_graph *g;
        td_program *p;
        td_params *ps;
        td_runner *r;
        td_optimizer *o;
        CHECK_OK(td_graph_create(&g));
        td_node *logits = MODELS[i].build(g);
        td_shape s = td_node_shape(logits);
        CHECK_OK(td_program_create(g, loss_of(g, logits), NULL, &p));
        CHECK_OK(td_params_create(p, 1, &ps));
        CHECK_OK(td_runner_create(p, ps, &r));
        CHECK_OK(td_optimizer_create(&(td_optim_opts){.name = "adam"}, ps, &o));
        fill_inputs(r, (int)s.dim[s.ndim - 1]);
        float first = 0, last = 0;
        for (uint32_t t = 0; t < 4; t++) {
            CHECK_OK(td_runner_run(r, (td_run_key){.seed = 1, .step = 0}));
            last = td_runner_loss(r);
            first = t ? first : last;
            CHECK_OK(td_optimizer_step(o, r, 0.003));
        }
        double chance = log((double)s.dim[s.ndim - 1]);
        CHECK(isfinite(first) && (double)first < 3 * chance + 1, "%s starts at %g", MODELS[i].name,
              (double)first);
        CHECK(last < first, "%s: loss %g, then %g", MODELS[i].name, (double)first, (double)last);
        td_optimizer_destroy(o);
        td_runner_destroy(r);
        td_params_destroy(ps);
        td_program_destroy(p);
        td_graph_destroy(g);
    }
}

/* ---- Layers and start values ----------------------------------------------------------------- */

static void check_shape(const char *what, const td_node *n, td_shape want)
{
    char got_text[128], want_text[128];
    CHECK(n, "%s: no node", what);
    td_shape got = td_node_shape(n);
    CHECK(td_shape_equal(&got, &want), "%s gives %s, not %s", what,
          td_shape_text(&got, got_text, sizeof got_text),
          td_shape_text(&want, want_text, sizeof want_text));
}

TEST(layers_give_shapes)
{
    td_graph *g;
    td_node *h[2] = {0}, *c[2] = {0}, *table = NULL;
    CHECK_OK(td_graph_create(&g));
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(2, 6, 8));
    td_node *im = td_input(g, "im", TD_F32, TD_SHAPE(2, 6, 9, 9));
    td_node *id = td_input(g, "id", TD_I32, TD_SHAPE(4));
    td_nn_conv2d_opts conv = {.conv = {.stride = {2, 2}, .pad = {1, 1}, .groups = 3},
                              .no_bias = true};
    td_nn_rnn_opts two = {.layers = 2, .dropout = 0.5, .h_last = h, .c_last = c};
    td_nn_embedding_opts tie = {.table = &table};

    check_shape("linear", td_nn_linear(g, "fc", x, 5, NULL), TD_SHAPE(2, 6, 5));
    check_shape("conv2d", td_nn_conv2d(g, "conv", im, 12, 3, &conv), TD_SHAPE(2, 12, 5, 5));
    check_shape("group_norm", td_nn_group_norm(g, "gn", im, 2, NULL), TD_SHAPE(2, 6, 9, 9));
    check_shape("rms_norm", td_nn_rms_norm(g, "rms", x, NULL), TD_SHAPE(2, 6, 8));
    check_shape("lstm", td_nn_lstm(g, "lstm", x, 7, &two), TD_SHAPE(2, 6, 7));
    check_shape("lstm h", h[1], TD_SHAPE(6, 7));
    check_shape("lstm c", c[0], TD_SHAPE(6, 7));
    check_shape("gru", td_nn_gru(g, "gru", x, 7, NULL), TD_SHAPE(2, 6, 7));
    check_shape("embedding", td_nn_embedding(g, "e", id, 10, 3, &tie), TD_SHAPE(4, 3));
    check_shape("table", table, TD_SHAPE(10, 3));
    check_shape("attention", td_nn_multi_head_attention(g, "mha", x, 2, NULL), TD_SHAPE(2, 6, 8));
    check_shape("block", td_nn_transformer_block(g, "block", x, 4, NULL), TD_SHAPE(2, 6, 8));
    CHECK(td_nn_dropout(g, x, 0) == x, "dropout 0 adds a node");
    CHECK(td_graph_find(g, "gru.weight_ih_l0"), "no gru.weight_ih_l0");
    CHECK(td_graph_find(g, "block.self_attn.out_proj.bias"), "no out_proj.bias");
    CHECK(!td_graph_find(g, "conv.bias"), "conv.bias although no_bias");
    CHECK_OK(td_graph_status(g));
    CHECK_OK(td_graph_verify(g));
    td_graph_destroy(g);
}

static double deviation(td_params *ps, const char *name)
{
    td_param_info info = td_params_info(ps, td_params_find(ps, name));
    const float *x = td_params_block(ps, NULL) + info.offset;
    double s = 0;
    for (size_t k = 0; k < info.count; k++)
        s += (double)x[k] * (double)x[k];
    return sqrt(s / (double)info.count);
}

/* Root mean squares from the layers' documented distributions. */
TEST(start_values)
{
    static const struct {
        td_node *(*build)(td_graph *g);
        const char *param;
        double want;
    } STARTS[] = {
        {build_mlp, "fc1.weight", 0.0206197},                       /* 1/sqrt(784)/sqrt 3 */
        {build_mlp, "fc1.bias", 0.0206197},                         /* likewise */
        {build_cnn, "conv2.weight", 0.0340207},                     /* 1/sqrt(288)/sqrt 3 */
        {build_resnet18_cifar, "layer1.0.conv1.weight", 0.0589256}, /* sqrt(2/576) */
        {build_resnet18_cifar, "layer1.0.bn2.weight", 0},           /* zero_init_residual */
        {build_resnet18_cifar, "layer1.0.bn1.weight", 1},
        {build_lstm, "rnn.weight_hh_l0", 0.1054093}, /* 1/sqrt(30)/sqrt 3 */
        {build_gpt_small, "lm_head.weight", 0.02},
        {build_gpt_small, "transformer.h.0.attn.c_proj.weight", 0.01}, /* 0.02/sqrt(2 * 2) */
        {build_gpt_small, "transformer.h.0.mlp.c_fc.weight", 0.02},
        {build_gpt_small, "transformer.h.0.mlp.c_fc.bias", 0},
        {build_encoder, "layers.0.self_attn.in_proj_weight", 0.1767767}, /* sqrt(2/64) */
    };
    for (int i = 0; i < TD_LEN(STARTS); i++) {
        td_graph *g;
        td_program *p;
        td_params *ps;
        td_program_opts opts = {.backend = "null"};
        CHECK_OK(td_graph_create(&g));
        CHECK_OK(td_program_create(g, loss_of(g, STARTS[i].build(g)), &opts, &p));
        CHECK_OK(td_params_create(p, 3, &ps));
        double got = deviation(ps, STARTS[i].param);
        CHECK(fabs(got - STARTS[i].want) <= 0.1 * STARTS[i].want, "%s: %g, want %g",
              STARTS[i].param, got, STARTS[i].want);
        td_params_destroy(ps);
        td_program_destroy(p);
        td_graph_destroy(g);
    }
}

/* ---- Refusals -------------------------------------------------------------------------------- */

static td_node *bad_depth(td_graph *g)
{
    return td_model_resnet(g, image(g, 1, 3, 32), &(td_resnet_opts){.depth = 19});
}

static td_node *bad_context(td_graph *g)
{
    return td_model_gpt2(g, ids(g, 1, 65), &(td_gpt2_opts){.context = 64});
}

static td_node *bad_heads(td_graph *g)
{
    return td_model_gpt2(g, ids(g, 1, 6), &(td_gpt2_opts){.heads = 7});
}

static td_node *bad_tied(td_graph *g)
{
    return td_model_lstm_lm(g, ids(g, 5, 2), &(td_lstm_lm_opts){.width = 20, .tied = true});
}

static td_node *bad_ids(td_graph *g)
{
    return td_model_encoder(g, td_input(g, "ids", TD_I32, TD_SHAPE(5)), NULL);
}

static td_node *bad_image(td_graph *g)
{
    return td_model_cnn(g, td_input(g, "x", TD_F32, TD_SHAPE(4, 784)), NULL);
}

static td_node *bad_groups(td_graph *g)
{
    td_nn_conv2d_opts o = {.conv = {.groups = 4}};
    return td_relu(g, td_nn_conv2d(g, "conv9", image(g, 1, 6, 8), 12, 3, &o));
}

static td_node *bad_twice(td_graph *g)
{
    td_node *x = td_input(g, "x", TD_F32, TD_SHAPE(4, 8));
    return td_nn_linear(g, "fc", td_nn_linear(g, "fc", x, 8, NULL), 8, NULL);
}

static td_node *bad_null(td_graph *g)
{
    return td_nn_layer_norm(g, "ln", NULL, NULL);
}

TEST(bad_models_name_the_call)
{
    static const struct {
        td_node *(*build)(td_graph *g);
        const char *part[2];
    } BAD[] = {
        {bad_depth, {"td_model_resnet", "19"}},
        {bad_context, {"td_model_gpt2", "65"}},
        {bad_heads, {"td_attention", "7 heads do not divide width 768"}},
        {bad_tied, {"td_model_lstm_lm", "20 and 256"}},
        {bad_ids, {"td_model_encoder", "(5)"}},
        {bad_image, {"td_nn_conv2d", "(4, 784)"}},
        {bad_groups, {"td_nn_conv2d", "conv9"}},
        {bad_twice, {"td_param", "fc.weight"}},
        {bad_null, {"td_nn_layer_norm", "'ln'"}},
    };
    for (int i = 0; i < TD_LEN(BAD); i++) {
        td_graph *g;
        CHECK_OK(td_graph_create(&g));
        td_node *n = BAD[i].build(g);
        CHECK(!n, "row %d gave a node", i);
        CHECK_EQ_INT(td_graph_status(g), TD_EINVAL);
        for (int k = 0; k < 2; k++)
            CHECK(strstr(td_graph_error(g), BAD[i].part[k]), "row %d says: %s", i,
                  td_graph_error(g));
        td_graph_destroy(g);
    }
}

/* The nth allocation fails, for every n: an error each time, nothing leaked. */
TEST(no_memory)
{
    uint64_t live = td_alloc_get_stats().live;
    for (uint64_t nth = 1;; nth++) {
        td_graph *g = NULL;
        td_node *n = NULL;
        td_alloc_fail_at(nth);
        td_status st = td_graph_create(&g);
        if (!st)
            n = build_gpt_small(g);
        td_alloc_fail_at(0);
        CHECK(st || n || td_graph_status(g) == TD_ENOMEM, "allocation %d: %s", (int)nth,
              td_graph_error(g));
        td_graph_destroy(g);
        CHECK_EQ_INT(td_alloc_get_stats().live, live);
        if (n)
            break;
        CHECK(nth < 10000, "never succeeds");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_have_the_known_number_of_params),
        cmocka_unit_test(small_models_learn),
        cmocka_unit_test(layers_give_shapes),
        cmocka_unit_test(start_values),
        cmocka_unit_test(bad_models_name_the_call),
        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
