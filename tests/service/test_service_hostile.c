/* The service against what jobs and clients may do to it: files that are none, texts that are none,
 * jobs and data of others, files without end; and against troubles of its own host. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Test labels: slow */
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/text.h"
#include "service/feed.h"
#include "service/spec.h"
#include "support/check.h"
#include "support/service_rig.h"

static const td__caller ANN = {.user = "ann"}, BOB = {.user = "bob"};

static void take(void *arg, const void *bytes, size_t nbytes, uint64_t offset)
{
    (void)bytes;
    (void)offset;
    *(uint64_t *)arg += nbytes;
}

static td_status ended;

static void end(void *arg, td_status st)
{
    (void)arg;
    ended = st;
}

/* A reader of a FIFO would wait for ever, and one of a link read what the job may not. */
TEST(files_that_are_none)
{
    char path[4200];
    uint64_t n = 0;
    int fd;
    int32_t job = rig_submit("{\"command\": [\"sh\", \"-c\", \"cd ..; mkfifo metrics.jsonl; ln -s "
                             "/etc/passwd artifacts/a; ln -s /etc artifacts/d; echo x > "
                             "artifacts/b; cd attempts/*; rm log-0; mkfifo log-0\"]}");

    rig_wait_state(job, TD_JOB_SUCCEEDED);
    td__service_metrics(rig_service, job, 0, &(td__log_sink){take, end, &n});
    assert_int_equal(ended, TD_EIO);
    td__service_logs(rig_service, job, 0, 0, 0, &(td__log_sink){take, end, &n});
    assert_int_equal(n, 0);
    for (int i = 0; i < 3; i++) { /* whatever the list of them says */
        const char *name = (const char *[]){"a", "d/passwd", "b"}[i];
        assert_int_equal(td__service_artifact_add(rig_service, job, name, 1, ""), TD_ANSWER_OK);
        assert_int_equal(td__service_artifact_open(rig_service, job, name, &fd, &n),
                         i == 2 ? TD_ANSWER_OK : TD_ANSWER_NOT_FOUND);
    }
    close(fd);
    assert_int_equal(n, 2);
    /* The next one's metrics are written through a link. */
    job = rig_submit("{\"command\": [\"sh\", \"-c\", \"ln -s $PWD/other ../metrics.jsonl; touch "
                     "here; until test -e go; do sleep 0.02; done\"]}");
    char text[8];
    rig_wait_file(job, "here", text, sizeof text);
    assert_int_equal(td__service_metric_add(rig_service, &RIG_ME, job, "{\"step\": 1}"),
                     TD_ANSWER_INTERNAL);
    assert_int_not_equal(access(rig_path(job, "work/other", path), F_OK), 0);
    rig_touch(job, "go");
    rig_wait_state(job, TD_JOB_SUCCEEDED);
}

TEST(texts_that_are_none)
{
    td__job_spec *spec;
    int32_t job;

    CHECK_OK(td__spec_create(&spec));
    spec->algorithm = td__spec_text(spec, "intent-classification");
    CHECK_OK(td__spec_pairs(spec, &(td__pair){"LR", "\xff\xfe"}, 1, &spec->parameters));
    assert_int_equal(td__service_submit(rig_service, &RIG_ME, spec, NULL, false, &job),
                     TD_ANSWER_INVALID);
    /* What a program says last becomes the job's message. */
    job = rig_submit("{\"command\": [\"sh\", \"-c\", \"printf 'bad \\\\377 text'; exit 1\"]}");
    assert_string_equal(rig_wait_state(job, TD_JOB_FAILED)->message, "Exit code 1: bad ? text");
}

static bool count(void *arg, const td__job_record *r)
{
    (void)r;
    ++*(int *)arg;
    return true;
}

