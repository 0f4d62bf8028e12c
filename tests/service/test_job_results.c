/* What jobs leave to the service: results out of directories that jobs write to, lines of metrics
 * by their offset, and the token with which a job on another machine brings them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "service/group_env.h"
#include "service/service_impl.h"
#include "service/track/publish.h"
#include "support/check.h"
#include "support/service_rig.h"

static void write_file(const char *dir, const char *name, const char *text)
{
    char path[4300];
    snprintf(path, sizeof path, "%.4000s/%s", dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static bool is_there(const char *dir, const char *name)
{
    char path[4300];
    snprintf(path, sizeof path, "%.4000s/%s", dir, name);
    return access(path, F_OK) == 0;
}

static void make_dirs(const char *dir, const char *const *names)
{
    char path[4300];
    for (; *names; names++) {
        snprintf(path, sizeof path, "%.4000s/%s", dir, *names);
        assert_int_equal(mkdir(path, 0700), 0);
    }
}

TEST(published_without_links)
{
    static const char *const DIRS[] = {"run",       "run/checkpoints", "run/checkpoints/step-1",
                                       "artifacts", "others",          NULL};
    char dir[4096], run[4200], artifacts[4200], linked[4200], others[4200];
    snprintf(dir, sizeof dir, "%s", check_tmpdir());
    snprintf(run, sizeof run, "%s/run", dir);
    snprintf(artifacts, sizeof artifacts, "%s/artifacts", dir);
    snprintf(others, sizeof others, "%s/others", dir);
    snprintf(linked, sizeof linked, "%s/linked", dir);
    make_dirs(dir, DIRS);
    write_file(dir, "run/checkpoints/latest", "step-1\n");
    write_file(dir, "run/checkpoints/step-1/model.safetensors", "weights");
    write_file(dir, "run/metrics.jsonl", "{}\n");
    write_file(dir, "others/report.html", "of somebody else");
    write_file(dir, "others/job.yaml", "of somebody else");
    char from[4300], to[4300];
    snprintf(from, sizeof from, "%s/report.html", others);
    snprintf(to, sizeof to, "%s/report.html", run);
    assert_int_equal(symlink(from, to), 0);
    CHECK_OK(td__publish_run(run, artifacts, NULL));
    assert_true(is_there(artifacts, "model.safetensors"));
    assert_true(is_there(artifacts, "metrics.jsonl"));
    assert_false(is_there(artifacts, "report.html"));
    /* A run that is a link is none; nothing is written behind artifacts that are one. */
    assert_int_equal(symlink(others, linked), 0);
    CHECK_OK(td__publish_run(linked, artifacts, NULL));
    assert_false(is_there(artifacts, "job.yaml"));
    CHECK_STATUS(td__publish_run(run, linked, NULL), TD_EINVAL);
    assert_false(is_there(others, "model.safetensors"));
    check_tmpdir_remove();
}

static bool stop_later(void *arg)
{
    return ++*(int *)arg > 100;
}

/* A job may make files that take for ever, or that are shorter the next moment. */
TEST(hashing_ends_when_it_is_told_to)
{
    static const char *const DIRS[] = {"artifacts", NULL};
    char dir[4096], artifacts[4200], list[4200], path[4300];
    int asked = 0;
    td__artifact_opts o = {.stop = stop_later, .arg = &asked};
    snprintf(dir, sizeof dir, "%s", check_tmpdir());
    snprintf(artifacts, sizeof artifacts, "%s/artifacts", dir);
    snprintf(list, sizeof list, "%s/list", dir);
    make_dirs(dir, DIRS);
    write_file(dir, "artifacts/endless", "");
    snprintf(path, sizeof path, "%s/endless", artifacts);
    assert_int_equal(truncate(path, (off_t)1 << 42), 0);
    CHECK_STATUS(td__artifact_list_write(artifacts, list, &o), TD_EABORTED);
    assert_false(is_there(dir, "list"));
    assert_int_equal(asked, 101);
    check_tmpdir_remove();
}

static struct {
    const char *path;
    int asked;
} shortened;

/* Asked for both entries of the walk, then for each piece. */
static bool shorten(void *arg)
{
    (void)arg;
    if (++shortened.asked == 4)
        assert_int_equal(truncate(shortened.path, 1), 0);
    return false;
}

