/* Runs of older versions can be resumed: keys that were renamed or added since do not change the
 * digest of a job that does not use them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "job/job.h"
#include "job/job_impl.h"
#include "support/check.h"

static td__job *parse(const char *text, const char *const *sets, int n_sets)
{
    td__job *j;

    CHECK_OK(td__job_parse(text, strlen(text), "job.yaml", sets, n_sets, &j));
    return j;
}

static void check_digest(const char *text, const char *set, const char *want)
{
    td__job *j = parse(text, &set, set ? 1 : 0);
    char hex[65];

    CHECK_OK(td__job_digest(j, hex));
    CHECK(strcmp(hex, want) == 0, "digest %s, expected %s, of\n%s", hex, want, text);
    td__job_destroy(j);
}

/* Digests that the version before train.shards became train.micro_batches gave these jobs. If this
 * fails after a change of keys.def, runs of all users can no longer be resumed: a new row needs
 * TD_KEY_LATER or TD_KEY_FREE, a renamed one .was, and rows keep their order. */
static const struct {
    const char *text, *hex;
} RECORDED[] = {
    {"model: [flatten, linear]\n"
     "data: digits\n"
     "train: {epochs: 1}\n",
     "20aab3b93d5af66b10d6b5da0b1169a69b8d8625f818d5c11285b6fa105bb5b8"},
    /* Every layer, stages, metrics; the old name of train.micro_batches. */
    {"model:\n"
     "  - {conv2d: 8, as: a, groups: 1, name: first}\n"
     "  - {residual: [{conv2d: 8, padding: 1}, batch_norm], shortcut: [identity], act: relu}\n"
     "  - repeat: {times: 2, layers: [silu, {group_norm: 2}]}\n"
     "  - concat: [a]\n"
     "  - {avg_pool: 2, stride: 1}\n"
     "  - permute: [2, 3, 1]\n"
     "  - reshape: [-1]\n"
     "  - {linear: 8, from: a}\n"
     "  - dropout: 0.5\n"
     "  - linear\n"
     "loss: {name: cross_entropy, label_smoothing: 0.1, ignore: 3}\n"
     "metrics: [accuracy, top5, nll, bits]\n"
     "data: {source: digits, maps: [{crop: 20, pad: 1}, flip, normalize: {mean: 0.1, std: 2}]}\n"
     "train:\n"
     "  {steps: 3, optimizer: {name: rmsprop, centered: on, alpha: 0.5}, shards: 4,\n"
     "   clip: {norm: 1, value: 2}, schedule: {name: multistep, milestones: [1, 2], gamma: 0.5},\n"
     "   eval: {every: never}}\n"
     "checkpoint: end\n",
     "33f664910efa5c5983c23f714b2bdbd52855d354b331135b59fecdc0415e90f3"},
    /* A ready-made model, a schedule that ends with the run, a compressor, keys that are free. */
    {"model: {name: gpt2, layers: 2, heads: 2, width: 32, context: 16}\n"
     "data: {source: text, train: corpus.txt, context: 16, split: {valid: 0.2}, cache: memory}\n"
     "train:\n"
     "  {batch: 24, steps: 90, shards: 8, precision: bf16, accumulate: 2, seed: 7,\n"
     "   optimizer: {name: sgd, lr: 0.003, momentum: 0.9},\n"
     "   schedule: {name: cosine, warmup_steps: 9}}\n"
     "parallel: {beside: 2, zero: 0, bucket_mb: 0.5, compress: topk, compress_ratio: 0.01}\n",
     "a550d826ffdf2c83a6faad1641b5e37010b940fbe21ef793285b0e74b69eacfb"},
    /* Plateau makes the times of validation part of the digest; backup workers. */
    {"model: {name: mlp, hidden: [8, 4], act: relu}\n"
     "loss: {name: huber, delta: 2}\n"
     "data: {source: csv, train: t.csv, label: price, target: number, delimiter: ';', header: no}\n"
     "train:\n"
     "  {batch: 10, epochs: 4, shards: 5, reproducible: true, eval: {every: 3},\n"
     "   schedule: {name: plateau, patience: 0, threshold: 0.01}, early_stop: {patience: 2}}\n"
     "parallel: {backup: 1, balance: off, beside: 1}\n",
     "f26b311516ad59e9f5086adcd5abb1998f9ba4fbdd0ad21799aa48640eed2fa8"},
};

TEST(digests_of_older_versions_stay)
{
    for (size_t i = 0; i < sizeof RECORDED / sizeof *RECORDED; i++)
        check_digest(RECORDED[i].text, NULL, RECORDED[i].hex);
}

static const char NEW[] = "model: [flatten, linear]\n"
                          "data: digits\n"
                          "train: {epochs: 1, batch: 8, micro_batches: 4}\n"
                          "parallel: {in_flight: 2}\n";
static const char OLD[] = "model: [flatten, linear]\n"
                          "data: digits\n"
                          "train: {epochs: 1, batch: 8, shards: 4}\n"
                          "parallel: {beside: 2}\n";