/* A row that cannot be read takes nothing else with it. */
TEST(damaged_row)
{
    char path[200], next[TD__PAGE_TOKEN];
    sqlite3 *db;
    int n = 0;
    int32_t bad = rig_submit("{\"command\": [\"true\"], \"resources\": {\"slots\": 8}}");
    int32_t good = rig_submit("{\"command\": [\"true\"], \"resources\": {\"slots\": 8}}");

    rig_close();
    snprintf(path, sizeof path, "%s/d/service.db", rig_dir);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(bad, 1);
    assert_int_equal(sqlite3_exec(db, "UPDATE jobs SET spec = '{\"name\": \"\xff' WHERE id = 1",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    sqlite3_close(db);
    rig_open();
    assert_int_equal(td__service_list(rig_service, &(td__job_filter){0}, NULL, count, &n, next),
                     TD_ANSWER_OK);
    assert_int_equal(n, 1);
    rig_wait_state(good, TD_JOB_SUCCEEDED);
}

typedef struct reading {
    td__feed *feed;
    uint64_t nbytes, first;
    bool over;
} reading;

static void feed_data(void *arg, const void *bytes, size_t nbytes, uint64_t offset)
{
    reading *r = arg;

    (void)bytes;
    if (!r->nbytes)
        r->first = offset;
    r->nbytes += nbytes;
    td__feed_next(r->feed);
}

static void feed_end(void *arg, td_status st)
{
    CHECK_OK(st);
    ((reading *)arg)->over = true;
}

/* Pieces that are taken at once need no stack; a tail begins where it begins. */
TEST(file_without_end)
{
    enum { NBYTES = 600 << 20, TAIL = 5000 };
    char path[4200];
    int32_t job = rig_submit("{\"command\": [\"true\"]}");

    rig_wait_state(job, TD_JOB_SUCCEEDED);
    int fd = open(rig_path(job, "metrics.jsonl", path), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(ftruncate(fd, NBYTES), 0); /* a hole: no room on the disk */
    close(fd);
    for (int i = 0; i < 2; i++) {
        reading r = {0};
        td__feed_opts o = {.job = job,
                           .metrics = true,
                           .tail = i ? TAIL : 0,
                           .data = feed_data,
                           .end = feed_end,
                           .arg = &r};
        CHECK_OK(td__feed_create(rig_service, &o, &r.feed));
        td__feed_next(r.feed);
        assert_true(r.over);
        assert_int_equal(r.nbytes, i ? TAIL : NBYTES);
        assert_int_equal(r.first, i ? NBYTES - TAIL : 0);
    }
}

TEST(metrics_of_others)
{
    static const char *const BAD[] = {"", "1", "[]", "{\"a\": 1", "{}\n{}", "{\"a\": NaN}"};
    int32_t job = rig_submit_as(&ANN,
                                "{\"command\": [\"sh\", \"-c\", \"until test -e go; do sleep "
                                "0.02; done\"]}",
                                TD_ANSWER_OK);

    rig_wait_state(job, TD_JOB_RUNNING);
    assert_int_equal(td__service_metric_add(rig_service, &BOB, job, "{\"step\": 1}"),
                     TD_ANSWER_DENIED);
    assert_int_equal(td__service_metric_add(rig_service, &ANN, job, "{\"step\": 1}"), TD_ANSWER_OK);
    for (int i = 0; i < TD_LEN(BAD); i++)
        assert_int_equal(td__service_metric_add(rig_service, &ANN, job, BAD[i]), TD_ANSWER_INVALID);
    rig_touch(job, "go");
    rig_wait_state(job, TD_JOB_SUCCEEDED);
    assert_int_equal(td__service_metric_add(rig_service, &ANN, job, "{\"step\": 2}"),
                     TD_ANSWER_STATE);
}

TEST(objects_of_others)
{
    char dir[4096], path[4200];

    assert_int_equal(td__service_object_place(rig_service, &ANN, "b", "k/x", dir, sizeof dir),
                     TD_ANSWER_OK);
    snprintf(path, sizeof path, "%s/k", dir);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/k/x", dir);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(td__service_object_put(rig_service, "ann", "b", "k/x"), TD_ANSWER_OK);
    assert_int_equal(td__service_object_place(rig_service, &BOB, "b", "k/x", dir, sizeof dir),
                     TD_ANSWER_DENIED);
    assert_int_equal(td__service_object_place(rig_service, &ANN, "b", "k/x", dir, sizeof dir),
                     TD_ANSWER_OK);
    assert_int_equal(td__service_object_place(rig_service, &RIG_ME, "b", "k/x", dir, sizeof dir),
                     TD_ANSWER_OK);
    assert_int_equal(td__service_object_place(rig_service, &BOB, "b", "k/y", dir, sizeof dir),
                     TD_ANSWER_OK);
}

/* Trouble of this host is not the job's end: it runs, and is adopted when the trouble is over. */
static void adopt_later(bool cancel)
{
    char path[4200], away[4200], text[8];
    int32_t job = rig_submit("{\"command\": [\"sh\", \"-c\", \"touch here; until test -e go; do "
                             "sleep 0.02; done; echo done\"]}");

    rig_wait_file(job, "here", text, sizeof text);
    rig_wait_state(job, TD_JOB_RUNNING);
    rig_path(job, "attempts", path);
    rig_path(job, "away", away);
    rig_close();
    assert_int_equal(rename(path, away), 0);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
    rig_open();
    td__deadline until = td__deadline_in_ms(RIG_DEADLINE_MS);
    for (int i = 0; i < 20 && !td__deadline_passed(until); i++)
        CHECK_OK(td__loop_turn(rig_loop, 10));
    assert_int_equal(rig_get(job)->state, TD_JOB_RUNNING);
    if (cancel) /* nobody hears it now */
        assert_int_equal(td__service_cancel(rig_service, &RIG_ME, job, NULL), TD_ANSWER_OK);
    CHECK_OK(td__loop_turn(rig_loop, 0));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rename(away, path), 0);
    if (cancel) {
        rig_wait_state(job, TD_JOB_CANCELLED);
        return;
    }
    rig_touch(job, "go");
    assert_int_equal(rig_wait_state(job, TD_JOB_SUCCEEDED)->attempt, 1);
    rig_check_log(job, 0, "done\n");
}

TEST(adopted_later)
{
    adopt_later(false);
}

TEST(cancelled_before_it_is_adopted)
{
    adopt_later(true);
}

/* An engine that does not answer is asked again; the job waits and says so. */
TEST(outage_at_start)
{
    td__deadline until = td__deadline_in_ms(RIG_DEADLINE_MS);

    rig_config->docker_socket = "/nowhere/docker.sock";
    int32_t job = rig_submit("{\"tracker\": \"docker\", \"image\": \"x\", \"command\": [\"y\"]}");
    while (!*rig_get(job)->message) {
        assert_false(td__deadline_passed(until));
        CHECK_OK(td__loop_turn(rig_loop, 100));
    }
    if (rig_get(job)->state != TD_JOB_LAUNCHING)
        fail_msg("%s: %s", td__job_state_name(rig_get(job)->state), rig_get(job)->message);
}

TEST(quota_set_at_run_time)
{
    td__quota q = {
        .user = "ann", .slots = -1, .gpus = -1, .memory_mb = -1, .queued = 2, .weight = 1};
    static const char LARGE[] = "{\"command\": [\"true\"], \"resources\": {\"slots\": 8}}";

    assert_int_equal(td__service_set_quota(rig_service, &RIG_ME, &q), TD_ANSWER_OK);
    rig_submit_as(&ANN, LARGE, TD_ANSWER_OK);
    rig_submit_as(&ANN, LARGE, TD_ANSWER_OK);
    rig_submit_as(&ANN, LARGE, TD_ANSWER_EXHAUSTED);
    rig_submit_as(&BOB, LARGE, TD_ANSWER_OK);
    rig_close();
    rig_open();
    rig_submit_as(&ANN, LARGE, TD_ANSWER_EXHAUSTED);
}

/* Files go after the commit, and not on the loop's thread; what was left goes at the next start. */
TEST(files_of_deleted_jobs)
{
    char path[4200], left[200];
    td__deadline until = td__deadline_in_ms(RIG_DEADLINE_MS);
    int32_t job = rig_submit("{\"command\": [\"true\"]}");

    rig_wait_state(job, TD_JOB_SUCCEEDED);
    assert_int_equal(td__service_delete(rig_service, &RIG_ME, job), TD_ANSWER_OK);
    assert_int_equal(access(rig_path(job, "", path), F_OK), 0);
    CHECK_OK(td__loop_turn(rig_loop, 0));
    assert_int_not_equal(access(path, F_OK), 0);
    rig_close();
    snprintf(left, sizeof left, "%s/d/jobs/.gone-77", rig_dir);
    assert_int_equal(mkdir(left, 0700), 0);
    rig_open();
    while (access(left, F_OK) == 0) {
        assert_false(td__deadline_passed(until));
        CHECK_OK(td__loop_turn(rig_loop, 10));
    }
}

int main(void)
{
#define IN_DIR(f) cmocka_unit_test_setup_teardown(f, rig_set_up, rig_tear_down)
    const struct CMUnitTest tests[] = {
        IN_DIR(files_that_are_none),   IN_DIR(texts_that_are_none),
        IN_DIR(damaged_row),           IN_DIR(file_without_end),
        IN_DIR(metrics_of_others),     IN_DIR(objects_of_others),
        IN_DIR(adopted_later),         IN_DIR(cancelled_before_it_is_adopted),
        IN_DIR(outage_at_start),       IN_DIR(quota_set_at_run_time),
        IN_DIR(files_of_deleted_jobs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
