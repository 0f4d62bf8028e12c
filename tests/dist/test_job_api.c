/* Jobs through tandem/train.h: the digest of the trainer of jobs itself, on one rank and several,
 * with the run's directory and its files, resumed, evaluated and used for predictions. That the
 * command gives the same is the affair of tests/e2e/test_api.sh. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "base/check.h"
#include "base/file.h"
#include "support/check.h"
#include "support/ranks.h"
#include "tandem/train.h"

static const char TEXT[] = "name: spirals\n"
                           "model: [{linear: 24, act: relu}, {dropout: 0.1}, linear]\n"
                           "data: {source: spirals, count: 300, split: {valid: 0.1, test: 0.1}}\n"
                           "train: {batch: 32, epochs: 2, optimizer: {lr: 0.01}}\n";

static td_job *job(void)
{
    td_job *j;
    CHECK_OK(td_job_parse(TEXT, "memory.yaml", &j));
    return j;
}

TEST(jobs_are_read_and_changed)
{
    td_job *j = job(), *n;
    char before[65], after[65];

    CHECK(!strcmp(td_job_name(j), "spirals"), "%s", td_job_name(j));
    CHECK_OK(td_job_digest(j, before));
    CHECK_STATUS(td_job_set(j, "train.bach=3"), TD_EINVAL);
    CHECK(strstr(td_last_error(), "train.batch"), "%s", td_last_error());
    CHECK_OK(td_job_digest(j, after));
    CHECK(!strcmp(before, after), "a failure has changed the job");
    CHECK_OK(td_job_set(j, "train.batch=16"));
    CHECK_OK(td_job_digest(j, after));
    CHECK(strcmp(before, after) != 0, "the batch does not count");
    check_tmpdir();
    FILE *f = fopen(check_path("job.yaml"), "w");
    CHECK(f, "cannot write");
    CHECK_OK(td_job_write(j, f));
    CHECK_EQ_INT(fclose(f), 0);
    CHECK_OK(td_job_load(check_path("job.yaml"), &n));
    CHECK_OK(td_job_digest(n, before));
    CHECK(!strcmp(before, after), "written and read, it is another job");
    td_job_destroy(n);
    CHECK_STATUS(td_job_load(check_path("none.yaml"), &n), TD_EINVAL);
    CHECK_STATUS(td_job_parse("name: [", "bad.yaml", &n), TD_EINVAL);
    CHECK(!n && strstr(td_last_error(), "bad.yaml:2"), "%s", td_last_error());
    td_job_destroy(j);
    td_job_destroy(NULL);
    check_tmpdir_remove();
}

static td_answer stop_at_step(void *user, const td_step_info *e)
{
    return e->step == *(const uint64_t *)user ? TD_STOP : TD_CONTINUE;
}

static bool has(const char *dir, const char *name)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return access(path, F_OK) == 0;
}

/* A run with its files, stopped by a callback, resumed by another trainer. */
TEST(a_run_has_its_directory_and_is_resumed)
{
    td_job *j = job();
    td_trainer *t;
    td_run_result whole, r;
    uint64_t at = 6;

    CHECK_OK(td_trainer_from_job(j, &(td_job_opts){.no_run_dir = true}, &t));
    CHECK_OK(td_trainer_fit(t, &whole));
    CHECK_EQ_INT(whole.end, TD_RUN_DONE);
    CHECK(whole.test.n == 2 && whole.test.samples == 100, "%d", whole.test.n);
    CHECK(!*whole.run_dir, "%s", whole.run_dir);
    td_trainer_destroy(t);

    check_tmpdir();
    td_job_opts o = {.run_dir = check_path("run"),
                     .callbacks = {.user = &at, .step = stop_at_step}};
    CHECK_OK(td_trainer_from_job(j, &o, &t));
    CHECK_OK(td_trainer_fit(t, &r));
    CHECK_EQ_INT(r.end, TD_RUN_STOPPED);
    CHECK_EQ_INT(r.step, 6);
    td_trainer_destroy(t);
    CHECK_STATUS(td_trainer_from_job(j, &o, &t), TD_EINVAL); /* there is a run */
    o.resume = true;
    at = 0;
    for (int again = 0; again < 2; again++) { /* then there is nothing left to do */
        CHECK_OK(td_trainer_from_job(j, &o, &t));
        CHECK_EQ_INT(td_trainer_step(t), again ? whole.step : 6);
        CHECK_OK(td_trainer_fit(t, &r));
        CHECK(!strcmp(r.digest, whole.digest), "%s and %s", r.digest, whole.digest);
        CHECK(r.test.value[0] == whole.test.value[0], "%g and %g", r.test.value[0],
              whole.test.value[0]);
        td_trainer_destroy(t);
    }
    CHECK(has(r.run_dir, "metrics.jsonl") && has(r.run_dir, "job.yaml") &&
              has(r.run_dir, "report.html") && has(r.run_dir, "checkpoints/latest"),
          "files are missing in %s", r.run_dir);
    td_job_destroy(j);
    check_tmpdir_remove();
}