TEST(a_file_that_is_made_shorter_is_an_error)
{
    static const char *const DIRS[] = {"artifacts", NULL};
    char dir[4096], artifacts[4200], list[4200], path[4300];
    td__artifact_opts o = {.stop = shorten};
    snprintf(dir, sizeof dir, "%s", check_tmpdir());
    snprintf(artifacts, sizeof artifacts, "%s/artifacts", dir);
    snprintf(list, sizeof list, "%s/list", dir);
    snprintf(path, sizeof path, "%s/long", artifacts);
    make_dirs(dir, DIRS);
    write_file(dir, "artifacts/long", "");
    assert_int_equal(truncate(path, 1 << 20), 0);
    shortened.path = path;
    CHECK_STATUS(td__artifact_list_write(artifacts, list, &o), TD_EIO);
    assert_false(is_there(dir, "list"));
    check_tmpdir_remove();
}

/* What cannot be listed is told; links, which never are, are not. */
TEST(what_is_left_out_is_told)
{
    static const char *const DIRS[] = {"artifacts", NULL};
    char dir[4096], artifacts[4200], list[4200], path[4300], shown[400];
    td__left_out left = {0};
    td__artifact_opts o = {.left_out = &left};
    snprintf(dir, sizeof dir, "%s", check_tmpdir());
    snprintf(artifacts, sizeof artifacts, "%s/artifacts", dir);
    snprintf(list, sizeof list, "%s/list", dir);
    make_dirs(dir, DIRS);
    write_file(dir, "artifacts/good", "weights");
    snprintf(path, sizeof path, "%s/link", artifacts);
    assert_int_equal(symlink("good", path), 0);
    CHECK_OK(td__artifact_list_write(artifacts, list, &o));
    td__left_out_show(&left, shown, sizeof shown);
    assert_string_equal(shown, "");
    write_file(dir, "artifacts/a\tb", "");
    write_file(dir, "artifacts/a\tc", "");
    CHECK_OK(td__artifact_list_write(artifacts, list, &o));
    td__left_out_show(&left, shown, sizeof shown);
    assert_non_null(strstr(shown, "its name has control characters, and 1 more"));
    assert_null(strchr(shown, '\t'));
    if (geteuid() != 0) {
        left = (td__left_out){0};
        write_file(dir, "artifacts/Secret", "");
        snprintf(path, sizeof path, "%s/Secret", artifacts);
        assert_int_equal(chmod(path, 0), 0);
        CHECK_OK(td__artifact_list_write(artifacts, list, &o));
        assert_string_equal(left.first, "Secret: Permission denied");
    }
    check_tmpdir_remove();
}

