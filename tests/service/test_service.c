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
#include "support/service_rig.h"

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
    int32_t job =
        rig_submit("{\"command\": [\"sh\", \"-c\", \"echo out; echo err >&2; printf weight > "
                   "$TANDEM_ARTIFACTS_DIR/model.txt\"]}");

    assert_int_equal(job, 1);
    assert_int_equal(rig_get(job)->state, TD_JOB_QUEUED);
    const td__job_record *r = rig_wait_state(job, TD_JOB_SUCCEEDED);
    assert_int_equal(r->exit_status, 0);
    assert_int_equal(r->attempt, 1);
    assert_true(r->started_ms >= r->launched_ms && r->finished_ms >= r->started_ms);
    rig_check_log(job, 0, "out\nerr\n");
    assert_int_equal(td__service_artifacts(rig_service, job, one_artifact, &n), TD_ANSWER_OK);
    assert_int_equal(n, 1);
    assert_int_equal(td__service_delete(rig_service, &RIG_ME, job), TD_ANSWER_OK);
    const td__job_record *gone;
    assert_int_equal(td__service_get(rig_service, job, &gone), TD_ANSWER_NOT_FOUND);
    assert_string_equal(td_last_error(), "Job 1 doesn't exist");
}

TEST(fails_and_is_retried)
{
    int32_t bad = rig_submit("{\"command\": [\"sh\", \"-c\", \"echo why it failed; exit 3\"], "
                             "\"retries\": 5}");
    int32_t killed =
        rig_submit("{\"command\": [\"sh\", \"-c\", \"test -e ok || { touch ok; kill -9 "
                   "$$; }; echo done\"], \"retries\": {\"max\": 1, \"backoff_s\": 0}}");
    int32_t missing = rig_submit("{\"command\": [\"/no/such/program\"]}");

    const td__job_record *r = rig_wait_state(bad, TD_JOB_FAILED);
    assert_int_equal(r->exit_status, 3);
    assert_int_equal(r->attempt, 1); /* its own verdict: not retried */
    assert_string_equal(r->message, "Exit code 3: why it failed");
    r = rig_wait_state(killed, TD_JOB_SUCCEEDED);
    assert_int_equal(r->attempt, 2);
    rig_check_log(killed, 0, "done\n");
    assert_int_equal(rig_wait_state(missing, TD_JOB_FAILED)->exit_status, 127);
}

TEST(groups_have_ranks)
{
    int32_t job =
        rig_submit("{\"resources\": {\"members\": 3}, \"command\": [\"sh\", \"-c\", \"echo "
                   "rank $RANK of $WORLD_SIZE; test -n $MASTER_PORT && test $OMPI_COMM_WORLD_"
                   "RANK = $RANK\"]}");

    rig_wait_state(job, TD_JOB_SUCCEEDED);
    rig_check_log(job, 0, "rank 0 of 3\n");
    rig_check_log(job, 2, "rank 2 of 3\n");
}

/* Each process has GPUs of its own; jobs do not share them, also not after a restart. */
TEST(groups_have_gpus)
{
    int32_t first =
        rig_submit("{\"resources\": {\"members\": 2, \"gpus\": 1}, \"command\": [\"sh\", "
                   "\"-c\", \"echo $CUDA_VISIBLE_DEVICES; touch here; until test -e go; do "
                   "sleep 0.02; done\"]}");
    char text[8];

    rig_wait_file(first, "here", text, sizeof text);
    rig_close();
    rig_open();
    int32_t second =
        rig_submit("{\"resources\": {\"gpus\": 2}, \"command\": [\"sh\", \"-c\", \"echo "
                   "$CUDA_VISIBLE_DEVICES\"]}");
    rig_wait_state(second, TD_JOB_SUCCEEDED);
    rig_check_log(first, 1, "1\n");
    td__text log = {0}; /* its one member has a process for each GPU, in no order */
    td__service_logs(rig_service, second, 0, 0, 0,
                     &(td__log_sink){RIG_SINK.data, RIG_SINK.end, &log});
    assert_int_equal(log.used, 4);
    assert_true(strchr(log.data, '2') && strchr(log.data, '3'));
    td__text_fini(&log);
    rig_touch(first, "go");
    rig_wait_state(first, TD_JOB_SUCCEEDED);
}