/* Of a process that was started again with a run to continue, the trainer whose run it is takes it:
 * a run by another name, or of another job, is its own. */
TEST(a_restart_is_for_the_run_that_was_under_way)
{
    td_job *j = job(), *other = job();
    td_trainer *t;
    td_run_result r;
    uint64_t at = 6;

    check_tmpdir();
    char set[4200], first[4200];
    snprintf(set, sizeof set, "log.dir=%s", check_path("runs"));
    CHECK_OK(td_job_set(j, set));
    CHECK_OK(td_job_set(other, set));
    CHECK_OK(td_job_set(other, "train.seed=5"));
    td_job_opts o = {.callbacks = {.user = &at, .step = stop_at_step}}, named = o;
    CHECK_OK(td_trainer_from_job(j, &o, &t));
    CHECK_OK(td_trainer_fit(t, &r));
    CHECK_EQ_INT(r.step, 6);
    snprintf(first, sizeof first, "%s", r.run_dir);
    td_trainer_destroy(t);
    setenv("TANDEM_RESUME", first, 1);
    at = 0;
    CHECK_OK(td_trainer_from_job(other, &o, &t));
    CHECK_EQ_INT(td_trainer_step(t), 0);
    td_trainer_destroy(t);
    named.run_dir = check_path("named");
    CHECK_OK(td_trainer_from_job(j, &named, &t));
    CHECK_EQ_INT(td_trainer_step(t), 0);
    td_trainer_destroy(t);
    CHECK_OK(td_trainer_from_job(j, &o, &t));
    CHECK_EQ_INT(td_trainer_step(t), 6);
    CHECK_OK(td_trainer_fit(t, &r));
    CHECK(strcmp(r.run_dir, first) == 0, "%s", r.run_dir);
    td_trainer_destroy(t);
    unsetenv("TANDEM_RESUME");
    td_job_destroy(j);
    td_job_destroy(other);
    check_tmpdir_remove();
}

/* trace.json of a run that was stopped and goes on in the same trainer is one array. */
TEST(a_profiled_run_that_goes_on_has_one_trace)
{
    td_job *j = job();
    td_trainer *t;
    td_run_result r;
    uint64_t at = 6;
    bool first = false, last = false;

    check_tmpdir();
    td_job_opts o = {.run_dir = check_path("run"),
                     .profile = true,
                     .callbacks = {.user = &at, .step = stop_at_step}};
    CHECK_OK(td_trainer_from_job(j, &o, &t));
    for (int fit = 0; fit < 2; fit++) {
        CHECK_OK(td_trainer_fit(t, &r));
        at = 0;
        json_t *trace = json_load_file(check_path("run/trace.json"), 0, NULL), *e;
        CHECK(json_is_array(trace), "after fit %d: not an array", fit + 1);
        size_t i;
        json_array_foreach(trace, i, e)
        {
            const char *name = json_string_value(json_object_get(e, "name"));
            first |= name && !strcmp(name, "step 1");
            last |= fit && name && !strcmp(name, "step 7");
        }
        json_decref(trace);
    }
    CHECK(first && last, "steps of one of the fits are missing");
    td_trainer_destroy(t);
    td_job_destroy(j);
    check_tmpdir_remove();
}

