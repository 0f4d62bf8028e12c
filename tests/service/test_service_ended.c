/* What ended attempts leave where they ran (tracker ssh, whose hosts are this one): it is removed
 * when its time has come, also of attempts that were followed by another one, also by a service
 * that was started again; logs and exit statuses stay. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Test labels: slow */
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/text.h"
#include "service/service_impl.h"
#include "support/check.h"
#include "support/service_rig.h"

static const char *HOSTS[] = {"here:8"}, *TWO_HOSTS[] = {"one:2/2", "two:1/0"};

static const char *in_rig(const char *name)
{
    static char path[128];

    snprintf(path, sizeof path, "%s/%s", rig_dir, name);
    return path;
}

/* The service of the rig with the tracker ssh, and what attempts leave kept for so long. */
static void use_ssh(int64_t keep_ended_s)
{
    static char command[128], there[128];
    td__service_config *c = rig_config;

    snprintf(command, sizeof command, "%s", in_rig("reach"));
    FILE *f = fopen(command, "w");
    assert_non_null(f);
    fputs("#!/bin/sh\ntest -e \"$0-dead-$1\" && exit 255\n"
          "export ON_HOST=$1\nshift\nexec \"$@\"\n",
          f);
    assert_int_equal(fclose(f) | chmod(command, 0700), 0);
    snprintf(there, sizeof there, "%s", in_rig("there"));
    assert_true(mkdir(there, 0700) == 0 || access(there, F_OK) == 0);
    c->ssh_hosts = HOSTS;
    c->n_ssh_hosts = 1;
    c->ssh_command = command;
    c->ssh_dir = there;
    c->keep_ended_s = keep_ended_s;
}

