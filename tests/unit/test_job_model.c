/* Models of job files: every layer and every ready-made model builds, compiles and has its row in
 * the layer table. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/fail.h"
#include "job/job.h"
#include "job/layer.h"
#include "support/check.h"
#include "tandem/alloc.h"
#include "tandem/program.h"

enum { CLASSES = 7, VOCAB = 50, TIME = 8 };

static const td__field IMAGES[] = {{.name = "x", .dtype = TD_F32, .shape = {3, {1, 28, 28}}},
                                   {.name = "y", .dtype = TD_I32, .classes = CLASSES}};
static const td__field COLOURS[] = {{.name = "x", .dtype = TD_U8, .shape = {3, {3, 32, 32}}},
                                    {.name = "y", .dtype = TD_I32, .classes = CLASSES}};
static const td__field IDS[] = {
    {.name = "x", .dtype = TD_I32, .shape = {1, {TIME}}, .classes = VOCAB},
    {.name = "y", .dtype = TD_I32, .classes = CLASSES}};
static const td__field TEXT[] = {
    {.name = "x", .dtype = TD_I32, .shape = {1, {TIME}}, .classes = VOCAB},
    {.name = "y", .dtype = TD_I32, .shape = {1, {TIME}}, .classes = VOCAB}};
static const td__field NUMBERS[] = {{.name = "x", .dtype = TD_F32, .shape = {1, {5}}},
                                    {.name = "y", .dtype = TD_F32}};

static td__job *parse(const char *model, const char *more)
{
    char text[2000];
    td__job *j;

    snprintf(text, sizeof text, "model: %s\ndata: digits\ntrain: {epochs: 1}\n%s", model, more);
    CHECK_OK(td__job_parse(text, strlen(text), "job.yaml", NULL, 0, &j));
    return j;
}

/* The model as programs of two batch sizes, training and evaluation. */
static void compile(const td__model *m, int64_t rows, bool evaluate)
{
    td_graph *g;
    td_program *p;
    td__model_nodes nodes;

    CHECK_OK(td_graph_create(&g));
    CHECK_OK(m->build(m->user, g, rows, &nodes));
    CHECK_EQ_INT(td_graph_status(g), TD_OK);
    CHECK_OK(td_graph_verify(g));
    CHECK_EQ_INT(td_node_shape(nodes.output).dim[0], rows);
    CHECK_EQ_INT(td_node_shape(nodes.loss).ndim, 0);
    td_node *outputs[TD__MAX_METRICS + 1] = {nodes.output};
    for (int i = 0; i < nodes.n_metrics; i++) {
        outputs[i + 1] = nodes.metrics[i].node;
        td_shape s = td_node_shape(outputs[i + 1]);
        CHECK_EQ_INT(td_shape_count(&s), 1);
        CHECK_EQ_INT(td_node_dtype(outputs[i + 1]), TD_F32);
    }
    td_program_opts o = {.backend = "ref",
                         .evaluate = evaluate,
                         .outputs = outputs,
                         .n_outputs = nodes.n_metrics + 1};
    CHECK_OK(td_program_create(g, nodes.loss, &o, &p));
    td_program_destroy(p);
    td_graph_destroy(g);
}

static void check_model(const char *model, const char *more, const td__field *fields)
{
    td__job *j = parse(model, more);
    td__model m;
    const td__layer_row *rows;
    td_status st = td__job_model(j, fields, 2, &m);

    CHECK(!st, "%s: %s", model, td_last_error());
    CHECK(td__job_layers(j, &rows) > 0, "%s has no layers", model);
    compile(&m, 3, false);
    compile(&m, 4, true);
    td__job_destroy(j);
}

