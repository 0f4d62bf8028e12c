/* The service with the tracker process: jobs run, fail, are retried, cancelled, paused; groups with
 * ranks; members that are restarted alone; a service that is stopped, and one that is killed, while
 * jobs run. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/text.h"
#include "rpc/loop.h"
#include "service/config.h"
#include "service/service.h"
#include "service/spec.h"
#include "support/check.h"

enum { DEADLINE_MS = 60000 };

static char DIR[64], SELF[4096];
static td__service_config *config;
static td__loop *loop;
static td__service *service;
static const td__caller ME = {.user = "me", .admin = true};

static void open_service(void)
{
    char data[100];
    const char *sets[] = {data, "capacity.slots=8", "data.sync=normal", "schedule.preempt_s=0",
                          "capacity.gpus=4"};

    snprintf(data, sizeof data, "data.dir=%s/d", DIR);
    CHECK_OK(td__config_load(NULL, sets, TD_LEN(sets), &config));
    CHECK_OK(td__loop_create(&loop));
    CHECK_OK(td__service_create(&(td__service_opts){.loop = loop, .config = config, .self = SELF},
                                &service));
}

static void close_service(void)
{
    td__service_destroy(service);
    td__loop_destroy(loop);
    td__config_destroy(config);
}

static int set_up(void **state)
{
    ssize_t n = readlink("/proc/self/exe", SELF, sizeof SELF - 1);

    (void)state;
    SELF[n > 0 ? n : 0] = '\0';
    *strrchr(SELF, '/') = '\0';
    snprintf(strrchr(SELF, '/'), 16, "/tandem"); /* BUILD/tests/NAME: BUILD/tandem */
    snprintf(DIR, sizeof DIR, "/tmp/td-service-XXXXXX");
    assert_non_null(mkdtemp(DIR));
    open_service();
    return 0;
}

static int tear_down(void **state)
{
    char command[100];

    (void)state;
    close_service();
    snprintf(command, sizeof command, "%s", DIR);
    pid_t pid = fork();
    if (!pid) {
        execlp("rm", "rm", "-rf", command, (char *)NULL);
        _exit(1);
    }
    int status;
    waitpid(pid, &status, 0);
    return status;
}

static int32_t submit_as(const td__caller *who, const char *json, td__answer want)
{
    td__job_spec *spec;
    int32_t job = 0;

    CHECK_OK(td__spec_parse(json, strlen(json), "test", &spec));
    td__answer a = td__service_submit(service, who, spec, NULL, false, &job);
    if (a != want)
        fail_msg("%s: %s", td__answer_name(a), td_last_error());
    return job;
}

static int32_t submit(const char *json)
{
    return submit_as(&ME, json, TD_ANSWER_OK);
}

static const td__job_record *get(int32_t job)
{
    const td__job_record *r;

    assert_int_equal(td__service_get(service, job, &r), TD_ANSWER_OK);
    return r;
}

static const td__job_record *wait_state(int32_t job, td__job_state state)
{
    td__deadline until = td__deadline_in_ms(DEADLINE_MS);

    while (get(job)->state != state) {
        if (td__deadline_passed(until) ||
            (td__job_state_final(get(job)->state) && get(job)->state != state))
            fail_msg("job %d is %s (%s), not %s", job, td__job_state_name(get(job)->state),
                     get(job)->message, td__job_state_name(state));
        CHECK_OK(td__loop_turn(loop, 1000));
    }
    return get(job);
}

/* A file of a job's work directory as text, once it is there. */
static void wait_file(int32_t job, const char *name, char *text, size_t nbytes)
{
    td__deadline until = td__deadline_in_ms(DEADLINE_MS);
    char dir[4096], path[4200];
    FILE *f = NULL;

    snprintf(path, sizeof path, "%s/work/%s", td__service_job_dir(service, job, dir, sizeof dir),
             name);
    while (!(f = fopen(path, "r"))) {
        if (td__deadline_passed(until))
            fail_msg("%s is not written", path);
        CHECK_OK(td__loop_turn(loop, 10));
    }
    text[fread(text, 1, nbytes - 1, f)] = '\0';
    fclose(f);
}