static int left(void)
{
    DIR *d = opendir(in_rig("there"));
    int n = 0;

    assert_non_null(d);
    for (const struct dirent *e; (e = readdir(d));)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static void wait_left(int n)
{
    td__deadline until = td__deadline_in_ms(RIG_DEADLINE_MS);

    while (left() != n) {
        if (td__deadline_passed(until))
            fail_msg("%d directories are there, not %d", left(), n);
        CHECK_OK(td__loop_turn(rig_loop, 100));
    }
}

/* Two attempts: the first is killed. */
static const char TWICE[] =
    "{\"tracker\": \"ssh\", \"command\": [\"sh\", \"-c\", \"echo said; test -e %s && exit 0; touch "
    "%s; kill -9 $$\"], \"retries\": {\"max\": 1, \"backoff_s\": 0}}";

static int32_t submit_twice(const char *name)
{
    char text[600], path[200];

    snprintf(path, sizeof path, "%s", in_rig(name));
    snprintf(text, sizeof text, TWICE, path, path);
    return rig_submit(text);
}

TEST(all_attempts_are_removed)
{
    use_ssh(0);
    int32_t job = submit_twice("one");
    assert_int_equal(rig_wait_state(job, TD_JOB_SUCCEEDED)->attempt, 2);
    wait_left(0);
    rig_check_log(job, 0, "said\n");
    assert_int_equal(rig_get(job)->exit_status, 0);
}

static void make_room(int32_t job)
{
    assert_int_equal(td__service_delete(rig_service, &RIG_ME, job), TD_ANSWER_OK);
}

/* The next service finds what the last one could not do any more. */
TEST(a_restarted_service_removes_them)
{
    use_ssh(3600);
    int32_t job = submit_twice("two");
    rig_wait_state(job, TD_JOB_SUCCEEDED);
    assert_int_equal(left(), 2);
    rig_close();
    rig_open();
    use_ssh(3600);
    for (int i = 0; i < 3; i++) /* nothing is due */
        CHECK_OK(td__loop_turn(rig_loop, 0));
    assert_int_equal(left(), 2);
    rig_close();
    rig_open();
    use_ssh(0);
    wait_left(0);
    rig_check_log(job, 0, "said\n");
}

/* Kept until the job is deleted: then all of its attempts go, and no other's. */
TEST(attempts_go_with_their_job)
{
    use_ssh(-1);
    int32_t job = submit_twice("three");
    rig_wait_state(job, TD_JOB_SUCCEEDED);
    int32_t other = rig_submit("{\"tracker\": \"ssh\", \"command\": [\"true\"]}");
    rig_wait_state(other, TD_JOB_SUCCEEDED);
    assert_int_equal(left(), 3);
    make_room(job);
    wait_left(1);
    make_room(other);
    wait_left(0);
}

/* What commands have written on a host is their jobs': without a word of the configuration it goes
 * with these alone. What other systems keep, containers, goes by its age. */
TEST(files_of_hosts_are_kept)
{
    td__service_config *c;

    CHECK_OK(td__config_load(NULL, NULL, 0, &c));
    use_ssh(c->keep_ended_s);
    td__config_destroy(c);
    int32_t job = submit_twice("four");
    rig_wait_state(job, TD_JOB_SUCCEEDED);
    assert_int_equal(left(), 2);
    assert_true(rig_service->forget_ms == INT64_MAX);
    make_room(job);
    wait_left(0);
}

/* Finished jobs go by their age, with their files; others stay however old they are. */
TEST(finished_jobs_are_cleaned_up_by_age)
{
    char path[4200];
    const td__job_record *r;
    int32_t done = rig_submit("{\"command\": [\"true\"]}");
    int32_t runs = rig_submit("{\"command\": [\"sleep\", \"600\"]}");

    rig_wait_state(done, TD_JOB_SUCCEEDED);
    rig_wait_state(runs, TD_JOB_RUNNING);
    rig_path(done, "", path);
    assert_int_equal(access(path, F_OK), 0);
    rig_config->keep_s = 3600;
    rig_service->next_sweep_ms = 0;
    td__service_touch(rig_service);
    CHECK_OK(td__loop_turn(rig_loop, 0));
    assert_true(rig_service->next_sweep_ms > 0); /* it has looked */
    assert_int_equal(td__service_get(rig_service, done, &r), TD_ANSWER_OK);
    rig_config->keep_s = 1;
    td__deadline until = td__deadline_in_ms(RIG_DEADLINE_MS);
    while (td__service_get(rig_service, done, &r) == TD_ANSWER_OK || access(path, F_OK) == 0) {
        assert_false(td__deadline_passed(until));
        rig_service->next_sweep_ms = 0;
        td__service_touch(rig_service);
        CHECK_OK(td__loop_turn(rig_loop, 100));
    }
    assert_int_equal(rig_get(runs)->state, TD_JOB_RUNNING);
    assert_int_equal(td__service_cancel(rig_service, &RIG_ME, runs, NULL), TD_ANSWER_OK);
    rig_wait_state(runs, TD_JOB_CANCELLED);
}

/* A job that says where it is and which GPUs it has, and then waits for `name`. */
static int32_t submit_there(const char *needs, const char *name)
{
    char text[600];

    snprintf(text, sizeof text,
             "{\"tracker\": \"ssh\", \"resources\": {%s}, \"command\": [\"sh\", \"-c\", \"echo "
             "$ON_HOST $CUDA_VISIBLE_DEVICES; until test -e %s; do sleep 0.02; done\"]}",
             needs, in_rig(name));
    return rig_submit(text);
}

static void go(const char *name)
{
    FILE *f = fopen(in_rig(name), "w");
    assert_non_null(f);
    fclose(f);
}

static void wait_message(int32_t job, const char *want)
{
    td__deadline until = td__deadline_in_ms(RIG_DEADLINE_MS);

    while (!strstr(rig_get(job)->message, want)) {
        if (td__deadline_passed(until))
            fail_msg("job %d says '%s', not '%s'", job, rig_get(job)->message, want);
        CHECK_OK(td__loop_turn(rig_loop, 100));
    }
}

static void wait_forgotten(const char *token)
{
    td__deadline until = td__deadline_in_ms(RIG_DEADLINE_MS);

    for (char *value;; td__free(value)) {
        CHECK_OK(td__job_store_value(rig_service->store, "ended", token, &value));
        if (!value)
            return;
        if (td__deadline_passed(until))
            fail_msg("%s is not forgotten: %s", token, value);
        CHECK_OK(td__loop_turn(rig_loop, 100));
    }
}

/* A host that is dead is no trouble for attempts that were not there. */
TEST(a_dead_host_is_not_asked_for_others)
{
    char token[TD__TOKEN];

    use_ssh(-1);
    rig_config->ssh_hosts = TWO_HOSTS;
    rig_config->n_ssh_hosts = 2;
    int32_t job = submit_there("\"members\": 1, \"gpus\": 1", "fifth"); /* two has no GPU */
    go("fifth");
    rig_wait_state(job, TD_JOB_SUCCEEDED);
    snprintf(token, sizeof token, "%s", rig_get(job)->token);
    go("reach-dead-two");
    make_room(job);
    wait_forgotten(token);
    assert_int_equal(left(), 0);
}

/* Slots and GPUs of each host are counted over all groups, also by the service after this one. */
TEST(hosts_are_not_overfilled)
{
    use_ssh(0);
    rig_config->ssh_hosts = TWO_HOSTS;
    rig_config->n_ssh_hosts = 2;
    int32_t first = submit_there("\"members\": 1, \"gpus\": 1", "first");
    rig_wait_state(first, TD_JOB_RUNNING);
    int32_t second = submit_there("\"members\": 1, \"gpus\": 1", "second");
    rig_wait_state(second, TD_JOB_RUNNING);
    rig_close();
    rig_open();
    use_ssh(0);
    rig_config->ssh_hosts = TWO_HOSTS;
    rig_config->n_ssh_hosts = 2;
    int32_t third = submit_there("\"members\": 1", "third");
    rig_wait_state(third, TD_JOB_RUNNING);
    int32_t fourth = submit_there("\"members\": 1, \"gpus\": 1", "fourth");
    wait_message(fourth, "ssh.hosts have no room now for 1 members of 1 slots and 1 GPUs");
    go("second");
    rig_wait_state(second, TD_JOB_SUCCEEDED);
    rig_wait_state(fourth, TD_JOB_RUNNING);
    go("first");
    go("third");
    go("fourth");
    rig_wait_state(first, TD_JOB_SUCCEEDED);
    rig_wait_state(third, TD_JOB_SUCCEEDED);
    rig_wait_state(fourth, TD_JOB_SUCCEEDED);
    rig_check_log(first, 0, "one 0\n");
    rig_check_log(second, 0, "one 1\n");
    rig_check_log(third, 0, "two\n");
    rig_check_log(fourth, 0, "one 1\n");
}

/* Without a key the capacity is that of the hosts, if they are where jobs go. */
TEST(capacity_is_that_of_the_hosts)
{
    char data[100];
    const char *sets[] = {data, "data.sync=normal", "tracker.default=ssh",
                          "ssh.hosts=[one:2/2, two:1, three:4/1]"};
    td__service_config *config;
    td__service_stats stats;
    td__service *service;

    snprintf(data, sizeof data, "data.dir=%s/hosts", rig_dir);
    CHECK_OK(td__config_load(NULL, sets, TD_LEN(sets), &config));
    CHECK_OK(td__service_create(
        &(td__service_opts){.loop = rig_loop, .config = config, .self = "tandem"}, &service));
    td__service_get_stats(service, &stats);
    assert_int_equal(stats.slots, 7);
    assert_int_equal(stats.gpus, 3);
    td__service_destroy(service);
    td__config_destroy(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(all_attempts_are_removed, rig_set_up, rig_tear_down),
        cmocka_unit_test_setup_teardown(a_restarted_service_removes_them, rig_set_up,
                                        rig_tear_down),
        cmocka_unit_test_setup_teardown(attempts_go_with_their_job, rig_set_up, rig_tear_down),
        cmocka_unit_test_setup_teardown(files_of_hosts_are_kept, rig_set_up, rig_tear_down),
        cmocka_unit_test_setup_teardown(finished_jobs_are_cleaned_up_by_age, rig_set_up,
                                        rig_tear_down),
        cmocka_unit_test_setup_teardown(a_dead_host_is_not_asked_for_others, rig_set_up,
                                        rig_tear_down),
        cmocka_unit_test_setup_teardown(hosts_are_not_overfilled, rig_set_up, rig_tear_down),
        cmocka_unit_test_setup_teardown(capacity_is_that_of_the_hosts, rig_set_up, rig_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