/* One small model around each layer, by the layer's name. */
static const struct {
    const char *layer, *model;
    const td__field *fields;
} LAYERS[] = {
    {"linear", "[flatten, {linear: 16, act: tanh, bias: false}, linear]", IMAGES},
    {"conv2d", "[{conv2d: 4, stride: 2, padding: 1, act: relu}, flatten, linear]", IMAGES},
    {"conv2d", "[{conv2d: 4, kernel: [3, 4], padding: same, dilation: 3}, flatten, linear]",
     IMAGES},
    {"conv2d", "[{conv2d: 4, kernel: [3, 5], stride: [2, 1], padding: [1, 2]}, flatten, linear]",
     IMAGES},
    {"conv1d", "[{embedding: 8}, {conv1d: 6, kernel: 4, padding: same, act: relu}, linear]", TEXT},
    {"embedding", "[{embedding: 8}, flatten, linear]", IDS},
    {"bag", "[{bag: 8, padding: 0}, linear]", IDS},
    {"position", "[{embedding: 8}, position, {mean: 1}, linear]", IDS},
    {"lstm", "[{embedding: 8}, {lstm: 6, layers: 2}, linear]", TEXT},
    {"lstm", "[{embedding: 8}, {lstm: 6, layers: 2, bidirectional: true}, linear]", TEXT},
    {"gru", "[{embedding: 8}, {gru: 6}, last, linear]", IDS},
    {"gru", "[{embedding: 8}, {gru: 6, layers: 2, bidirectional: true}, last, linear]", IDS},
    {"attention", "[{embedding: 8}, {attention: 2, causal: true}, linear]", TEXT},
    {"transformer_block", "[{embedding: 8}, {transformer_block: 2, dropout: 0.1}, linear]", TEXT},
    {"batch_norm", "[{conv2d: 4, bias: no}, {batch_norm: , act: relu}, flatten, linear]", IMAGES},
    {"layer_norm", "[flatten, {linear: 8}, layer_norm, linear]", IMAGES},
    {"rms_norm", "[flatten, {linear: 8}, rms_norm, linear]", IMAGES},
    {"group_norm", "[{conv2d: 4}, {group_norm: 2}, flatten, linear]", IMAGES},
    {"dropout", "[flatten, {dropout: 0.5}, linear]", IMAGES},
    {"relu", "[flatten, {linear: 8}, relu, linear]", IMAGES},
    {"leaky_relu", "[flatten, {leaky_relu: 0.1}, linear]", IMAGES},
    {"gelu", "[flatten, gelu, linear]", IMAGES},
    {"gelu_tanh", "[flatten, gelu_tanh, linear]", IMAGES},
    {"silu", "[flatten, silu, linear]", IMAGES},
    {"sigmoid", "[flatten, sigmoid, linear]", IMAGES},
    {"tanh", "[flatten, tanh, linear]", IMAGES},
    {"softplus", "[flatten, softplus, linear]", IMAGES},
    {"softmax", "[flatten, softmax, linear]", IMAGES},
    {"max_pool", "[{max_pool: 3, stride: 2, padding: 1}, flatten, linear]", COLOURS},
    {"avg_pool", "[{avg_pool: 2}, flatten, linear]", COLOURS},
    {"global_avg_pool", "[{conv2d: 4}, global_avg_pool, linear]", COLOURS},
    {"mean", "[{mean: 2}, flatten, linear]", IMAGES},
    {"sum", "[{embedding: 8, sparse: true, std: 0.1}, sum, linear]", IDS},
    {"fm", "[{embedding: 8}, fm, linear]", IDS},
    {"last", "[{embedding: 8}, last, linear]", IDS},
    {"flatten", "[flatten, linear]", COLOURS},
    {"reshape", "[{reshape: [28, 28]}, {conv2d: 2}, {reshape: [-1]}, linear]", IMAGES},
    {"permute", "[{permute: [2, 3, 1]}, flatten, linear]", COLOURS},
    {"add", "[{conv2d: 3, padding: 1, as: a}, relu, {add: [a, x]}, flatten, linear]", COLOURS},
    {"mul", "[flatten, {linear: 8, as: a}, sigmoid, {mul: a}, linear]", IMAGES},
    {"concat", "[{conv2d: 3, as: a}, relu, {concat: [a]}, flatten, linear]", COLOURS},
    {"residual",
     "[{residual: [{conv2d: 4, padding: 1}, relu], shortcut: [{conv2d: 4, kernel: 1}], act: relu},"
     " flatten, linear]",
     COLOURS},
    {"repeat", "[flatten, {repeat: 3, layers: [{linear: 8}, relu]}, linear]", IMAGES},
    {"use", "[flatten, {use: dense, layers: [{linear: 8}, relu]}, linear]", IMAGES},
    {"identity", "[flatten, {linear: 8, as: a}, relu, {identity: , from: a}, linear]", IMAGES},
};