TEST(a_trained_run_is_evaluated_and_predicts)
{
    td_job *j = job();
    td_trainer *t;
    td_run_result r;
    td_metrics m;
    td_dataset *d;
    td_shape row;
    static float out[100 * 3];

    check_tmpdir();
    CHECK_OK(td_trainer_from_job(j, &(td_job_opts){.run_dir = check_path("run")}, &t));
    CHECK_OK(td_trainer_fit(t, &r));
    td_trainer_destroy(t);
    td_job_destroy(j);
    CHECK_OK(td_trainer_from_run(r.run_dir, NULL, NULL, &t));
    CHECK_OK(td_trainer_part(t, NULL, &d));
    CHECK_EQ_INT(td_dataset_count(d), 100);
    CHECK_OK(td_trainer_evaluate(t, d, &m));
    CHECK(m.value[0] == r.test.value[0] && m.value[1] == r.test.value[1], "%g and %g", m.value[0],
          r.test.value[0]);
    CHECK_OK(td_trainer_predict(t, d, out, 300, &row));
    CHECK_EQ_INT(row.dim[0], 3);
    CHECK_OK(td_trainer_predict_file(t, d, check_path("p.csv")));
    CHECK(has(check_path(""), "p.csv"), "no file");
    CHECK_STATUS(td_trainer_predict_file(t, d, check_path("p.doc")), TD_EINVAL);
    CHECK_STATUS(td_trainer_fit(t, NULL), TD_EINVAL);
    td_dataset_destroy(d);
    CHECK_STATUS(td_trainer_part(t, "exam", &d), TD_EINVAL);
    td_trainer_destroy(t);
    CHECK_STATUS(td_trainer_from_run(r.run_dir, "step-999", NULL, &t), TD_EINVAL);
    CHECK_STATUS(td_trainer_from_run(check_path("none"), NULL, NULL, &t), TD_EINVAL);
    check_tmpdir_remove();
}

/* A trainer that is never asked to fit leaves nothing. */
TEST(nothing_is_left_of_a_run_that_never_began)
{
    td_job *j = job();
    td_trainer *t;

    check_tmpdir();
    CHECK_OK(td_trainer_from_job(j, &(td_job_opts){.run_dir = check_path("run")}, &t));
    CHECK(has(check_path(""), "run"), "no directory");
    td_trainer_destroy(t);
    CHECK(!has(check_path(""), "run"), "the directory is still there");
    CHECK_STATUS(td_trainer_from_job(j, &(td_job_opts){.no_run_dir = true, .resume = true}, &t),
                 TD_EINVAL);
    td_job_destroy(j);
    check_tmpdir_remove();
}

typedef struct many {
    const td_job *job;
    const td_run_result *want;
    double first; /* loss of the test part with the first weights */
    const char *dir;
} many;

static void one_of_many(ranks_ctx *r)
{
    const many *m = r->arg;
    td_trainer *t = NULL;
    td_run_result got;

    td_dataset *d = NULL;
    td_metrics e;

    td_status st =
        td_trainer_from_job(m->job, &(td_job_opts){.comm = r->comm, .run_dir = m->dir}, &t);
    if (!st)
        st = td_trainer_part(t, "test", &d);
    if (!st)
        st = td_trainer_evaluate(t, d, &e);
    RANK_CHECK(r, st || e.value[0] == m->first, "before fit: %a and %a", e.value[0], m->first);
    if (!st)
        st = td_trainer_fit(t, &got);
    td_dataset_destroy(d);
    td_trainer_destroy(t);
    RANK_OK(r, st);
    RANK_CHECK(r, !strcmp(got.digest, m->want->digest), "%s and %s", got.digest, m->want->digest);
    RANK_CHECK(r, got.test.value[0] == m->want->test.value[0], "%g and %g", got.test.value[0],
               m->want->test.value[0]);
}

/* Rank 1 has another job: all are told. */
static void one_differs(ranks_ctx *r)
{
    const many *m = r->arg;
    td_job *j = NULL;
    td_trainer *t = NULL;

    RANK_OK(r, td_job_parse(TEXT, "memory.yaml", &j));
    td_status st = r->rank == 1 ? td_job_set(j, "train.batch=8") : TD_OK;
    if (!st)
        st = td_trainer_from_job(j, &(td_job_opts){.comm = r->comm, .run_dir = m->dir}, &t);
    if (!st)
        st = td_trainer_fit(t, NULL);
    td_trainer_destroy(t);
    td_job_destroy(j);
    RANK_CHECK(r, st == TD_EMISMATCH || st == TD_EPEER || st == TD_EINVAL, "%s: %s",
               td_status_name(st), td_last_error());
}