static void add_bytes(void *arg, const void *bytes, size_t nbytes, uint64_t offset)
{
    (void)offset;
    td__text_append(arg, bytes, nbytes);
}

static void no_more(void *arg, td_status st)
{
    (void)arg;
    CHECK_OK(st);
}

static void check_log(int32_t job, int member, const char *want)
{
    td__text log = {0};

    td__service_logs(service, job, 0, member, 0, &(td__log_sink){add_bytes, no_more, &log});
    assert_string_equal(log.data ? log.data : "", want);
    td__text_fini(&log);
}

static bool one_artifact(void *arg, const td__artifact *a)
{
    assert_string_equal(a->name, "model.txt");
    assert_int_equal(a->nbytes, 6);
    assert_string_equal(a->sha256,
                        "0844df8fee9eeadaa344bc7e1a7ae769602eba35e773c2093c8fb9c3e5ead14e");
    ++*(int *)arg;
    return true;
}

TEST(succeeds_with_log_and_artifacts)
{
    int n = 0;
    int32_t job = submit("{\"command\": [\"sh\", \"-c\", \"echo out; echo err >&2; printf weight > "
                         "$TANDEM_ARTIFACTS_DIR/model.txt\"]}");

    assert_int_equal(job, 1);
    assert_int_equal(get(job)->state, TD_JOB_QUEUED);
    const td__job_record *r = wait_state(job, TD_JOB_SUCCEEDED);
    assert_int_equal(r->exit_status, 0);
    assert_int_equal(r->attempt, 1);
    assert_true(r->started_ms >= r->launched_ms && r->finished_ms >= r->started_ms);
    check_log(job, 0, "out\nerr\n");
    assert_int_equal(td__service_artifacts(service, job, one_artifact, &n), TD_ANSWER_OK);
    assert_int_equal(n, 1);
    assert_int_equal(td__service_delete(service, &ME, job), TD_ANSWER_OK);
    const td__job_record *gone;
    assert_int_equal(td__service_get(service, job, &gone), TD_ANSWER_NOT_FOUND);
    assert_string_equal(td_last_error(), "Job 1 doesn't exist");
}

TEST(fails_and_is_retried)
{
    int32_t bad = submit("{\"command\": [\"sh\", \"-c\", \"echo why it failed; exit 3\"], "
                         "\"retries\": 5}");
    int32_t killed = submit("{\"command\": [\"sh\", \"-c\", \"test -e ok || { touch ok; kill -9 "
                            "$$; }; echo done\"], \"retries\": {\"max\": 1, \"backoff_s\": 0}}");
    int32_t missing = submit("{\"command\": [\"/no/such/program\"]}");

    const td__job_record *r = wait_state(bad, TD_JOB_FAILED);
    assert_int_equal(r->exit_status, 3);
    assert_int_equal(r->attempt, 1); /* its own verdict: not retried */
    assert_string_equal(r->message, "Exit code 3: why it failed");
    r = wait_state(killed, TD_JOB_SUCCEEDED);
    assert_int_equal(r->attempt, 2);
    check_log(killed, 0, "done\n");
    assert_int_equal(wait_state(missing, TD_JOB_FAILED)->exit_status, 127);
}

TEST(groups_have_ranks)
{
    int32_t job = submit("{\"resources\": {\"members\": 3}, \"command\": [\"sh\", \"-c\", \"echo "
                         "rank $RANK of $WORLD_SIZE; test -n $MASTER_PORT && test $OMPI_COMM_WORLD_"
                         "RANK = $RANK\"]}");

    wait_state(job, TD_JOB_SUCCEEDED);
    check_log(job, 0, "rank 0 of 3\n");
    check_log(job, 2, "rank 2 of 3\n");
}

