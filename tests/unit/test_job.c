/* Job files: what is read, what is refused and with which line, what is written back. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "job/job.h"
#include "support/check.h"

static td__job *parse(const char *text, const char *const *sets, int n_sets)
{
    td__job *j;

    CHECK_OK(td__job_parse(text, strlen(text), "job.yaml", sets, n_sets, &j));
    return j;
}

/* The resolved job; freed with free(). */
static char *written(const td__job *j)
{
    char *text;
    size_t nbytes;
    FILE *f = open_memstream(&text, &nbytes);

    assert_non_null(f);
    CHECK_OK(td__job_write(j, f));
    fclose(f);
    return text;
}

static void digest_of(const char *text, const char *set, char hex[65])
{
    td__job *j = parse(text, &set, set ? 1 : 0);

    CHECK_OK(td__job_digest(j, hex));
    td__job_destroy(j);
}

static const char SMALL[] = "model: [flatten, linear]\n"
                            "data: digits\n"
                            "train: {epochs: 1}\n";

static const char LARGE[] = "name: everything\n"
                            "model:\n"
                            "- conv2d: 8\n"
                            "  as: skip\n"
                            "- {conv2d: 8, padding: 1, act: silu}\n"
                            "- add: skip\n"
                            "- residual:\n"
                            "  - {conv2d: 8, padding: 1, bias: no}\n"
                            "  - batch_norm\n"
                            "- repeat: {times: 2, layers: [relu, {group_norm: 2}]}\n"
                            "- max_pool\n"
                            "- flatten\n"
                            "- dropout: 0.25\n"
                            "- linear\n"
                            "loss: {name: cross_entropy, label_smoothing: 0.10}\n"
                            "metrics: [accuracy, top5]\n"
                            "data:\n"
                            "  source: digits\n"
                            "  count: 1000\n"
                            "  noise: 0.2\n"
                            "  maps: [{map: normalize, mean: 0.5, std: 0.25}]\n"
                            "  split: {valid: 0.2}\n"
                            "train:\n"
                            "  batch: 64\n"
                            "  steps: 500\n"
                            "  optimizer: {name: adamw, lr: 1e-3, beta2: 0.95, weight_decay: 0}\n"
                            "  schedule: {name: cosine, warmup_steps: 10, lr_min: 1.0e-5}\n"
                            "  clip: 1\n"
                            "  precision: bf16\n"
                            "  seed: 7\n"
                            "  eval: {every: 100}\n"
                            "  early_stop: {watch: accuracy, patience: 5}\n"
                            "checkpoint: 100\n"
                            "log: {every: 10, report: off}\n";

TEST(defaults)
{
    td__job *j = parse(SMALL, NULL, 0);
    const td__train_opts *t = td__job_train(j);

    assert_string_equal(td__job_name(j), "job");
    assert_string_equal(td__job_data(j)->source, "digits");
    CHECK_EQ_INT(t->batch, 32);
    CHECK_EQ_INT(t->epochs, 1);
    CHECK_EQ_INT(t->steps, 0);
    CHECK_EQ_INT(t->checkpoint_every, 0);
    assert_string_equal(t->optim.name, "sgd");
    CHECK(t->schedule.lr == 0.001, "lr is %g", t->schedule.lr);
    CHECK(td__job_data(j)->valid_fraction == 0.1, "fraction");
    assert_string_equal(td__job_log_opts(j)->runs_dir, "runs");
    CHECK_EQ_INT(t->prefetch, 4);
    td__job_destroy(j);
    const char *none = "data.threads=0"; /* that prepare batches: they are made when asked for */
    j = parse(SMALL, &none, 1);
    CHECK_EQ_INT(td__job_train(j)->prefetch, -1);
    td__job_destroy(j);
}

TEST(files_of_other_editors)
{
    td__job *plain = parse(LARGE, NULL, 0), *marked;
    char text[8192] = "\xef\xbb\xbf", a[65], b[65];
    size_t n = 3;

    for (const char *c = LARGE; *c; c++) {
        if (*c == '\n')
            text[n++] = '\r';
        text[n++] = *c;
    }
    marked = parse(text, NULL, 0);
    CHECK_OK(td__job_digest(plain, a));
    CHECK_OK(td__job_digest(marked, b));
    assert_string_equal(a, b);
    td__job_destroy(plain);
    td__job_destroy(marked);
}