/* A member that dies is started again alone; the others go on. */
TEST(member_is_restarted_alone)
{
    int32_t job =
        rig_submit("{\"resources\": {\"members\": 2}, \"restarts\": 1, \"command\": [\"sh\", "
                   "\"-c\", \"echo start; if [ $RANK = 1 ]; then test -e died || { touch "
                   "died; exit 9; }; touch go; else until test -e go; do sleep 0.02; "
                   "done; fi\"]}");

    rig_wait_state(job, TD_JOB_SUCCEEDED);
    rig_check_log(job, 0, "start\n");
    rig_check_log(job, 1, "start\nstart\n");
    assert_int_equal(rig_get(job)->attempt, 1);
}

/* As above for one that makes no progress. */
TEST(member_without_steps_is_restarted)
{
    int32_t job =
        rig_submit("{\"restarts\": {\"members\": 1, \"step_deadline_s\": 1}, \"command\": "
                   "[\"sh\", \"-c\", \"echo start; test -e hung || { touch hung; exec sleep "
                   "600; }\"]}");

    rig_wait_state(job, TD_JOB_SUCCEEDED);
    rig_check_log(job, 0, "start\nstart\n");
}

TEST(cancel_pause_resume)
{
    static const char LOOP[] = "{\"command\": [\"sh\", \"-c\", \"trap 'touch saved; exit 130' TERM;"
                               " test -e saved && exit 0; touch here; while :; do sleep 1 & wait; "
                               "done\"]}";
    int32_t cancelled = rig_submit(LOOP), paused = rig_submit(LOOP);
    char text[8];

    rig_wait_state(cancelled, TD_JOB_RUNNING);
    rig_wait_file(cancelled, "here", text, sizeof text);
    rig_wait_file(paused, "here", text, sizeof text);
    assert_int_equal(td__service_cancel(rig_service, &RIG_ME, cancelled, "enough"), TD_ANSWER_OK);
    assert_int_equal(td__service_pause(rig_service, &RIG_ME, paused), TD_ANSWER_OK);
    assert_string_equal(rig_wait_state(cancelled, TD_JOB_CANCELLED)->message, "cancelled: enough");
    rig_wait_state(paused, TD_JOB_PAUSED);
    assert_int_equal(td__service_cancel(rig_service, &RIG_ME, cancelled, NULL), TD_ANSWER_OK);
    assert_int_equal(td__service_resume(rig_service, &RIG_ME, paused), TD_ANSWER_OK);
    assert_int_equal(rig_wait_state(paused, TD_JOB_SUCCEEDED)->attempt, 2);
    assert_int_equal(td__service_cancel(rig_service, &RIG_ME, paused, NULL), TD_ANSWER_STATE);
}

/* Stopping the service does not stop jobs: the next one adopts what runs and what has ended. */
TEST(service_is_restarted)
{
    int32_t runs =
        rig_submit("{\"command\": [\"sh\", \"-c\", \"echo a; touch here; until test -e go; "
                   "do sleep 0.02; done; echo b\"]}");
    int32_t ends = rig_submit("{\"command\": [\"sh\", \"-c\", \"touch here; exit 4\"]}");
    char text[8];

    rig_wait_state(runs, TD_JOB_RUNNING);
    rig_wait_file(runs, "here", text, sizeof text);
    rig_wait_file(ends, "here", text, sizeof text);
    rig_close();
    rig_open();
    assert_int_equal(rig_get(runs)->state, TD_JOB_RUNNING);
    assert_int_equal(rig_wait_state(ends, TD_JOB_FAILED)->exit_status, 4);
    rig_touch(runs, "go");
    assert_int_equal(rig_wait_state(runs, TD_JOB_SUCCEEDED)->attempt, 1);
    rig_check_log(runs, 0, "a\nb\n");
}

/* While a job runs and nothing happens, the service sleeps: no timer is set, so that whatever the
 * job does next is seen because it is told, not because somebody looks. */