/* Each process has GPUs of its own; jobs do not share them, also not after a restart. */
TEST(groups_have_gpus)
{
    int32_t first = submit("{\"resources\": {\"members\": 2, \"gpus\": 1}, \"command\": [\"sh\", "
                           "\"-c\", \"echo $CUDA_VISIBLE_DEVICES; touch here; until test -e go; do "
                           "sleep 0.02; done\"]}");
    char text[8], dir[4096], path[4200];

    wait_file(first, "here", text, sizeof text);
    close_service();
    open_service();
    int32_t second = submit("{\"resources\": {\"gpus\": 2}, \"command\": [\"sh\", \"-c\", \"echo "
                            "$CUDA_VISIBLE_DEVICES\"]}");
    wait_state(second, TD_JOB_SUCCEEDED);
    check_log(first, 1, "1\n");
    td__text log = {0}; /* its one member has a process for each GPU, in no order */
    td__service_logs(service, second, 0, 0, 0, &(td__log_sink){add_bytes, no_more, &log});
    assert_int_equal(log.used, 4);
    assert_true(strchr(log.data, '2') && strchr(log.data, '3'));
    td__text_fini(&log);
    snprintf(path, sizeof path, "%s/work/go", td__service_job_dir(service, first, dir, sizeof dir));
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fclose(f);
    wait_state(first, TD_JOB_SUCCEEDED);
}

/* A member that dies is started again alone; the others go on. */
TEST(member_is_restarted_alone)
{
    int32_t job = submit("{\"resources\": {\"members\": 2}, \"restarts\": 1, \"command\": [\"sh\", "
                         "\"-c\", \"echo start; if [ $RANK = 1 ]; then test -e died || { touch "
                         "died; exit 9; }; touch go; else until test -e go; do sleep 0.02; "
                         "done; fi\"]}");

    wait_state(job, TD_JOB_SUCCEEDED);
    check_log(job, 0, "start\n");
    check_log(job, 1, "start\nstart\n");
    assert_int_equal(get(job)->attempt, 1);
}

/* As above for one that makes no progress. */
TEST(member_without_steps_is_restarted)
{
    int32_t job = submit("{\"restarts\": {\"members\": 1, \"step_deadline_s\": 1}, \"command\": "
                         "[\"sh\", \"-c\", \"echo start; test -e hung || { touch hung; exec sleep "
                         "600; }\"]}");

    wait_state(job, TD_JOB_SUCCEEDED);
    check_log(job, 0, "start\nstart\n");
}

TEST(cancel_pause_resume)
{
    static const char LOOP[] = "{\"command\": [\"sh\", \"-c\", \"trap 'touch saved; exit 130' TERM;"
                               " test -e saved && exit 0; touch here; while :; do sleep 1 & wait; "
                               "done\"]}";
    int32_t cancelled = submit(LOOP), paused = submit(LOOP);
    char text[8];

    wait_state(cancelled, TD_JOB_RUNNING);
    wait_file(cancelled, "here", text, sizeof text);
    wait_file(paused, "here", text, sizeof text);
    assert_int_equal(td__service_cancel(service, &ME, cancelled, "enough"), TD_ANSWER_OK);
    assert_int_equal(td__service_pause(service, &ME, paused), TD_ANSWER_OK);
    assert_string_equal(wait_state(cancelled, TD_JOB_CANCELLED)->message, "cancelled: enough");
    wait_state(paused, TD_JOB_PAUSED);
    assert_int_equal(td__service_cancel(service, &ME, cancelled, NULL), TD_ANSWER_OK);
    assert_int_equal(td__service_resume(service, &ME, paused), TD_ANSWER_OK);
    assert_int_equal(wait_state(paused, TD_JOB_SUCCEEDED)->attempt, 2);
    assert_int_equal(td__service_cancel(service, &ME, paused, NULL), TD_ANSWER_STATE);
}