/* Whom a loopback address is no use to is not given one. */
TEST(http_is_advertised)
{
    static const struct {
        const char *set, *listens, *tracker, *want; /* NULL: it is not reached */
    } CASES[] = {
        {"data.dir=x", "127.0.0.1:6004", "process", "127.0.0.1:6004"},
        {"data.dir=x", "127.0.0.1:6004", "kubernetes", NULL},
        {"data.dir=x", "[::1]:6004", "ssh", NULL},
        {"data.dir=x", "10.0.0.7:6004", "ssh", "10.0.0.7:6004"},
        {"docker.network=host", "127.0.0.1:6004", "docker", "127.0.0.1:6004"},
        {"http.advertise=train:80", "127.0.0.1:6004", "kubernetes", "train:80"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        char got[TD_ADDRESS_BYTES];
        td__service_config *c;
        CHECK_OK(td__config_load(NULL, &CASES[i].set, 1, &c));
        bool reached = td__advertised_http(c, CASES[i].listens, CASES[i].tracker, got);
        CHECK(reached == (CASES[i].want != NULL), "case %zu: %s", i, got);
        if (reached)
            assert_string_equal(got, CASES[i].want);
        td__config_destroy(c);
    }
    td__service_config *c;
    const char *bad = "http.advertise=train";
    CHECK_STATUS(td__config_load(NULL, &bad, 1, &c), TD_EINVAL);
}

static td__answer put(int32_t job, uint64_t from, const char *lines)
{
    return td__service_metrics_put(rig_service, &RIG_ME, job, from, lines, strlen(lines));
}

TEST(metrics_by_offset)
{
    int32_t job = rig_submit("{\"command\": [\"sleep\", \"600\"], \"grace_s\": 0}");
    rig_wait_state(job, TD_JOB_RUNNING);
    assert_int_equal(put(job, 0, "{\"a\":1}\n{\"a\":2}\n"), TD_ANSWER_OK);
    assert_int_equal(put(job, 16, "{\"a\":3}\n"), TD_ANSWER_OK);
    assert_int_equal(td__service_metrics_bytes(rig_service, job), 24);
    /* The same again changes nothing; another line there takes the place of all that follows. */
    assert_int_equal(put(job, 0, "{\"a\":1}\n"), TD_ANSWER_OK);
    assert_int_equal(td__service_metrics_bytes(rig_service, job), 24);
    assert_int_equal(put(job, 8, "{\"b\":2}\n"), TD_ANSWER_OK);
    assert_int_equal(td__service_metrics_bytes(rig_service, job), 16);
    assert_int_equal(put(job, 17, "{}\n"), TD_ANSWER_STATE);
    assert_int_equal(put(job, 16, "{}"), TD_ANSWER_INVALID);
    assert_int_equal(put(job, 16, "no\n"), TD_ANSWER_INVALID);
    assert_int_equal(put(job, 16, "{}\n[]\n"), TD_ANSWER_INVALID);
    assert_int_equal(td__service_metrics_bytes(rig_service, job), 16);
    td__caller ann = {.user = "ann"};
    assert_int_equal(td__service_metrics_put(rig_service, &ann, job, 16, "{}\n", 3),
                     TD_ANSWER_DENIED);
    assert_int_equal(td__service_cancel(rig_service, &RIG_ME, job, NULL), TD_ANSWER_OK);
    rig_wait_state(job, TD_JOB_CANCELLED);
    assert_int_equal(put(job, 16, "{}\n"), TD_ANSWER_STATE);
}

TEST(tokens_of_jobs)
{
    char token[TD__JOB_TOKEN], other[TD__JOB_TOKEN];
    int32_t job = rig_submit("{\"command\": [\"sleep\", \"600\"], \"grace_s\": 0}");
    int32_t second = rig_submit("{\"command\": [\"sleep\", \"600\"], \"grace_s\": 0}");
    rig_wait_state(second, TD_JOB_RUNNING);
    CHECK_OK(td__service_job_token(rig_service, rig_wait_state(job, TD_JOB_RUNNING), token));
    CHECK_OK(td__service_job_token(rig_service, rig_get(second), other));
    assert_int_equal(td__service_job_of_token(rig_service, token)->id, job);
    assert_int_equal(td__service_job_of_token(rig_service, other)->id, second);
    /* The name of one with the digest of the other; another digit; none. */
    char mixed[2 * TD__JOB_TOKEN];
    snprintf(mixed, sizeof mixed, "%.*s%s", (int)strcspn(token, "."), token, strchr(other, '.'));
    assert_null(td__service_job_of_token(rig_service, mixed));
    snprintf(mixed, sizeof mixed, "%s", token);
    mixed[strlen(mixed) - 1] ^= 1;
    assert_null(td__service_job_of_token(rig_service, mixed));
    assert_null(td__service_job_of_token(rig_service, ""));
    assert_null(td__service_job_of_token(rig_service, "job-1-1-aa."));
    assert_int_equal(td__service_cancel(rig_service, &RIG_ME, job, NULL), TD_ANSWER_OK);
    rig_wait_state(job, TD_JOB_CANCELLED);
    assert_null(td__service_job_of_token(rig_service, token));
    assert_int_equal(td__service_cancel(rig_service, &RIG_ME, second, NULL), TD_ANSWER_OK);
    rig_wait_state(second, TD_JOB_CANCELLED);
}

int main(void)
{
#define IN_DIR(f) cmocka_unit_test_setup_teardown(f, rig_set_up, rig_tear_down)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_without_links),
        cmocka_unit_test(hashing_ends_when_it_is_told_to),
        cmocka_unit_test(a_file_that_is_made_shorter_is_an_error),
        cmocka_unit_test(what_is_left_out_is_told),
        cmocka_unit_test(http_is_advertised),
        IN_DIR(metrics_by_offset),
        IN_DIR(tokens_of_jobs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