TEST(transitions_are_told_not_polled)
{
    int32_t job = rig_submit("{\"command\": [\"sh\", \"-c\", \"touch here; until test -e go; do "
                             "sleep 0.02; done; exit 3\"]}");
    td__deadline until = td__deadline_in_ms(RIG_DEADLINE_MS);
    char text[8];

    rig_wait_state(job, TD_JOB_RUNNING);
    rig_wait_file(job, "here", text, sizeof text);
    while (td__loop_wakes(rig_loop) != TD_DEADLINE_NEVER) {
        CHECK(!td__deadline_passed(until), "the service polls while a job runs");
        CHECK_OK(td__loop_turn(rig_loop, 0));
    }
    CHECK_OK(td__loop_turn(rig_loop, 0));
    assert_true(td__loop_wakes(rig_loop) == TD_DEADLINE_NEVER);
    rig_touch(job, "go");
    assert_int_equal(rig_wait_state(job, TD_JOB_FAILED)->exit_status, 3);
}

/* A quota that was set while the service runs is removed: what was before counts again. */
TEST(quotas_are_removed)
{
    static const char WANTS[] = "{\"command\": [\"true\"], \"resources\": {\"slots\": 3}}";
    static const td__caller ANN = {.user = "ann"};
    td__quota all = {"*", 2, -1, -1, -1, 1}, ann = {"ann", 1, -1, -1, -1, 1};

    assert_int_equal(td__service_set_quota(rig_service, &RIG_ME, &all), TD_ANSWER_OK);
    assert_int_equal(td__service_set_quota(rig_service, &RIG_ME, &ann), TD_ANSWER_OK);
    rig_submit_as(&ANN, WANTS, TD_ANSWER_INVALID);
    assert_int_equal(td__service_remove_quota(rig_service, &ANN, "ann"), TD_ANSWER_DENIED);
    assert_int_equal(td__service_remove_quota(rig_service, &RIG_ME, "ann"), TD_ANSWER_OK);
    assert_int_equal(td__service_remove_quota(rig_service, &RIG_ME, "ann"), TD_ANSWER_NOT_FOUND);
    rig_submit_as(&ANN, WANTS, TD_ANSWER_INVALID); /* by that of everybody else */
    assert_int_equal(td__service_remove_quota(rig_service, &RIG_ME, "*"), TD_ANSWER_OK);
    rig_wait_state(rig_submit_as(&ANN, WANTS, TD_ANSWER_OK), TD_JOB_SUCCEEDED);
}