/* Stopping the service does not stop jobs: the next one adopts what runs and what has ended. */
TEST(service_is_restarted)
{
    int32_t runs = submit("{\"command\": [\"sh\", \"-c\", \"echo a; touch here; until test -e go; "
                          "do sleep 0.02; done; echo b\"]}");
    int32_t ends = submit("{\"command\": [\"sh\", \"-c\", \"touch here; exit 4\"]}");
    char text[8], dir[4096], path[4200];

    wait_state(runs, TD_JOB_RUNNING);
    wait_file(runs, "here", text, sizeof text);
    wait_file(ends, "here", text, sizeof text);
    close_service();
    open_service();
    assert_int_equal(get(runs)->state, TD_JOB_RUNNING);
    assert_int_equal(wait_state(ends, TD_JOB_FAILED)->exit_status, 4);
    snprintf(path, sizeof path, "%s/work/go", td__service_job_dir(service, runs, dir, sizeof dir));
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fclose(f);
    assert_int_equal(wait_state(runs, TD_JOB_SUCCEEDED)->attempt, 1);
    check_log(runs, 0, "a\nb\n");
}

TEST(refusals)
{
    static const td__caller ANN = {.user = "ann"};

    submit_as(&ME, "{}", TD_ANSWER_INVALID);
    submit_as(&ME, "{\"command\": [\"x\"], \"env\": {\"LD_PRELOAD\": \"x\"}}", TD_ANSWER_DENIED);
    submit_as(&ME, "{\"command\": [\"x\"], \"parameters\": {\"PATH\": \"/\"}}", TD_ANSWER_DENIED);
    submit_as(&ME, "{\"command\": [\"x\"], \"resources\": {\"slots\": 100}}", TD_ANSWER_INVALID);
    submit_as(&ME, "{\"command\": [\"x\"], \"tracker\": \"moon\"}", TD_ANSWER_INVALID);
    submit_as(&ME, "{\"job\": \"model: [nonsense]\"}", TD_ANSWER_INVALID);
    int32_t job = submit("{\"command\": [\"sleep\", \"600\"]}");
    assert_int_equal(td__service_cancel(service, &ANN, job, NULL), TD_ANSWER_DENIED);
    assert_int_equal(td__service_delete(service, &ME, job), TD_ANSWER_STATE);
    assert_int_equal(td__service_cancel(service, &ME, job, NULL), TD_ANSWER_OK);
    wait_state(job, TD_JOB_CANCELLED);
    /* Where there are tokens, only admins bring code, or paths that leave the job's directory. */
    td__service_config *c = (td__service_config *)(uintptr_t)config;
    c->allow_code = false;
    submit_as(&ANN, "{\"command\": [\"true\"]}", TD_ANSWER_DENIED);
    submit_as(&ANN,
              "{\"job\": \"model: [flatten, linear]\\ndata: {source: csv, dir: /etc, train: "
              "passwd}\\ntrain: {epochs: 1}\"}",
              TD_ANSWER_DENIED);
    submit_as(&ANN,
              "{\"job\": \"model: [flatten, linear]\\ndata: digits\\ntrain: {epochs: 1}\", "
              "\"sets\": [\"data.dir=../..\"]}",
              TD_ANSWER_DENIED);
    c->allow_code = true;
}

TEST(idempotency_key)
{
    static const char TEXT[] = "{\"command\": [\"true\"]}";
    int32_t jobs[2];

    for (int i = 0; i < 2; i++) {
        td__job_spec *spec;
        CHECK_OK(td__spec_parse(TEXT, sizeof TEXT - 1, "test", &spec));
        assert_int_equal(td__service_submit(service, &ME, spec, "once", false, &jobs[i]),
                         TD_ANSWER_OK);
    }
    assert_int_equal(jobs[0], jobs[1]);
}