TEST(all_kinds_of_values)
{
    td__job *j = parse(LARGE, NULL, 0);
    const td__train_opts *t = td__job_train(j);
    const td__data_opts *d = td__job_data(j);

    assert_string_equal(td__job_name(j), "everything");
    CHECK_EQ_INT(t->batch, 64);
    CHECK_EQ_INT(t->steps, 500);
    CHECK_EQ_INT(t->precision, TD_BF16);
    CHECK_EQ_INT(t->valid_every, 100);
    CHECK_EQ_INT(t->checkpoint_every, 100);
    CHECK_EQ_INT(t->patience, 5);
    assert_string_equal(t->watch, "accuracy");
    assert_string_equal(t->schedule.name, "cosine");
    CHECK_EQ_INT(t->schedule.warmup_steps, 10);
    CHECK(t->schedule.lr == 1e-3 && t->schedule.lr_min == 1e-5, "rates");
    CHECK(t->optim.clip_norm == 1 && t->optim.beta2 == 0.95, "optimizer");
    CHECK(t->optim.weight_decay == 0 && __builtin_signbit(t->optim.weight_decay),
          "a zero that was given is no default");
    CHECK_EQ_INT(d->source_opts.count, 1000);
    CHECK_EQ_INT(d->n_maps, 1);
    assert_string_equal(d->maps[0].name, "normalize");
    CHECK(d->maps[0].a == 0.5 && d->maps[0].b == 0.25, "normalize");
    CHECK(!td__job_log_opts(j)->report && td__job_log_opts(j)->tensorboard, "log");
    td__job_destroy(j);
}

TEST(what_is_written_loads_to_the_same_job)
{
    static const char *const TEXTS[] = {
        SMALL, LARGE,
        "model: {name: gpt2, layers: 2, heads: 2, width: 16}\n"
        "data: {source: digits}\n"
        "train: {steps: 3, schedule: {name: multistep, milestones: [1, 2]}}\n"};

    for (int i = 0; i < TD_LEN(TEXTS); i++) {
        td__job *a = parse(TEXTS[i], NULL, 0);
        char *first = written(a), one[65], two[65];
        td__job *b = parse(first, NULL, 0);
        char *second = written(b);
        assert_string_equal(first, second);
        CHECK_OK(td__job_digest(a, one));
        CHECK_OK(td__job_digest(b, two));
        assert_string_equal(one, two);
        free(first);
        free(second);
        td__job_destroy(a);
        td__job_destroy(b);
    }
}

TEST(overrides)
{
    static const char *const SETS[] = {
        "train.batch=128",         "model.layers.1.out=64", "train.optimizer=adam",
        "train.optimizer.lr=0.01", "model.layers.2=relu",   "train.schedule.name=constant",
        "train.epochs=",           "train.steps=7",         "loss.label_smoothing=0.1",
        "metrics=[top5, accuracy]"};
    td__job *j = parse(SMALL, SETS, TD_LEN(SETS));
    const td__train_opts *t = td__job_train(j);
    char *text = written(j);

    CHECK_EQ_INT(t->batch, 128);
    CHECK_EQ_INT(t->steps, 7);
    CHECK_EQ_INT(t->epochs, 0);
    assert_string_equal(t->optim.name, "adam");
    CHECK(t->optim.lr == 0.01, "lr is %g", t->optim.lr);
    CHECK(strstr(text, "{layer: linear, out: 64,"), "%s", text);
    CHECK(strstr(text, "- {layer: relu}"), "%s", text);
    CHECK(strstr(text, "metrics: [top5, accuracy]"), "%s", text);
    free(text);
    td__job_destroy(j);
}

/* Overlays: "@FILE" in the place of an override. */
TEST(keys_of_a_file)
{
    static const struct {
        const char *text, *wrong; /* wrong: the error's text; NULL: none */
    } CASES[] = {
        {"", NULL},
        {"train: {batch: 128, optimizer: {lr: 0.5}}\ndata: {source: idx, dir: here}\n", NULL},
        {"train: {bach: 128}\n", "over.yaml:1:9: train.bach: unknown key"},
        {"train:\n  batch: -3\n", "over.yaml:2:10: train.batch: expected"},
        {"- a\n", "over.yaml: expected a map with keys of a job"},
        {"train: {batch: 1, batch: 2}\n", "over.yaml:1:"},
    };
    char set[512], folder[512];

    check_tmpdir();
    const char *path = check_path("over.yaml");
    snprintf(set, sizeof set, "@%s", path);
    const char *const sets[] = {"train.optimizer=adam", set, "train.steps=7"};
    for (int i = 0; i < TD_LEN(CASES); i++) {
        td__job *j = NULL;
        check_write_file(path, CASES[i].text, strlen(CASES[i].text));
        td_status st = td__job_parse(SMALL, strlen(SMALL), "job.yaml", sets, TD_LEN(sets), &j);
        CHECK(CASES[i].wrong ? st == TD_EINVAL && strstr(td_last_error(), CASES[i].wrong) : !st,
              "case %d: %s: %s", i, td_status_name(st), td_last_error());
        if (i == 1) {
            snprintf(folder, sizeof folder, "%s", check_path("here"));
            CHECK_EQ_INT(td__job_train(j)->batch, 128);
            assert_string_equal(td__job_train(j)->optim.name, "adam");
            CHECK(td__job_train(j)->optim.lr == 0.5, "lr is %g", td__job_train(j)->optim.lr);
            assert_string_equal(td__job_data(j)->source_opts.dir, folder);
        }
        td__job_destroy(j);
    }
    const char *missing = "@nowhere/over.yaml";
    td__job *j;
    CHECK_STATUS(td__job_parse(SMALL, strlen(SMALL), "job.yaml", &missing, 1, &j), TD_EINVAL);
    check_tmpdir_remove();
}