TEST(every_layer_builds)
{
    for (int k = 0; td__layer_list(k); k++) {
        /* Those of plug-ins need a shared object: tests/e2e/test_plugin.sh. */
        bool found = !strcmp(td__layer_list(k)->name, "plugin");
        for (int i = 0; i < TD_LEN(LAYERS); i++)
            if (!strcmp(LAYERS[i].layer, td__layer_list(k)->name)) {
                check_model(LAYERS[i].model, "", LAYERS[i].fields);
                found = true;
            }
        CHECK(found, "layer %s is not tested", td__layer_list(k)->name);
    }
}

static const struct {
    const char *name, *model;
    const td__field *fields;
} MODELS[] = {
    {"mlp", "mlp", IMAGES},
    {"cnn", "{name: cnn, dropout: 0.25}", IMAGES},
    {"lenet5", "lenet5", IMAGES},
    {"resnet", "{name: resnet, width: 4, cifar_stem: true}", COLOURS},
    {"lstm_lm", "{name: lstm_lm, hidden: 8, width: 8, tied: true}", TEXT},
    {"text_classifier", "{name: text_classifier, padding: 0, dropout: 0.5}", IDS},
    {"gpt2", "{name: gpt2, layers: 2, heads: 2, width: 16}", TEXT},
    {"encoder", "{name: encoder, layers: 2, heads: 2, width: 16, padding: 0}", IDS},
};

TEST(every_ready_made_model_builds)
{
    for (int k = 0; td__ready_list(k); k++) {
        bool found = false;
        for (int i = 0; i < TD_LEN(MODELS); i++)
            if (!strcmp(MODELS[i].name, td__ready_list(k)->name)) {
                check_model(MODELS[i].model, "", MODELS[i].fields);
                found = true;
            }
        CHECK(found, "model %s is not tested", td__ready_list(k)->name);
    }
}

TEST(named_blocks)
{
    static const char DEFINE[] = "define:\n  dense: [{linear: 8}, relu]\n"
                                 "  deep: [{use: dense}, {use: dense}]\n";
    const td__layer_row *rows;
    td__model m;
    td__job *j = parse("[flatten, {use: deep}, {use: dense, name: last}, linear]", DEFINE);

    CHECK_OK(td__job_model(j, IMAGES, 2, &m));
    CHECK_EQ_INT(td__job_layers(j, &rows), 8);
    assert_string_equal(rows[1].name, "use1.use1.linear1");
    assert_string_equal(rows[3].name, "use1.use2.linear1");
    assert_string_equal(rows[5].name, "last.linear1");
    td__job_destroy(j);
}

TEST(every_loss_and_metric_builds)
{
    static const struct {
        const char *more;
        const td__field *fields;
    } CASES[] = {
        {"loss: {name: cross_entropy, label_smoothing: 0.1, ignore: -1}\n"
         "metrics: [accuracy, top5, nll, bits]\n",
         IMAGES},
        {"loss: auto\n", NUMBERS},
        {"loss: mse\nmetrics: [mae, mse]\n", NUMBERS},
        {"loss: mae\n", NUMBERS},
        {"loss: {name: huber, delta: 0.5}\n", NUMBERS},
        {"loss: bce\nmetrics: binary_accuracy\n", NUMBERS},
    };

    for (int i = 0; i < TD_LEN(CASES); i++)
        check_model("[flatten, {linear: 16, act: relu}, linear]", CASES[i].more, CASES[i].fields);
}