static void note_event(void *arg, const td__job_event *e)
{
    if (e->kind == TD_EVENT_STATE)
        td__text_printf(arg, "%s ", td__job_state_name(e->state));
}

TEST(events)
{
    td__text now = {0}, later = {0};
    td__subscription *u;
    int32_t job;

    CHECK_OK(td__service_subscribe(service, 0, -1, note_event, &now, &u));
    job = submit("{\"command\": [\"true\"]}");
    wait_state(job, TD_JOB_SUCCEEDED);
    CHECK_OK(td__loop_turn(loop, 0));
    assert_string_equal(now.data, "queued running succeeded ");
    td__service_unsubscribe(u);
    CHECK_OK(td__service_subscribe(service, job, 0, note_event, &later, &u));
    CHECK_OK(td__loop_turn(loop, 0));
    CHECK_OK(td__loop_turn(loop, 0));
    assert_string_equal(later.data, "queued running succeeded ");
    td__service_unsubscribe(u);
    td__text_fini(&now);
    td__text_fini(&later);
}

/* A job file: trained in the job's directory, paused at a checkpoint, continued, with metrics. */
static bool has_metrics(int32_t job)
{
    td__text lines = {0};

    td__service_metrics(service, job, 0, &(td__log_sink){add_bytes, no_more, &lines});
    bool some = lines.data && strstr(lines.data, "\"loss\"");
    td__text_fini(&lines);
    return some;
}

TEST(job_file)
{
    td__deadline until = td__deadline_in_ms(DEADLINE_MS);
    int32_t job =
        submit("{\"job\": \"name: d\\nmodel: [flatten, linear]\\ndata: {source: digits, "
               "count: 2000}\\ntrain: {steps: 100000000, batch: 8}\\nlog: {every: 100}\", "
               "\"sets\": [\"train.batch=4\"]}");

    wait_state(job, TD_JOB_RUNNING);
    assert_string_equal(get(job)->spec->name, "d");
    while (!has_metrics(job)) {
        assert_false(td__deadline_passed(until));
        CHECK_OK(td__loop_turn(loop, 100));
    }
    assert_int_equal(td__service_pause(service, &ME, job), TD_ANSWER_OK);
    assert_int_equal(wait_state(job, TD_JOB_PAUSED)->exit_status, 130);
    assert_int_equal(td__service_resume(service, &ME, job), TD_ANSWER_OK);
    wait_state(job, TD_JOB_RUNNING);
    assert_int_equal(td__service_cancel(service, &ME, job, NULL), TD_ANSWER_OK);
    wait_state(job, TD_JOB_CANCELLED);
    assert_int_equal(get(job)->attempt, 2);
}

/* The shipped algorithm, with a data set that is ready at the second question. */
static int asked;

static void fetch(void *arg, int32_t job, const char *dataset, const char *hash)
{
    (void)arg;
    assert_string_equal(hash, "hashAg==");
    if (!strcmp(dataset, "7"))
        td__service_data(service, job, TD_DATA_FAILED, NULL, NULL,
                         "NOT_FOUND: Dataset 7 not found");
    else
        td__service_data(service, job, asked++ ? TD_DATA_READY : TD_DATA_RUNNING, "b", "v/1", NULL);
}

static bool note_artifact(void *arg, const td__artifact *a)
{
    td__text_printf(arg, "%s ", a->name);
    return true;
}