TEST(ranks_share_a_job_with_the_same_bits)
{
    td_job *j = job();
    td_run_result want;
    td_trainer *t;
    many m = {.job = j, .want = &want};

    td_dataset *d;
    td_metrics e;

    CHECK_OK(td_trainer_from_job(j, &(td_job_opts){.no_run_dir = true}, &t));
    CHECK_OK(td_trainer_part(t, "test", &d));
    CHECK_OK(td_trainer_evaluate(t, d, &e));
    m.first = e.value[0];
    CHECK_OK(td_trainer_fit(t, &want));
    td_dataset_destroy(d);
    td_trainer_destroy(t);
    check_tmpdir();
    m.dir = check_path("threads");
    ranks_run(2, NULL, one_of_many, &m);
    CHECK(has(m.dir, "report.html"), "no report");
    m.dir = check_path("processes");
    ranks_run(2, &(ranks_opts){.transport = "tcp", .processes = true}, one_of_many, &m);
    m.dir = check_path("differ");
    ranks_run(2, NULL, one_differs, &m);
    td_job_destroy(j);
    check_tmpdir_remove();
}

/* ---- Samples of the program ------------------------------------------------------------------ */

static const char TABLE[] = "name: table\n"
                            "model: [{linear: 8, act: relu}, linear]\n"
                            "data: {source: csv, train: t.csv, split: {valid: 0.1, test: 0.1}, "
                            "maps: [normalize]}\n"
                            "train: {batch: 16, epochs: 2, optimizer: {lr: 0.01}}\n";

static const char MEMORY[] = "name: table\n"
                             "model: [{linear: 8, act: relu}, linear]\n"
                             "data: {source: memory, split: {valid: 0.1, test: 0.1}, "
                             "maps: [normalize]}\n"
                             "train: {batch: 16, epochs: 2, optimizer: {lr: 0.01}}\n";

static void write_table(void)
{
    FILE *f = fopen(check_path("t.csv"), "w");

    CHECK(f, "cannot write");
    fputs("a,b,y\n", f);
    for (int i = 0; i < 200; i++)
        fprintf(f, "%g,%d,%s\n", i % 13 / 7.0, i % 5, i % 3 ? "yes" : "no");
    CHECK_EQ_INT(fclose(f), 0);
}

static td_job *table_job(const char *source, const char *distribute)
{
    td_job *j;

    CHECK_OK(td_job_parse(TABLE, check_path("job.yaml"), &j));
    if (source) {
        td_job_destroy(j);
        CHECK_OK(td_job_parse(MEMORY, check_path("job.yaml"), &j));
    }
    if (distribute)
        CHECK_OK(td_job_set(j, distribute));
    return j;
}

typedef struct given {
    const char *digest, *distribute;
    td_job *job;
    td_dataset *train;
} given;

static void given_body(ranks_ctx *r)
{
    const given *g = r->arg;
    td_run_result result = {0};
    td_trainer *t;
    td_job_opts o = {.comm = r->comm, .no_run_dir = true};

    if (r->rank == 0 || !g->distribute)
        o.train = g->train;
    RANK_OK(r, td_trainer_from_job(g->job, &o, &t));
    td_status st = td_trainer_fit(t, &result);
    td_trainer_destroy(t);
    RANK_OK(r, st);
    RANK_CHECK(r, !strcmp(result.digest, g->digest), "%s on %d ranks: %s, not %s",
               g->distribute ? g->distribute : "none", r->size, result.digest, g->digest);
}

/* A job whose samples the program has: the digest of the run that reads them from a file, on any
 * number of ranks, also where rank 0 alone has them. */