static bool has_note(const td__job *j, const char *note)
{
    const char *text;

    for (int i = 0; (text = td__job_renamed(j, i)); i++)
        if (strcmp(text, note) == 0)
            return true;
    return false;
}

static int notes(const td__job *j)
{
    int n = 0;

    while (td__job_renamed(j, n))
        n++;
    return n;
}

TEST(old_names_are_the_new_keys)
{
    char a[65], b[65], what[256];
    td__job *new = parse(NEW, NULL, 0), *old = parse(OLD, NULL, 0);

    assert_int_equal(td__job_train(old)->micro_batches, 4);
    assert_int_equal(td__job_train(old)->sync.in_flight, 2);
    CHECK_OK(td__job_digest(new, a));
    CHECK_OK(td__job_digest(old, b));
    assert_string_equal(a, b);
    assert_false(td__job_differs(old, new, what, sizeof what));
    assert_int_equal(notes(new), 0);
    assert_int_equal(notes(old), 2);
    assert_true(has_note(old, "job.yaml:3:30: train.shards is now train.micro_batches"));
    assert_true(has_note(old, "job.yaml:4:12: parallel.beside is now parallel.in_flight"));
    td__job_destroy(new);
    td__job_destroy(old);
}

TEST(old_names_override_and_are_overridden)
{
    static const struct {
        const char *text, *set;
    } CASES[] = {
        {NEW, "train.shards=2"},
        {OLD, "train.shards=2"},
        {OLD, "train.micro_batches=2"},
        {NEW, "train={epochs: 1, batch: 8, shards: 2}"},
        {OLD, "train={epochs: 1, batch: 8, micro_batches: 2}"},
    };

    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        td__job *j = parse(CASES[i].text, &CASES[i].set, 1);
        CHECK(td__job_train(j)->micro_batches == 2, "%s: %d", CASES[i].set,
              td__job_train(j)->micro_batches);
        td__job_destroy(j);
    }
}

TEST(both_names_at_once_are_refused)
{
    static const char BOTH[] = "model: [flatten, linear]\n"
                               "data: digits\n"
                               "train: {epochs: 1, shards: 4, micro_batches: 4}\n";
    td__job *j;

    assert_int_equal(td__job_parse(BOTH, strlen(BOTH), "job.yaml", NULL, 0, &j), TD_EINVAL);
    assert_string_equal(td_last_error(), "job.yaml:3:20: train.shards is the old name of "
                                         "train.micro_batches, which is given too");
}

/* The rule for rows that come later, on a table of its own: at its default a row is not there. */
TEST(keys_added_later_are_left_out_at_their_default)
{
    static const td__key KEYS[] = {
        TD_KEY_ROW("old", INT, "", .def = "1"),
        TD_KEY_ROW("new", REAL, "", .def = "0.50", .flags = TD_KEY_LATER), TD_KEYS_END};
    static const struct {
        const char *given, *digest_key;
    } CASES[] = {{"old: 2", ""}, {"new: 0.5", ""}, {"new: 0.25", NULL}};
    td__arena *a;
    td__tree *given, *out;

    CHECK_OK(td__arena_create(&a));
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const char *text = CASES[i].given, *want = CASES[i].digest_key;
        CHECK_OK(td__tree_parse(a, text, strlen(text), "t", true, &given));
        CHECK_OK(td__keys_resolve(a, KEYS, "", given, given, &out));
        const char *key = td__tree_get(out, "new")->digest_key;
        CHECK(want ? key && !strcmp(key, want) : !key, "%s: %s", text, key ? key : "NULL");
        assert_null(td__tree_get(out, "old")->digest_key);
    }
    td__arena_destroy(a);
}

/* Renaming changes the last part of a path only; two rows never have one name. */
TEST(names_are_unambiguous)
{
    for (const td__key *k = td__job_keys; k->path; k++) {
        const char *dot = strrchr(k->path, '.'), *was = k->was ? strrchr(k->was, '.') : NULL;
        CHECK(!k->was || (dot && was && was - k->was == dot - k->path &&
                          !strncmp(k->was, k->path, (size_t)(dot - k->path))),
              "%s was %s: another section", k->path, k->was);
        CHECK(!k->was || !td__keys_find(td__job_keys, k->was), "%s is a key too", k->was);
        CHECK(td__keys_find(td__job_keys, k->path) == k, "%s: two rows", k->path);
        bool expanded = td__has_word("define parallel.strategy", k->path);
        CHECK((k->to.type == TD_OPTION_NONE) == expanded, "%s: which member does it fill?",
              k->path);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(digests_of_older_versions_stay),
        cmocka_unit_test(old_names_are_the_new_keys),
        cmocka_unit_test(old_names_override_and_are_overridden),
        cmocka_unit_test(both_names_at_once_are_refused),
        cmocka_unit_test(keys_added_later_are_left_out_at_their_default),
        cmocka_unit_test(names_are_unambiguous),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