TEST(digest_is_of_what_decides_the_numbers)
{
    static const struct {
        const char *set;
        bool same;
    } CASES[] = {{"name=other", true},         {"log.every=7", true},
                 {"parallel.threads=3", true}, {"train.epochs=9", true},
                 {"checkpoint.keep=9", true},  {"data.threads=2", true},
                 {"metrics=top5", true},       {"train.batch=64", false},
                 {"train.seed=1", false},      {"model.layers.1.bias=false", false},
                 {"data.seed=1", false},       {"train.precision=bf16", false},
                 {"loss.ignore=3", false},     {"train.schedule=cosine", false},
                 {"train.batch=32", true},     {"train.optimizer.lr=0.1", false}};
    char base[65], other[65];

    digest_of(SMALL, NULL, base);
    for (int i = 0; i < TD_LEN(CASES); i++) {
        digest_of(SMALL, CASES[i].set, other);
        CHECK(!strcmp(base, other) == CASES[i].same, "%s", CASES[i].set);
    }
}

TEST(help_names_every_section)
{
    char *text;
    size_t nbytes;
    FILE *f = open_memstream(&text, &nbytes);

    CHECK_OK(td__job_help(f, NULL, false));
    CHECK_STATUS(td__job_help(f, "nothing", false), TD_EINVAL);
    fclose(f);
    CHECK(strstr(text, "train.batch") && strstr(text, "transformer_block") &&
              strstr(text, "lenet5") && strstr(text, "normalize") && strstr(text, "spirals"),
          "%s", text);
    free(text);
}

/* The reference page is the tables' text: build/tools/job_docs > docs/job.md makes it anew. */
TEST(the_page_is_up_to_date)
{
    char *text, *page;
    size_t nbytes, page_nbytes;
    FILE *f = open_memstream(&text, &nbytes);

    CHECK_OK(td__job_help(f, NULL, true));
    fclose(f);
    page = check_read_file("docs/job.md", &page_nbytes);
    CHECK(page_nbytes == nbytes && !memcmp(page, text, nbytes),
          "docs/job.md is old: build/tools/job_docs > docs/job.md makes it anew");
    free(page);
    free(text);
}

TEST(shipped_jobs_load)
{
    static const char *const NAMES[] = {"digits",          "mnist",   "cifar-resnet18", "char-lstm",
                                        "shakespeare-gpt", "intents", "tabular"};

    for (int i = 0; i < TD_LEN(NAMES); i++) {
        char path[100];
        td__job *j;
        snprintf(path, sizeof path, "examples/%s.yaml", NAMES[i]);
        CHECK_OK(td__job_load(path, NULL, 0, &j));
        assert_string_equal(td__job_name(j), NAMES[i]);
        td__job_destroy(j);
    }
}

/* data.dir starts at the job's folder; that of an override where the program runs. */
TEST(folders)
{
    static const char TEXT[] = "model: [flatten, linear]\n"
                               "data: {source: idx, dir: mnist}\n"
                               "train: {epochs: 1}\n";
    static const struct {
        const char *file, *set, *want;
    } CASES[] = {{"/a/b/job.yaml", NULL, "/a/b/mnist"},
                 {"/job.yaml", NULL, "/mnist"},
                 {"/a/b/job.yaml", "data.dir=/c", "/c"},
                 {"/a/b/job.yaml", "data.dir=", "/a/b"}};

    for (int i = 0; i < TD_LEN(CASES); i++) {
        td__job *j;
        CHECK_OK(td__job_parse(TEXT, strlen(TEXT), CASES[i].file, &CASES[i].set,
                               CASES[i].set ? 1 : 0, &j));
        assert_string_equal(td__job_data(j)->source_opts.dir, CASES[i].want);
        td__job_destroy(j);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),
        cmocka_unit_test(files_of_other_editors),
        cmocka_unit_test(all_kinds_of_values),
        cmocka_unit_test(what_is_written_loads_to_the_same_job),
        cmocka_unit_test(overrides),
        cmocka_unit_test(keys_of_a_file),
        cmocka_unit_test(digest_is_of_what_decides_the_numbers),
        cmocka_unit_test(help_names_every_section),
        cmocka_unit_test(the_page_is_up_to_date),
        cmocka_unit_test(shipped_jobs_load),
        cmocka_unit_test(folders),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