TEST(samples_of_the_program)
{
    static const char *const WAYS[] = {NULL, "data.distribute=broadcast", "data.distribute=scatter",
                                       "data.distribute=lazy", "data.distribute=index"};
    td_dataset *d;
    td_trainer *t;
    td_run_result want;

    check_tmpdir();
    write_table();
    td_job *file = table_job(NULL, NULL), *memory = table_job("memory", NULL);
    CHECK_OK(td_trainer_from_job(file, &(td_job_opts){.no_run_dir = true}, &t));
    CHECK_OK(td_trainer_fit(t, &want));
    td_trainer_destroy(t);
    td_source_opts csv = {.train = check_path("t.csv")};
    CHECK_OK(td_dataset_source("csv", "train", &csv, &d));
    for (int w = 0; w < TD_LEN(WAYS); w++)
        for (int n = 1; n <= 3; n++) {
            given g = {.digest = want.digest, .distribute = WAYS[w], .train = d};
            g.job = table_job("memory", WAYS[w]);
            ranks_run(n, NULL, given_body, &g);
            td_job_destroy(g.job);
        }

    /* Nobody gives any; samples for a job that reads a file. */
    CHECK_STATUS(td_trainer_from_job(memory, &(td_job_opts){.no_run_dir = true}, &t), TD_EINVAL);
    CHECK(strstr(td_last_error(), "td_job_opts"), "%s", td_last_error());
    CHECK_STATUS(td_trainer_from_job(file, &(td_job_opts){.no_run_dir = true, .train = d}, &t),
                 TD_EINVAL);
    CHECK(strstr(td_last_error(), "data.source: csv"), "%s", td_last_error());

    /* A run of it is resumed with the same samples, and refused with others. */
    uint64_t at = 6;
    td_run_result r;
    td_job_opts o = {
        .run_dir = check_path("run"), .train = d, .callbacks = {.user = &at, .step = stop_at_step}};
    CHECK_OK(td_trainer_from_job(memory, &o, &t));
    CHECK_OK(td_trainer_fit(t, &r));
    td_trainer_destroy(t);
    o.resume = true;
    at = 0;
    td_dataset *fewer;
    int64_t first[150];
    for (int i = 0; i < 150; i++)
        first[i] = i;
    CHECK_OK(td_dataset_subset(d, first, 150, &fewer));
    o.train = fewer;
    CHECK_STATUS(td_trainer_from_job(memory, &o, &t), TD_EINVAL);
    CHECK(strstr(td_last_error(), "150"), "%s", td_last_error());
    o.train = d;
    CHECK_OK(td_trainer_from_job(memory, &o, &t));
    CHECK_OK(td_trainer_fit(t, &r));
    CHECK(!strcmp(r.digest, want.digest), "%s and %s", r.digest, want.digest);
    td_trainer_destroy(t);
    td_dataset_destroy(fewer);
    td_dataset_destroy(d);
    td_job_destroy(memory);
    td_job_destroy(file);
    check_tmpdir_remove();
}

static td_status shift_by_draw(void *user, const td_sample *s, const void *const *in,
                               void *const *out)
{
    float *to = out[0];
    (void)user;
    memcpy(to, in[0], 2 * sizeof *to);
    memcpy(out[1], in[1], sizeof(int32_t));
    to[0] += s->random ? (float)s->epoch : 0;
    return TD_OK;
}

/* What a stage of the program draws in the first epoch is not kept for the others: whether its
 * samples are the same in all cannot be known, so they are never kept. */
TEST(samples_of_the_program_are_not_kept_as_blocks)
{
    td_dataset *d, *drawn;
    td_trainer *t;

    check_tmpdir();
    write_table();
    td_source_opts csv = {.train = check_path("t.csv")};
    CHECK_OK(td_dataset_source("csv", "train", &csv, &d));
    CHECK_EQ_INT(td_dataset_field_count(d), 2);
    const td_field fields[] = {td_dataset_field(d, 0), td_dataset_field(d, 1)};
    CHECK_OK(td_dataset_map_fn(d, fields, TD_LEN(fields), shift_by_draw, NULL, &drawn));
    td_job *plain = table_job("memory", NULL), *kept = table_job("memory", "data.blocks.host_mb=4");
    td_job_opts o = {.no_run_dir = true, .train = drawn};
    CHECK_OK(td_trainer_from_job(plain, &o, &t));
    td_trainer_destroy(t);
    CHECK_STATUS(td_trainer_from_job(kept, &o, &t), TD_EINVAL);
    CHECK(strstr(td_last_error(), "data.blocks: not with samples that change every epoch"), "%s",
          td_last_error());
    td_job_destroy(kept);
    td_job_destroy(plain);
    td_dataset_destroy(drawn);
    td_dataset_destroy(d);
    check_tmpdir_remove();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_of_the_program),
        cmocka_unit_test(samples_of_the_program_are_not_kept_as_blocks),
        cmocka_unit_test(jobs_are_read_and_changed),
        cmocka_unit_test(a_run_has_its_directory_and_is_resumed),
        cmocka_unit_test(a_restart_is_for_the_run_that_was_under_way),
        cmocka_unit_test(a_profiled_run_that_goes_on_has_one_trace),
        cmocka_unit_test(a_trained_run_is_evaluated_and_predicts),
        cmocka_unit_test(nothing_is_left_of_a_run_that_never_began),
        cmocka_unit_test(ranks_share_a_job_with_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
