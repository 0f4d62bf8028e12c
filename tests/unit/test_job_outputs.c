/* What the models of job files give out: in the units of the data, and independent of padding. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "data/data.h"
#include "job/job.h"
#include "support/check.h"
#include "tandem/program.h"
#include "train/trainer.h"

enum { CLASSES = 3, LONG = 7, SHORT = 4 };

static td__job *parse(const char *model, const char *more)
{
    char text[1000];
    td__job *j;

    snprintf(text, sizeof text, "model: %s\ndata: spirals\ntrain: {epochs: 1}\n%s", model, more);
    CHECK_OK(td__job_parse(text, strlen(text), "job.yaml", NULL, 0, &j));
    return j;
}

/* The output for one sample, with weights drawn by their names: the same for any length. */
static void predict(const char *model, const char *more, const td__field *fields, const void *x,
                    float *out, size_t n)
{
    td__job *j = parse(model, more);
    td__model_nodes nodes;
    td__model m;
    td_graph *g;
    td_program *p;
    td_params *ps;
    td_runner *r;
    size_t nbytes;

    CHECK_OK(td__job_model(j, fields, 2, &m));
    CHECK_OK(td_graph_create(&g));
    CHECK_OK(m.build(m.user, g, 1, &nodes));
    td_program_opts o = {
        .backend = "ref", .evaluate = true, .outputs = &nodes.output, .n_outputs = 1};
    CHECK_OK(td_program_create(g, NULL, &o, &p));
    CHECK_OK(td_params_create(p, 3, &ps));
    CHECK_OK(td_runner_create(p, ps, &r));
    memcpy(td_runner_input(r, "x", &nbytes), x, td__field_nbytes(&fields[0]));
    CHECK_OK(td_runner_run(r, (td_run_key){.seed = 1, .step = 1}));
    const void *got = td_runner_output(r, 0, &nbytes);
    CHECK_EQ_INT(nbytes, n * sizeof *out);
    memcpy(out, got, nbytes);
    td_runner_destroy(r);
    td_params_destroy(ps);
    td_program_destroy(p);
    td_graph_destroy(g);
    td__job_destroy(j);
}

TEST(an_encoder_does_not_see_padding)
{
    static const int32_t IDS[LONG] = {5, 9, 3, 7, 0, 0, 0};
    td__field fields[] = {{.name = "x", .dtype = TD_I32, .shape = {1, {LONG}}, .classes = 20},
                          {.name = "y", .dtype = TD_I32, .classes = CLASSES}};
    static const char *const POOLS[] = {"mean", "first"};

    for (int i = 0; i < TD_LEN(POOLS); i++) {
        char model[200];
        float padded[CLASSES], plain[CLASSES];
        snprintf(model, sizeof model,
                 "{name: encoder, layers: 2, heads: 2, width: 8, context: 9, padding: 0, pool: %s}",
                 POOLS[i]);
        fields[0].shape.dim[0] = LONG;
        predict(model, "", fields, IDS, padded, CLASSES);
        fields[0].shape.dim[0] = SHORT;
        predict(model, "", fields, IDS, plain, CLASSES);
        for (int c = 0; c < CLASSES; c++)
            CHECK(fabsf(padded[c] - plain[c]) < 1e-6F, "pool %s: %g with padding, %g without",
                  POOLS[i], (double)padded[c], (double)plain[c]);
    }
}

TEST(outputs_have_the_units_of_the_data)
{
    static const float X[] = {0.5F, -1, 2};
    static const double MEAN[] = {100, -7}, STD[] = {20, 0.5};
    td__field fields[] = {{.name = "x", .dtype = TD_F32, .shape = {1, {3}}},
                          {.name = "y", .dtype = TD_F32, .shape = {1, {2}}}};
    float plain[2], chances[2], real[2];

    predict("[{linear: 2}]", "loss: mse\n", fields, X, plain, 2);
    predict("[{linear: 2}]", "loss: bce\n", fields, X, chances, 2);
    fields[1].units = (td__units){MEAN, STD, 2, 1};
    predict("[{linear: 2}]", "loss: mse\n", fields, X, real, 2);
    for (int i = 0; i < 2; i++) {
        double p = 1 / (1 + exp(-(double)plain[i])), v = (double)plain[i] * STD[i] + MEAN[i];
        CHECK(fabs((double)chances[i] - p) < 1e-6, "%g, expected %g", (double)chances[i], p);
        CHECK(fabs((double)real[i] - v) < 1e-4, "%g, expected %g", (double)real[i], v);
    }
}

/* Batch norm of one value per channel would give the same whatever its input is. */
TEST(batch_norm_of_one_row_is_refused)
{
    static const char *const MODELS[] = {
        "[{linear: 8}, batch_norm, linear]", "[{linear: 8}, layer_norm, linear]",
        "[{reshape: [2, 1, 1]}, {conv2d: 4, kernel: 1, padding: 1}, batch_norm, flatten, linear]"};
    td__data_opts d = {.source = "spirals", .source_opts = {.count = 40}};
    td__data *data;
    const td__field *fields;

    CHECK_OK(td__data_open(&d, &data));
    int n = td__data_fields(data, &fields);
    for (int i = 0; i < TD_LEN(MODELS); i++)
        for (int v = 4; v <= 8; v += 4) {
            td__job *j = parse(MODELS[i], "");
            td__train_opts o = *td__job_train(j);
            td__trainer *t;
            td__model m;
            o.batch = 8;
            o.micro_batches = v;
            CHECK_OK(td__job_model(j, fields, n, &m));
            td_status st = td__trainer_create(&o, &m, data, &t);
            bool bad = i == 0 && v == 8;
            CHECK(st == (bad ? TD_EINVAL : TD_OK), "%s in %d: %d", MODELS[i], v, (int)st);
            CHECK(!bad || strstr(td_last_error(), "lower train.micro_batches (8)"), "%s",
                  td_last_error());
            td__trainer_destroy(t);
            td__job_destroy(j);
        }
    td__data_close(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_encoder_does_not_see_padding),
        cmocka_unit_test(outputs_have_the_units_of_the_data),
        cmocka_unit_test(batch_norm_of_one_row_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
