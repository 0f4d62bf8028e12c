/* The run's directory: names of runs, metrics.jsonl and its cut on resume, TensorBoard's records,
 * the trace, the profile and the report, from made-up events. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/human.h"
#include "base/nearest.h"
#include "base/text.h"
#include "support/check.h"
#include "run/run_dir.h"
#include "train/trainer.h"

static const char *const METRICS[] = {"loss", "accuracy"};

static void step(td__observer *o, uint64_t n)
{
    double wave = sin((double)n * 1.7) * 0.05,
           loss = 2.3 * exp(-(double)n / 120) + 0.05 + wave * wave;
    td__step_event e = {.step = n,
                        .epoch = n / 100,
                        .loss = loss,
                        .lr = 1e-3 * cos((double)n / 400),
                        .grad_norm = 1 + wave,
                        .samples = 64,
                        .seconds = 0.01 + wave * wave,
                        .data_wait = 0.0004,
                        .elapsed = 0.01 * (double)n};
    CHECK_OK(o->step(o, &e));
}

static void eval(td__observer *o, uint64_t n, double accuracy)
{
    double values[] = {1 - accuracy, accuracy};
    td__eval_event e = {.step = n,
                        .part = "valid",
                        .n = 2,
                        .name = METRICS,
                        .value = values,
                        .best = true,
                        .seconds = 0.2};
    CHECK_OK(o->eval(o, &e));
}

static void begin(td__observer *o, uint64_t from)
{
    td__train_info info = {.name = "made \"up\"",
                           .first_step = from,
                           .steps = 400,
                           .steps_per_epoch = 100,
                           .batch = 64,
                           .params = 235146,
                           .micro_batches = 4,
                           .threads = 2,
                           .precision = "f32"};
    if (o->begin)
        CHECK_OK(o->begin(o, &info));
}

static void end(td__observer *o, uint64_t n)
{
    td__train_result r = {.end = TD_TRAIN_DONE,
                          .step = n,
                          .seconds = 4,
                          .samples_per_second = 6400,
                          .train_loss = 0.1,
                          .best = 0.97,
                          .best_step = n};
    memset(r.digest, 'a', 64);
    if (o->end)
        CHECK_OK(o->end(o, &r));
}

static int count_lines(const char *path, const char *kind)
{
    size_t nbytes;
    char *text = check_read_file(path, &nbytes);
    int n = 0;

    for (char *p = text; p < text + nbytes;) {
        char *stop = memchr(p, '\n', (size_t)(text + nbytes - p));
        CHECK(stop != NULL, "%s: the last line has no end", path);
        json_t *o = json_loadb(p, (size_t)(stop - p), JSON_REJECT_DUPLICATES, NULL);
        CHECK(o != NULL, "%s: not JSON: %.*s", path, (int)(stop - p), p);
        n += strcmp(json_string_value(json_object_get(o, "kind")), kind) == 0;
        json_decref(o);
        p = stop + 1;
    }
    free(text);
    return n;
}

TEST(runs_are_numbered)
{
    char a[TD__PATH], b[TD__PATH], c[TD__PATH];

    check_tmpdir();
    const char *parent = check_path("deep/runs");
    CHECK_STATUS(td__run_dir_newest(parent, "digits", a), TD_EINVAL);
    CHECK_OK(td__run_dir_create(parent, "digits", a));
    CHECK_OK(td__run_dir_create(parent, "digits", b));
    CHECK_OK(td__run_dir_create(parent, "digits-x", c)); /* another name, not a number */
    CHECK(strstr(a, "/digits-0001") && strstr(b, "/digits-0002"), "%s, %s", a, b);
    CHECK_STATUS(td__run_dir_newest(parent, "digits", c), TD_EINVAL); /* none has begun */
    check_write_file(check_path("deep/runs/digits-0001/job.yaml"), "x", 1);
    CHECK_OK(td__run_dir_newest(parent, "digits", c));
    CHECK(strcmp(a, c) == 0, "newest is %s, which was killed before it had a job", c);
    check_write_file(check_path("deep/runs/digits-0002/job.yaml"), "x", 1);
    CHECK_OK(td__run_dir_newest(parent, "digits", c));
    CHECK(strcmp(b, c) == 0, "newest is %s", c);
    CHECK_OK(td__run_dir_create(a, NULL, c));
    CHECK(strcmp(a, c) == 0, "%s became %s", a, c);

    check_write_file(check_path("file"), "x", 1);
    CHECK_STATUS(td__run_dir_create(check_path("file"), NULL, c), TD_EINVAL);
    CHECK_STATUS(td__run_dir_create(check_path("file/sub"), "a", c), TD_EINVAL);
    CHECK_STATUS(td__run_dir_create("", "a", c), TD_EINVAL);
    if (mkdir("/sys/no-run", 0777) != 0) { /* the reason is mkdir's own */
        const char *why = strerror(errno);
        CHECK_STATUS(td__run_dir_create("/sys/no-run", "a", c), TD_EINVAL);
        CHECK(strstr(td_last_error(), why), "%s, not %s", td_last_error(), why);
    }
    static const char *const BAD[] = {"", ".", "../x", "a/b"};
    for (int i = 0; i < TD_LEN(BAD); i++)
        CHECK_STATUS(td__run_dir_create(parent, BAD[i], c), TD_EINVAL);
    check_tmpdir_remove();
}

