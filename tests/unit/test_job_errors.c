/* Wrong job files: each gives one line that says where, what was expected and what to do. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "job/job.h"
#include "job/job_impl.h"
#include "job/layer.h"
#include "support/check.h"

#define MODEL "model: [flatten, linear]\n"
#define DATA "data: digits\n"
#define TRAIN "train: {epochs: 1}\n"

static const td__field FIELDS[] = {{.name = "x", .dtype = TD_F32, .shape = {3, {1, 28, 28}}},
                                   {.name = "y", .dtype = TD_I32, .classes = 10}};

/* An override (or NULL), the file, the line; a * stands for anything. */
static const struct {
    const char *set, *text, *line;
} WRONG[] = {
    {NULL,
     MODEL DATA "train:\n"
                "  epochs: 1\n"
                "  optimzer: adam\n",
     "job.yaml:5:3: train.optimzer: unknown key; did you mean train.optimizer?"},
    {NULL, MODEL DATA "train: {epochs: 1, batch: -3}\n",
     "job.yaml:3:27: train.batch: expected a whole number of at least 1, found -3"},
    {"train.batch=-3", MODEL DATA TRAIN,
     "--set train.batch=-3: train.batch: expected a whole number of at least 1, "
     "found -3"},
    {NULL, MODEL DATA "train: {epochs: 5s}\n",
     "job.yaml:3:17: train.epochs: expected a whole number of at least 1, found 5s"},
    {NULL, MODEL DATA "train: {epochs: -1, steps: -1}\n",
     "job.yaml:3:17: train.epochs: expected a whole number of at least 1, found -1"},
    {NULL, MODEL DATA "train: {batch: 8}\n",
     "job.yaml:3:16: train: missing; expected epochs or steps"},
    {NULL, MODEL DATA "train: {epochs: 1, optimizer: adamx}\n",
     "job.yaml:3:31: train.optimizer.name: expected one of sgd, adagrad, rmsprop, "
     "adam, adamw, lamb, lars, found adamx; did you mean adam?"},
    {NULL, MODEL DATA "train: {epochs: 1, optimizer: {name: adam, momentum: 0.9}}\n",
     "job.yaml:3:54: train.optimizer.momentum: adam has no such option"},
    {NULL, MODEL "data: digit\n" TRAIN,
     "job.yaml:2:7: data.source: expected one of *, found digit; did you mean digits?"},
    {NULL, MODEL "data: {source: digits, context: 64}\n" TRAIN,
     "job.yaml:2:33: data.context: the source digits does not take this key; it takes: "
     "count noise seed"},
    {NULL, MODEL "data: {source: digits, split: {valid: 1.5}}\n" TRAIN,
     "job.yaml:2:39: data.split.valid: expected a number from 0 to below 1, found 1.5"},
    {NULL, MODEL "data: {source: digits, split: {valid: 0.6, test: 0.5}}\n" TRAIN,
     "job.yaml:2:39: data.split: valid and test together leave nothing to train on, "
     "found 0.6 + 0.5"},
    {NULL, "model: [flatten, linea]\n" DATA TRAIN,
     "job.yaml:1:18: model.layers.1.layer: expected one of linear, conv2d, "
     "embedding, bag, position, lstm, gru, attention, transformer_block, ..., found "
     "linea; did you mean linear?"},
    {NULL, "model: [flatten, {linear: 8, akt: relu}, linear]\n" DATA TRAIN,
     "job.yaml:1:30: model.layers.1.akt: unknown key; did you mean "
     "model.layers.1.act?"},
    /* Blocks are checked whether they are used or not. */
    {NULL, "define: {a: [{linear: 8, wdith: 3}]}\n" MODEL DATA TRAIN,
     "job.yaml:1:26: define.a.0.wdith: unknown key*"},
    {NULL, "define: {a: 3}\n" MODEL DATA TRAIN,
     "job.yaml:1:13: define.a: expected a list of layers, found 3"},
    {NULL, "define: {a: [{use: a}]}\n" MODEL DATA TRAIN, "job.yaml:1:20: define.a.0*"},
    /* Words of other tools. */
    {NULL, MODEL DATA "train: {epochs: 1, batch_size: 8}\n",
     "job.yaml:3:20: train.batch_size: unknown key; did you mean train.batch?"},
    {NULL, MODEL DATA "train: {epochs: 1, learning_rate: 0.1}\n",
     "job.yaml:3:20: train.learning_rate: unknown key; did you mean train.optimizer.lr?"},
    {"training.Batch-Size=8", MODEL DATA TRAIN,
     "--set training.Batch-Size=8: training: unknown key; did you mean train?"},
    {"Batch-Size=8", MODEL DATA TRAIN,
     "--set Batch-Size=8: Batch-Size: unknown key; did you mean train.batch?"},
    {NULL, "model: [{conv2d: 8, kernel_size: 5}, flatten, linear]\n" DATA TRAIN,
     "job.yaml:1:21: model.layers.0.kernel_size: unknown key; did you mean "
     "model.layers.0.kernel?"},
    {NULL, "model: [{max_pool: 2}, {avg_pool: 2, kernel_size: 2}, linear]\n" DATA TRAIN,
     "job.yaml:1:38: model.layers.1.kernel_size: unknown key; did you mean "
     "model.layers.1.size?"},
    {NULL, "model: [flatten, dense: 8, linear]\n" DATA TRAIN,
     "job.yaml:1:18: model.layers.1.layer: expected one of linear, *, found dense; did you mean "
     "linear?"},
    {NULL, "model: [flatten, {linear: 8, activation: relu}, linear]\n" DATA TRAIN,
     "job.yaml:1:30: model.layers.1.activation: unknown key; did you mean model.layers.1.act?"},
    {NULL, MODEL DATA "train: {epochs: 1, precision: bfloat16}\n",
     "job.yaml:3:31: train.precision: expected one of f32, bf16, found bfloat16; did you mean "
     "bf16?"},
    {NULL, "model: [flatten, {conv2d: 8}, linear]\n" DATA TRAIN,
     "job.yaml:1:18: model.layers.1 (conv2d): td_nn_conv2d: layer 'conv2d1': the "
     "input 'reshape_1' has shape (2, 784); it must have 4 axes; its input (N, 784) comes from "
     "flatten1 (job.yaml:1:9): remove that layer, or put it after this one"},
    {NULL, "model:\n- {conv2d: 4, kernel: 3}\n- linear\n" DATA TRAIN,
     "job.yaml:3:3: model: linear1 gives (N, 4, 26, 10), but the loss cross_entropy needs "
     "(N, classes) for the target y: add `flatten` before it"},
    {NULL, "model:\n- {conv2d: 4, kernel: 28}\n" DATA TRAIN,
     "job.yaml:2:3: model: conv2d1 gives (N, 4, 1, 1), but the loss cross_entropy needs "
     "(N, classes) for the target y: add `flatten` and `linear` after it"},
    {NULL, "model: [flatten, {linear: 8}, {add: skip}, linear]\n" DATA TRAIN,
     "job.yaml:1:37: model.layers.2: no earlier layer is named skip (with `as`)"},
    {NULL,
     "model:\n"
     "- flatten\n"
     "- linear: 1000000000000\n"
     "- linear\n" DATA TRAIN,
     "job.yaml:3:3: model.layers.1 (linear): 7.85e+14 parameters*"},
    {NULL, "model: {name: gpt3}\n" DATA TRAIN,
     "job.yaml:1:15: model.name: expected one of mlp, cnn, lenet5, resnet, lstm_lm, "
     "text_classifier, gpt2, encoder, found gpt3; did you mean gpt2?"},
    {NULL, "model: {name: mlp, hiden: [3]}\n" DATA TRAIN,
     "job.yaml:1:20: model.hiden: unknown key; did you mean model.hidden?"},
    {NULL, MODEL DATA "train: {epochs: 1, batch: 8, batch: 9}\n",
     "job.yaml:3:30: batch: given twice; the first is in line 3"},
    {NULL, "model: [flatten, linear\n" DATA,
     "job.yaml:2:5: not valid YAML: did not find expected ',' or ']'"},
    {NULL, MODEL DATA "train: 3\n", "job.yaml:3:8: train: expected a map of keys, found 3"},
    {NULL, MODEL TRAIN, "job.yaml:1:1: data.source: missing; expected one of *"},
    {NULL, "batch: 3\n" MODEL DATA TRAIN,
     "job.yaml:1:1: batch: unknown key; did you mean train.batch?"},
    {NULL, "just text\n", "job.yaml: expected a map with model, data and train, found just text"},
    {NULL, "", "job.yaml: expected a map with model, data and train, found nothing"},
    {NULL,
     "model: &a [flatten, linear]\n"
     "data: *a\n",
     "job.yaml:1:8: anchors (&name) are not supported"},
    {NULL, "model: [flatten, {linear: 5}]\n" DATA TRAIN,
     "job.yaml:1:8: model: the last layer gives 5 values, but y has 10 classes"},
    {NULL,
     MODEL "loss: mse\n"
           "metrics: [accuracy]\n" DATA TRAIN,
     "job.yaml:1:18: model: linear1 gives (N, 10), but the loss mse needs (N) for the target y: "
     "end with a layer of 1 value"},
    {NULL, MODEL "loss: {name: mse, label_smoothing: 0.1}\n" DATA TRAIN,
     "job.yaml:2:36: loss.label_smoothing: mse has no such option"},
    {NULL,
     MODEL DATA "train: {epochs: 1, schedule: {name: cosine, warmup_steps: 50, total_steps: 10}}\n",
     "job.yaml:3:37: train.schedule: schedule cosine: total_steps is 10, must be "
     "more than warmup_steps, 50"},
    {NULL, MODEL DATA "train: {epochs: 1, schedule: {name: exponential}}\n",
     "job.yaml:3:37: train.schedule: schedule exponential: gamma is not set"},
    {NULL, MODEL DATA "train: {epochs: 1, precision: fp16}\n",
     "job.yaml:3:31: train.precision: expected one of f32, bf16, found fp16; did you "
     "mean bf16?"},
    {NULL, MODEL DATA "train: {epochs: 1, batch: 10, micro_batches: 4}\n",
     "job.yaml:3:46: train.micro_batches: expected a divisor of train.batch, 10, found 4"},
    {NULL, MODEL "loss: {target: label}\n" DATA TRAIN,
     "job.yaml:2:16: loss.target: the data has no field label; it has: x, y"},
    {NULL, MODEL DATA "train: {epochs: 1, early_stop: {watch: acuracy}}\n",
     "job.yaml:3:40: train.early_stop.watch: expected one of loss, accuracy, found "
     "acuracy"},
    {"train.batch", MODEL DATA TRAIN, "--set train.batch: expected path.to.key=value"},
    {"model.layers.9.out=3", MODEL DATA TRAIN,
     "--set model.layers.9.out=3: expected an item's number from 0 to 2, found 9"},
    {"train.bach=3", MODEL DATA TRAIN,
     "--set train.bach=3: train.bach: unknown key; did you mean train.batch?"},
    {NULL, "name: a/b\n" MODEL DATA TRAIN,
     "job.yaml:1:7: name: expected at most 100 letters, digits, '-', '_' and '.', "
     "found a/b"},
    {NULL, "model: []\n" DATA TRAIN,
     "job.yaml:1:8: model.layers: expected a list of layers, found an empty one"},
    {NULL, MODEL "data: {source: digits, maps: [normalise]}\n" TRAIN,
     "job.yaml:2:31: data.maps.0.map: expected one of *, found normalise; "
     "did you mean normalize?"},
    {NULL,
     "model: [flatten, {linear: 3, from: nowhere}, linear]\n"
     "data: {source: digits, maps: [normalize]}\n" TRAIN,
     "job.yaml:1:36: model.layers.1: no earlier layer is named nowhere (with `as`)"},
    {NULL, "model: [{embedding: 4}, linear]\n" DATA TRAIN,
     "job.yaml:1:9: model.layers.0 (embedding): vocab: the data field x has no ids; "
     "give a number"},
    {NULL,
     MODEL DATA "train: {epochs: 1, batch: many}\n"
                "log: {tensorboard: maybe}\n",
     "job.yaml:3:27: train.batch: expected a whole number of at least 1, found many"},
    {NULL, "model: [{conv2d: 4, kernel: 50}, flatten, linear]\n" DATA TRAIN,
     "job.yaml:1:9: model.layers.0 (conv2d): td_conv2d: node 'conv2d1/conv2d_3': the "
     "kernel reaches over 50 rows, the padded image has only 28 [inputs: 'x' f32(2, "
     "1, 28, 28), 'conv2d1.weight' f32(4, 1, 50, 50), 'conv2d1.bias' f32(4)]"},
    {NULL, "model: {name: resnet, depth: 20}\n" DATA TRAIN,
     "job.yaml:1:8: model (resnet): td_model_resnet: depth is 20, must be 18, 34 or "
     "50"},
    {NULL, MODEL DATA "train: {epochs: 1, seed: 99999999999999999999}\n",
     "job.yaml:3:26: train.seed: expected a whole number of at least 0 and at most "
     "9e+18, found 99999999999999999999"},
    {NULL, MODEL DATA "train: {epochs: 1, batch: 99999999999}\n",
     "job.yaml:3:27: train.batch: expected a whole number of at least 1 and at most "
     "1000000000, found 99999999999"},
    {NULL, "model: [flatten, {linear: 100000000000}, {linear: 1000000000000}]\n" DATA TRAIN,
     "job.yaml:1:18: model.layers.1 (linear): 7.85e+13 parameters*"},
    {NULL, MODEL DATA "train: {epochs: 1, optimizer: {name: sgd, lr: -0.1}}\n",
     "job.yaml:3:47: train.optimizer.lr: expected a number above 0, found -0.1"},
    {NULL, MODEL DATA "train: {epochs: 1, optimizer: {name: sgd, nesterov: true}}\n",
     "job.yaml:3:38: train.optimizer: sgd: nesterov needs momentum > 0 and dampening "
     "0, not momentum 0, dampening 0"},
    {NULL, "model: [flatten, {dropout: 0.5, p: 0.3}, linear]\n" DATA TRAIN,
     "job.yaml:1:33: p: given twice"},
    {NULL, "model: [{layer: relu, of: 3}]\n" DATA TRAIN,
     "job.yaml:1:23: model.layers.0.of: unknown key; known: layer, from, as, name, place"},
    {NULL, "model: [{32: relu}]\n" DATA TRAIN,
     "job.yaml:1:9: model.layers.0.layer: expected one of linear*found 32"},
    {NULL, "model: [relu: 3]\n" DATA TRAIN, "job.yaml:1:15: relu takes no value, found 3"},
    {NULL, "model: [[relu]]\n" DATA TRAIN,
     "job.yaml:1:9: model.layers.0: expected a layer, found a list"},
    /* What a strategy stands for, and keys that say otherwise. */
    {NULL, MODEL DATA TRAIN "parallel: {strategy: mirrored, pipeline: 2}\n",
     "job.yaml:4:42: parallel.pipeline: not with parallel.strategy: mirrored, where every rank has "
     "all weights and the result of one rank; leave one of them out"},
    {"parallel.zero=3", MODEL DATA TRAIN "parallel: {strategy: multi-worker}\n",
     "--set parallel.zero=3: parallel.zero: not with parallel.strategy: multi-worker*"},
    {"parallel.compress=topk", MODEL DATA TRAIN "parallel: {strategy: mirrored}\n",
     "--set parallel.compress=topk: parallel.compress: not with parallel.strategy: mirrored*"},
    {"train.sync=easgd", MODEL DATA TRAIN "parallel: {strategy: multi-worker}\n",
     "--set train.sync=easgd: train.sync: the sync rule easgd is not for parallel.strategy: "
     "multi-worker, which is the exact rule that fits; leave one of them out"},
    {"train.sync.every=4",
     MODEL DATA "train: {epochs: 1, sync: {rule: ma}}\n"
                "parallel: {strategy: mirrored}\n",
     "job.yaml:3:33: train.sync: the sync rule ma is not for parallel.strategy: mirrored*"},
    {NULL, MODEL DATA TRAIN "parallel: {strategy: mirrored, transport: tcp}\n",
     "job.yaml:4:43: parallel.transport: tcp is not for parallel.strategy: mirrored, whose ranks "
     "share the memory of one host; leave one of them out"},
    {NULL, MODEL DATA TRAIN "parallel: {strategy: multi-worker, transport: shm}\n",
     "job.yaml:4:47: parallel.transport: shm is not for parallel.strategy: multi-worker, whose "
     "ranks may be on several hosts; leave one of them out"},
    {NULL, MODEL DATA TRAIN "parallel: {strategy: parameter-server, servers: 0}\n",
     "job.yaml:4:49: parallel.servers: 0 is not for parallel.strategy: parameter-server*"},
    /* Layers on GPUs. */
    {NULL, "model: [flatten, {linear: 4, place: cuda:x}, linear]\n" DATA TRAIN,
     "job.yaml:1:37: model.layers.1.place: expected a whole number*"},
    {"train.backend=cpu", "model: [flatten, {linear: 4, place: cuda:1}, linear]\n" DATA TRAIN,
     "job.yaml:1:37: place: cuda:1 is a GPU, and train.backend is cpu: set it to cuda, or name the "
     "stage (place: 1)"},
    {NULL, MODEL "data: {source: digits, columns: {a: 3}}\n" TRAIN,
     "job.yaml:2:33: data.columns: expected a list of texts, found a map"},
};