TEST(refusals)
{
    static const td__caller ANN = {.user = "ann"};

    rig_submit_as(&RIG_ME, "{}", TD_ANSWER_INVALID);
    rig_submit_as(&RIG_ME, "{\"command\": [\"x\"], \"env\": {\"LD_PRELOAD\": \"x\"}}",
                  TD_ANSWER_DENIED);
    rig_submit_as(&RIG_ME, "{\"command\": [\"x\"], \"parameters\": {\"PATH\": \"/\"}}",
                  TD_ANSWER_DENIED);
    rig_submit_as(&RIG_ME, "{\"command\": [\"x\"], \"resources\": {\"slots\": 100}}",
                  TD_ANSWER_INVALID);
    rig_submit_as(&RIG_ME, "{\"command\": [\"x\"], \"tracker\": \"moon\"}", TD_ANSWER_INVALID);
    rig_submit_as(&RIG_ME,
                  "{\"command\": [\"x\"], \"image\": \"i\", \"tracker\": \"docker\", \"restarts\": "
                  "{\"step_deadline_s\": 5}}",
                  TD_ANSWER_INVALID);
    CHECK(strstr(td_last_error(), "restarts.step_deadline_s: the tracker docker does not see"),
          "%s", td_last_error());
    rig_submit_as(&RIG_ME,
                  "{\"job\": \"{model: [flatten, linear], data: {source: digits}, train: {steps: "
                  "1}}\", \"tracker\": \"docker\", \"restarts\": 1}",
                  TD_ANSWER_INVALID);
    CHECK(strstr(td_last_error(), "on docker give retries.max"), "%s", td_last_error());
    rig_submit_as(&RIG_ME,
                  "{\"command\": [\"x\"], \"framework\": \"horovod\", \"resources\": "
                  "{\"members\": 2}, \"restarts\": {\"members\": 1}}",
                  TD_ANSWER_INVALID);
    rig_submit_as(&RIG_ME, "{\"command\": [\"x\"], \"framework\": \"mpi\", \"restarts\": 1}",
                  TD_ANSWER_INVALID);
    CHECK(strstr(td_last_error(), "ranks of mpi do not take a new one"), "%s", td_last_error());
    static const char DATA_SET[] = "{\"job\": \"{model: [flatten, linear], data: {source: digits}, "
                                   "train: {steps: 1}}\", \"dataset_id\": \"1\", "
                                   "\"train_data_version_hash\": \"h\", \"tracker\": \"%s\"}";
    static const char *const BLIND[] = {"kubernetes", "slurm"};
    rig_config->slurm_dir = "/shared";
    rig_config->checkpoints_url = "file:///shared/c"; /* or its hosts see the service's files */
    for (int i = 0; i < TD_LEN(BLIND); i++) {
        char text[400];
        snprintf(text, sizeof text, DATA_SET, BLIND[i]);
        rig_submit_as(&RIG_ME, text, TD_ANSWER_INVALID);
        CHECK(strstr(td_last_error(), "do not see the data set's files"), "%s", td_last_error());
    }
    rig_config->slurm_dir = rig_config->checkpoints_url = "";
    rig_submit_as(&RIG_ME, "{\"job\": \"model: [nonsense]\"}", TD_ANSWER_INVALID);
    int32_t job = rig_submit("{\"command\": [\"sleep\", \"600\"]}");
    assert_int_equal(td__service_cancel(rig_service, &ANN, job, NULL), TD_ANSWER_DENIED);
    assert_int_equal(td__service_delete(rig_service, &RIG_ME, job), TD_ANSWER_STATE);
    assert_int_equal(td__service_cancel(rig_service, &RIG_ME, job, NULL), TD_ANSWER_OK);
    rig_wait_state(job, TD_JOB_CANCELLED);
    /* Where there are tokens, only admins bring code, or paths that leave the job's directory. */
    td__service_config *c = rig_config;
    c->allow_code = false;
    rig_submit_as(&ANN, "{\"command\": [\"true\"]}", TD_ANSWER_DENIED);
    rig_submit_as(&ANN,
                  "{\"job\": \"model: [flatten, linear]\\ndata: {source: csv, dir: /etc, train: "
                  "passwd}\\ntrain: {epochs: 1}\"}",
                  TD_ANSWER_DENIED);
    rig_submit_as(&ANN,
                  "{\"job\": \"model: [flatten, linear]\\ndata: digits\\ntrain: {epochs: 1}\", "
                  "\"sets\": [\"data.dir=../..\"]}",
                  TD_ANSWER_DENIED);
    static const char *const SETS[] = {"model.from=/srv/bob/run",
                                       "model.from=../12/run",
                                       "checkpoint.upload=/srv/bob/run",
                                       "data.train='x=/srv/bob/x.npy'",
                                       "data.train='x=x.npy,y=../12/y.npy'",
                                       "data.train='x=a/..,y=y.npy'"};
    for (int i = 0; i < TD_LEN(SETS); i++) {
        char text[400];
        snprintf(text, sizeof text,
                 "{\"job\": \"model: {layers: [flatten, linear]}\\ndata: {source: npy}\\ntrain: "
                 "{epochs: 1}\", \"sets\": [\"%s\"]}",
                 SETS[i]);
        rig_submit_as(&ANN, text, TD_ANSWER_DENIED);
    }
    c->allow_code = true;
    /* Shell commands of a job are for its author's own command line. */
    rig_submit_as(&ANN,
                  "{\"job\": \"model: [flatten, linear]\\ndata: digits\\ntrain: {epochs: 1}\", "
                  "\"sets\": [\"on.end=true\"]}",
                  TD_ANSWER_DENIED);
}

/* Kubernetes and Slurm know how much they have: a job may need more than this host has, but not
 * more than a quota, or a key of the service's, allows. */