TEST(what_killed_writers_left_is_swept_up)
{
    static const struct {
        const char *name;
        bool stays;
    } FILES[] = {{"job.yaml", true},
                 {"job.yaml.tmp-12-5f", false},
                 {"metrics.jsonl", true},
                 {"metrics.jsonl.tmp-7-a0", false},
                 {"report.html.tmp-7-a1", false},
                 {"notes.tmp-1", true}}; /* a user's own */
    check_tmpdir();
    for (size_t i = 0; i < sizeof FILES / sizeof FILES[0]; i++)
        check_write_file(check_path(FILES[i].name), "x", 1);
    td__run_dir_sweep(check_path("."));
    for (size_t i = 0; i < sizeof FILES / sizeof FILES[0]; i++)
        CHECK((access(check_path(FILES[i].name), F_OK) == 0) == FILES[i].stays, "%s",
              FILES[i].name);
    td__run_dir_sweep(check_path("nosuch"));
    check_tmpdir_remove();
}

typedef struct racer {
    pthread_t thread;
    const char *parent;
    td_status st;
    char path[TD__PATH];
} racer;

static void *race(void *p)
{
    racer *r = p;
    r->st = td__run_dir_create(r->parent, "race", r->path);
    return NULL;
}

TEST(runs_that_start_together_get_their_own_directory)
{
    static racer r[8];

    check_tmpdir();
    const char *parent = check_path("runs");
    for (int i = 0; i < TD_LEN(r); i++) {
        r[i].parent = parent;
        CHECK_EQ_INT(pthread_create(&r[i].thread, NULL, race, &r[i]), 0);
    }
    for (int i = 0; i < TD_LEN(r); i++)
        pthread_join(r[i].thread, NULL);
    for (int i = 0; i < TD_LEN(r); i++) {
        CHECK_EQ_INT(r[i].st, TD_OK);
        for (int k = 0; k < i; k++)
            CHECK(strcmp(r[i].path, r[k].path) != 0, "%s twice", r[i].path);
    }
    check_tmpdir_remove();
}

TEST(metrics_are_cut_on_resume)
{
    td__observer *o;
    const char *dir = check_tmpdir(), *path = check_path("metrics.jsonl");

    CHECK_OK(td__metrics_file_create(dir, 0, &o));
    begin(o, 0);
    for (uint64_t i = 1; i <= 20; i++)
        step(o, i);
    eval(o, 20, 0.5);
    td__metrics_file_destroy(o);
    CHECK_EQ_INT(count_lines(path, "step"), 20);

    FILE *f = fopen(path, "a"); /* the torn line of a killed run */
    fputs("{\"kind\": \"step\", \"ste", f);
    fclose(f);
    CHECK_OK(td__metrics_file_create(dir, 12, &o));
    begin(o, 12);
    for (uint64_t i = 13; i <= 20; i++)
        step(o, i);
    end(o, 20);
    td__metrics_file_destroy(o);
    CHECK_EQ_INT(count_lines(path, "step"), 20);
    CHECK_EQ_INT(count_lines(path, "begin"), 2);
    CHECK_EQ_INT(count_lines(path, "eval"), 0);
    CHECK_EQ_INT(count_lines(path, "end"), 1);

    CHECK_OK(td__metrics_file_create(dir, 0, &o)); /* anew */
    begin(o, 0);
    td__metrics_file_destroy(o);
    CHECK_EQ_INT(count_lines(path, "step"), 0);
    check_tmpdir_remove();
}