static bool matches(const char *line, const char *want)
{
    const char *star = strchr(want, '*');
    size_t n = star ? (size_t)(star - want) : 0, all = strlen(line);
    size_t tail = star ? strlen(star + 1) : 0;

    if (!star)
        return !strcmp(line, want);
    return all >= n + tail && !strncmp(line, want, n) && !strcmp(line + all - tail, star + 1);
}

TEST(one_helpful_line_each)
{
    for (int i = 0; i < TD_LEN(WRONG); i++) {
        td__job *j;
        td__model m;
        td_status st = td__job_parse(WRONG[i].text, strlen(WRONG[i].text), "job.yaml",
                                     &WRONG[i].set, WRONG[i].set ? 1 : 0, &j);
        if (!st)
            st = td__job_model(j, FIELDS, TD_LEN(FIELDS), &m);
        CHECK_EQ_INT(st, TD_EINVAL);
        CHECK(matches(td_last_error(), WRONG[i].line), "%s\nnot: %s", td_last_error(),
              WRONG[i].line);
        CHECK(!strchr(td_last_error(), '\n'), "one line");
        td__job_destroy(j);
    }
}

TEST(files_that_cannot_be_read)
{
    td__job *j;
    char want[4200];

    CHECK_STATUS(td__job_load("/no/such/job.yaml", NULL, 0, &j), TD_EINVAL);
    assert_string_equal(td_last_error(),
                        "/no/such/job.yaml: cannot open: No such file or directory");
    const char *dir = check_tmpdir();
    CHECK_STATUS(td__job_load(dir, NULL, 0, &j), TD_EINVAL);
    snprintf(want, sizeof want, "%s: not a regular file", dir);
    assert_string_equal(td_last_error(), want);
    check_tmpdir_remove();
}