TEST(clusters_have_a_capacity_of_their_own)
{
    static const char WANTS[] = "{\"metadata\": {\"algorithm\": \"intent-classification\", "
                                "\"dataset_id\": \"1\", \"train_data_version_hash\": \"hashAg==\", "
                                "\"name\": \"test-parallel\", \"parameters\": {\"EPOCHS\": \"10\", "
                                "\"PARALLEL_INSTANCES\": \"%d\"}}}";
    td__service_config *c = rig_config;
    int64_t slots = c->slots, gpus = c->gpus;
    char text[400];

    c->kube_config = "/no/such/kubeconfig";
    snprintf(text, sizeof text, WANTS, 9);
    rig_submit_as(&RIG_ME, text, TD_ANSWER_INVALID);
    CHECK(strstr(td_last_error(), "the service has 8"), "%s", td_last_error());
    c->tracker = "kubernetes"; /* as ts.backend=kubectl says */
    rig_submit_as(&RIG_ME, text, TD_ANSWER_INVALID);
    c->slots = 0;
    int32_t job = rig_submit(text);
    CHECK_EQ_INT(td__service_cancel(rig_service, &RIG_ME, job, NULL), TD_ANSWER_OK);
    rig_submit_as(&RIG_ME, "{\"image\": \"i\", \"resources\": {\"gpus\": 9}}", TD_ANSWER_INVALID);
    c->gpus = -1;
    job = rig_submit("{\"image\": \"i\", \"resources\": {\"gpus\": 9}}");
    CHECK_EQ_INT(td__service_cancel(rig_service, &RIG_ME, job, NULL), TD_ANSWER_OK);
    CHECK_EQ_INT(
        td__service_set_quota(rig_service, &RIG_ME, &(td__quota){RIG_ME.user, 5, -1, -1, -1, 1}),
        TD_ANSWER_OK);
    rig_submit_as(&RIG_ME, text, TD_ANSWER_INVALID);
    c->tracker = "process";
    c->slots = slots;
    c->gpus = gpus;
}