TEST(numbers_that_json_lacks_become_null)
{
    td__observer *o;
    const char *dir = check_tmpdir();
    td__step_event e = {.step = 1, .loss = (double)NAN, .lr = (double)INFINITY, .grad_norm = -1};

    CHECK_OK(td__metrics_file_create(dir, 0, &o));
    CHECK_OK(o->step(o, &e));
    td__metrics_file_destroy(o);
    CHECK_EQ_INT(count_lines(check_path("metrics.jsonl"), "step"), 1);
    check_tmpdir_remove();
}

static uint32_t masked(const void *p, size_t n)
{
    uint32_t c = td__crc32c_table(0, p, n);
    return ((c >> 15) | (c << 17)) + 0xa282ead8u;
}

/* Records of the only event file in dir; all checksums must hold. */
static int count_records(const char *dir, char *first, size_t room)
{
    DIR *d = opendir(dir);
    int n = 0;

    for (struct dirent *e; (e = readdir(d));) {
        if (strncmp(e->d_name, "events.out.tfevents.", 20) != 0)
            continue;
        size_t nbytes, at = 0;
        uint8_t *p = check_read_file(check_path(e->d_name), &nbytes);
        while (at < nbytes) {
            uint64_t len;
            uint32_t crc;
            CHECK(nbytes - at >= 16, "a torn record at %zu", at);
            memcpy(&len, p + at, 8);
            memcpy(&crc, p + at + 8, 4);
            CHECK(crc == masked(p + at, 8), "checksum of the length at %zu", at);
            CHECK(len <= nbytes - at - 16, "a record of %llu bytes", (unsigned long long)len);
            memcpy(&crc, p + at + 12 + len, 4);
            CHECK(crc == masked(p + at + 12, len), "checksum of the bytes at %zu", at);
            if (n++ == 0 && len < room) {
                memcpy(first, p + at + 12, len);
                first[len] = 0;
            }
            at += 16 + len;
        }
        free(p);
    }
    closedir(d);
    return n;
}

TEST(tensorboard_records_are_whole)
{
    td__observer *o;
    char first[64];
    const char *dir = check_tmpdir();

    CHECK_OK(td__tensorboard_create(dir, 0, false, &o));
    for (uint64_t i = 1; i <= 300; i++) /* steps of one and of two bytes */
        step(o, i);
    eval(o, 300, 0.9);
    td__tensorboard_destroy(o);
    CHECK_EQ_INT(count_records(dir, first, sizeof first), 302);
    /* key and 8 bytes of time; key, length and text of the version */
    CHECK(first[0] == 0x09 && first[9] == 0x1a && first[10] == 13 &&
              memcmp(first + 11, "brain.Event:2", 13) == 0,
          "the first event has no version");
    CHECK_OK(td__tensorboard_create(dir, 300, false, &o)); /* a second file */
    td__tensorboard_destroy(o);
    CHECK_EQ_INT(count_records(dir, first, sizeof first), 304);
    check_tmpdir_remove();
}

static const td_node_time NODES[] = {{"fc1", "linear", "gemm", 400, 4000000},
                                     {"fc2", "linear", "gemm", 400, 1000000},
                                     {"relu", "relu", "avx512", 400, 200000},
                                     {"never", "add", NULL, 0, 0}};