/* Deep, wide, large: refused, not suffered. */
TEST(hostile_files)
{
    static char text[(1 << 20) + 1];
    td__job *j;

    memset(text, '[', sizeof text);
    CHECK_STATUS(td__job_parse(text, 10000, "job.yaml", NULL, 0, &j), TD_EINVAL);
    CHECK_STATUS(td__job_parse(text, sizeof text, "job.yaml", NULL, 0, &j), TD_EINVAL);
    CHECK_STATUS(td__job_parse("a: \0b", 5, "job.yaml", NULL, 0, &j), TD_EINVAL);
    CHECK_STATUS(td__job_parse("\xff\xfe", 2, "job.yaml", NULL, 0, &j), TD_EINVAL);
    size_t n = 0;
    for (int i = 0; n + 16 < 100000; i++)
        n += (size_t)snprintf(text + n, 16, "k%d: 1\n", i);
    CHECK_STATUS(td__job_parse(text, n, "job.yaml", NULL, 0, &j), TD_EINVAL);
}

static bool is_value(const td__key *k, const char *word)
{
    for (int i = 0; k->list && k->list(i); i++)
        if (!strcmp(k->list(i), word))
            return true;
    return k->words && td__has_word(k->words, word);
}

static bool in_table(const td__key *keys, const char *word)
{
    for (const td__key *k = keys; k->path; k++)
        if (!strcmp(k->path, word) || is_value(k, word))
            return true;
    return false;
}

static bool in_defs(const td__layer_def *(*list)(int), const char *word)
{
    const td__layer_def *d;

    for (int i = 0; (d = list(i)); i++)
        if (!strcmp(d->name, word) || in_table(d->keys, word))
            return true;
    return false;
}

/* What a user is asked for exists, and is not what the user wrote. */
TEST(synonyms_lead_to_what_there_is)
{
    static const struct {
        const char *theirs, *ours;
    } ALL[] = {
#define TD_SYNONYM(theirs, ours) {theirs, ours},
#include "job/synonyms.def"
    };

    for (int i = 0; i < TD_LEN(ALL); i++) {
        CHECK(in_table(td__job_keys, ALL[i].ours) || in_defs(td__layer_list, ALL[i].ours) ||
                  in_defs(td__ready_list, ALL[i].ours),
              "%s: there is no %s", ALL[i].theirs, ALL[i].ours);
        CHECK(!td__keys_find(td__job_keys, ALL[i].theirs), "%s is a key", ALL[i].theirs);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_helpful_line_each),
        cmocka_unit_test(files_that_cannot_be_read),
        cmocka_unit_test(hostile_files),
        cmocka_unit_test(synonyms_lead_to_what_there_is),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