TEST(idempotency_key)
{
    static const char TEXT[] = "{\"command\": [\"true\"]}";
    int32_t jobs[2];

    for (int i = 0; i < 2; i++) {
        td__job_spec *spec;
        CHECK_OK(td__spec_parse(TEXT, sizeof TEXT - 1, "test", &spec));
        assert_int_equal(td__service_submit(rig_service, &RIG_ME, spec, "once", false, &jobs[i]),
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

    CHECK_OK(td__service_subscribe(rig_service, 0, -1, note_event, &now, &u));
    job = rig_submit("{\"command\": [\"true\"]}");
    rig_wait_state(job, TD_JOB_SUCCEEDED);
    CHECK_OK(td__loop_turn(rig_loop, 0));
    assert_string_equal(now.data, "queued running succeeded ");
    td__service_unsubscribe(u);
    CHECK_OK(td__service_subscribe(rig_service, job, 0, note_event, &later, &u));
    CHECK_OK(td__loop_turn(rig_loop, 0));
    CHECK_OK(td__loop_turn(rig_loop, 0));
    assert_string_equal(later.data, "queued running succeeded ");
    td__service_unsubscribe(u);
    td__text_fini(&now);
    td__text_fini(&later);
}

/* A job file: trained in the job's directory, paused at a checkpoint, continued, with metrics. */
static bool has_metrics(int32_t job)
{
    td__text lines = {0};

    td__service_metrics(rig_service, job, 0, &(td__log_sink){RIG_SINK.data, RIG_SINK.end, &lines});
    bool some = lines.data && strstr(lines.data, "\"loss\"");
    td__text_fini(&lines);
    return some;
}

TEST(job_file)
{
    td__deadline until = td__deadline_in_ms(RIG_DEADLINE_MS);
    int32_t job =
        rig_submit("{\"job\": \"name: d\\nmodel: [flatten, linear]\\ndata: {source: digits, "
                   "count: 2000}\\ntrain: {steps: 100000000, batch: 8}\\nlog: {every: 100}\", "
                   "\"sets\": [\"train.batch=4\"]}");

    rig_wait_state(job, TD_JOB_RUNNING);
    assert_string_equal(rig_get(job)->spec->name, "d");
    while (!has_metrics(job)) {
        assert_false(td__deadline_passed(until));
        CHECK_OK(td__loop_turn(rig_loop, 100));
    }
    assert_int_equal(td__service_pause(rig_service, &RIG_ME, job), TD_ANSWER_OK);
    assert_int_equal(rig_wait_state(job, TD_JOB_PAUSED)->exit_status, 130);
    assert_int_equal(td__service_resume(rig_service, &RIG_ME, job), TD_ANSWER_OK);
    rig_wait_state(job, TD_JOB_RUNNING);
    assert_int_equal(td__service_cancel(rig_service, &RIG_ME, job, NULL), TD_ANSWER_OK);
    rig_wait_state(job, TD_JOB_CANCELLED);
    assert_int_equal(rig_get(job)->attempt, 2);
}

/* The shipped algorithm, with a data set that is ready at the second question. */
static int asked;

static void fetch(void *arg, int32_t job, const char *dataset, const char *hash)
{
    (void)arg;
    assert_string_equal(hash, "hashAg==");
    if (!strcmp(dataset, "7"))
        td__service_data(rig_service, job, TD_DATA_FAILED, NULL, NULL,
                         "NOT_FOUND: Dataset 7 not found");
    else
        td__service_data(rig_service, job, asked++ ? TD_DATA_READY : TD_DATA_RUNNING, "b", "v/1",
                         NULL);
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

    td__service_set_data_source(rig_service, &(td__dataset_source){.fetch = fetch});
    assert_int_equal(td__service_bucket_path(rig_service, "b", "../x", path, sizeof path),
                     TD_ANSWER_INVALID);
    assert_int_equal(
        td__service_bucket_path(rig_service, "b", "v/1/examples.csv", path, sizeof path),
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
    int32_t job = rig_submit(BOOK);
    int32_t lost = rig_submit("{\"algorithm\": \"intent-classification\", \"dataset_id\": \"7\", "
                              "\"train_data_version_hash\": \"hashAg==\"}");
    assert_string_equal(rig_wait_state(lost, TD_JOB_FAILED)->message,
                        "NOT_FOUND: Dataset 7 not found");
    assert_int_equal(rig_wait_state(job, TD_JOB_SUCCEEDED)->spec->members, 2);
    assert_int_equal(td__service_artifacts(rig_service, job, note_artifact, &names), TD_ANSWER_OK);
    assert_string_equal(names.data, "job.yaml metrics.jsonl model.safetensors report.html ");
    td__text_fini(&names);
    job = rig_submit("{\"algorithm\": \"intent-classification-torch\", \"dataset_id\": \"1\", "
                     "\"train_data_version_hash\": \"hashAg==\", \"parameters\": {\"LR\": \"4\", "
                     "\"EPOCHS\": \"2\", \"BATCH_SIZE\": \"16\", \"FC_SIZE\": \"32\"}}");
    rig_wait_state(job, TD_JOB_SUCCEEDED);
    rig_submit_as(&RIG_ME,
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
        rig_submit("{\"command\": [\"true\"], \"resources\": {\"slots\": 8}, \"name\": \"many\", "
                   "\"labels\": {\"team\": \"a\"}, \"parameters\": {\"LR\": \"4\", \"EPOCHS\": "
                   "\"15\"}}");
    assert_int_equal(td__service_position(rig_service, N), N - 1);
    rig_close(); /* commits; nothing was launched: the loop has not turned */
    uint64_t begin = td__clock_thread_ns();
    rig_open();
    double opened = (double)(td__clock_thread_ns() - begin) / 1e6;
    begin = td__clock_thread_ns();
    assert_int_equal(td__service_list(rig_service, &(td__job_filter){.states = 1u << TD_JOB_QUEUED},
                                      NULL, count_jobs, &n, next),
                     TD_ANSWER_OK);
    double listed = (double)(td__clock_thread_ns() - begin) / 1e6;
    assert_int_equal(n, N);
    assert_int_equal(td__service_position(rig_service, N), N - 1);
    print_message("%d queued jobs: start in %.0f ms, listed in %.1f ms\n", N, opened, listed);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    assert_true(opened < 1000);
    assert_true(listed < 50);
#endif
}

int main(void)
{
#define IN_DIR(f) cmocka_unit_test_setup_teardown(f, rig_set_up, rig_tear_down)
    const struct CMUnitTest tests[] = {
        IN_DIR(succeeds_with_log_and_artifacts),
        IN_DIR(fails_and_is_retried),
        IN_DIR(groups_have_ranks),
        IN_DIR(groups_have_gpus),
        IN_DIR(member_is_restarted_alone),
        IN_DIR(member_without_steps_is_restarted),
        IN_DIR(cancel_pause_resume),
        IN_DIR(service_is_restarted),
        IN_DIR(transitions_are_told_not_polled),
        IN_DIR(quotas_are_removed),
        IN_DIR(refusals),
        IN_DIR(clusters_have_a_capacity_of_their_own),
        IN_DIR(idempotency_key),
        IN_DIR(events),
        IN_DIR(job_file),
        IN_DIR(intent_classification),
        IN_DIR(ten_thousand_queued),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