TEST(trace_and_profile)
{
    td__observer *o;
    json_error_t why;
    size_t nbytes;
    const char *dir = check_tmpdir();

    CHECK_OK(td__trace_create(dir, &o));
    begin(o, 0);
    for (uint64_t i = 1; i <= 500; i++) /* more than one flush */
        step(o, i);
    eval(o, 500, 0.5);
    td__checkpoint_event c = {.step = 500, .path = "x", .nbytes = 10, .seconds = 0.1};
    CHECK_OK(o->checkpoint(o, &c));
    td__span spans[] = {
        {.begin_ns = 1, .end_ns = 5, .step = 1, .kind = TD_SPAN_STEP},
        {.begin_ns = 2, .end_ns = 3, .step = 1, .kind = TD_SPAN_MICRO_BATCH, .lane = 1},
        {.begin_ns = 4, .end_ns = 5, .posted_ns = 3, .kind = TD_SPAN_BUCKET}};
    for (int r = 0; r < 2; r++)
        CHECK_OK(o->spans(
            o, &(td__spans_event){.rank = r, .n = TD_LEN(spans), .span = spans, .lost = 0}));
    CHECK_OK(td__trace_nodes(o, NODES, TD_LEN(NODES)));
    CHECK_OK(td__trace_finish(o));
    td__trace_destroy(o);
    json_t *t = json_load_file(check_path("trace.json"), 0, &why);
    CHECK(t != NULL, "trace.json:%d: %s", why.line, why.text);
    /* Rank 0 has its step already; both have two lanes, a micro-batch, a bucket and its arrow. */
    CHECK_EQ_INT(json_array_size(t), 6 + 500 + 1 + 1 + 3 + (2 + 4) + (4 + 2 + 5));
    json_decref(t);

    CHECK_OK(td__profile_write(dir, NODES, TD_LEN(NODES)));
    char *text = check_read_file(check_path("profile.txt"), &nbytes);
    CHECK(nbytes > 0 && strstr(text, "96.15") && strstr(text, "fc1") && !strstr(text, "never"),
          "%s", text);
    free(text);
    check_tmpdir_remove();
}

TEST(report_is_one_page)
{
    td__observer *o;
    size_t nbytes;
    const char *dir = check_tmpdir();
    static const td__layer_row LAYERS[] = {
        {"conv<1>", "conv2d", {.ndim = 3, .dim = {8, 28, 28}}, 80, 1e6},
        {"fc", "linear", {.ndim = 1, .dim = {10}}, 235066, 4.7e5}};

    CHECK_STATUS(td__report_write(&(td__report_opts){.dir = dir, .title = "x"}), TD_EIO);
    CHECK_OK(td__metrics_file_create(dir, 0, &o));
    begin(o, 0);
    td__report_opts opts = {.dir = dir,
                            .title = "<made> & up",
                            .job_text = "name: made\ntrain: {batch: 64}\n",
                            .layers = LAYERS,
                            .n_layers = TD_LEN(LAYERS),
                            .memory = {.activations = 1000, .total = 2000},
                            .profile = NODES,
                            .n_profile = TD_LEN(NODES)};
    CHECK_OK(td__report_write(&opts)); /* nothing happened yet */
    for (uint64_t i = 1; i <= 400; i++) {
        step(o, i);
        if (i % 100 == 0)
            eval(o, i, 1 - 10 / (double)i);
    }
    end(o, 400);
    td__metrics_file_destroy(o);
    CHECK_OK(td__report_write(&opts));
    char *page = check_read_file(check_path("report.html"), &nbytes);
    static const char *const WANT[] = {"<!DOCTYPE html>", "&lt;made&gt; &amp; up", "Loss",
                                       "Accuracy",        "Learning rate",         "Throughput",
                                       "finished",        "conv&lt;1&gt;",         "97.50 %",
                                       "</html>"};
    for (int i = 0; i < TD_LEN(WANT); i++)
        CHECK(strstr(page, WANT[i]) != NULL, "the page lacks %s", WANT[i]);
    static const char *const NOT[] = {"http:", "https:", "src=", "nan", "inf\""};
    for (int i = 0; i < TD_LEN(NOT); i++)
        CHECK(strstr(page, NOT[i]) == NULL, "the page has %s", NOT[i]);
    free(page);
    check_tmpdir_remove();
}