TEST(intent_classification)
{
    static const char *const WORDS[] = {"abba", "cddc", "effe"};
    char path[4096];
    td__text names = {0};

    td__service_set_data_source(service, &(td__dataset_source){.fetch = fetch});
    assert_int_equal(td__service_bucket_path(service, "b", "../x", path, sizeof path),
                     TD_ANSWER_INVALID);
    assert_int_equal(td__service_bucket_path(service, "b", "v/1/examples.csv", path, sizeof path),
                     TD_ANSWER_OK);
    for (char *slash = strstr(path, "/b/") + 2; slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0700);
        *slash = '/';
    }
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (int i = 0; i < 600; i++)
        fprintf(f, "\"%s %s\",\"%d\"\n", WORDS[i % 3], WORDS[i % 3] + i % 2, i % 3 + 1);
    fclose(f);
    static const char BOOK[] = "{\"algorithm\": \"intent-classification\", \"dataset_id\": \"1\", "
                               "\"name\": \"test1\", \"train_data_version_hash\": \"hashAg==\", "
                               "\"parameters\": {\"LR\": \"4\", \"EPOCHS\": \"5\", "
                               "\"BATCH_SIZE\": \"16\", \"FC_SIZE\": \"32\", "
                               "\"PARALLEL_INSTANCES\": \"2\"}}";
    int32_t job = submit(BOOK);
    int32_t lost = submit("{\"algorithm\": \"intent-classification\", \"dataset_id\": \"7\", "
                          "\"train_data_version_hash\": \"hashAg==\"}");
    assert_string_equal(wait_state(lost, TD_JOB_FAILED)->message, "NOT_FOUND: Dataset 7 not found");
    assert_int_equal(wait_state(job, TD_JOB_SUCCEEDED)->spec->members, 2);
    assert_int_equal(td__service_artifacts(service, job, note_artifact, &names), TD_ANSWER_OK);
    assert_string_equal(names.data, "job.yaml metrics.jsonl model.safetensors report.html ");
    td__text_fini(&names);
    submit_as(&ME,
              "{\"algorithm\": \"intent-classification\", \"parameters\": {\"EPOCHS\": "
              "\"many\"}}",
              TD_ANSWER_INVALID);
}

static bool count_jobs(void *arg, const td__job_record *r)
{
    *(int *)arg += r->state == TD_JOB_QUEUED;
    return true;
}

/* 10,000 queued jobs survive a restart, which takes less than a second, and are listed in less
 * than 50 ms. */
TEST(ten_thousand_queued)
{
    enum { N = 10000 };
    char next[TD__PAGE_TOKEN];
    int n = 0;

    for (int i = 0; i < N; i++)
        submit("{\"command\": [\"true\"], \"resources\": {\"slots\": 8}, \"name\": \"many\", "
               "\"labels\": {\"team\": \"a\"}, \"parameters\": {\"LR\": \"4\", \"EPOCHS\": "
               "\"15\"}}");
    assert_int_equal(td__service_position(service, N), N - 1);
    close_service(); /* commits; nothing was launched: the loop has not turned */
    uint64_t begin = td__clock_thread_ns();
    open_service();
    double opened = (double)(td__clock_thread_ns() - begin) / 1e6;
    begin = td__clock_thread_ns();
    assert_int_equal(td__service_list(service, &(td__job_filter){.states = 1u << TD_JOB_QUEUED},
                                      NULL, count_jobs, &n, next),
                     TD_ANSWER_OK);
    double listed = (double)(td__clock_thread_ns() - begin) / 1e6;
    assert_int_equal(n, N);
    assert_int_equal(td__service_position(service, N), N - 1);
    print_message("%d queued jobs: start in %.0f ms, listed in %.1f ms\n", N, opened, listed);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    assert_true(opened < 1000);
    assert_true(listed < 50);
#endif
}

int main(void)
{
#define IN_DIR(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        IN_DIR(succeeds_with_log_and_artifacts),
        IN_DIR(fails_and_is_retried),
        IN_DIR(groups_have_ranks),
        IN_DIR(groups_have_gpus),
        IN_DIR(member_is_restarted_alone),
        IN_DIR(member_without_steps_is_restarted),
        IN_DIR(cancel_pause_resume),
        IN_DIR(service_is_restarted),
        IN_DIR(refusals),
        IN_DIR(idempotency_key),
        IN_DIR(events),
        IN_DIR(job_file),
        IN_DIR(intent_classification),
        IN_DIR(ten_thousand_queued),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