TEST(layer_table)
{
    static const struct {
        const char *name, *kind, *out;
        int64_t params;
        double flops;
    } WANT[] = {
        {"conv2d1", "conv2d", "(8, 26, 26)", 80, 2.0 * 8 * 26 * 26 * 9 + 8 * 26 * 26},
        {"max_pool1", "max_pool", "(8, 13, 13)", 0, 8 * 13 * 13},
        {"flatten1", "flatten", "(1352)", 0, 0},
        {"hidden", "linear", "(32)", 1352 * 32 + 32, 2 * 1352 * 32},
        {"linear2", "linear", "(7)", 32 * 7 + 7, 2 * 32 * 7},
    };
    td__job *j = parse("[{conv2d: 8, act: relu}, max_pool, flatten, {linear: 32, name: hidden},"
                       " linear]",
                       "");
    td__model m;
    const td__layer_row *rows;

    CHECK_OK(td__job_model(j, IMAGES, 2, &m));
    CHECK_EQ_INT(td__job_layers(j, &rows), TD_LEN(WANT));
    for (int i = 0; i < TD_LEN(WANT); i++) {
        char shape[128];
        assert_string_equal(rows[i].name, WANT[i].name);
        assert_string_equal(rows[i].kind, WANT[i].kind);
        assert_string_equal(td_shape_text(&rows[i].out, shape, sizeof shape), WANT[i].out);
        CHECK_EQ_INT(rows[i].params, WANT[i].params);
        CHECK(rows[i].flops == WANT[i].flops, "%s: %g", rows[i].name, rows[i].flops);
    }
    td__job_destroy(j);
}

TEST(ready_made_models_have_rows_too)
{
    td__job *j = parse("lenet5", "");
    td__model m;
    const td__layer_row *rows;
    int64_t params = 0;

    CHECK_OK(td__job_model(j, IMAGES, 2, &m));
    int n = td__job_layers(j, &rows);
    CHECK_EQ_INT(n, 5);
    assert_string_equal(rows[0].name, "conv1");
    assert_string_equal(rows[4].name, "fc3");
    CHECK_EQ_INT(rows[4].out.dim[0], CLASSES);
    for (int i = 0; i < n; i++)
        params += rows[i].params;
    CHECK_EQ_INT(params, 61706 - 3 * 85); /* LeNet-5 with 10 classes has 61706 */
    td__job_destroy(j);
}

/* From the text to the layer table. */
static td_status live(td__job **j)
{
    static const char TEXT_OF_JOB[] =
        "model: [{conv2d: 4, as: a}, relu, {add: a}, {repeat: 2, layers: [silu]}, flatten, linear]"
        "\n"
        "data: {source: digits, maps: [normalize]}\n"
        "train: {epochs: 1, schedule: {name: multistep, milestones: [1, 2]}}\n";
    static const char *const SETS[] = {"train.batch=8"};
    td__model m;

    TD_TRY(td__job_parse(TEXT_OF_JOB, strlen(TEXT_OF_JOB), "job.yaml", SETS, 1, j));
    return td__job_model(*j, IMAGES, 2, &m);
}

TEST(every_allocation_may_fail)
{
    td__job *j = NULL;
    uint64_t first = td_alloc_get_stats().calls;

    CHECK_OK(live(&j));
    td__job_destroy(j);
    uint64_t total = td_alloc_get_stats().calls - first, before = td_alloc_get_stats().live;
    for (uint64_t nth = 1; nth <= total; nth++) {
        j = NULL;
        td_alloc_fail_at(nth);
        td_status st = live(&j);
        td_alloc_fail_at(0);
        CHECK(st == TD_ENOMEM, "allocation %llu: %s: %s", (unsigned long long)nth,
              td_status_name(st), td_last_error());
        td__job_destroy(j);
        CHECK(td_alloc_get_stats().live == before, "allocation %llu leaves something behind",
              (unsigned long long)nth);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layer_builds),
        cmocka_unit_test(every_ready_made_model_builds),
        cmocka_unit_test(named_blocks),
        cmocka_unit_test(every_loss_and_metric_builds),
        cmocka_unit_test(layer_table),
        cmocka_unit_test(ready_made_models_have_rows_too),
        cmocka_unit_test(every_allocation_may_fail),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