TEST(people_s_numbers)
{
    char b[TD__HUMAN];
    static const struct {
        double v;
        const char *want;
    } BYTES[] = {{0, "0 B"}, {999, "999 B"}, {1500, "1.50 kB"}, {123456789, "123 MB"}},
      SECONDS[] = {
          {0.0000005, "0 us"},   {0.0412, "41 ms"},    {12.34, "12.3 s"}, {185, "3 min 05 s"},
          {59.97, "1 min 00 s"}, {7300, "2 h 02 min"}, {-1, "?"}};

    for (int i = 0; i < TD_LEN(BYTES); i++)
        assert_string_equal(td__human_bytes(BYTES[i].v, b), BYTES[i].want);
    for (int i = 0; i < TD_LEN(SECONDS); i++)
        assert_string_equal(td__human_seconds(SECONDS[i].v, b), SECONDS[i].want);
    static const struct { /* a value in the unit of a column, by the largest in it */
        td__unit (*unit)(double largest);
        double largest, v;
        const char *want;
    } COLUMN[] = {{td__unit_bytes, 123456789, 123456789, "123 MB"},
                  {td__unit_bytes, 123456789, 4567890, "4.6 MB"},
                  {td__unit_bytes, 123456789, 56789, "0.057 MB"},
                  {td__unit_bytes, 123456789, 12, "<0.0001 MB"},
                  {td__unit_bytes, 123456789, 0, "0 MB"},
                  {td__unit_bytes, 999, 7, "7 B"},
                  {td__unit_bytes, 1500, NAN, "?"},
                  {td__unit_si, 12345, 678, "0.68 k"},
                  {td__unit_seconds, 12.34, 0.0412, "0.041 s"},
                  {td__unit_seconds, 0.5, 0.0000005, "0.0005 ms"},
                  {td__unit_seconds, 599, 60, "60 s"},
                  {td__unit_seconds, 650, 60, "1.0 min"},
                  {td__unit_seconds, 7300 * 10, 7300, "2.0 h"}};
    for (int i = 0; i < TD_LEN(COLUMN); i++) {
        td__unit_text(COLUMN[i].unit(COLUMN[i].largest), COLUMN[i].v, b);
        CHECK(strcmp(b, COLUMN[i].want) == 0, "column %d: %s", i, b);
    }
    assert_string_equal(td__human_count(1234567, b), "1,234,567");
    assert_string_equal(td__human_count(-123, b), "-123");
    assert_string_equal(td__human_count(INT64_MIN, b), "-9,223,372,036,854,775,808");
    assert_string_equal(td__human_metric("accuracy", 0.9712, b), "97.12 %");
    assert_string_equal(td__human_metric("loss", 0.97123, b), "0.9712");
}

TEST(nearest_names)
{
    CHECK_EQ_INT(td__edit_distance("kitten", "sitting"), 3);
    CHECK_EQ_INT(td__edit_distance("trian", "train"), 1); /* neighbours swapped */
    CHECK_EQ_INT(td__edit_distance("", "abc"), 3);
    CHECK_EQ_INT(td__edit_distance("ABC", "abc"), 0);
    td__nearest n = {.word = "optimzer"};
    td__nearest_offer(&n, "schedule");
    CHECK(n.best == NULL, "%s is not close", n.best);
    td__nearest_offer(&n, "optimizer");
    td__nearest_offer(&n, "optimizers");
    assert_string_equal(n.best, "optimizer");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_are_numbered),
        cmocka_unit_test(what_killed_writers_left_is_swept_up),
        cmocka_unit_test(runs_that_start_together_get_their_own_directory),
        cmocka_unit_test(metrics_are_cut_on_resume),
        cmocka_unit_test(numbers_that_json_lacks_become_null),
        cmocka_unit_test(tensorboard_records_are_whole),
        cmocka_unit_test(trace_and_profile),
        cmocka_unit_test(report_is_one_page),
        cmocka_unit_test(people_s_numbers),
        cmocka_unit_test(nearest_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
